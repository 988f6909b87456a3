package idem

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

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
	emit := func(res ItemResult, _ Entry) { r.results <- res }
	d, err := r.newCall(items, emit)
	switch {
	case errors.Is(err, ErrBodyTooLarge) && len(items) > 1:
		r.callFor(items[:len(items)/2])
		r.callFor(items[len(items)/2:])
	case errors.Is(err, ErrConflict) && len(items) > 1:
		for i := range items { // some other run was faster with one of them
			r.callFor(items[i : i+1])
		}
	case errors.Is(err, ErrConflict):
		r.continueItem(items[0].Item)
	case err != nil:
		for _, it := range items {
			in := r.intentOf(it.Item)
			o := r.client.refuse(in, err)
			r.results <- ItemResult{ID: it.ID, Key: o.key, Fate: o.fate, Err: o.failure()}
		}
	default:
		r.client.driveCalls(d)
	}
}

// newCall journals a call and its items in one transaction.
func (r *batchRun) newCall(items []newItem, emit func(ItemResult, Entry)) (*call, error) {
	c := r.client
	keyed := make([]KeyedItem, len(items))
	for i, it := range items {
		in := r.intentOf(it.Item)
		parent := Key("")
		if it.old != nil {
			parent = Key(it.old.head.Key)
		}
		keyed[i] = KeyedItem{it.Item, c.itemKey(in.account, r.batch.Name, it.ID, parent)}
	}
	d, err := c.encodeCall(r.itemContext(), r.batch.Name, r.batch.Codec, r.codec, keyed)
	if err != nil {
		return nil, err
	}
	d.cargo.emit = emit
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
	if err == nil {
		d.guard(func() {
			c.at(pointUncommitted)
			err = c.ks.Commit(context.WithoutCancel(r.ctx), changes...)
		})
	}
	if err != nil {
		d.release()
		if !errors.Is(err, ErrConflict) && endOf(r.ctx) == nil {
			err = &storeError{err}
		}
		return nil, err
	}
	d.guard(func() {
		c.at(pointCommitted)
		c.traceBegan(c.entryOf(d.head))
	})
	return d, nil
}

