package limit

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
)

const (
	// windowBuckets is how many steps the rolling window moves in.
	windowBuckets = 10

	// longestBreak caps Window and OpenFor. gobreaker rounds the window up
	// without looking for overflow and would then count in no bucket at all.
	longestBreak = 365 * 24 * time.Hour

	// probePause is how long a caller should wait while all probes of a
	// half-open circuit are under way. Nobody knows how long they take: one
	// second is short beside an attempt's timeout, and long enough for the
	// callers that wait not to spin.
	probePause = time.Second

	// maxGroups bounds the circuits of one client.
	maxGroups = 1000
)

// Trip says when a circuit opens, and how it closes again. The durations are positive,
// MinRequests and Probes at least 1, and FailureRate is over 0 and at most 1: defaults
// are the caller's matter. Durations of over a year count as a year.
type Trip struct {
	Window      time.Duration // the rolling window that is counted
	MinRequests uint32        // attempts that must have ended in the window before it may open
	FailureRate float64       // share of failed attempts at which it opens
	OpenFor     time.Duration // how long it stays open before it lets probes through
	Probes      uint32        // successful probes that close it, and how many may run at once
}

// shouldOpen is asked after each failure. It counts only attempts that ended
// with a verdict: gobreaker's Requests holds those under way and the neutral
// ones too, and they would hide an outage.
func (t Trip) shouldOpen(counts gobreaker.Counts) bool {
	ended := uint64(counts.TotalSuccesses) + uint64(counts.TotalFailures)
	if ended < uint64(t.MinRequests) { // which is never 0, so nothing is divided by it
		return false
	}
	return float64(counts.TotalFailures)/float64(ended) >= t.FailureRate
}

// Health is what an attempt tells about its origin. It isn't what it tells
// about the intent: a 4xx is a refusal, and proof of life.
type Health int

const (
	Neutral Health = iota // nothing: the caller gave up, the journal failed
	Healthy               // it answers
	Failed                // it doesn't, or only to say that it can't
)

var (
	errNeutral = errors.New("idem: attempt tells nothing about the origin")
	errFailed  = errors.New("idem: attempt failed at the origin")
)

// err is how a breaker is told.
func (h Health) err() error {
	switch h {
	case Healthy:
		return nil
	case Failed:
		return errFailed
	}
	return errNeutral
}

// Circuits holds a circuit for each group of requests. It starts no goroutine:
// a circuit changes state only when somebody asks or reports.
//
// gobreaker calls OnStateChange under its own lock, and a hook that asked for
// anything there would never return. So changes are only noted there, and told
// by the goroutine that caused them once it holds no lock.
type Circuits struct {
	trip    Trip
	changed func(ctx context.Context, group, from, to string) // nil if nobody wants to know

	mu       sync.Mutex // guards circuits
	circuits *recent[*circuit]

	leaf    sync.Mutex // guards what follows and the state of each circuit; taken last, under mu or gobreaker's lock
	changes []change   // not told yet, oldest first
	telling bool       // a goroutine is at it
}

// NewCircuits returns circuits that are all closed. changed may be nil; it is called with
// no lock held, one call at a time, in the order of the changes, and given states that
// are "closed", "open" or "half-open", and the context of the attempt that changed them or
// of one that ended at that moment.
func NewCircuits(t Trip, changed func(ctx context.Context, group, from, to string)) *Circuits {
	t.Window, t.OpenFor = min(t.Window, longestBreak), min(t.OpenFor, longestBreak)
	return &Circuits{trip: t, changed: changed, circuits: newRecent[*circuit](maxGroups)}
}

// Allow asks whether an attempt may start now; nil circuits allow all. If ok, done must
// be called with what the attempt told, whatever happens, or a probe's slot is lost for
// good: defer done(Neutral) first, for only the first call counts.
//
// Otherwise the circuit of the group is open, done does nothing, and retryAt is when the
// half-open circuit lets its first probe through, or, if all probes are under way, a
// second from now (or OpenFor, if that is shorter).
func (b *Circuits) Allow(ctx context.Context, group string, now time.Time) (done func(Health), retryAt time.Time, ok bool) {
	if b == nil {
		return func(Health) {}, time.Time{}, true
	}
	c := b.circuit(group)
	report, refusal := c.breaker.Allow()
	if refusal != nil {
		b.tell(ctx)
		return func(Health) {}, b.retryAt(c, refusal, now), false
	}
	handedOver := false
	defer func() {
		if !handedOver { // a hook panicked: nobody else can give the slot back
			report(errNeutral)
		}
	}()
	b.tell(ctx)
	handedOver = true
	return b.once(ctx, report), time.Time{}, true
}

// once makes a report that counts only the first time.
func (b *Circuits) once(ctx context.Context, report func(error)) func(Health) {
	var reported atomic.Bool
	return func(h Health) {
		if reported.Swap(true) {
			return
		}
		report(h.err())
		b.tell(ctx)
	}
}

// retryAt says when to ask a circuit again that refused. The time stands on
// now's own clock; if that was set back since the circuit opened, the wait is
// still about OpenFor at most.
func (b *Circuits) retryAt(c *circuit, refusal error, now time.Time) time.Time {
	openFor := b.trip.OpenFor
	if errors.Is(refusal, gobreaker.ErrTooManyRequests) {
		return now.Add(min(probePause, openFor))
	}
	b.leaf.Lock()
	wait := c.probeAt.Sub(now)
	b.leaf.Unlock()
	return now.Add(min(max(wait, 1), openFor+probePause))
}
