package idem

import "sync/atomic"

// The points at which a test can let a call die.
const (
	PointUncommitted = int(pointUncommitted)
	PointCommitted   = int(pointCommitted)
	PointSent        = int(pointSent)
	PointAnswered    = int(pointAnswered)
	PointSettled     = int(pointSettled)
)

// atPointHook is what tests set: atPoint itself is set once, before any goroutine
// of a connection that an earlier test left could read it.
var atPointHook atomic.Pointer[func(point int)]

func init() {
	atPoint = func(p point) {
		if f := atPointHook.Load(); f != nil {
			(*f)(int(p))
		}
	}
}

// AtPoint has f called at each point that a call of any client passes, on
// whatever goroutine it passes it. Nil ends that.
func AtPoint(f func(point int)) {
	if f == nil {
		atPointHook.Store(nil)
		return
	}
	atPointHook.Store(&f)
}
