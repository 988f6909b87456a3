// Package crash names the five places at which a call can die, between which everything
// that matters is decided: what is on disk, and whether a byte may have left.
// docs/design.md tells what is known after each. In production nothing happens there;
// tests set a hook that kills the process, or panics, at one of them.
package crash

import "sync/atomic"

// Point is one of the five places.
type Point int

// The points, in the order in which a call passes them.
const (
	Uncommitted Point = iota // before commit
	Committed                // committed, not sent
	Sent                     // sent, no answer
	Answered                 // answered, not committed
	Settled                  // committed
)

// hook is atomic because the goroutine of a connection that an earlier test left may
// pass Sent while the next test sets its own.
var hook atomic.Pointer[func(Point)]

// SetHook has f called at each point that any call of this process passes, on whatever
// goroutine passes it; nil ends that. It is for tests alone.
func SetHook(f func(Point)) {
	if f == nil {
		hook.Store(nil)
		return
	}
	hook.Store(&f)
}

// At is called where a call passes p.
func At(p Point) {
	if f := hook.Load(); f != nil {
		(*f)(p)
	}
}
