package idem

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idem/internal/crash"
	"github.com/idem-go/idem/internal/record"
)

// apply writes down what an answer means: what is settled, and one call more for the
// rest.
func (d *call) apply(plans []itemPlan) outcome { return d.applyTo(plans, plans) }

// applyTo is apply with a call more for the rest of each part. Everything is one
// transaction.
func (d *call) applyTo(plans []itemPlan, parts ...[]itemPlan) outcome {
	changes := []Change{{OpRemove, Record{Scope: d.head.Scope, Key: d.head.Key, Rev: d.rev}}}
	carrier := map[Key]*call{}
	halved := len(parts) > 1
	for _, part := range parts {
		n, more, err := d.successor(part, halved || progress(plans))
		if err != nil {
			return d.abort(plans, err)
		}
		if n == nil {
			continue
		}
		n.follows = !halved
		changes = append(changes, more...)
		for _, it := range n.cargo.items {
			carrier[it.Key] = n
		}
	}
	crash.At(crash.Answered)
	heads, err := d.commitItems(plans, carrier, changes)
	if errors.Is(err, ErrFull) {
		for i := range plans {
			plans[i].lost = true // the fates matter more than the answers
		}
		heads, err = d.commitItems(plans, carrier, changes)
	}
	if err != nil {
		return d.abort(plans, err)
	}
	crash.At(crash.Settled)
	d.tellSettled(plans, heads)
	o := d.outcome(nil)
	o.final = true
	d.client.traceEnded(o.entry, nil)
	return o
}

// commitItems writes down what becomes of the items, with the other changes.
func (d *call) commitItems(plans []itemPlan, carrier map[Key]*call, changes []Change) ([]*record.Head, error) {
	heads := make([]*record.Head, len(plans))
	changes = slices.Clip(changes)
	for i, p := range plans {
		h, change, err := d.itemChange(p, carrier[p.item.Key])
		if err != nil {
			return nil, err
		}
		if heads[i] = h; h != nil {
			changes = append(changes, change)
		}
	}
	return heads, d.client.ks.Commit(context.WithoutCancel(d.ctx), changes...)
}

// progress tells an answer that settled something: what it left open is then no
// retry, and a batch in which every call has one refused item still comes to its end.
func progress(plans []itemPlan) bool {
	return slices.ContainsFunc(plans, func(p itemPlan) bool { return p.next == itemSettle })
}

// abort ends a call whose answer couldn't be written down: it stays Pending, to be
// sent again for the same answer.
func (d *call) abort(plans []itemPlan, err error) outcome {
	for _, n := range d.cargo.next {
		n.release()
	}
	d.cargo.next = nil
	o := d.unsaved(d.outcome(nil), &storeError{err})
	for _, p := range plans {
		if p.res.Fate == FateDone { // known, though not durable
			d.cargo.tell(ItemResult{ID: p.item.ID, Key: p.item.Key, Fate: FateDone, Status: p.res.Status, Body: p.res.Body, Err: o.failure()}, Entry{})
		}
	}
	return o
}

