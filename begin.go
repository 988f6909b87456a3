package idem

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/idem-go/idem/internal/crash"
	"github.com/idem-go/idem/internal/record"
)

// held is an entry as it stands in the journal.
type held struct {
	rec  Record
	head *record.Head
}

// begin finds the intent's entry or creates it, takes the right to drive it, and
// returns the call that does; or the outcome, where nothing is to be sent.
func (c *Client) begin(in *intent) (*call, outcome) {
	for {
		f, err := c.find(in)
		if errors.Is(err, ErrNotFound) {
			d, out, again := c.create(in, nil)
			if again {
				continue
			}
			return d, out
		}
		if err != nil {
			return nil, c.fail(in, f, err)
		}
		if err := c.mayHave(in, f.head); err != nil {
			return nil, c.fail(in, f, err)
		}
		switch State(f.head.State) {
		case StateSettled:
			if c.samePayload(in, f.head) {
				out, again := c.recall(in, f)
				if again {
					continue
				}
				return nil, out
			}
			d, out, again := c.create(in, &f) // NotDone, and the payload changed: a new intent
			if again {
				continue
			}
			return d, out
		case StateAbandoned:
			return nil, c.fail(in, f, fmt.Errorf("%w: %s", ErrAbandoned, f.head.Reason))
		}
		d, out, again := c.resume(in, f)
		if again {
			continue
		}
		return d, out
	}
}

// find looks a name up within its account, then among entries without one, and then
// the key.
func (c *Client) find(in *intent) (held, error) {
	if in.name != "" {
		f, err := c.read(in.ctx, Ref{Scope: c.opts.Scope, Name: storeName(in.account, in.name)})
		if errors.Is(err, ErrNotFound) && in.account != "" {
			f, err = c.read(in.ctx, Ref{Scope: c.opts.Scope, Name: storeName("", in.name)})
		}
		if !errors.Is(err, ErrNotFound) {
			return f, err
		}
	}
	if in.key != "" {
		return c.read(in.ctx, Ref{Scope: c.opts.Scope, Key: string(in.key)})
	}
	return held{}, ErrNotFound
}

// read asks the journal whatever the caller's context says: an answer that is
// there outweighs a cancel.
func (c *Client) read(ctx context.Context, ref Ref) (held, error) {
	rec, err := c.ks.Read(context.WithoutCancel(ctx), ref)
	if err != nil {
		return held{rec: rec}, err
	}
	head, err := c.codec.openHead(rec)
	return held{rec, head}, err
}

// mayHave tells whether the request may be the entry's: same account, no other
// name, no other key, same payload.
func (c *Client) mayHave(in *intent, h *record.Head) error {
	holder := fmt.Sprintf("%s %s", h.Method, h.URL)
	if h.Reserved {
		holder = "a reservation"
	}
	same := c.samePayload(in, h)
	followUp := !same && State(h.State) == StateSettled && Fate(h.Fate) == FateNotDone &&
		in.name != "" && in.name == h.Intent && string(in.key) != h.Key
	switch {
	case h.Codec != "":
		return fmt.Errorf("%w: the key is that of a batch's call, which Batch, Resume and Run drive", ErrConflict)
	case h.Account != "" && h.Account != in.account:
		return fmt.Errorf("%w: the key belongs to account %q", ErrAccountChanged, h.Account)
	case in.name != "" && h.Intent != "" && in.name != h.Intent:
		return fmt.Errorf("%w: the key belongs to the intent %q, %s", ErrMismatch, h.Intent, holder)
	case followUp:
		return nil
	case in.given != "" && string(in.given) != h.Key && in.name != "" && in.name == h.Intent:
		return fmt.Errorf("%w: the name has another key and holds %s", ErrMismatch, holder)
	case !same && State(h.State) != StateAbandoned:
		return fmt.Errorf("%w: it holds %s", ErrMismatch, holder)
	}
	return nil
}

// samePayload compares fingerprints, unless the caller wants the stored payload of
// something that may have happened. The stored request gets the new one's
// credentials, so both must go to the same origin.
func (c *Client) samePayload(in *intent, h *record.Head) bool {
	mayGoOn := State(h.State) == StatePending || Fate(h.Fate) == FateDone
	if bytes.Equal(in.sum, h.Fingerprint) || !in.stored || !mayGoOn || h.Reserved || in.req == nil {
		return bytes.Equal(in.sum, h.Fingerprint)
	}
	stored, err := url.Parse(h.URL)
	return err == nil && originOf(stored) == originOf(in.wire.URL)
}

