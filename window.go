package idem

import (
	"fmt"
	"net/http"
	"time"
)

// What bounds a call's sends in time: its expiry, the provider's window, and a wait
// that the provider asked for.

// honourRetryAt keeps a wait that the provider asked an earlier pass for.
func (d *call) honourRetryAt() error {
	if d.background || !d.waits(d.head) {
		return nil
	}
	d.retryAt = d.head.RetryAt
	wait := d.retryAt.Sub(wallClock())
	if wait > d.client.opts.Retry.maxRetryAfter() {
		return d.waitTooLong()
	}
	if err := d.fits(wait); err != nil {
		return err
	}
	if err := d.sleep(wait); err != nil {
		return err // the time stays: whoever comes next keeps it
	}
	d.retryAt = time.Time{}
	return nil
}

// waits tells an entry that is not due yet. A RetryAt of another epoch means nothing:
// the clock was set back since.
func (d *call) waits(h *head) bool {
	return h.RetryAt.After(wallClock()) && h.RetryEpoch == d.epoch()
}

// epoch is the clock's, 0 if the store can't tell, which the next write will say.
func (d *call) epoch() uint64 {
	sight, err := d.client.sweeper.sight(d.ctx, wallClock())
	if err != nil {
		return 0
	}
	return sight.Epoch
}

func (d *call) expired() error {
	if end := d.expires(); !end.IsZero() && !wallClock().Before(end) {
		return ErrExpired
	}
	return nil
}

// expires is the earlier of the call's and the entry's.
func (d *call) expires() time.Time {
	end := d.head.Expires
	if d.in != nil && !d.in.expires.IsZero() && (end.IsZero() || d.in.expires.Before(end)) {
		end = d.in.expires
	}
	return end
}

func (d *call) entryExpired() bool {
	return !d.head.Expires.IsZero() && !wallClock().Before(d.head.Expires)
}

// resendable tells whether a request that may have been processed may be sent again:
// under its key; or without one while its caller waits, if it is idempotent by HTTP
// (RFC 9110 §9.2.2); later only if its own precondition guards what came since.
func (d *call) resendable() bool {
	if !d.head.Unkeyed || d.head.Conditional {
		return true
	}
	return d.idempotent() && d.tries > 0 && !d.background
}

// againNow is resendable as the verdict on the first attempt sees it.
func (d *call) againNow() bool {
	if !d.head.Unkeyed || d.head.Conditional {
		return true
	}
	return d.idempotent() && !d.background
}

func (d *call) idempotent() bool {
	return d.wire.Method == http.MethodPut || d.wire.Method == http.MethodDelete
}

// windowClosed tells whether the provider may have forgotten the key. A wall clock
// that was set back says nothing about the time since the first send, so whatever
// was sent before counts as past its window.
func (d *call) windowClosed() error {
	now := wallClock()
	sight, err := d.client.sweeper.sight(d.ctx, now)
	if err != nil {
		return &storeError{err}
	}
	end, ends := d.windowEnd()
	if !ends {
		return nil
	}
	if !now.Before(end) {
		return fmt.Errorf("%w: first sent at %s", ErrWindowClosed, d.head.FirstSent.UTC().Format(time.RFC3339))
	}
	if sight.Epoch != d.head.Epoch {
		return fmt.Errorf("%w: the clock was set back since the first send", ErrWindowClosed)
	}
	return nil
}

// windowEnd is when sending has to end: the shorter of the window pinned at the
// first send and today's, less the margin.
func (d *call) windowEnd() (end time.Time, ends bool) {
	if d.head.Unkeyed || d.head.FirstSent.IsZero() {
		return time.Time{}, false
	}
	open := Forever
	for _, w := range []struct{ window, margin time.Duration }{
		{d.head.Window, d.head.Margin}, {d.dialect.window(), d.dialect.margin()},
	} {
		if w.window != Forever {
			open = min(open, w.window-w.margin)
		}
	}
	return d.head.FirstSent.Add(open), open != Forever
}

// attemptTime is the attempt's own limit, cut at the end of the window: a byte that
// left later could act again.
func (d *call) attemptTime() time.Duration {
	limit := d.pass.attemptTime()
	if end, ends := d.windowEnd(); ends {
		limit = min(limit, max(end.Sub(wallClock()), 0))
	}
	return limit
}

// fits tells whether a wait ends while there is still something to wait for.
func (d *call) fits(wait time.Duration) error {
	if err := d.pass.fits(wait); err != nil {
		return err
	}
	next := wallClock().Add(wait)
	if end := d.expires(); !end.IsZero() && !next.Before(end) {
		return fmt.Errorf("%w before the next attempt is due", ErrExpired)
	}
	if end, ends := d.windowEnd(); ends && !next.Before(end) {
		return fmt.Errorf("%w: the next attempt is due after the window", ErrExhausted)
	}
	return nil
}
