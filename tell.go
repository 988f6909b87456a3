package idem

import (
	"context"
	"errors"
	"time"

	"github.com/idem-go/idem/keystore"
)

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
			d.tell()
			d.release()
		}
	}
	return nil
}

// tell calls the Settled hook for the entry. If the hook takes it, that is written
// down; a failure to write is met again, for the hook must bear repetition.
func (d *call) tell() {
	hook := d.client.opts.Settled
	if !d.head.Untold || hook == nil || d.ctx.Err() != nil {
		return
	}
	if hook(d.hookContext(), d.entries.entry(d.head)) != nil {
		return
	}
	_ = d.save(func(h *head) { h.Untold = false }, nil)
}