// create journals a new intent under a claim. again means that somebody else was
// faster. An old one is the NotDone intent that had the name.
func (c *Client) create(in *intent, old *held) (d *call, out outcome, again bool) {
	if err := c.mayCreate(in); err != nil {
		return nil, c.fail(in, held{}, err), false
	}
	if old != nil && in.key != "" { // find went by the name: the key may be another intent's
		holder, err := c.read(in.ctx, Ref{Scope: c.opts.Scope, Key: string(in.key)})
		if err == nil {
			err = fmt.Errorf("%w: the key holds %s %s", ErrMismatch, holder.head.Method, holder.head.URL)
		}
		if !errors.Is(err, ErrNotFound) {
			return nil, c.fail(in, holder, err), false
		}
	}
	key := in.key
	if key == "" {
		key = in.mint(old)
	}
	d, err := c.newCall(in, key)
	if err != nil {
		return nil, c.refuse(in, err), false
	}
	if old != nil {
		d.head.Parent = old.head.Key
	}
	if err := d.take(true); err != nil {
		d.release()
		return nil, c.fail(in, held{}, err), false
	}
	d.guard(func() {
		crash.At(crash.Uncommitted)
		err = d.commitNew(old)
	})
	if errors.Is(err, ErrConflict) {
		d.release()
		return nil, outcome{}, true
	}
	if err != nil {
		defer d.release()
		return nil, d.beginFailed(err), false
	}
	d.guard(func() {
		crash.At(crash.Committed)
		c.traceBegan(c.entryOf(d.head))
	})
	return d, outcome{}, false
}

// mint makes a key for a new intent. A batch derives its items' keys, so that they are
// the same in every run, as far as they suit the dialect.
func (in *intent) mint(old *held) Key {
	if in.derive == nil {
		return in.dialect.mint()
	}
	parent := Key("")
	if old != nil {
		parent = Key(old.head.Key)
	}
	if key := in.derive(parent); !in.keyed || in.dialect.checkKey(key) == nil {
		return key
	}
	return in.dialect.mint()
}

// mayCreate keeps an intent from the journal that must not or can't be sent.
func (c *Client) mayCreate(in *intent) error {
	if in.name == "" && in.key == "" { // first: what is in doubt is so whatever else is wrong
		if err := c.inDoubt(in); err != nil {
			return err
		}
	}
	if err := endOf(in.ctx); err != nil {
		return err
	}
	if !in.expires.IsZero() && !wallClock().Before(in.expires) {
		return ErrExpired
	}
	return nil
}

// resume continues an entry that is Pending or Ambiguous, when it is our turn.
func (c *Client) resume(in *intent, f held) (d *call, out outcome, again bool) {
	d = c.openCall(in, f)
	if err := d.take(true); err != nil {
		d.release()
		return nil, c.fail(in, f, err), false
	}
	now, err := c.read(in.ctx, Ref{Scope: c.opts.Scope, Key: f.head.Key, Bodies: true})
	if err != nil || now.rec.Rev != f.rec.Rev {
		d.release() // it moved while we waited: look again
		if err != nil && !errors.Is(err, ErrNotFound) {
			return nil, c.fail(in, f, err), false
		}
		return nil, outcome{}, true
	}
	if err := d.load(now); err != nil {
		defer d.release()
		return nil, c.fail(in, f, err), false
	}
	if err := d.adopt(in); err != nil {
		defer d.release()
		return nil, d.storeFailed(err), false
	}
	if d.head.Reserved {
		defer d.release()
		return nil, c.fail(in, f, fmt.Errorf("%w: it was reserved for a call made elsewhere", ErrInDoubt)), false
	}
	if State(d.head.State) == StateAmbiguous {
		defer d.release()
		return nil, d.reconcile(d.outcome(causeError(d.head.Cause))), false
	}
	return d, outcome{}, false
}

// adopt gives an entry without account or name those of the request that found it, and
// its expiry.
func (d *call) adopt(in *intent) error {
	h := d.head
	account := h.Account == "" && in.account != ""
	name := h.Intent == "" && in.name != ""
	// Whoever goes on with what a Do left may have more time; the queue keeps its own.
	expiry := State(h.State) == StatePending && !h.Queued && !h.Expires.IsZero() &&
		(in.expires.IsZero() || in.expires.After(h.Expires))
	if !account && !name && !expiry {
		return nil
	}
	return d.save(func(h *record.Head) {
		if account {
			h.Account, h.AccountGift = in.account, in.gift
		}
		if name {
			h.Intent = in.name
		}
		if expiry {
			h.Expires = in.expires
		}
	}, nil)
}
