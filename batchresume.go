package idem

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
)

// continueItem goes on with an item that the journal knows: with the call that
// carries it, and with those into which it went on while this run waited its turn.
func (r *batchRun) continueItem(it Item) {
	in := r.intentOf(it)
	f, err := r.client.entries.find(in)
	settled := err == nil && f.head.State == StateSettled
	var why error
	drove := false
	for call := Key(""); err == nil && f.head.Call != "" && f.head.Call != call && r.carriesOn(in, f.head); {
		call = f.head.Call
		if drove, why, err = r.driven.do(call, func() (chainEnd, bool, error) { return r.continueCall(call) }); err == nil {
			f, err = r.client.entries.find(in)
		}
	}
	if errors.Is(err, ErrNotFound) && !drove && r.ctx.Err() == nil {
		r.callFor([]newItem{{Item: it}}) // withdrawn by some other run, which was told so
		return
	}
	if err == nil && f.head.State == StateAmbiguous && in.mayHave(f.head) == nil {
		_, o, moved := r.client.goOn(in, f) // asks Reconcile
		if !errors.Is(moved, errMoved) {
			r.results <- o.itemResult(it.ID)
			return
		}
		f, err = r.client.entries.find(in)
	}
	res := r.known(in, it, f, err, why)
	res.Recalled = res.Recalled && settled
	r.results <- res
}

func (r *batchRun) carriesOn(in *intent, h *head) bool {
	return h.State == StatePending && bytes.Equal(h.Fingerprint, in.sum)
}

// known is the result of an item as the journal has it. Why is what stopped its call.
func (r *batchRun) known(in *intent, it Item, f held, err, why error) ItemResult {
	c := r.client
	var o outcome
	switch {
	case errors.Is(err, ErrNotFound): // withdrawn: nothing of it reached the provider
		if why == nil {
			why = fmt.Errorf("%w: refused before processing", ErrExhausted)
		}
		o = outcome{op: in.op, name: in.name, key: r.freeKey(in, it.ID, ""), fate: FateNotDone, why: why}
	case err != nil:
		o = c.fail(in, f, err)
	default:
		if err := in.mayHave(f.head); err != nil {
			o = c.fail(in, f, err)
		} else if f.head.State == StateSettled {
			var moved error
			if o, moved = c.recall(in, f); moved != nil {
				o = c.fail(in, f, fmt.Errorf("%w: it was forgotten meanwhile", ErrConflict))
			}
			if o.fate == FateNotDone && f.head.Cause == "" && f.head.LastError != "" {
				o.why = errors.New(f.head.LastError)
			}
		} else {
			if f.head.State != StatePending || why == nil {
				why = openReason(f.head)
			}
			o = c.fail(in, f, why)
		}
	}
	return o.itemResult(it.ID)
}

// openReason says why an entry that isn't settled is open.
func openReason(h *head) error {
	switch h.State {
	case StateAbandoned:
		return fmt.Errorf("%w: %s", ErrAbandoned, h.Reason)
	case StateAmbiguous:
		return fmt.Errorf("%w: %s", causeError(h.Cause), h.Reason)
	}
	return fmt.Errorf("%w: its call is open", ErrInDoubt)
}

// continueCall drives a call that an earlier run left. drove is false if it has
// ended meanwhile.
func (r *batchRun) continueCall(key Key) (end chainEnd, drove bool, err error) {
	c := r.client
	d, f, err := c.hold("Batch", r.ctx, &head{Scope: c.opts.Scope, Key: key}, true)
	if err != nil {
		return end, false, gone(err)
	}
	d.in = &intent{op: "Batch", ctx: r.itemContext(), account: f.head.Account}
	var b *batchCall
	d.guard(func() { b, err = loadCall(d, f) })
	if err != nil {
		d.release()
		return end, false, gone(err)
	}
	b.emit = func(ItemResult, Entry) {} // items are reported as they are read
	end = b.driveChain()
	return end, true, end.broke
}

// gone makes an absent call no error: it has ended.
func gone(err error) error {
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// loadCall takes a call and its items over from the journal.
func loadCall(d *call, f held) (*batchCall, error) {
	if err := d.load(f); err != nil {
		return nil, err
	}
	codec := d.client.opts.Codecs[d.head.Codec]
	if codec == nil {
		why := "has no codec of this name, so that the call's answer can't be read"
		return nil, &InvalidError{"Options.Codecs", d.head.Codec, why}
	}
	return loadItems(d, codec)
}

// carry loads a call's items, if the entry is one, so that they end with it.
func carry(d *call) error {
	if d.head.Codec == "" {
		return nil
	}
	_, err := loadItems(d, nil)
	return err
}

// loadItems reads a call's items.
func loadItems(d *call, codec BatchCodec) (*batchCall, error) {
	var items []KeyedItem
	told := map[Key]bool{}
	for _, key := range d.head.Items {
		it, err := d.entries.whole(d.ctx, key)
		if errors.Is(err, ErrNotFound) {
			continue // settled by a person, and swept since
		}
		if err != nil {
			return nil, err
		}
		m, err := d.entries.openRequest(it.rec)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return nil, err
		}
		d.before.items = d.before.items || it.head.ItemBefore
		told[key] = it.head.State != StatePending // settled by a person, and told then
		k := KeyedItem{Item: Item{ID: it.head.Item}, Key: key}
		if m != nil {
			k.Body = m.Body
		}
		items = append(items, k)
	}
	b := carrying(d, codec, items)
	b.told = told
	return b, nil
}

// resumeCall drives a batch's call for Resume and Run, which then hear of its items.
func (p *round) resumeCall(ctx context.Context, h *head) (o outcome, err error) {
	d, f, err := p.client.holdDue(ctx, p.op, h)
	if err != nil {
		return o, err
	}
	b, err := loadCall(d, f)
	if err != nil {
		d.release()
		return o, err
	}
	b.emit = func(res ItemResult, e Entry) {
		p.tell(e, res.Fate, res.Err)
	}
	end := b.driveChain()
	return end.last, end.broke
}

// onceEach drives each call once in a run, and lets others wait for it.
type onceEach struct {
	mu sync.Mutex
	of map[Key]*drivenCall
}

type drivenCall struct {
	done  chan struct{} // closed when it was driven
	drove bool
	why   error // written before done is closed
	err   error
}

func (o *onceEach) do(key Key, f func() (chainEnd, bool, error)) (drove bool, why, err error) {
	o.mu.Lock()
	if o.of == nil {
		o.of = map[Key]*drivenCall{}
	}
	d, begun := o.of[key]
	if !begun {
		d = &drivenCall{done: make(chan struct{})}
		o.of[key] = d
	}
	o.mu.Unlock()
	if begun {
		<-d.done
		return d.drove, d.why, d.err
	}
	defer close(d.done)
	end, drove, err := f()
	d.drove, d.why, d.err = drove, end.why, err
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, k := range end.keys { // what went on has had its turn too
		if o.of[k] == nil {
			o.of[k] = d
		}
	}
	return drove, end.why, err
}
