package idem

import (
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/internal/crash"
	"github.com/idem-go/idem/internal/record"
	"github.com/idem-go/idem/keystore"
)

// errMoved means that the entry changed, came or went while the call waited its turn:
// look again.
var errMoved = errors.New("idem: the entry moved")

// begin finds the intent's entry or creates it, takes the right to drive it, and
// returns the call that does; or the outcome, where nothing is to be sent.
func (c *Client) begin(in *intent) (*call, outcome) {
	for range maxMoves {
		d, o, err := c.beginOnce(in)
		if !errors.Is(err, errMoved) {
			return d, o
		}
	}
	o := outcome{in: in, op: in.op, name: in.name, key: in.key, why: errAlwaysMoved}
	return nil, o
}

// maxMoves is how often a call looks again. Entries move when calls end, so that it is
// reached only where each new key is taken already.
const maxMoves = 1000

var errAlwaysMoved = fmt.Errorf("%w: the entry moved again and again, or Dialect.NewKey makes keys that are taken", ErrConflict)

func (c *Client) beginOnce(in *intent) (*call, outcome, error) {
	f, err := c.entries.find(in)
	if errors.Is(err, ErrNotFound) {
		return c.create(in, nil)
	}
	if err == nil {
		err = in.mayHave(f.head)
	}
	if err != nil {
		return nil, c.fail(in, f, err), nil
	}
	switch {
	case f.head.State == StateAbandoned:
		return nil, c.fail(in, f, fmt.Errorf("%w: %s", ErrAbandoned, f.head.Reason)), nil
	case f.head.open():
		return c.goOn(in, f)
	case in.samePayload(f.head):
		o, err := c.recall(in, f)
		return nil, o, err
	}
	return c.create(in, &f) // NotDone, and the payload changed: a new intent
}

// create journals a new intent under a claim. errMoved means that somebody else was
// faster. An old one is the NotDone intent that had the name.
func (c *Client) create(in *intent, old *held) (*call, outcome, error) {
	if err := c.mayCreate(in); err != nil {
		return nil, c.fail(in, held{}, err), nil
	}
	if old != nil && in.key != "" { // found by its name: the key may be another intent's
		if holder, err := c.keyIsFree(in); err != nil {
			return nil, c.fail(in, holder, err), nil
		}
	}
	key := in.key
	if key == "" {
		key = in.mint(old)
	}
	d, err := c.newEntry(in, key)
	if err != nil {
		return nil, c.refuse(in, err), nil
	}
	if old != nil {
		d.head.Parent = old.head.Key
	}
	if was, left := doubtsOf(c.entries.doubt(in))[key]; left || in.ended { // its entry went with its end
		d.before.attempt, d.head.Fate, d.head.DoubtAt = true, was, d.head.Created
	}
	if err := d.take(key, true); err != nil {
		d.release()
		return nil, c.waitedInVain(in, err), nil
	}
	d.guard(func() {
		crash.At(crash.Uncommitted)
		err = d.commitNew(old)
	})
	if errors.Is(err, ErrConflict) {
		d.release()
		return nil, outcome{}, errMoved
	}
	if err != nil {
		defer d.release()
		o := d.beginFailed(err)
		c.entries.leaveDoubt(in, d.head.Key, &o)
		return nil, o, nil
	}
	d.guard(func() {
		crash.At(crash.Committed)
		c.tracer.began(in.ctx, c.entries.entry(d.head))
	})
	return d, outcome{}, nil
}

// waitedInVain is the outcome of a call that didn't get the claim on its own key. Whoever
// has it may be sending at this moment, so the journal is asked again, and an entry that
// isn't there yet proves nothing.
func (c *Client) waitedInVain(in *intent, err error) outcome {
	f, findErr := c.entries.find(in)
	if findErr == nil {
		if other := in.mayHave(f.head); other != nil { // its fate isn't that of this request
			err = fmt.Errorf("%w: %w", other, err)
		}
		return c.fail(in, f, err)
	}
	o := c.fail(in, held{}, err)
	if in.named() && o.fate == FateNotDone {
		o.fate = FateUnknown
	}
	return o
}

// commitNew journals the call's entry, together with the end of the old intent's
// right to the name.
func (d *call) commitNew(old *held) error {
	var changes []keystore.Change
	if old != nil {
		freed, err := d.entries.free(*old)
		if err != nil {
			return err
		}
		changes = append(changes, freed)
	}
	var request *record.Message
	if !d.head.Reserved {
		request = d.wire.Message()
	}
	created, err := d.entries.create(d.head, request)
	if err != nil {
		return err
	}
	d.rev = created.Record.Rev
	return d.commit(append(changes, created)...)
}

