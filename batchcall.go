package idem

import (
	"cmp"
	"context"
	"errors"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/idem-go/idem/internal/crash"
	"github.com/idem-go/idem/internal/record"
	"github.com/idem-go/idem/keystore"
)

// batchCall is a call that carries a batch's items. The call is an entry with a key of
// its own, the items are entries that point to it; both are written in one transaction.
type batchCall struct {
	*call
	codec   BatchCodec
	items   []KeyedItem
	emit    func(ItemResult, Entry)
	told    map[Key]bool  // items whose result was emitted
	next    []*batchCall  // the calls that go on with what this one left open
	waitFor time.Duration // the longest wait that an item's answer asked for
	follows bool          // it goes on after a call that settled something
	foreign *foreignIDs   // what answers of the chain named that no call carried
}

// maxCallAnswer bounds the answer to a call, which is in memory as a whole, however
// many items the call has.
const maxCallAnswer = 64 << 20

// carrying makes d the call that carries items.
func carrying(d *call, codec BatchCodec, items []KeyedItem) *batchCall {
	b := &batchCall{call: d, codec: codec, items: items, told: map[Key]bool{}}
	d.ends, d.riders, d.sharedKeys = b, b.endItems, b.keysHonoured()
	n, each := int64(max(len(items), 1)), d.client.opts.MaxResult
	d.limit = max(each, min(maxCallAnswer, min(each, (math.MaxInt64-1)/n)*n)) // the codec needs all of the answer
	return b
}

// keysHonoured tells whether the provider honours item keys.
func (b *batchCall) keysHonoured() bool {
	k, ok := b.codec.(interface{ ItemKeys() bool })
	return ok && k.ItemKeys()
}

func (b *batchCall) tellItem(res ItemResult, e Entry) {
	if !b.told[res.Key] {
		b.told[res.Key] = true
		b.emit(res, e)
	}
}

// weigh takes back what a verdict on the call doesn't say of its items: that a call was
// done, in an answer that can't be seen, doesn't mean that each of them was. An answer
// that is the codec's to read is final, whatever its status says.
func (b *batchCall) weigh(v verdict) verdict {
	fetch := v.then == stepFetch
	if v.row == rowCut || fetch {
		v.fate = FateUnknown
	}
	if b.last {
		b.answer.closeRest() // nobody gets it
		if fetch || decodable(v, b.answer) {
			v.then = stepSettle
		}
	}
	return v
}

// settle reads the answer, or gives the table's verdict on the call to its items. over
// is false if the same call is to be sent again.
func (b *batchCall) settle(v verdict) (o outcome, over bool) {
	if v.row == rowAlreadyDone || decodable(v, b.answer) {
		return b.decode(v)
	}
	return b.settleAll(v), true
}

// door halves a call that the provider refused for its length.
func (b *batchCall) door(v verdict) outcome {
	if b.answer.status == http.StatusRequestEntityTooLarge && len(b.items) > 1 {
		return b.tooLarge(v)
	}
	return b.call.door(v)
}

func (b *batchCall) giveUp(why error) outcome {
	switch b.endFor(why) {
	case endRefused:
		return b.settleAll(b.verdict)
	case endExpired:
		return b.expireItems(b.outcome(b.explain(why)))
	case endLeft:
		if b.poisoned(why) {
			return b.tooLarge(b.verdict)
		}
	}
	return b.call.giveUp(why)
}

// poisoned tells a call that the provider fails on again and again, which one of its
// items may be the cause of. A gateway's 502 to 504 say nothing of the items.
func (b *batchCall) poisoned(why error) bool {
	return errors.Is(why, ErrExhausted) && b.answer != nil && b.answer.status == http.StatusInternalServerError &&
		len(b.items) > 1 && b.keysHonoured()
}

