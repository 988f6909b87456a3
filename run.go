package idem

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/keystore"
)

// Run delivers what Enqueue took and resumes what was left, until ctx ends; then it
// returns nil. It wakes on Enqueue, when a RetryAt comes, and once a minute. An error
// comes only from the journal, or is ErrClosed after Close.
func (c *Client) Run(ctx context.Context) error {
	leave, err := c.enter()
	defer leave()
	if err != nil {
		return fmt.Errorf("idem: Run: %w", err)
	}
	wake, stop := c.hub.listen(c.opts.Scope)
	defer stop()
	left := map[Key]time.Time{} // when Run drove what it left Pending
	for {
		p := c.newRound(ctx, "Run", c.opts.Resume)
		p.left = left
		_, err := p.run()
		switch {
		case ctx.Err() != nil:
			return nil
		case c.life.Err() != nil:
			return fmt.Errorf("idem: Run: %w", ErrClosed)
		case err != nil:
			return fmt.Errorf("idem: Run: %w", err)
		}
		left = p.leftNow
		timer := time.NewTimer(p.untilNext())
		select {
		case <-ctx.Done():
		case <-c.life.Done():
		case <-wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// idle tells what Run has nothing to do for: what it left a moment ago, and what
// waits for a person.
func (p *round) idle(h *head) bool {
	if p.left == nil {
		return false
	}
	waits := h.State == StateAmbiguous && (p.client.opts.Reconcile == nil || h.Reconciled)
	at, ours := p.left[h.Key]
	recent := ours && time.Since(at) < runInterval
	if recent && h.RetryAt.IsZero() {
		p.mu.Lock()
		p.leftNow[h.Key] = at
		p.mu.Unlock()
		p.due(p.client.sweeper.now().Add(runInterval - time.Since(at)))
		return true
	}
	return waits
}

// again notes an entry that stays, so that Run doesn't come back to it at every wake.
func (p *round) again(o outcome, h *head) {
	if o.entry.State != StatePending && o.entry.State != StateAmbiguous {
		return
	}
	p.stays(h.Key)
	if !o.entry.RetryAt.IsZero() {
		p.due(o.entry.RetryAt)
	}
}

func (p *round) stays(key Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leftNow[key] = time.Now()
}

func (p *round) due(at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next.IsZero() || at.Before(p.next) {
		p.next = at
	}
}

// untilNext is how long Run may sleep.
func (p *round) untilNext() time.Duration {
	if p.next.IsZero() {
		return runInterval
	}
	return min(max(p.next.Sub(p.client.sweeper.now()), time.Millisecond), runInterval)
}

// tellAll tells the Settled hook what it hasn't taken yet.
func (c *Client) tellAll(ctx context.Context) error {
	if c.opts.Settled == nil {
		return nil
	}
	for rec, err := range c.entries.scan(ctx, keystore.LaneUntold, time.Time{}) {
		if errors.Is(err, ErrCorrupt) {
			continue
		}
		if err != nil {
			if endOf(ctx) != nil {
				return nil
			}
			return err
		}
		h, err := c.entries.openHead(rec)
		if err != nil {
			continue
		}
		// It may have been told, or proven Done, since it was scanned.
		if d, _, err := c.hold("Settled", ctx, h, false); err == nil {
			c.tell(d)
			d.release()
		}
	}
	return nil
}

// tell calls the Settled hook for the entry. If the hook takes it, that is written
// down; a failure to write is met again, for the hook must bear repetition.
func (c *Client) tell(d *call) {
	hook := c.opts.Settled
	if !d.head.Untold || hook == nil || d.ctx.Err() != nil {
		return
	}
	if hook(d.hookContext(), d.entries.entry(d.head)) != nil {
		return
	}
	_ = d.save(func(h *head) { h.Untold = false }, nil)
}
