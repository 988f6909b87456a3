package idem

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/idem-go/idem/internal/crash"
	"github.com/idem-go/idem/internal/record"
)

// cargo is what a batch's call carries. The call is an entry with a key of its own,
// the items are entries that point to it; both are written in one transaction.
type cargo struct {
	codec   BatchCodec
	items   []KeyedItem
	emit    func(ItemResult, Entry)
	next    []*call       // the calls that go on with what this one left open
	told    map[Key]bool  // items whose result was emitted
	waitFor time.Duration // the longest wait that an item's answer asked for
}

// keysHonoured tells whether the provider honours item keys.
func (c *cargo) keysHonoured() bool {
	k, ok := c.codec.(interface{ ItemKeys() bool })
	return ok && k.ItemKeys()
}

func (c *cargo) tell(res ItemResult, e Entry) {
	if !c.told[res.Key] {
		c.told[res.Key] = true
		c.emit(res, e)
	}
}

// callFor sends new items in one call, or in more if they don't fit.
func (r *batchRun) callFor(items []newItem) {
	d, err := r.newCall(items)
	var broke *storeError
	switch {
	case err == nil:
		if end := r.client.driveCalls(d); end.broke != nil {
			r.fail(end.broke)
		}
	case errors.Is(err, ErrConflict):
		r.sortAgain(items, err)
	case errors.As(err, &broke):
		r.refuse(items, err)
		r.fail(err)
	case len(items) > 1 && r.ctx.Err() == nil: // too large, or one of them can't be written
		r.callFor(items[:len(items)/2])
		r.callFor(items[len(items)/2:])
	default:
		r.refuse(items, err)
	}
}

// sortAgain parts the items that some other run was faster with from the others.
func (r *batchRun) sortAgain(items []newItem, conflict error) {
	var fresh, known []newItem
	for _, it := range items {
		f, err := r.client.find(r.intentOf(it.Item))
		if it.old = nil; err == nil && r.followUp(it.Item, f) {
			it.old = &f
		}
		if err == nil && it.old == nil {
			known = append(known, it)
		} else {
			fresh = append(fresh, it)
		}
	}
	if len(known) == 0 {
		r.refuse(items, conflict)
		return
	}
	if len(fresh) > 0 {
		r.callFor(fresh)
	}
	for _, it := range known {
		r.continueItem(it.Item)
	}
}

// refuse reports items for which no call could begin.
func (r *batchRun) refuse(items []newItem, err error) {
	var broke *storeError
	for _, it := range items {
		in := r.intentOf(it.Item)
		o := r.client.refuse(in, err)
		if errors.As(err, &broke) && o.fate == FateNotDone {
			o.fate = FateUnknown // the commit may be there all the same
		}
		o.in = nil
		r.results <- ItemResult{ID: it.ID, Key: o.key, Fate: o.fate, Err: o.failure()}
	}
}

// newCall journals a call and its items in one transaction.
func (r *batchRun) newCall(items []newItem) (*call, error) {
	c := r.client
	keyed := make([]KeyedItem, len(items))
	for i, it := range items {
		in := r.intentOf(it.Item)
		parent := Key("")
		if it.old != nil {
			parent = Key(it.old.head.Key)
		}
		keyed[i] = KeyedItem{it.Item, r.freeKey(in, it.ID, parent)}
	}
	d, err := c.encodeCall(r.itemContext(), r.batch.Name, r.batch.Codec, r.codec, keyed)
	if err != nil {
		return nil, err
	}
	d.cargo.emit = func(res ItemResult, _ Entry) { r.results <- res }
	changes, err := d.commitCall()
	for i, it := range items {
		if err != nil {
			break
		}
		var more []Change
		more, err = d.createItem(r.intentOf(it.Item), keyed[i], it.old)
		changes = append(changes, more...)
	}
	if err == nil {
		err = d.take(true)
	}
	if err != nil {
		d.release()
		return nil, err
	}
	d.guard(func() {
		crash.At(crash.Uncommitted)
		err = c.ks.Commit(context.WithoutCancel(r.ctx), changes...)
	})
	if err != nil {
		d.release()
		if !errors.Is(err, ErrConflict) {
			err = &storeError{err}
		}
		return nil, err
	}
	d.guard(func() {
		crash.At(crash.Committed)
		c.traceBegan(c.entryOf(d.head))
	})
	return d, nil
}

// encodeCall makes the pass for a call over items, its bytes fixed, nothing written.
func (c *Client) encodeCall(ctx context.Context, batch, codecName string, codec BatchCodec, items []KeyedItem) (*call, error) {
	req, err := codec.Encode(belowContext{ctx}, slices.Clone(items)) // a codec may sort what it is given
	if err == nil && req == nil {
		err = &InvalidError{"BatchCodec.Encode", nil, "returned no request"}
	}
	if err != nil {
		return nil, err
	}
	// The call has no name, whatever Options.Name would make of it.
	req = req.WithContext(context.WithValue(ctx, itemKeyKey, itemIntent{}))
	in, err := c.prepare("Batch", req, nil)
	if err != nil {
		return nil, err
	}
	if in.skip || in.read {
		return nil, &InvalidError{"BatchCodec.Encode", req.Method, "must return a request that is an intent"}
	}
	d, err := c.newCall(in, cmp.Or(in.key, in.dialect.mint()))
	if err != nil {
		return nil, err
	}
	d.head.Batch, d.head.Codec = batch, codecName
	d.cargo = &cargo{codec: codec, items: items, told: map[Key]bool{}}
	// Where the items' keys are honoured, a call is keyed by them.
	d.head.Unkeyed = d.head.Unkeyed && !d.cargo.keysHonoured()
	for _, it := range items {
		d.head.Items = append(d.head.Items, string(it.Key))
	}
	return d, nil
}

