package idem

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/idem-go/idem/keystore"
)

// hold is an entry under its claim. Nobody else sends for it, settles or removes it
// meanwhile; beside its holder only Enqueue may change it, which marks it as queued.
type hold struct {
	entries *entries
	tracer  tracer
	claim   keystore.Claim // nil until taken
	head    *head
	rev     uint64
	bounds  bounds
	writes  context.Context // the caller's, for values alone: what was sent is written down whatever its cancel

	// riders says what becomes of a batch's items when the call that carries them ends:
	// they are withdrawn with it, or take the change. Nil for all other entries.
	riders func(withdraw bool, change func(*head)) ([]keystore.Change, error)
}

// lost tells whether the claim was lost: somebody else may drive the entry by now.
func (o *hold) lost() bool {
	if o.claim == nil {
		return false
	}
	select {
	case <-o.claim.Lost(): // nil, where it can't be lost, never is ready
		return true
	default:
		return false
	}
}

// commit writes changes under the claim, and nothing once that is lost.
func (o *hold) commit(changes ...keystore.Change) error {
	if o.lost() {
		return ErrClaimLost
	}
	for i := range changes {
		if o.claim != nil {
			changes[i].Token = o.claim.Token()
		}
	}
	return o.entries.commit(o.writes, changes...)
}

// claimKey is the key by which an entry is claimed: an item's driver is its call's.
func (h *head) claimKey() Key { return cmp.Or(h.Call, h.Key) }

// alone tells an entry that carries no items.
func (o *hold) alone() bool { return o.riders == nil }

// contended tells whether another call waits for the entry.
func (o *hold) contended() bool { return o.claim.Contended() }

// save commits a change of the entry, with an answer if there is one. A proof of Done
// overrides whatever else the entry may have become.
func (o *hold) save(change func(*head), response *answer) error {
	for {
		h := *o.head
		change(&h)
		next, err := o.entries.replace(&h, o.rev, response)
		if err == nil {
			err = o.commit(next)
		}
		if err == nil {
			o.head, o.rev = &h, o.rev+1
			return nil
		}
		if errors.Is(err, ErrConflict) {
			err = o.merge(h.Fate)
		}
		if err == nil && h.Cause == causeOf(ErrExpired) && !passed(o.head.Expires) {
			err = errMoreTime
		}
		if err != nil {
			return &storeError{err}
		}
	}
}

// errMoreTime means that an entry can't end as expired: the queue has taken it meanwhile.
var errMoreTime = errors.New("idem: the entry has more time now")

// merge takes over what somebody else made of the entry.
func (o *hold) merge(fate Fate) error {
	now, err := o.entries.byKey(o.writes, o.head.Key)
	if err != nil {
		return err
	}
	if now.rec.Rev == o.rev { // it didn't change, so what stands against it would do so again
		return fmt.Errorf("%w: another entry has the name", ErrConflict)
	}
	switch {
	case now.head.open():
		if now.head.Queued {
			o.head.Queued, o.head.Expires = true, now.head.Expires
		}
	case fate == FateDone && !now.head.settledDone():
		o.tracer.overridden(o.writes, o.entries.entry(now.head))
	default:
		return fmt.Errorf("%w: the entry is %v, %v", ErrConflict, now.head.State, now.head.Fate)
	}
	o.rev = now.rec.Rev
	return nil
}

// remove takes the entry away, and with a batch's call its items.
func (o *hold) remove() error {
	changes := []keystore.Change{o.entries.remove(o.head, o.rev)}
	if o.riders != nil {
		riders, err := o.riders(true, nil)
		if err != nil {
			return err
		}
		changes = append(riders, changes...)
	}
	return o.commit(changes...)
}

// finish saves a change that ends all sending. A batch's call goes then, and its items
// take the change.
func (o *hold) finish(change func(*head)) error {
	if o.riders == nil {
		return o.save(change, nil)
	}
	riders, err := o.riders(false, change)
	if err == nil {
		err = o.commit(append(riders, o.entries.remove(o.head, o.rev))...)
	}
	if err != nil {
		return &storeError{err}
	}
	h := *o.head
	change(&h)
	o.head = &h
	return nil
}

// hold claims the entry of h, with its bodies, and reads it again, for it may have
// changed while somebody else had the claim. Without wait a claim that somebody has is
// ErrConflict, as is an item that went into another call meanwhile.
func (c *Client) hold(op string, ctx context.Context, h *head, wait bool) (*call, held, error) {
	d := c.newCall(op, ctx)
	var f held
	err := d.take(h.claimKey(), wait)
	if err == nil {
		f, err = c.entries.whole(ctx, h.Key)
	}
	if err == nil && f.head.claimKey() != h.claimKey() {
		err = fmt.Errorf("%w: another call carries it now", ErrConflict)
	}
	if err != nil {
		d.release()
		return nil, f, err
	}
	d.head, d.rev = f.head, f.rec.Rev
	return d, f, nil
}

// take claims an entry for the pass, which ends with the claim. A call that comes back
// from below, out of a hook of the call that drives the entry, would wait for itself.
func (d *call) take(key Key, wait bool) error {
	scope := d.client.opts.Scope
	id := strconv.Itoa(len(scope)) + ":" + scope + string(key)
	if slices.Contains(driving(d.ctx), id) {
		return fmt.Errorf("%w: the call was made from within the one that drives the entry", ErrConflict)
	}
	claim, err := d.client.ks.Claim(d.ctx, scope, string(key), wait)
	if err != nil {
		return cmp.Or(endOf(d.ctx), err)
	}
	d.claim = claim
	d.endWith(claim.Lost())
	d.ctx = withDriving(d.ctx, id)
	return nil
}

// release gives the entry to the next driver.
func (d *call) release() {
	if d.claim != nil {
		d.claim.Release()
	}
	d.end()
}
