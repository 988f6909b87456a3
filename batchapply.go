package idem

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idem/internal/crash"
	"github.com/idem-go/idem/keystore"
)

// apply writes down what an answer means: what is settled, and one call more for the
// rest.
func (b *batchCall) apply(plans []itemPlan) outcome { return b.applyTo(plans, plans) }

// applyTo is apply with a call more for the rest of each part. Everything is one
// transaction.
func (b *batchCall) applyTo(plans []itemPlan, parts ...[]itemPlan) outcome {
	changes := []keystore.Change{b.entries.remove(b.head, b.rev)}
	carrier := map[Key]*batchCall{}
	halved := len(parts) > 1
	for _, part := range parts {
		n, more, err := b.successor(part, halved || progress(plans))
		if err != nil {
			return b.abort(plans, err)
		}
		if n == nil {
			continue
		}
		n.follows = !halved
		changes = append(changes, more...)
		for _, it := range n.items {
			carrier[it.Key] = n
		}
	}
	crash.At(crash.Answered)
	heads, err := b.commitItems(plans, carrier, changes)
	if errors.Is(err, ErrFull) {
		for i := range plans {
			plans[i].lost = true // the fates matter more than the answers
		}
		heads, err = b.commitItems(plans, carrier, changes)
	}
	if err != nil {
		return b.abort(plans, err)
	}
	crash.At(crash.Settled)
	b.tellSettled(plans, heads)
	o := b.outcome(nil)
	o.final = true
	b.tracer.ended(b.parent, o.entry, nil)
	return o
}

// commitItems writes down what becomes of the items, with the other changes.
func (b *batchCall) commitItems(plans []itemPlan, carrier map[Key]*batchCall, changes []keystore.Change) ([]*head, error) {
	heads := make([]*head, len(plans))
	changes = slices.Clip(changes)
	for i, p := range plans {
		h, change, err := b.itemChange(p, carrier[p.item.Key])
		if err != nil {
			return nil, err
		}
		if heads[i] = h; h != nil {
			changes = append(changes, change)
		}
	}
	return heads, b.commit(changes...)
}

// progress tells an answer that settled something: what it left open is then no
// retry, and a batch in which every call has one refused item still comes to its end.
func progress(plans []itemPlan) bool {
	return slices.ContainsFunc(plans, func(p itemPlan) bool { return p.next == itemSettle })
}

// abort ends a call whose answer couldn't be written down: it stays Pending, to be
// sent again for the same answer.
func (b *batchCall) abort(plans []itemPlan, err error) outcome {
	for _, n := range b.next {
		n.release()
	}
	b.next = nil
	o := b.storeBroke(err)
	for _, p := range plans {
		if p.res.Fate == FateDone { // known, though not durable
			b.tellItem(ItemResult{ID: p.item.ID, Key: p.item.Key, Fate: FateDone, Status: p.res.Status, Body: p.res.Body, Err: o.failure()}, Entry{})
		}
	}
	return o
}

