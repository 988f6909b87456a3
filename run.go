package idem

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"sync"
	"time"

	"github.com/idem-go/idem/internal/wire"
	"github.com/idem-go/idem/keystore"
)

const (
	runInterval = time.Minute     // how long Run goes without looking, at most
	longestRest = 5 * time.Minute // between two passes over one entry, spread included
)

// Run delivers what Enqueue took and resumes what was left, until ctx ends; then it
// returns nil. It takes new and due entries while others are under way: one that has to
// wait is left with its time, and its worker is free. It looks when Enqueue or [Client.Wake]
// says so, when a wait ends, and once a minute. An entry that fails is tried again after
// growing pauses, up to some minutes, also over restarts.
//
// A keystore that can't be reached ([ErrUnavailable]) is tried again; any other error of
// it ends Run. After Close or Shutdown it is ErrClosed.
func (c *Client) Run(ctx context.Context) error {
	leave, err := c.enter()
	defer leave()
	if err != nil {
		return fmt.Errorf("idem: Run: %w", err)
	}
	wake, stop := c.hub.listen(c.opts.Scope)
	defer stop()
	inner, done := c.within(ctx)
	defer done()
	r := c.newRunner(inner)
	defer r.workers.Wait()
	for failures := 0; ; {
		next, err := r.dispatch()
		err = cmp.Or(err, r.failure())
		switch {
		case ctx.Err() != nil:
			return nil
		case c.stopped():
			return fmt.Errorf("idem: Run: %w", ErrClosed)
		case errors.Is(err, ErrUnavailable):
			failures++
			next = c.sweeper.now().Add(spread(min(time.Second<<min(failures, 6), runInterval)))
			c.tracer.warn(ctx, "the keystore is unavailable, Run goes on", slog.Any("err", err))
		case err != nil:
			return fmt.Errorf("idem: Run: %w", err)
		default:
			failures = 0
		}
		r.rest(next, wake)
	}
}

// Wake lets every Run of the client's scope in this process look at once, for work that
// they can't see coming: somebody else's write to a shared keystore, or a commit of the
// caller's own transaction.
func (c *Client) Wake() {
	if c.usable() == nil {
		c.hub.wake(c.opts.Scope)
	}
}

// runner is one Run.
type runner struct {
	*round
	slots   chan struct{} // one token for each entry under way
	freed   chan struct{} // an entry's pass ended
	workers sync.WaitGroup

	busy   map[Key]bool         // guarded by round.mu
	later  map[Key]time.Time    // guarded by round.mu: entries that stay, and when to look again
	groups map[string]time.Time // guarded by round.mu: origins whose circuit is open, until when
}

// rest is how long the Settled hook is left alone with an entry, and how often it was.
type rest struct {
	until time.Time
	times int
}

func (c *Client) newRunner(ctx context.Context) *runner {
	p := c.newRound(ctx, "Run", c.opts.Resume)
	return &runner{
		round: p, slots: make(chan struct{}, p.opts.Concurrency), freed: make(chan struct{}, 1),
		busy: map[Key]bool{}, later: map[Key]time.Time{}, groups: map[string]time.Time{},
	}
}

// dispatch hands everything that is due to workers, and tells when something is next.
func (r *runner) dispatch() (next time.Time, err error) {
	c := r.client
	sight, err := c.sweeper.sight(r.ctx)
	if err != nil {
		return next, err
	}
	r.epoch = sight.Epoch
	next = r.client.sweeper.now().Add(runInterval)
	told, err := c.tellAll(r.ctx, true)
	if err != nil {
		return next, err
	}
	next = sooner(next, told)
	for rec, err := range c.entries.scan(r.ctx, keystore.LaneOpen, time.Time{}) {
		if err != nil && !errors.Is(err, ErrCorrupt) {
			return next, err
		}
		h, damage := r.openOrNot(rec, err)
		at, due := r.dueAt(h)
		switch {
		case !due:
		case at.After(r.client.sweeper.now()):
			next = sooner(next, at)
		case damage != nil:
			r.tell(Entry{Key: h.Key, Scope: rec.Scope, entries: c.entries}, FateUnknown, damage)
			r.stays(h.Key, time.Time{})
		case !r.start(rec, h):
			return next, nil
		}
	}
	return next, nil
}

// openOrNot is the head of a record, or its key alone and why it can't be read.
func (r *runner) openOrNot(rec keystore.Record, err error) (*head, error) {
	if err == nil {
		var h *head
		if h, err = r.client.entries.openHead(rec); err == nil {
			return h, nil
		}
	}
	return &head{Key: Key(rec.Key), State: StatePending}, err
}

// start takes a worker for an entry; false if Run is to end first.
func (r *runner) start(rec keystore.Record, h *head) bool {
	select {
	case r.slots <- struct{}{}:
	case <-r.ctx.Done():
		return false
	case <-r.client.draining:
		return false
	}
	r.mu.Lock()
	r.busy[h.Key] = true
	r.mu.Unlock()
	r.workers.Go(func() {
		defer func() {
			if v := recover(); v != nil {
				panic(v) // it ends the process: until then nothing new begins
			}
			r.end(h.Key)
		}()
		r.drive(r.ctx, rec, h)
	})
	return true
}

func (r *runner) end(key Key) {
	r.mu.Lock()
	delete(r.busy, key)
	r.mu.Unlock()
	<-r.slots
	select {
	case r.freed <- struct{}{}:
	default:
	}
}

