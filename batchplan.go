package idem

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/idem-go/idem/internal/record"
)

// fateOfItem is what an answer means for one item of its call.
type itemPlan struct {
	item   KeyedItem
	now    held
	before bool // an earlier call, or an earlier attempt of this one, may have applied it
	res    ItemResult
	next   itemStep
}

type itemStep uint8

const (
	itemOpen   itemStep = iota // the answer doesn't settle it
	itemSettle                 // Done, or NotDone for good
	itemAgain                  // didn't happen, and goes into another call
	itemGone                   // settled meanwhile by a person
)

// decode reads an answer through the codec. over is false if the same call is to be
// sent again.
func (d *call) decode(v verdict) (o outcome, over bool) {
	var results []ItemResult
	err := d.answer.lost // over the limit, or a stream
	if err == nil {
		results, err = d.cargo.codec.Decode(d.answer.response(), d.cargo.items)
	}
	plans, storeErr := d.plan(v, results)
	if storeErr != nil {
		return d.unsaved(d.outcome(nil), &storeError{storeErr}), true
	}
	if err != nil || fruitless(plans) {
		return d.strike(v, plans, err)
	}
	return d.apply(plans), true
}

// plan weighs each item's result against what was sent before.
func (d *call) plan(v verdict, results []ItemResult) ([]itemPlan, error) {
	byID := d.index(results)
	proof := v.replayed || d.dialect.KeyFirst
	plans := make([]itemPlan, len(d.cargo.items))
	for i, it := range d.cargo.items {
		now, err := d.client.read(d.ctx, Ref{Scope: d.head.Scope, Key: string(it.Key)})
		if err != nil {
			return nil, err
		}
		p := itemPlan{item: it, now: now, res: byID[it.ID], before: now.head.ItemBefore || d.before}
		p.res.ID, p.res.Key = it.ID, it.Key
		switch {
		case State(now.head.State) != StatePending:
			p.next = itemGone
		case p.res.Fate == FateDone:
			p.next = itemSettle
		case p.res.Fate == FateNotDone && p.before && !proof:
			p.res.Fate = FateUnknown
		case p.res.Fate == FateNotDone && p.res.Retry:
			p.next = itemAgain
			d.cargo.waitFor = max(d.cargo.waitFor, p.res.RetryAfter)
		case p.res.Fate == FateNotDone:
			p.next = itemSettle
		}
		plans[i] = p
	}
	return plans, nil
}

// index sorts results by ID. An item with two different results has none; one that
// wasn't in the call is reported.
func (d *call) index(results []ItemResult) map[string]ItemResult {
	ours := map[string]bool{}
	for _, it := range d.cargo.items {
		ours[it.ID] = true
	}
	byID := map[string]ItemResult{}
	for _, r := range results {
		before, twice := byID[r.ID]
		switch {
		case !ours[r.ID]:
			d.client.traceForeign(Key(d.head.Key), r.ID)
		case twice && (before.Fate != r.Fate || before.Status != r.Status):
			byID[r.ID] = ItemResult{Err: fmt.Errorf("%w: the answer has two results for it", ErrInDoubt)}
		case !twice:
			byID[r.ID] = r
		}
	}
	return byID
}

func (c *Client) traceForeign(call Key, id string) {
	c.opts.warn("the answer names an item that its call didn't carry", slog.String("call", string(call)), slog.String("item", id))
	if t := c.opts.Trace; t != nil && t.Foreign != nil {
		t.Foreign(call, id)
	}
}

// fruitless tells an answer that moves no item.
func fruitless(plans []itemPlan) bool {
	for _, p := range plans {
		if p.next != itemOpen {
			return false
		}
	}
	return true
}

// strike counts an answer that settled nothing: the same call again, then in halves,
// and an item alone takes the answer for its own.
func (d *call) strike(v verdict, plans []itemPlan, decodeErr error) (o outcome, over bool) {
	d.lastErr = decodeErr
	if decodeErr == nil {
		d.lastErr = errors.New("idem: the answer settles no item")
	}
	strikes := d.head.Strikes + 1
	if err := d.save(func(h *record.Head) { h.Strikes = strikes }, nil); err != nil {
		return d.unsaved(d.outcome(nil), err), true
	}
	if len(plans) > 1 && strikes < d.client.opts.Retry.maxAttempts() {
		d.before = d.before || v.fate != FateNotDone
		return outcome{}, false
	}
	if len(plans) == 1 {
		return d.ownAnswer(v, plans[0]), true
	}
	return d.halve(v), true
}

// ownAnswer makes the call's answer the only item's.
func (d *call) ownAnswer(v verdict, p itemPlan) outcome {
	p.res = d.asItem(p.item, v.fate)
	p.next = itemSettle
	if v.fate == FateUnknown || v.fate == FateNotDone && p.before && !v.replayed && !d.dialect.KeyFirst {
		p.res.Fate, p.next = FateUnknown, itemOpen
	}
	return d.apply([]itemPlan{p})
}

// asItem is the call's answer as that of one of its items.
func (d *call) asItem(it KeyedItem, fate Fate) ItemResult {
	return outcome{key: it.Key, fate: fate, answer: d.answer}.itemResult(it.ID)
}