// successor makes the call that goes on with the open items of plans, nil if none
// may. It is claimed before it is written. A fresh one has chances of its own.
func (b *batchCall) successor(plans []itemPlan, fresh bool) (*batchCall, []keystore.Change, error) {
	items, first, clean := b.goingOn(plans)
	if len(items) == 0 {
		return nil, nil, nil
	}
	n, err := encodeCall(b.client, b.batchContext(), b.head.Batch, b.head.Codec, b.codec, items)
	if err != nil && !isStoreError(err) {
		strand(plans, err)
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	b.handOver(n, fresh)
	if n.before.items = !clean; n.before.items {
		n.head.FirstSent, n.head.Epoch = first, b.head.Epoch // a call's window is its oldest item's
	}
	if n.asked > 0 {
		n.head.RetryAt, n.head.RetryEpoch = n.retryAfter(n.asked), n.epoch(n.ctx)
	}
	changes, err := n.commitCall()
	if err == nil {
		err = n.take(n.head.Key, true)
	}
	if err != nil {
		n.release()
		return nil, nil, err
	}
	b.next = append(b.next, n)
	return n, changes, nil
}

// goingOn are the items that go into another call, when the first of them was first
// sent, and whether none of them can have been applied yet.
func (b *batchCall) goingOn(plans []itemPlan) (items []KeyedItem, first time.Time, clean bool) {
	first, clean = b.head.FirstSent, true
	for _, p := range plans {
		switch {
		case p.next == itemAgain:
		case p.next == itemOpen && b.keysHonoured():
			clean = false
		default:
			continue
		}
		items = append(items, p.item)
		if h := p.now.head; h.ItemBefore && h.FirstSent.Before(first) {
			first = h.FirstSent
		}
	}
	return items, first, clean
}

// handOver gives the next call what holds for the whole chain.
func (b *batchCall) handOver(n *batchCall, fresh bool) {
	n.in, n.op, n.background, n.asked = b.in, b.op, b.background, b.waitFor
	if !fresh {
		n.tries, n.delays, n.began, n.head.Strikes = b.tries, b.delays, b.began, b.head.Strikes
	}
	n.emit, n.told, n.foreign = b.emit, b.told, b.foreign
	n.head.Created, n.head.Expires = b.head.Created, b.head.Expires
}

// retryAfter is when a call may be sent, within its window, so that the wait an
// answer asked for outlives a restart.
func (b *batchCall) retryAfter(wait time.Duration) time.Time {
	at := b.client.sweeper.now().Add(wait)
	if end, ends := b.windowEnd(); ends && b.before.items && at.After(end) {
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
func (b *batchCall) batchContext() context.Context {
	ctx := context.Context(belowContext{b.parent})
	if b.head.AccountPerCall {
		return WithAccount(ctx, b.head.Account)
	}
	return ctx
}

// itemChange is what becomes of one item; a nil head means nothing.
func (b *batchCall) itemChange(p itemPlan, carrier *batchCall) (*head, keystore.Change, error) {
	h := *p.now.head
	var response *answer
	switch {
	case p.next == itemGone:
		return nil, keystore.Change{}, nil
	case p.next == itemSettle:
		if err := b.settleItem(&h, p.res); err != nil {
			return nil, keystore.Change{}, err
		}
		if h.TooLarge = p.lost || p.res.Trimmed; p.res.Status != 0 && !h.TooLarge {
			response = &answer{status: p.res.Status, body: p.res.Body}
		}
	case carrier != nil:
		h.Call = carrier.head.Key
		switch {
		case h.ItemBefore: // its first send stays
		case p.next == itemOpen:
			h.ItemBefore, h.FirstSent, h.Epoch = true, b.head.FirstSent, b.head.Epoch
		default:
			h.FirstSent, h.Epoch = carrier.head.FirstSent, carrier.head.Epoch
		}
	default:
		reason := "the answer to its call leaves it open, and it can't go into another"
		if p.res.Err != nil {
			reason = shortText(p.res.Err)
		}
		h.strand(causeOf(ErrInDoubt), reason)
	}
	change, err := b.entries.replace(&h, p.now.rec.Rev, response)
	return &h, change, err
}

func (b *batchCall) settleItem(h *head, res ItemResult) error {
	sight, err := b.client.sweeper.sight(b.ctx)
	if err != nil {
		return err
	}
	h.settle(res.Fate, "")
	h.Status, h.Attempts = res.Status, b.head.Attempts
	h.SweepAge = after(sight.Age, b.client.opts.Keep)
	h.Untold = b.background && b.client.opts.Settled != nil
	if res.Err != nil {
		h.LastError = shortText(b.scrub(res.Err))
	}
	return nil
}

// tellSettled reports what the commit settled, and what it left to nobody.
func (b *batchCall) tellSettled(plans []itemPlan, heads []*head) {
	for i, p := range plans {
		h := heads[i]
		if h == nil || h.State == StatePending {
			continue
		}
		res := p.res
		switch {
		case h.State == StateAmbiguous:
			res.Fate = FateUnknown
			res.Err = &Error{Op: b.op, Intent: h.Intent, Key: h.Key, Attempts: b.head.Attempts, Err: fmt.Errorf("%w: %s", ErrInDoubt, h.Reason)}
		case res.Fate == FateNotDone:
			cause := res.Err
			if cause == nil {
				cause = fmt.Errorf("idem: refused with status %d", res.Status)
			}
			res.Err = &Error{Op: b.op, Intent: h.Intent, Key: h.Key, Attempts: b.head.Attempts, Fate: FateNotDone, Err: cause}
		default:
			res.Err = nil
		}
		res.Retry, res.RetryAfter = false, 0
		b.tellItem(res, b.entries.entry(h))
		if h.Untold {
			b.tellOf(h, p.now.rec.Rev+1)
		}
	}
}

// tellOf tells Settled of an item that the call's commit settled.
func (b *batchCall) tellOf(item *head, rev uint64) {
	d := b.client.newCall(b.op, b.ctx)
	defer d.end()
	d.head, d.rev, d.account = item, rev, item.Account
	d.client.tell(d)
}

// endItems are the changes that go with the call's own end: its items withdrawn with
// it, or left as change says.
func (b *batchCall) endItems(withdraw bool, change func(*head)) ([]keystore.Change, error) {
	var changes []keystore.Change
	for _, it := range b.items {
		now, err := b.entries.byKey(b.writes, it.Key)
		if errors.Is(err, ErrNotFound) || err == nil && now.head.State != StatePending {
			continue
		}
		if err != nil {
			return nil, err
		}
		if withdraw {
			changes = append(changes, b.entries.remove(now.head, now.rec.Rev))
			continue
		}
		h := *now.head
		change(&h)
		h.Call = ""
		replaced, err := b.entries.replace(&h, now.rec.Rev, nil)
		if err != nil {
			return nil, err
		}
		changes = append(changes, replaced)
	}
	return changes, nil
}

// expireItems ends a call that was never processed and may no longer be sent. Nobody
// waits for it, so the Settled hook is told.
func (b *batchCall) expireItems(o outcome) outcome {
	sight, err := b.client.sweeper.sight(b.ctx)
	if err == nil {
		err = b.finish(func(h *head) {
			h.settle(FateNotDone, causeOf(ErrExpired))
			h.SweepAge, h.LastError = after(sight.Age, b.client.opts.Keep), shortText(o.why)
			h.Untold = b.client.opts.Settled != nil
		})
	}
	if err != nil {
		return b.unsaved(o, &storeError{err})
	}
	o.entry = b.entries.entry(b.head)
	b.tracer.ended(b.parent, o.entry, o.why)
	_, _ = b.client.tellAll(b.ctx, false) // what it doesn't reach, the next pass tells
	return o
}