// beginFailed tells what is known after the commit of a new entry failed: NotDone
// for a fresh request, if the journal says that the entry isn't there.
func (d *call) beginFailed(err error) outcome {
	o := d.outcome(&storeError{err})
	o.fate = FateUnknown
	if d.in.named() {
		return o
	}
	gone := refused(err)
	if !gone {
		gone = d.commit(d.entries.remove(d.head, d.rev)) == nil
	}
	if !gone {
		_, readErr := d.entries.byKey(d.writes, d.head.Key)
		gone = errors.Is(readErr, ErrNotFound)
	}
	if gone {
		o.fate, o.key = FateNotDone, ""
	}
	return o
}

// refused tells an error of a commit after which nothing was applied, nor will be.
func refused(err error) bool {
	if errors.Is(err, keystore.ErrUncertain) {
		return false
	}
	for _, class := range []error{ErrFull, ErrClosed, ErrInvalid, ErrConflict, ErrClaimLost, ErrUnavailable} {
		if errors.Is(err, class) {
			return true
		}
	}
	return false
}

// mint makes a key for a new intent. A batch derives its items' keys, so that they are
// the same in every run, as far as they suit the dialect.
func (in *intent) mint(old *held) Key {
	if in.derive == nil {
		return in.dialect.mint()
	}
	parent := Key("")
	if old != nil {
		parent = old.head.Key
	}
	key := in.derive(parent)
	if in.keyed && in.dialect.checkKey(key) != nil {
		return in.dialect.mint()
	}
	return key
}

// mayCreate keeps an intent from the journal that must not or can't be sent.
func (c *Client) mayCreate(in *intent) error {
	if !in.named() { // first: what is in doubt is so whatever else is wrong
		if err := c.entries.inDoubt(in); err != nil {
			return err
		}
	}
	if err := endOf(in.ctx); err != nil {
		return err
	}
	if passed(in.expires) {
		return ErrExpired
	}
	return nil
}

// keyIsFree refuses a key under which another intent stands already.
func (c *Client) keyIsFree(in *intent) (held, error) {
	holder, err := c.entries.byKey(in.ctx, in.key)
	switch {
	case errors.Is(err, ErrNotFound):
		return held{}, nil
	case err != nil:
		return holder, err
	}
	return holder, fmt.Errorf("%w: the key holds %s %s", ErrMismatch, holder.head.Method, holder.head.URL)
}

// goOn continues an entry that is Pending or Ambiguous, when it is our turn.
func (c *Client) goOn(in *intent, f held) (*call, outcome, error) {
	d, now, err := c.hold(in.op, in.ctx, &head{Scope: f.head.Scope, Key: f.head.Key}, true)
	in.seen, in.ended = true, f.head.anonymous()
	switch {
	case errors.Is(err, ErrNotFound):
		return nil, outcome{}, errMoved
	case err != nil:
		return nil, c.fail(in, f, err), nil
	case now.rec.Rev != f.rec.Rev:
		d.release()
		return nil, outcome{}, errMoved
	}
	d.serves(in)
	if err := d.load(now); err != nil {
		defer d.release()
		return nil, c.fail(in, f, err), nil
	}
	if doubtsOf(c.entries.doubt(in))[d.head.Key] == FateDone { // which the journal could not take
		d.before.attempt, d.head.Fate = true, FateDone
	}
	if err := d.adopt(in); err != nil {
		defer d.release()
		return nil, d.storeFailed(err), nil
	}
	if d.head.Reserved {
		defer d.release()
		return nil, c.fail(in, f, fmt.Errorf("%w: it was reserved for a call made elsewhere", ErrInDoubt)), nil
	}
	if d.head.State == StateAmbiguous {
		defer d.release()
		return nil, d.reconcile(d.outcome(causeError(d.head.Cause))), nil
	}
	return d, outcome{}, nil
}

// adopt gives an entry without account or name those of the request that found it, and
// its expiry.
func (d *call) adopt(in *intent) error {
	h := d.head
	account := h.Account == "" && in.account != ""
	name := h.Intent == "" && in.name != ""
	expiry := h.takesExpiry(in.expires)
	if !account && !name && !expiry {
		return nil
	}
	err := d.save(func(h *head) {
		if account {
			h.adopt(in.account, in.perCall)
		}
		if name {
			h.Intent = in.name
		}
		if expiry {
			h.Expires = in.expires
		}
	}, nil)
	d.account = d.head.Account
	return err
}

// takesExpiry tells whether whoever goes on with what a Do left brings more time. The
// queue keeps its own.
func (h *head) takesExpiry(expires time.Time) bool {
	if h.State != StatePending || h.Queued || h.Expires.IsZero() {
		return false
	}
	return expires.IsZero() || expires.After(h.Expires)
}