// commitCall is the change that creates the call's own entry.
func (d *call) commitCall() ([]Change, error) {
	rec, err := d.client.recordOf(d.head, 0)
	if err == nil {
		rec.Request, err = d.client.codec.closeMessage(rec.Scope, rec.Key, partRequest, d.wire.message())
	}
	d.rev = 1
	return []Change{{OpCreate, rec}}, err
}

// createItem is the change that creates an item's entry, and takes its name from the
// NotDone intent that had it.
func (d *call) createItem(in *intent, it KeyedItem, old *held) ([]Change, error) {
	c := d.client
	h := &record.Head{
		Key: string(it.Key), Scope: d.head.Scope, Intent: in.name, Account: in.account, AccountGift: in.gift,
		State: uint8(StatePending), Method: d.head.Method, URL: d.head.URL, Fingerprint: in.sum,
		Created: d.head.Created, FirstSent: d.head.FirstSent, Epoch: d.head.Epoch, Expires: d.head.Expires,
		Dialect: d.head.Dialect, Window: d.head.Window, Margin: d.head.Margin,
		Batch: d.head.Batch, Item: it.ID, Call: d.head.Key,
	}
	var changes []Change
	if old != nil {
		h.Parent = old.head.Key
		freed := *old.head
		freed.Freed = true
		rec, err := c.recordOf(&freed, old.rec.Rev)
		if err != nil {
			return nil, err
		}
		changes = append(changes, Change{OpReplace, rec})
	}
	rec, err := c.recordOf(h, 0)
	if err == nil {
		rec.Request, err = c.codec.closeMessage(rec.Scope, rec.Key, partRequest, &record.Message{Body: it.Body})
	}
	return append(changes, Change{OpCreate, rec}), err
}

// chainEnd is what became of a call and of those that went on with it.
type chainEnd struct {
	keys  []Key
	why   error // of the last one that left something open
	broke error // the journal's failure
}

// driveCalls drives a call, and then those that go on with what it left open.
func (c *Client) driveCalls(first *call) (end chainEnd) {
	queue := []*call{first}
	defer func() { // after a panic
		for _, d := range queue {
			d.release()
			for _, n := range d.cargo.next {
				n.release()
			}
		}
	}()
	for len(queue) > 0 {
		d := queue[0]
		end.keys = append(end.keys, Key(d.head.Key))
		o := d.driveCall()
		if o.why != nil {
			end.why = o.why
		}
		if o.storeBroke() {
			end.broke = o.why
		}
		for _, it := range d.cargo.items {
			if !d.cargo.told[it.Key] && !d.carriedOn(it.Key) {
				d.tellOpen(it, o)
			}
		}
		queue = append(queue[1:], d.cargo.next...)
		d.release()
	}
	return end
}

// driveCall waits as long as backoff and an earlier answer say, and sends.
func (d *call) driveCall() outcome {
	if d.tries > 0 || d.follows {
		d.last = false
		if err := d.pause(verdict{then: stepRetry}); err != nil {
			return d.giveUp(err)
		}
	}
	return d.client.drive(d)
}

// carriedOn tells whether a later call has the item.
func (d *call) carriedOn(key Key) bool {
	for _, n := range d.cargo.next {
		for _, it := range n.cargo.items {
			if it.Key == key {
				return true
			}
		}
	}
	return false
}

// tellOpen reports an item that the call's end left open, by the call's outcome.
func (d *call) tellOpen(it KeyedItem, o outcome) {
	o.in, o.name, o.key = nil, ItemName(d.head.Batch, it.ID), it.Key
	res := ItemResult{ID: it.ID, Key: it.Key, Fate: o.fate, Err: o.failure()}
	e := Entry{
		Key: it.Key, Intent: o.name, Scope: d.head.Scope, Account: d.head.Account, Batch: d.head.Batch, Item: it.ID,
		Fate: o.fate, State: o.entry.State, RetryAt: o.entry.RetryAt, client: d.client,
	}
	if e.State == StatePending {
		e.Call = Key(d.head.Key)
	}
	if o.answer != nil {
		res.Status = o.answer.status
	}
	d.cargo.tell(res, e)
}

// decodable tells an answer that is the codec's to read, if it is whole. The table must
// not judge one that is too long: it would take each item for what the status says.
func decodable(v verdict, a *answer) bool {
	switch v.row {
	case "2xx", "4xx", "poll 2xx":
	case "202":
		if v.then != stepSettle {
			return false
		}
	default:
		return false
	}
	return a.status >= 200 && a.status < 300 || a.status == http.StatusBadRequest || a.status == http.StatusUnprocessableEntity
}