// encodeCall makes the pass for a call over items, its bytes fixed, nothing written.
func (c *Client) encodeCall(ctx context.Context, batch, codecName string, codec BatchCodec, items []KeyedItem) (*call, error) {
	req, err := codec.Encode(belowContext{ctx}, items)
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
	for _, it := range items {
		d.head.Items = append(d.head.Items, string(it.Key))
	}
	d.cargo = &cargo{codec: codec, items: items, told: map[Key]bool{}}
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

// driveCalls drives a call, and then those that go on with what it left open.
func (c *Client) driveCalls(first *call) {
	for queue := []*call{first}; len(queue) > 0; {
		d := queue[0]
		queue = queue[1:]
		o := d.driveCall()
		for _, it := range d.cargo.items {
			if !d.cargo.told[it.Key] && !d.carriedOn(it.Key) {
				d.tellOpen(it, o)
			}
		}
		queue = append(queue, d.cargo.next...)
		d.release()
	}
}

// driveCall waits as long as an earlier answer asked for, and sends.
func (d *call) driveCall() outcome {
	if d.tries > 0 {
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
	o.in, o.name, o.key = nil, it.ID, it.Key
	res := ItemResult{ID: it.ID, Key: it.Key, Fate: o.fate, Err: o.failure()}
	e := Entry{Key: it.Key, Scope: d.head.Scope, Batch: d.head.Batch, Item: it.ID, Fate: o.fate, State: o.entry.State, client: d.client}
	if o.answer != nil {
		res.Status = o.answer.status
	}
	d.cargo.tell(res, e)
}

// continueItem goes on with an item that the journal knows.
func (r *batchRun) continueItem(it Item) {
	c := r.client
	in := r.intentOf(it)
	f, err := c.find(in)
	if err == nil && State(f.head.State) == StatePending && f.head.Call != "" && bytes.Equal(f.head.Fingerprint, in.sum) {
		r.driven.do(Key(f.head.Call), func() { err = r.continueCall(f.head.Call) })
		f, err = c.findAfter(in, err)
	}
	r.results <- r.known(in, it, f, err)
}

// findAfter reads an item again after its call was driven.
func (c *Client) findAfter(in *intent, err error) (held, error) {
	if err != nil {
		return held{}, err
	}
	return c.find(in)
}

// known is the result of an item as the journal has it.
func (r *batchRun) known(in *intent, it Item, f held, err error) ItemResult {
	c := r.client
	var o outcome
	switch {
	case errors.Is(err, ErrNotFound): // withdrawn: nothing of it reached the provider
		o = outcome{op: "Batch", fate: FateNotDone, why: fmt.Errorf("%w: refused before processing", ErrExhausted)}
	case err != nil:
		o = c.fail(in, f, err)
	default:
		if err := c.mayHave(in, f.head); err != nil {
			o = c.fail(in, f, err)
		} else if State(f.head.State) == StateSettled {
			o = c.recall(in, f)
		} else {
			o = c.fail(in, f, openReason(f.head))
		}
	}
	res := o.itemResult(it.ID)
	if o.fate != FateDone {
		res.Err = o.itemError()
	}
	return res
}

// openReason says why an entry that isn't settled is open.
func openReason(h *record.Head) error {
	switch State(h.State) {
	case StateAbandoned:
		return fmt.Errorf("%w: %s", ErrAbandoned, h.Reason)
	case StateAmbiguous:
		return fmt.Errorf("%w: %s", causeError(h.Cause), h.Reason)
	}
	return fmt.Errorf("%w: %s", ErrInDoubt, h.LastError)
}

// continueCall drives a call that an earlier run left.
func (r *batchRun) continueCall(key string) error {
	c := r.client
	f, err := c.read(r.ctx, Ref{Scope: c.opts.Scope, Key: key})
	if errors.Is(err, ErrNotFound) {
		return nil // it has ended since
	}
	if err != nil {
		return &storeError{err}
	}
	d := c.pass("Batch", r.ctx)
	d.head = f.head
	d.in = &intent{op: "Batch", ctx: r.itemContext(), account: f.head.Account}
	if err := d.take(true); err != nil {
		d.release()
		return err
	}
	f, err = c.read(r.ctx, Ref{Scope: c.opts.Scope, Key: key, Bodies: true})
	if err == nil {
		err = d.loadCall(f)
	}
	if err != nil {
		d.release()
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		return err
	}
	d.cargo.emit = func(ItemResult, Entry) {} // items are reported as they are read
	c.driveCalls(d)
	return nil
}

// loadCall takes a call and its items over from the journal.
func (d *call) loadCall(f held) error {
	if err := d.load(f); err != nil {
		return err
	}
	codec := d.client.opts.Codecs[d.head.Codec]
	if codec == nil {
		return &InvalidError{"Options.Codecs", d.head.Codec, "has no codec of this name, so that the call's answer can't be read"}
	}
	if err := d.loadItems(); err != nil {
		return err
	}
	d.cargo.codec = codec
	return nil
}

// loadItems reads a call's items, if the entry is one.
func (d *call) loadItems() error {
	if d.head.Codec == "" {
		return nil
	}
	d.cargo = &cargo{told: map[Key]bool{}}
	for _, key := range d.head.Items {
		it, err := d.client.read(d.ctx, Ref{Scope: d.head.Scope, Key: key, Bodies: true})
		if err != nil {
			return err
		}
		m, err := d.client.codec.openMessage(it.rec, partRequest, it.rec.Request)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		d.itemsBefore = d.itemsBefore || it.head.ItemBefore
		k := KeyedItem{Item: Item{ID: it.head.Item}, Key: Key(key)}
		if m != nil {
			k.Body = m.Body
		}
		d.cargo.items = append(d.cargo.items, k)
	}
	return nil
}

// resumeCall drives a batch's call for Resume and Run, which then hear of its items.
func (p *resumePass) resumeCall(ctx context.Context, head *record.Head) error {
	c := p.client
	if head.AccountGift {
		ctx = WithAccount(ctx, head.Account)
	}
	d := c.pass(p.op, ctx)
	d.carried, d.head = true, head
	defer d.release()
	if err := d.take(false); err != nil {
		if errors.Is(err, ErrConflict) {
			return errDriven
		}
		return err
	}
	f, err := c.read(ctx, Ref{Scope: head.Scope, Key: head.Key, Bodies: true})
	if errors.Is(err, ErrNotFound) {
		return errDriven // it ended while we came
	}
	if err == nil {
		err = d.loadCall(f)
	}
	if err != nil {
		return err
	}
	d.cargo.emit = func(res ItemResult, e Entry) {
		p.tell(e, res.Fate, res.Err)
		p.again(outcome{entry: e}, &record.Head{Key: head.Key})
	}
	c.driveCalls(d)
	return nil
}

// decodable tells an answer that is the codec's to read, if it is whole. The table must
// not judge one that is too long: it would take each item for what the status says.
func decodable(v verdict, a *answer) bool {
	switch v.row {
	case "2xx", "4xx":
	case "202":
		if v.then != stepSettle {
			return false
		}
	default:
		return false
	}
	ok := a.status >= 200 && a.status < 300 || a.status == http.StatusBadRequest || a.status == http.StatusUnprocessableEntity
	return ok && a.cut == nil
}
