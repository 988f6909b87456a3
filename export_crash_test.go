package idem

import "github.com/idem-go/idem/internal/crash"

// The points at which a test can let a call die.
const (
	PointUncommitted = int(crash.Uncommitted)
	PointCommitted   = int(crash.Committed)
	PointSent        = int(crash.Sent)
	PointAnswered    = int(crash.Answered)
	PointSettled     = int(crash.Settled)
)

// AtPoint has f called at each point that a call of any client passes, on
// whatever goroutine it passes it. Nil ends that.
func AtPoint(f func(point int)) {
	if f == nil {
		crash.SetHook(nil)
		return
	}
	crash.SetHook(func(p crash.Point) { f(int(p)) })
}
