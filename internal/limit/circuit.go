package limit

import (
	"context"
	"errors"
	"time"

	"github.com/sony/gobreaker/v2"
)

// circuit is the breaker of one group. gobreaker doesn't tell when it lets a
// probe through, nor its state without moving it, so both are kept here.
type circuit struct {
	group   string
	breaker *gobreaker.TwoStepCircuitBreaker[struct{}]

	// These are guarded by Circuits.leaf.
	state     gobreaker.State
	probeAt   time.Time // when the first probe passes; set when it opens
	forgotten bool      // evicted: its changes concern nobody any more
}

// change is one change of state that a hook is to hear of.
type change struct{ group, from, to string }

// circuit finds or makes the circuit of a group. One too many takes the place
// of a closed one if it can, which loses a count but no decision.
func (b *Circuits) circuit(group string) *circuit {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c, ok := b.circuits.get(group); ok {
		return c
	}
	c := b.newCircuit(group)
	if out, evicted := b.circuits.add(group, c, b.isClosed); evicted {
		b.forget(out)
	}
	return c
}

func (b *Circuits) newCircuit(group string) *circuit {
	c := &circuit{group: group}
	bucket := max(b.trip.Window/windowBuckets, 1)
	c.breaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests:   b.trip.Probes,
		Interval:      b.trip.Window,
		BucketPeriod:  bucket,
		Timeout:       b.trip.OpenFor,
		ReadyToTrip:   b.trip.shouldOpen,
		IsExcluded:    func(err error) bool { return errors.Is(err, errNeutral) },
		OnStateChange: func(_ string, from, to gobreaker.State) { b.note(c, from, to) },
	})
	return c
}

func (b *Circuits) isClosed(c *circuit) bool {
	b.leaf.Lock()
	defer b.leaf.Unlock()
	return c.state == gobreaker.StateClosed
}

// forget lets an evicted circuit go. Attempts under way still report to it, and
// nobody hears; its group starts closed again, which is what the hook is told.
func (b *Circuits) forget(c *circuit) {
	b.leaf.Lock()
	defer b.leaf.Unlock()
	if c.state != gobreaker.StateClosed {
		b.push(c.group, c.state, gobreaker.StateClosed)
	}
	c.forgotten = true
}

// note keeps a change of state. It runs under gobreaker's lock.
func (b *Circuits) note(c *circuit, from, to gobreaker.State) {
	b.leaf.Lock()
	defer b.leaf.Unlock()
	c.state = to
	if to == gobreaker.StateOpen {
		// gobreaker read its clock before and wants it passed, not reached: a
		// caller that wakes exactly then would be refused once more.
		c.probeAt = time.Now().Add(b.trip.OpenFor + 1)
	}
	if !c.forgotten {
		b.push(c.group, from, to)
	}
}

// push is called with leaf held.
func (b *Circuits) push(group string, from, to gobreaker.State) {
	if b.changed != nil {
		b.changes = append(b.changes, change{group, from.String(), to.String()})
	}
}

// tell calls the hook for each change not told yet. One goroutine does so at a
// time, so that the hook hears them in order; a hook that calls Allow leaves
// what that changes to the tell it was called from.
func (b *Circuits) tell(ctx context.Context) {
	b.leaf.Lock()
	defer b.leaf.Unlock()
	if b.telling {
		return
	}
	b.telling = true
	defer func() { b.telling = false }() // a hook that panics stops no later one
	for len(b.changes) > 0 {
		next := b.changes[0]
		b.changes = b.changes[1:]
		b.call(ctx, next)
	}
}

// call calls the hook. It is entered and left with leaf held.
func (b *Circuits) call(ctx context.Context, c change) {
	b.leaf.Unlock()
	defer b.leaf.Lock()
	b.changed(ctx, c.group, c.from, c.to)
}
