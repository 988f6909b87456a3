package idem

import (
	"context"
	"fmt"
	"time"

	"github.com/idem-go/idem/keystore"
)

// bounds are what limits an entry's sends in time, beside its own expiry and the window
// that was pinned at its first send.
type bounds struct {
	clock          *sweeper
	expires        time.Time     // the caller's; zero: none
	window, margin time.Duration // today's dialect's
}

// under takes today's window from the dialect.
func (b *bounds) under(d Dialect) { b.window, b.margin = d.window(), d.margin() }

// waits tells an entry that is not due yet. A RetryAt of another epoch means nothing:
// the clock was set back since.
func (o *hold) waits(ctx context.Context, h *head) bool {
	if h.RetryAt.IsZero() {
		return false
	}
	sight := o.now(ctx)
	return h.RetryAt.After(sight.Now) && h.RetryEpoch == sight.Epoch
}

// now is what the store tells of the clock, or the time alone if it can't tell, which
// the next write will say.
func (o *hold) now(ctx context.Context) keystore.Sighting {
	sight, err := o.bounds.clock.sight(ctx)
	if err != nil {
		return keystore.Sighting{Now: wallClock()}
	}
	return sight
}

// epoch is the clock's, 0 if the store can't tell.
func (o *hold) epoch(ctx context.Context) uint64 { return o.now(ctx).Epoch }

func (o *hold) expired() error {
	if passed(o.expires()) {
		return ErrExpired
	}
	return nil
}

// expires is the earlier of the caller's and the entry's.
func (o *hold) expires() time.Time {
	end, callers := o.head.Expires, o.bounds.expires
	if end.IsZero() {
		return callers
	}
	if !callers.IsZero() && callers.Before(end) {
		return callers
	}
	return end
}

// passed tells a limit in time that is set and behind us.
func passed(limit time.Time) bool { return !limit.IsZero() && !wallClock().Before(limit) }

// windowClosed tells whether the provider may have forgotten the key. A wall clock
// that was set back says nothing about the time since the first send, so whatever
// was sent before counts as past its window.
func (o *hold) windowClosed(ctx context.Context) error {
	// A setback that this entry's margin doesn't cover closes its window.
	sight, err := o.bounds.clock.sightWithin(ctx, o.head.Margin)
	if err != nil {
		return &storeError{err}
	}
	end, ends := o.windowEnd()
	if !ends {
		return nil
	}
	if !sight.Now.Before(end) {
		return fmt.Errorf("%w: first sent at %s", ErrWindowClosed, o.head.FirstSent.UTC().Format(time.RFC3339))
	}
	if sight.Epoch != o.head.Epoch {
		return fmt.Errorf("%w: the clock was set back since the first send", ErrWindowClosed)
	}
	return nil
}

// windowEnd is when sending has to end: the shorter of the window pinned at the
// first send and today's, less the margin.
func (o *hold) windowEnd() (end time.Time, ends bool) {
	if o.head.Unkeyed || o.head.FirstSent.IsZero() {
		return time.Time{}, false
	}
	open := Forever
	for _, w := range []struct{ window, margin time.Duration }{
		{o.head.Window, o.head.Margin}, {o.bounds.window, o.bounds.margin},
	} {
		if w.window != Forever {
			open = min(open, w.window-w.margin)
		}
	}
	return o.head.FirstSent.Add(open), open != Forever
}