// drive takes one entry through its pass, and notes when to look at it again.
func (r *runner) drive(ctx context.Context, rec keystore.Record, h *head) {
	if err := r.client.opts.mine(h); err != nil {
		r.skip(r.client.entries.entry(h), err)
		r.stays(h.Key, time.Time{})
		return
	}
	o, over := r.round.drive(ctx, rec, h)
	switch {
	case !over:
		r.stays(h.Key, r.client.sweeper.now().Add(time.Second)) // somebody else has it
	case o.entry.State == StatePending, o.entry.State == StateAmbiguous:
		r.stays(h.Key, later(o.entry.RetryAt, o.entry.NextTry))
	default:
		r.gone(h.Key)
	}
	if errors.Is(o.why, ErrCircuitOpen) {
		r.mu.Lock()
		r.groups[originOf(h)] = o.retryAt
		r.mu.Unlock()
	}
}

// dueAt tells when an entry is to be looked at; not due are those that go with a call,
// wait for a person, or are under way.
func (r *runner) dueAt(h *head) (at time.Time, due bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.busy[h.Key] || h.Call != "" {
		return at, false
	}
	if h.State == StateAmbiguous && (r.client.opts.Reconcile == nil || h.Reconciled) {
		return at, false
	}
	at = r.later[h.Key]
	if h.RetryEpoch == r.epoch {
		at = later(at, later(h.RetryAt, h.NextTry))
	}
	if r.client.opts.Breaker.Group == nil {
		at = later(at, r.groups[originOf(h)])
	}
	return at, true
}

// stays notes an entry that isn't at its end. Without a time it rests for a minute.
func (r *runner) stays(key Key, until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if until.IsZero() {
		until = r.client.sweeper.now().Add(runInterval)
	}
	r.later[key] = until
}

func (r *runner) gone(key Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.later, key)
}

// rest waits until something is due, or somebody says so.
func (r *runner) rest(next time.Time, wake <-chan struct{}) {
	timer := time.NewTimer(max(next.Sub(r.client.sweeper.now()), time.Millisecond))
	defer timer.Stop()
	select {
	case <-r.ctx.Done():
	case <-r.client.draining:
	case <-wake:
	case <-r.freed:
	case <-timer.C:
	}
}

func originOf(h *head) string {
	u, err := url.Parse(h.URL)
	if err != nil {
		return ""
	}
	return wire.Origin(u)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// sooner is the first of two times of which the second may be zero, which is never.
func sooner(a, b time.Time) time.Time {
	if b.IsZero() || a.Before(b) {
		return a
	}
	return b
}

// spread keeps what failed together from coming back together: half to one and a half.
func spread(d time.Duration) time.Duration {
	return d/2 + time.Duration(rand.Int64N(int64(d)+1))
}

// passRest is how long Run leaves an entry alone that so many passes have left open.
func (p RetryPolicy) passRest(passes int) time.Duration {
	rest := p.baseDelay()
	for ; passes > 0 && rest < longestRest; passes-- {
		rest *= 2
	}
	return min(spread(rest), longestRest)
}

// tellAll tells the Settled hook what it hasn't taken yet, and when it is to be tried
// again where it didn't, which patient callers wait for. Without a hook nobody will ever
// be told: those entries age as settled ones do.
func (c *Client) tellAll(ctx context.Context, patient bool) (next time.Time, err error) {
	for rec, err := range c.entries.scan(ctx, keystore.LaneUntold, time.Time{}) {
		if errors.Is(err, ErrCorrupt) {
			continue
		}
		if err != nil {
			if endOf(ctx) != nil {
				return next, nil
			}
			return next, err
		}
		h, err := c.entries.openHead(rec)
		if err != nil {
			continue
		}
		if at := c.untold.at(h.Key); patient && at.After(c.sweeper.now()) {
			next = sooner(at, next)
			continue
		}
		// It may have been told, or proven Done, since it was scanned.
		if d, _, err := c.hold("Settled", ctx, h, false); err == nil {
			func() {
				defer d.release() // also if the hook panics
				c.tell(d)
			}()
		}
		next = sooner(c.untold.at(h.Key), next)
	}
	return next, nil
}

// untold remembers which entries the hook wouldn't take, and when it is asked again.
type untold struct {
	mu sync.Mutex
	of map[Key]rest // guarded by mu
}

// at is when the hook may be asked; zero is now.
func (u *untold) at(key Key) time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.of[key].until
}

func (u *untold) refused(key Key) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.of == nil {
		u.of = map[Key]rest{}
	}
	times := u.of[key].times
	u.of[key] = rest{wallClock().Add(spread(min(time.Second<<min(times, 9), longestRest))), times + 1}
}

func (u *untold) taken(key Key) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.of, key)
}

// tell calls the Settled hook for the entry. If the hook takes it, that is written
// down; a failure to write is met again, for the hook must bear repetition.
func (c *Client) tell(d *call) {
	hook := c.opts.Settled
	if !d.head.Untold || d.ctx.Err() != nil {
		return
	}
	if hook != nil {
		if hook(d.hookContext(), d.entries.entry(d.head)) != nil {
			c.untold.refused(d.head.Key)
			return
		}
		c.untold.taken(d.head.Key)
	}
	_ = d.save(func(h *head) { h.Untold = false }, nil)
}
