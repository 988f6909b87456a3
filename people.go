package idem

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"time"

	"github.com/idem-go/idem/keystore"
)

// Finding is what a person, a webhook or a look-up found out about an intent.
type Finding struct {
	Fate   Fate        // NotDone means "can no longer happen"; Unknown, nothing was found out
	Status int         // of an answer to keep as the result; 0: there is none
	Header http.Header // of that answer
	Body   []byte      // of that answer
}

func (f Finding) validate() error {
	switch {
	case f.Fate < FateUnknown || f.Fate > FateDone:
		return &InvalidError{"Finding.Fate", int(f.Fate), "must be one of the fates"}
	case f.Status != 0 && (f.Status < 200 || f.Status > 599):
		return &InvalidError{"Finding.Status", f.Status, "must be 200 to 599, or 0"}
	case f.Status == 0 && (len(f.Body) > 0 || len(f.Header) > 0):
		return &InvalidError{"Finding.Status", f.Status, "must be given with Header or Body"}
	}
	return nil
}

func (f Finding) answer() *answer {
	if f.Status == 0 {
		return nil
	}
	return &answer{status: f.Status, header: maps.Clone(f.Header), body: f.Body}
}

// Pending yields what is Pending or Ambiguous in the client's scope, oldest first.
// Writers may go on meanwhile. An entry that can't be read is yielded with its key
// and an error, and the walk goes on; any other error ends it.
func (c *Client) Pending(ctx context.Context) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		leave, err := c.enter()
		defer leave()
		if err != nil {
			yield(Entry{}, fmt.Errorf("idem: Pending: %w", err))
			return
		}
		for rec, err := range c.entries.scan(ctx, keystore.LaneOpen, time.Time{}) {
			e := Entry{Key: Key(rec.Key), Scope: rec.Scope, entries: c.entries}
			if err == nil {
				var h *head
				if h, err = c.entries.openHead(rec); err == nil {
					e = c.entries.entry(h)
				}
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// Lookup returns the entry of a name, in the account of ctx or else of the options.
// An unknown name is ErrNotFound.
func (c *Client) Lookup(ctx context.Context, name string) (Entry, error) {
	return c.lookup(ctx, "Lookup", name, "")
}

// LookupKey returns the entry with this key. An unknown key is ErrNotFound.
func (c *Client) LookupKey(ctx context.Context, key Key) (Entry, error) {
	return c.lookup(ctx, "LookupKey", "", key)
}

func (c *Client) lookup(ctx context.Context, op, name string, key Key) (Entry, error) {
	f, leave, err := c.findFor(ctx, op, name, key)
	defer leave()
	if err != nil {
		return Entry{}, err
	}
	return c.entries.entry(f.head), nil
}

// findFor enters a call and reads the entry of a name or a key for it.
func (c *Client) findFor(ctx context.Context, op, name string, key Key) (held, func(), error) {
	leave, err := c.enter()
	if err == nil && key == "" {
		err = checkName(name)
	}
	var f held
	if err == nil {
		account, _ := c.opts.accountOf(ctx)
		in := &intent{ctx: ctx, name: name, key: key, account: account}
		if _, err = c.sweeper.sight(ctx); err == nil {
			f, err = c.entries.find(in)
		}
	}
	if err != nil {
		err = c.failed(op, name, key, f, err)
	}
	return f, leave, err
}

// accountOf is the account of a call, and whether the call itself gave it.
func (o *Options) accountOf(ctx context.Context) (account string, perCall bool) {
	if account, _ = AccountFrom(ctx); account != "" { // "" is as if it weren't given
		return account, true
	}
	return o.Account, false
}

// Settle writes down what a person or a webhook found out, with the answer that
// later calls are to recall. It refuses an entry that has a driver or changed
// meanwhile (ErrConflict), a finding of Unknown (ErrInvalid), and to turn Done into
// NotDone (ErrSettled). Done overrides NotDone and Abandoned.
func (c *Client) Settle(ctx context.Context, key Key, found Finding) error {
	err := found.validate()
	if err == nil && found.Fate == FateUnknown {
		err = &InvalidError{"Finding.Fate", found.Fate, "must be Done or NotDone"}
	}
	if err != nil {
		return &Error{Op: "Settle", Key: key, Err: err}
	}
	return c.handle(ctx, "Settle", key, func(d *call) error {
		if d.head.Codec != "" {
			return &InvalidError{"Key", key, "is a batch's call: settle its items"}
		}
		if err := d.head.contradicts(found.Fate); err != nil {
			return err
		}
		if d.head.State == StateSettled && d.head.Fate == found.Fate && (found.Status == 0 || d.head.Status != 0) {
			return nil // nothing new
		}
		if !d.head.open() && found.Fate == FateDone && d.head.Fate != FateDone {
			c.tracer.overridden(ctx, c.entries.entry(d.head))
		}
		if o := d.settleWith(found.Fate, found.answer(), ""); o.storeBroke() {
			return o.why
		}
		// A doubt stays: whoever repeats the request has not heard of this.
		c.tell(d)
		return nil
	})
}

// contradicts tells why a finding of NotDone can't be taken.
func (h *head) contradicts(found Fate) error {
	switch {
	case found != FateNotDone:
		return nil
	case h.Fate == FateDone:
		return fmt.Errorf("%w: it is Done", ErrSettled)
	case h.Call != "" && h.State == StatePending:
		return fmt.Errorf("%w: its call %s carries it and may be sent again: abandon that first", ErrConflict, h.Call)
	}
	return nil
}

// Abandon gives an intent up: nothing more is sent for it, and calls under its name
// are ErrAbandoned until Forget. What was sent may still take effect. It refuses an
// entry that has a driver (ErrConflict) or is settled (ErrSettled). A request equal to
// an anonymous one that was abandoned may be sent again.
func (c *Client) Abandon(ctx context.Context, key Key, why string) error {
	return c.handle(ctx, "Abandon", key, func(d *call) error {
		switch d.head.State {
		case StateSettled:
			return fmt.Errorf("%w: it is %v", ErrSettled, d.head.Fate)
		case StateAbandoned:
			return nil
		}
		if d.head.Call != "" {
			return fmt.Errorf("%w: its call %s carries it: abandon that", ErrConflict, d.head.Call)
		}
		if err := carry(d); err != nil {
			return err
		}
		if err := d.finish(func(h *head) { h.abandon(why) }); err != nil {
			return err
		}
		clearDoubt(key)
		return nil
	})
}

// handle runs a person's change of one entry under its claim.
func (c *Client) handle(ctx context.Context, op string, key Key, change func(*call) error) error {
	f, leave, err := c.findFor(ctx, op, "", key)
	defer leave()
	if err != nil {
		return err
	}
	d, now, err := c.hold(op, ctx, f.head, false)
	if err != nil {
		return c.failed(op, "", key, f, err)
	}
	defer d.release()
	d.background = true
	was := *now.head // a change that fails leaves it so
	if err := change(d); err != nil {
		return c.failed(op, "", key, held{now.rec, &was}, err)
	}
	return nil
}

// Forget lets a settled or abandoned name be used anew: the next call under it is a
// new intent with a new key. A name that is Pending or Ambiguous is refused
// (ErrConflict), for it would be sent twice. What was abandoned, and a batch's item,
// stay findable by their keys.
func (c *Client) Forget(ctx context.Context, name string) error {
	f, leave, err := c.findFor(ctx, "Forget", name, "")
	defer leave()
	if err != nil {
		return err
	}
	h := f.head
	change := c.entries.remove(h, f.rec.Rev)
	switch {
	case h.open():
		err = fmt.Errorf("%w: it is %v", ErrConflict, h.State)
	case h.State == StateAbandoned || h.Untold || h.Item != "": // an item's next key is found by the ones before
		change, err = c.entries.free(f)
	}
	if err == nil {
		err = c.entries.commit(ctx, change)
	}
	if err != nil {
		return c.failed("Forget", name, "", f, err)
	}
	return nil
}