// settleCall gives the table's verdict on the call to its items.
func (d *call) settleCall(v verdict) outcome {
	results := make([]ItemResult, len(d.cargo.items))
	for i, it := range d.cargo.items {
		results[i] = d.asItem(it, v.fate)
	}
	plans, err := d.plan(v, results)
	if err != nil {
		return d.unsaved(d.outcome(nil), &storeError{err})
	}
	return d.apply(plans)
}

// halve splits a call that is too large or doesn't get a readable answer. Items that
// may have been applied go on only where the provider honours their keys.
func (d *call) halve(v verdict) outcome {
	plans, err := d.plan(v, nil)
	if err != nil {
		return d.unsaved(d.outcome(nil), &storeError{err})
	}
	for i := range plans {
		if v.fate == FateNotDone && !plans[i].before {
			plans[i].next = itemAgain
		}
	}
	half := len(plans) / 2
	return d.applyTo(plans, plans[:half], plans[half:])
}

// apply writes down what an answer means: what is settled, and one call more for the
// rest.
func (d *call) apply(plans []itemPlan) outcome { return d.applyTo(plans, plans) }

// applyTo is apply with a call more for the rest of each part. Everything is one
// transaction.
func (d *call) applyTo(plans []itemPlan, parts ...[]itemPlan) outcome {
	honoured := d.cargo.keysHonoured()
	changes := []Change{{OpRemove, Record{Scope: d.head.Scope, Key: d.head.Key, Rev: d.rev}}}
	carrier := map[Key]*call{}
	for _, part := range parts {
		n, more, err := d.successor(part, honoured)
		if err != nil {
			return d.abort(plans, err)
		}
		if n == nil {
			continue
		}
		if len(parts) > 1 {
			n.tries, n.delays, n.began = 0, newDelays(d.client.opts.Retry), time.Now() // half a call has chances of its own
		}
		changes = append(changes, more...)
		for _, it := range n.cargo.items {
			carrier[it.Key] = n
		}
	}
	heads := make([]*record.Head, len(plans))
	for i, p := range plans {
		h, change, err := d.itemChange(p, carrier[p.item.Key])
		if err != nil {
			return d.abort(plans, err)
		}
		heads[i] = h
		if h != nil {
			changes = append(changes, change)
		}
	}
	d.client.at(pointAnswered)
	if err := d.client.ks.Commit(context.WithoutCancel(d.ctx), changes...); err != nil {
		return d.abort(plans, err)
	}
	d.client.at(pointSettled)
	d.tellSettled(plans, heads)
	o := d.outcome(nil)
	o.final = true
	return o
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
// may. It is claimed before it is written.
func (d *call) successor(plans []itemPlan, honoured bool) (*call, []Change, error) {
	var items []KeyedItem
	first := d.head.FirstSent
	clean := true
	for _, p := range plans {
		if p.next == itemAgain || p.next == itemOpen && honoured && len(d.cargo.items) > 1 {
			items = append(items, p.item)
			clean = clean && p.next == itemAgain
			if !p.now.head.FirstSent.IsZero() && p.now.head.FirstSent.Before(first) {
				first = p.now.head.FirstSent
			}
		}
	}
	if len(items) == 0 {
		return nil, nil, nil
	}
	n, err := d.client.encodeCall(d.batchContext(), d.head.Batch, d.head.Codec, d.cargo.codec, items)
	if err != nil {
		return nil, nil, err
	}
	n.in, n.op, n.carried = d.in, d.op, d.carried
	n.tries, n.delays, n.began, n.asked = d.tries, d.delays, d.began, d.cargo.waitFor
	n.cargo.emit, n.cargo.told = d.cargo.emit, d.cargo.told
	n.head.Created, n.head.Expires = d.head.Created, d.head.Expires
	if n.itemsBefore = !clean; n.itemsBefore {
		n.head.FirstSent, n.head.Epoch = first, d.head.Epoch // a call's window is its oldest item's
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

// batchContext is what the next call is made under: it outlives this one, and carries
// the entry's account.
func (d *call) batchContext() context.Context {
	if d.head.AccountGift {
		return WithAccount(d.parent, d.head.Account)
	}
	return d.parent
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
		if p.res.Status != 0 && !p.res.Trimmed {
			response = &answer{status: p.res.Status, body: p.res.Body}
		}
	case carrier != nil:
		h.Call = carrier.head.Key
		h.ItemBefore = p.next == itemOpen || h.ItemBefore
		if !h.ItemBefore {
			h.FirstSent, h.Epoch = carrier.head.FirstSent, carrier.head.Epoch
		}
	default:
		h.State, h.Call, h.Settled = uint8(StateAmbiguous), "", wallClock()
		h.Cause, h.Reason = causeOf(ErrInDoubt), "the answer to its call leaves it open, and the provider takes no item keys"
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
	h.Attempts, h.TooLarge = d.head.Attempts, res.Trimmed
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
		if err != nil {
			return nil, err
		}
		if State(now.head.State) != StatePending {
			continue
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
