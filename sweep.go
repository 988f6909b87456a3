package idem

import (
	"context"
	"errors"
	"sync"
	"time"
)

// sight shows the store the clock, which may close windows, and sweeps what has
// come of age.
func (c *Client) sight(ctx context.Context, now time.Time) (Sighting, error) {
	s, err := c.ks.Clock(context.WithoutCancel(ctx), now, c.opts.Dialect.margin())
	if err == nil && c.sweeper.due(s.Age) {
		c.sweep(context.WithoutCancel(ctx), s.Age)
	}
	return s, err
}

const (
	sweepEvery = time.Minute
	sweepBatch = 256
)

// sweeper keeps sweeps apart.
type sweeper struct {
	mu   sync.Mutex
	last time.Duration
	ran  bool
}

func (s *sweeper) due(age time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ran && age-s.last < sweepEvery {
		return false
	}
	s.last, s.ran = age, true
	return true
}

// sweep turns settled entries past Keep into tombstones and removes tombstones past
// their year, a bounded number at a time. A failure is met again by the next sweep,
// or by the call that has to write.
func (c *Client) sweep(ctx context.Context, age time.Duration) {
	var changes []Change
	for rec, err := range c.ks.Scan(ctx, Query{Scope: c.opts.Scope, Lane: LaneSettled, Until: ageTime(age)}) {
		if err != nil && !errors.Is(err, ErrCorrupt) {
			return
		}
		if err == nil {
			if change, ok := c.sweepOne(rec, age); ok {
				changes = append(changes, change)
			}
		}
		if len(changes) == sweepBatch {
			c.sweeper.again()
			break
		}
	}
	for _, change := range changes {
		if err := c.ks.Commit(ctx, change); err != nil && !errors.Is(err, ErrConflict) {
			return
		}
	}
}

// again makes the next sighting sweep on.
func (s *sweeper) again() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ran = false
}

func (c *Client) sweepOne(rec Record, age time.Duration) (Change, bool) {
	h, err := c.codec.openHead(rec)
	if err != nil {
		return Change{}, false // sealed with another key: kept
	}
	reusable := h.Intent != "" && !h.Freed || h.Item != "" || h.KeySource == keyCaller || h.Queued
	if h.Trimmed || !reusable {
		return Change{OpRemove, Record{Scope: rec.Scope, Key: rec.Key, Rev: rec.Rev}}, true
	}
	tomb := &head{
		Key: h.Key, Scope: h.Scope, Intent: h.Intent, Account: h.Account, AccountGift: h.AccountGift,
		State: h.State, Fate: h.Fate, Cause: h.Cause, Status: h.Status, KeySource: h.KeySource,
		Method: h.Method, URL: h.URL, Fingerprint: h.Fingerprint, Created: h.Created, FirstSent: h.FirstSent,
		Settled: h.Settled, Dialect: h.Dialect, Attempts: h.Attempts, Queued: h.Queued, Reserved: h.Reserved, Freed: h.Freed,
		Batch: h.Batch, Item: h.Item,
		Trimmed: true, SweepAge: age + tombstoneKeep,
	}
	next, err := c.recordOf(tomb, rec.Rev)
	next.Request, next.Response = []byte{}, []byte{}
	return Change{OpReplace, next}, err == nil
}

// tellAll tells the Settled hook what it hasn't taken yet.
func (c *Client) tellAll(ctx context.Context) error {
	if c.opts.Settled == nil {
		return nil
	}
	for rec, err := range c.ks.Scan(ctx, Query{Scope: c.opts.Scope, Lane: LaneUntold}) {
		if errors.Is(err, ErrCorrupt) {
			continue
		}
		if err != nil {
			if endOf(ctx) != nil {
				return nil
			}
			return err
		}
		h, err := c.codec.openHead(rec)
		if err != nil {
			continue
		}
		d := c.pass("Settled", ctx)
		d.carried, d.head = true, h
		if d.take(false) == nil {
			// It may have been told, or proven Done, since it was scanned.
			if now, err := c.read(ctx, Ref{Scope: rec.Scope, Key: rec.Key}); err == nil {
				d.head, d.rev = now.head, now.rec.Rev
				c.tellOne(d)
			}
		}
		d.release()
	}
	return nil
}

// tellOne calls the Settled hook for an entry that the call holds. If the hook takes
// it, that is written down; if that fails, the hook hears it again.
func (c *Client) tellOne(d *call) {
	if !d.head.Untold || c.opts.Settled == nil || d.ctx.Err() != nil {
		return
	}
	if c.opts.Settled(d.hookContext(), c.entryOf(d.head)) != nil {
		return
	}
	_ = d.save(func(h *head) { h.Untold = false }, nil)
}
