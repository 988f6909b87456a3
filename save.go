package idem

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// recordOf is the record of h, without bodies.
func (c *Client) recordOf(h *head, rev uint64) (Record, error) {
	head, err := c.codec.closeHead(h)
	rec := Record{Scope: h.Scope, Key: string(h.Key), Lane: LaneOpen, Order: h.Created, Rev: rev, Head: head}
	if !h.Freed {
		rec.Name = storeName(h.Account, h.Intent)
	}
	switch h.State {
	case StateSettled:
		rec.Lane, rec.Order = LaneSettled, ageTime(h.SweepAge)
		if h.Untold {
			rec.Lane, rec.Order = LaneUntold, h.Created
		}
	case StateAbandoned:
		rec.Lane = LaneAbandoned
	}
	return rec, err
}

// ageTime puts an age of the store on the axis by which settled records are ordered.
func ageTime(age time.Duration) time.Time { return time.Unix(0, 0).UTC().Add(age) }

// commitNew journals the call's entry, together with the end of the old intent's
// right to the name.
func (d *call) commitNew(old *held) error {
	c := d.client
	var changes []Change
	if old != nil {
		h := *old.head
		h.Freed = true
		rec, err := c.recordOf(&h, old.rec.Rev)
		if err != nil {
			return err
		}
		changes = append(changes, Change{OpReplace, rec})
	}
	rec, err := c.recordOf(d.head, 0)
	if err != nil {
		return err
	}
	if !d.head.Reserved {
		rec.Request, err = c.codec.closeMessage(rec.Scope, rec.Key, partRequest, d.wire.message())
		if err != nil {
			return err
		}
	}
	d.rev = 1
	return c.ks.Commit(context.WithoutCancel(d.ctx), append(changes, Change{OpCreate, rec})...)
}

// save commits a change of the entry, whatever the caller's context says. Beside
// its driver only Enqueue changes an entry, so a conflict is merged and tried again;
// a proof of Done overrides whatever else the entry may have become.
func (d *call) save(change func(*head), response *answer) error {
	ctx := context.WithoutCancel(d.ctx)
	for {
		h := *d.head
		change(&h)
		rec, err := d.client.recordOf(&h, d.rev)
		if err == nil && response != nil {
			rec.Response, err = d.client.codec.closeMessage(h.Scope, string(h.Key), partResponse, response.message())
		}
		if err == nil {
			err = d.client.ks.Commit(ctx, Change{OpReplace, rec})
		}
		if err == nil {
			d.head, d.rev = &h, d.rev+1
			return nil
		}
		if !errors.Is(err, ErrConflict) {
			return &storeError{err}
		}
		if err := d.merge(ctx, h.Fate); err != nil {
			return &storeError{err}
		}
	}
}

// merge takes over what somebody else made of the entry.
func (d *call) merge(ctx context.Context, fate Fate) error {
	now, err := d.client.read(ctx, Ref{Scope: d.head.Scope, Key: string(d.head.Key)})
	if err != nil {
		return err
	}
	if now.rec.Rev == d.rev { // it didn't change, so what stands against it would do so again
		return fmt.Errorf("%w: another entry has the name", ErrConflict)
	}
	done := now.head.State == StateSettled && now.head.Fate == FateDone
	open := now.head.State == StatePending || now.head.State == StateAmbiguous
	switch {
	case open:
		d.head.Queued = now.head.Queued
	case fate != FateDone || done:
		return fmt.Errorf("%w: the entry is %v, %v", ErrConflict, now.head.State, now.head.Fate)
	default:
		d.client.traceOverridden(d.client.entryOf(now.head))
	}
	d.rev = now.rec.Rev
	return nil
}

// remove takes the entry away, and with a batch's call its items.
func (d *call) remove() error {
	ctx := context.WithoutCancel(d.ctx)
	changes, err := d.endItems(ctx, true, nil)
	if err != nil {
		return err
	}
	own := Change{OpRemove, Record{Scope: d.head.Scope, Key: string(d.head.Key), Rev: d.rev}}
	return d.client.ks.Commit(ctx, append(changes, own)...)
}

// end saves a change that ends all sending. A batch's call goes then, and its items
// take the change.
func (d *call) end(change func(*head)) error {
	if d.cargo == nil {
		return d.save(change, nil)
	}
	ctx := context.WithoutCancel(d.ctx)
	changes, err := d.endItems(ctx, false, change)
	if err == nil {
		own := Change{OpRemove, Record{Scope: d.head.Scope, Key: string(d.head.Key), Rev: d.rev}}
		err = d.client.ks.Commit(ctx, append(changes, own)...)
	}
	if err != nil {
		return &storeError{err}
	}
	h := *d.head
	change(&h)
	d.head = &h
	return nil
}