// successor makes the call that goes on with the open items of plans, nil if none
// may. It is claimed before it is written. A fresh one has chances of its own.
func (d *call) successor(plans []itemPlan, fresh bool) (*call, []Change, error) {
	var items []KeyedItem
	first, clean := d.head.FirstSent, true
	for _, p := range plans {
		if p.next != itemAgain && (p.next != itemOpen || !d.cargo.keysHonoured()) {
			continue
		}
		items = append(items, p.item)
		clean = clean && p.next == itemAgain
		if sent := p.now.head.FirstSent; p.now.head.ItemBefore && sent.Before(first) {
			first = sent
		}
	}
	if len(items) == 0 {
		return nil, nil, nil
	}
	n, err := d.client.encodeCall(d.batchContext(), d.head.Batch, d.head.Codec, d.cargo.codec, items)
	var broke *storeError
	if err != nil && !errors.As(err, &broke) {
		strand(plans, err)
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	d.handOver(n, fresh)
	if n.itemsBefore = !clean; n.itemsBefore {
		n.head.FirstSent, n.head.Epoch = first, d.head.Epoch // a call's window is its oldest item's
	}
	if n.asked > 0 {
		n.head.RetryAt, n.head.RetryEpoch = n.retryAfter(n.asked), n.epoch()
	}
	changes, err := n.commitCall()
	if err == nil {
		err = n.take(true)
	}
	if err != nil {
		n.release()
		return nil, nil, err
	}
	d.cargo.next = append(d.cargo.next, n)
	return n, changes, nil
}

// handOver gives the next call what holds for the whole chain.
func (d *call) handOver(n *call, fresh bool) {
	n.in, n.op, n.carried, n.asked = d.in, d.op, d.carried, d.cargo.waitFor
	if !fresh {
		n.tries, n.delays, n.began, n.head.Strikes = d.tries, d.delays, d.began, d.head.Strikes
	}
	n.cargo.emit, n.cargo.told = d.cargo.emit, d.cargo.told
	n.head.Created, n.head.Expires = d.head.Created, d.head.Expires
}

// retryAfter is when a call may be sent, within its window, so that the wait an
// answer asked for outlives a restart.
func (d *call) retryAfter(wait time.Duration) time.Time {
	at := wallClock().Add(wait)
	if end, ends := d.windowEnd(); ends && d.itemsBefore && at.After(end) {
		return end
	}
	return at
}

// strand ends items for which the codec writes no further call: what didn't happen
// is NotDone, the rest stays open.
func strand(plans []itemPlan, err error) {
	for i := range plans {
		switch p := &plans[i]; p.next {
		case itemAgain:
			p.next = itemSettle
			p.res.Err = fmt.Errorf("idem: it didn't happen, and there is no further call: %w", err)
		case itemOpen:
			p.res.Err = fmt.Errorf("idem: no further call: %w", err)
		}
	}
}

// batchContext is what the next call is made under: it outlives this one, and carries
// the entry's account. A name or key in the context of Resume or Run isn't the call's.
func (d *call) batchContext() context.Context {
	ctx := context.Context(belowContext{d.parent})
	if d.head.AccountGift {
		return WithAccount(ctx, d.head.Account)
	}
	return ctx
}

// itemChange is what becomes of one item; a nil head means nothing.
func (d *call) itemChange(p itemPlan, carrier *call) (*record.Head, Change, error) {
	h := *p.now.head
	var response *answer
	switch {
	case p.next == itemGone:
		return nil, Change{}, nil
	case p.next == itemSettle:
		if err := d.settleItem(&h, p.res); err != nil {
			return nil, Change{}, err
		}
		if h.TooLarge = p.lost || p.res.Trimmed; p.res.Status != 0 && !h.TooLarge {
			response = &answer{status: p.res.Status, body: p.res.Body}
		}
	case carrier != nil:
		h.Call = carrier.head.Key
		switch {
		case h.ItemBefore: // its first send stays
		case p.next == itemOpen:
			h.ItemBefore, h.FirstSent, h.Epoch = true, d.head.FirstSent, d.head.Epoch
		default:
			h.FirstSent, h.Epoch = carrier.head.FirstSent, carrier.head.Epoch
		}
	default:
		h.State, h.Call, h.Settled = uint8(StateAmbiguous), "", wallClock()
		h.Cause, h.Reason = causeOf(ErrInDoubt), "the answer to its call leaves it open, and it can't go into another"
		if p.res.Err != nil {
			h.Reason = shortText(p.res.Err)
		}
	}
	rec, err := d.client.recordOf(&h, p.now.rec.Rev)
	if err == nil && response != nil {
		rec.Response, err = d.client.codec.closeMessage(h.Scope, h.Key, partResponse, response.message())
	}
	return &h, Change{OpReplace, rec}, err
}

func (d *call) settleItem(h *record.Head, res ItemResult) error {
	sight, err := d.client.sight(d.ctx, wallClock())
	if err != nil {
		return err
	}
	h.State, h.Fate, h.Status, h.Settled = uint8(StateSettled), uint8(res.Fate), res.Status, wallClock()
	h.SweepAge = sight.Age + d.client.opts.Keep
	h.Attempts, h.Call = d.head.Attempts, ""
	h.Untold = d.carried && d.client.opts.Settled != nil
	if res.Err != nil {
		h.LastError = shortText(d.scrub(res.Err))
	}
	return nil
}

// tellSettled reports what the commit settled, and what it left to nobody.
func (d *call) tellSettled(plans []itemPlan, heads []*record.Head) {
	for i, p := range plans {
		h := heads[i]
		if h == nil || State(h.State) == StatePending {
			continue
		}
		res := p.res
		switch {
		case State(h.State) == StateAmbiguous:
			res.Fate = FateUnknown
			res.Err = &Error{Op: d.op, Intent: h.Intent, Key: Key(h.Key), Attempts: d.head.Attempts, Err: fmt.Errorf("%w: %s", ErrInDoubt, h.Reason)}
		case res.Fate == FateNotDone:
			cause := res.Err
			if cause == nil {
				cause = fmt.Errorf("idem: refused with status %d", res.Status)
			}
			res.Err = &Error{Op: d.op, Intent: h.Intent, Key: Key(h.Key), Attempts: d.head.Attempts, Fate: FateNotDone, Err: cause}
		default:
			res.Err = nil
		}
		res.Retry, res.RetryAfter = false, 0
		d.cargo.tell(res, d.client.entryOf(h))
		if h.Untold {
			t := d.client.pass(d.op, d.ctx)
			t.head, t.rev, t.carried = h, p.now.rec.Rev+1, true
			d.client.tellOne(t)
			t.release()
		}
	}
}

// endItems are the changes that go with the call's own end: its items withdrawn with
// it, or left Ambiguous.
func (d *call) endItems(ctx context.Context, withdraw bool, change func(*record.Head)) ([]Change, error) {
	if d.cargo == nil {
		return nil, nil
	}
	var changes []Change
	for _, it := range d.cargo.items {
		now, err := d.client.read(ctx, Ref{Scope: d.head.Scope, Key: string(it.Key)})
		if errors.Is(err, ErrNotFound) || err == nil && State(now.head.State) != StatePending {
			continue
		}
		if err != nil {
			return nil, err
		}
		if withdraw {
			changes = append(changes, Change{OpRemove, Record{Scope: d.head.Scope, Key: string(it.Key), Rev: now.rec.Rev}})
			continue
		}
		h := *now.head
		change(&h)
		h.Call = ""
		rec, err := d.client.recordOf(&h, now.rec.Rev)
		if err != nil {
			return nil, err
		}
		changes = append(changes, Change{OpReplace, rec})
	}
	return changes, nil
}

// expireItems ends a call that was never processed and may no longer be sent. Nobody
// waits for it, so the Settled hook is told.
func (d *call) expireItems(o outcome) outcome {
	sight, err := d.client.sight(d.ctx, wallClock())
	if err == nil {
		err = d.end(func(h *record.Head) {
			h.State, h.Fate, h.Cause, h.Settled = uint8(StateSettled), uint8(FateNotDone), causeOf(ErrExpired), wallClock()
			h.SweepAge, h.LastError = sight.Age+d.client.opts.Keep, shortText(o.why)
			h.Untold = d.client.opts.Settled != nil
		})
	}
	if err != nil {
		return d.unsaved(o, &storeError{err})
	}
	o.entry = d.client.entryOf(d.head)
	d.client.traceEnded(o.entry, o.why)
	_ = d.client.tellAll(d.ctx) // what it doesn't reach, the next pass tells
	return o
}