// callFor sends new items in one call, or in more if they don't fit.
func (r *batchRun) callFor(items []newItem) {
	d, err := r.newCall(items)
	switch {
	case err == nil:
		if end := d.driveChain(); end.broke != nil {
			r.fail(end.broke)
		}
	case errors.Is(err, ErrConflict):
		r.sortAgain(items, err)
	case isStoreError(err):
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
		f, err := r.client.entries.find(r.intentOf(it.Item))
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
	for _, it := range items {
		in := r.intentOf(it.Item)
		o := r.client.refuse(in, err)
		if isStoreError(err) && o.fate == FateNotDone {
			o.fate = FateUnknown // the commit may be there all the same
		}
		o.in = nil
		r.results <- ItemResult{ID: it.ID, Key: o.key, Fate: o.fate, Err: o.failure()}
	}
}

// newCall journals a call and its items in one transaction.
func (r *batchRun) newCall(items []newItem) (*batchCall, error) {
	c := r.client
	keyed := make([]KeyedItem, len(items))
	for i, it := range items {
		in := r.intentOf(it.Item)
		parent := Key("")
		if it.old != nil {
			parent = it.old.head.Key
		}
		keyed[i] = KeyedItem{it.Item, r.freeKey(in, it.ID, parent)}
	}
	d, err := encodeCall(c, r.itemContext(), r.batch.Name, r.batch.Codec, r.codec, keyed)
	if err != nil {
		return nil, err
	}
	d.emit, d.foreign = func(res ItemResult, _ Entry) { r.results <- res }, &r.foreign
	changes, err := d.commitCall()
	for i, it := range items {
		if err != nil {
			break
		}
		var more []keystore.Change
		more, err = d.createItem(r.intentOf(it.Item), keyed[i], it.old)
		changes = append(changes, more...)
	}
	if err == nil {
		err = d.take(d.head.Key, true)
	}
	if err != nil {
		d.release()
		return nil, err
	}
	d.guard(func() {
		crash.At(crash.Uncommitted)
		err = d.commit(changes...)
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
		c.tracer.began(r.ctx, c.entries.entry(d.head))
	})
	return d, nil
}

// encodeCall makes the pass for a call over items, its bytes fixed, nothing written.
func encodeCall(c *Client, ctx context.Context, batch, codecName string, codec BatchCodec, items []KeyedItem) (*batchCall, error) {
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
	d, err := c.newEntry(in, cmp.Or(in.key, in.dialect.mint()))
	if err != nil {
		return nil, err
	}
	d.head.Batch, d.head.Codec = batch, codecName
	b := carrying(d, codec, items)
	// Where the items' keys are honoured, a call is keyed by them.
	if b.keysHonoured() {
		d.head.Unkeyed = false
	}
	for _, it := range items {
		d.head.Items = append(d.head.Items, it.Key)
	}
	return b, nil
}

// commitCall is the change that creates the call's own entry.
func (b *batchCall) commitCall() ([]keystore.Change, error) {
	change, err := b.entries.create(b.head, b.wire.Message())
	b.rev = change.Record.Rev
	return []keystore.Change{change}, err
}

// createItem is the change that creates an item's entry, and takes its name from the
// NotDone intent that had it.
func (b *batchCall) createItem(in *intent, it KeyedItem, old *held) ([]keystore.Change, error) {
	h := &head{
		Key: it.Key, Scope: b.head.Scope, Intent: in.name, Account: in.account, AccountPerCall: in.perCall,
		State: StatePending, Method: b.head.Method, URL: b.head.URL, Fingerprint: in.sum,
		Created: b.head.Created, FirstSent: b.head.FirstSent, Epoch: b.head.Epoch, Expires: b.head.Expires,
		Dialect: b.head.Dialect, Window: b.head.Window, Margin: b.head.Margin,
		Batch: b.head.Batch, Item: it.ID, Call: b.head.Key,
	}
	var changes []keystore.Change
	if old != nil {
		h.Parent = old.head.Key
		freed, err := b.entries.free(*old)
		if err != nil {
			return nil, err
		}
		changes = append(changes, freed)
	}
	created, err := b.entries.create(h, &record.Message{Body: it.Body})
	return append(changes, created), err
}

// chainEnd is what became of a call and of those that went on with it.
type chainEnd struct {
	keys  []Key
	last  outcome
	why   error // of the last one that left something open
	broke error // the journal's failure
}

// driveChain drives a call, and then those that go on with what it left open.
func (b *batchCall) driveChain() (end chainEnd) {
	queue := []*batchCall{b}
	defer func() { // after a panic
		for _, d := range queue {
			d.release()
			for _, n := range d.next {
				n.release()
			}
		}
	}()
	for len(queue) > 0 {
		d := queue[0]
		end.keys = append(end.keys, d.head.Key)
		o := d.driveCall()
		end.last = o
		if o.why != nil {
			end.why = o.why
		}
		if o.storeBroke() {
			end.broke = o.why
		}
		for _, it := range d.items {
			if !d.told[it.Key] && !d.carriedOn(it.Key) {
				d.tellOpen(it, o)
			}
		}
		queue = append(queue[1:], d.next...)
		d.release()
	}
	return end
}

// driveCall waits as long as backoff and an earlier answer say, and sends.
func (b *batchCall) driveCall() outcome {
	if b.tries > 0 || b.follows {
		b.last = false
		if err := b.pause(verdict{then: stepRetry}); err != nil {
			return b.giveUp(err)
		}
	}
	return b.drive()
}

// carriedOn tells whether a later call has the item.
func (b *batchCall) carriedOn(key Key) bool {
	for _, n := range b.next {
		for _, it := range n.items {
			if it.Key == key {
				return true
			}
		}
	}
	return false
}

// tellOpen reports an item that the call's end left open, by the call's outcome.
func (b *batchCall) tellOpen(it KeyedItem, o outcome) {
	o.in, o.name, o.key = nil, ItemName(b.head.Batch, it.ID), it.Key
	res := ItemResult{ID: it.ID, Key: it.Key, Fate: o.fate, Err: o.failure()}
	e := Entry{
		Key: it.Key, Intent: o.name, Scope: b.head.Scope, Account: b.head.Account, Batch: b.head.Batch, Item: it.ID,
		Fate: o.fate, State: o.entry.State, RetryAt: o.entry.RetryAt, entries: b.entries,
	}
	if e.State == StatePending {
		e.Call = b.head.Key
	}
	if o.answer != nil {
		res.Status = o.answer.status
	}
	b.tellItem(res, e)
}

// decodable tells an answer that is the codec's to read, if it is whole. The table must
// not judge one that is too long: it would take each item for what the status says.
func decodable(v verdict, a *answer) bool {
	switch v.row {
	case row2xx, row4xx, rowPoll2xx:
	case row202:
		if v.then != stepSettle {
			return false
		}
	default:
		return false
	}
	return a.status >= 200 && a.status < 300 || a.status == http.StatusBadRequest || a.status == http.StatusUnprocessableEntity
}
