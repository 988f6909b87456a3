package idem

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/url"
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
		for rec, err := range c.ks.Scan(ctx, Query{Scope: c.opts.Scope, Lane: LaneOpen}) {
			e := Entry{Key: Key(rec.Key), Scope: rec.Scope, client: c}
			if err == nil {
				var h *head
				if h, err = c.codec.openHead(rec); err == nil {
					e = c.entryOf(h)
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
	return c.entryOf(f.head), nil
}

// findFor enters a call and reads the entry of a name or a key for it.
func (c *Client) findFor(ctx context.Context, op, name string, key Key) (held, func(), error) {
	leave, err := c.enter()
	if err == nil && key == "" {
		err = checkName(name)
	}
	var f held
	if err == nil {
		in := &intent{ctx: ctx, name: name, key: key, account: c.accountOf(ctx)}
		if _, err = c.sight(ctx, wallClock()); err == nil {
			f, err = c.find(in)
		}
	}
	if err != nil {
		err = c.failed(op, name, key, f, err)
	}
	return f, leave, err
}

func (c *Client) accountOf(ctx context.Context) string {
	if account, given := AccountFrom(ctx); given {
		return account
	}
	return c.opts.Account
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
		was := d.head.Fate
		closed := d.head.State == StateSettled || d.head.State == StateAbandoned
		switch {
		case was == FateDone && found.Fate == FateNotDone:
			return fmt.Errorf("%w: it is Done", ErrSettled)
		case d.head.Call != "" && d.head.State == StatePending && found.Fate == FateNotDone:
			return fmt.Errorf("%w: its call %s carries it and may be sent again: abandon that first", ErrConflict, d.head.Call)
		case d.head.State == StateSettled && was == found.Fate && (found.Status == 0 || d.head.Status != 0):
			return nil // nothing new
		case closed && found.Fate == FateDone && was != FateDone:
			c.traceOverridden(c.entryOf(d.head))
		}
		if o := d.finish(found.Fate, found.answer(), ""); o.storeBroke() {
			return o.why
		}
		// A doubt stays: whoever repeats the request has not heard of this.
		c.tellOne(d)
		return nil
	})
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
		if err := d.loadItems(); err != nil {
			return err
		}
		if err := d.end(func(h *head) {
			h.State, h.Reason, h.Settled = StateAbandoned, why, wallClock()
		}); err != nil {
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
	d := c.pass(op, ctx)
	d.carried, d.head, d.claimAs = true, f.head, f.head.Call // an item's driver is its call's
	defer d.release()
	if err = d.take(false); err == nil {
		if f, err = c.read(ctx, Ref{Scope: c.opts.Scope, Key: string(key)}); err == nil {
			was := *f.head
			d.head, d.rev, f.head = f.head, f.rec.Rev, &was // a change that fails leaves it so
			if d.claimAs != f.head.Call {
				err = fmt.Errorf("%w: it went into another call", ErrConflict)
			} else {
				err = change(d)
			}
		}
	}
	if err != nil {
		return c.failed(op, "", key, f, err)
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
	h := *f.head
	change := Change{OpRemove, Record{Scope: h.Scope, Key: string(h.Key), Rev: f.rec.Rev}}
	switch {
	case h.State == StatePending || h.State == StateAmbiguous:
		err = fmt.Errorf("%w: it is %v", ErrConflict, h.State)
	case h.State == StateAbandoned || h.Untold || h.Item != "": // an item's next key is found by the ones before
		h.Freed = true
		change.Op = OpReplace
		change.Record, err = c.recordOf(&h, f.rec.Rev)
	}
	if err == nil {
		err = c.ks.Commit(context.WithoutCancel(ctx), change)
	}
	if err != nil {
		return c.failed("Forget", name, "", f, err)
	}
	return nil
}

// Reserve gives a durable key for a call that is made elsewhere: a gRPC call, a
// queue message, an SDK's ClientToken field. The payload is what makes the call the
// same: another one under the name is ErrMismatch. It counts as the first send, so
// [Settle] it when the outcome is known. A name that is settled comes back with its
// key and an *Error with ErrSettled.
func (c *Client) Reserve(ctx context.Context, name string, payload []byte) (Key, error) {
	leave, err := c.enter()
	defer leave()
	in := &intent{op: "Reserve", ctx: ctx, payload: payload, dialect: c.opts.Dialect, keyed: true}
	if named := c.identify(in, func() string { return name }); named != nil {
		err = named
	} else if name == "" {
		err = checkName(name)
	}
	if err == nil && in.given != "" {
		err = in.dialect.checkKey(in.given)
	}
	if err != nil {
		return "", c.refuse(in, err).failure()
	}
	in.sum = sumOf(append([]byte("reserve\x00"), payload...))
	in.wire = &wireRequest{URL: new(url.URL)}
	return c.reserve(in)
}

func (c *Client) reserve(in *intent) (Key, error) {
	f, created, failed := c.findOrCreate(in)
	if failed != nil {
		return failed.Key, failed
	}
	if !created {
		if err := c.reservable(in, f); err != nil {
			o := c.fail(in, f, err)
			return o.key, o.failure()
		}
	}
	in.fill(Result{Key: f.head.Key, Intent: f.head.Intent, Fate: f.head.Fate, Attempts: f.head.Attempts})
	return f.head.Key, nil
}

// findOrCreate finds the intent's entry, or creates one where there is none, or where a
// changed payload follows one that is NotDone. Nobody drives a created one: it isn't
// sent from here.
func (c *Client) findOrCreate(in *intent) (f held, created bool, failed *Error) {
	for {
		f, err := c.find(in)
		if err == nil {
			err = c.mayHave(in, f.head)
		}
		var old *held
		switch {
		case errors.Is(err, ErrNotFound):
		case err != nil:
			return f, false, c.fail(in, f, err).failure()
		case f.head.State == StateSettled && !c.samePayload(in, f.head):
			old = &f
		default:
			return f, false, nil
		}
		d, out, again := c.create(in, old)
		if again {
			continue
		}
		if d == nil {
			return held{}, false, out.failure()
		}
		d.release()
		return held{head: d.head}, true, nil
	}
}

// reservable tells why a reservation that exists is not to be used.
func (c *Client) reservable(in *intent, f held) error {
	switch f.head.State {
	case StateSettled:
		return ErrSettled
	case StateAbandoned:
		return fmt.Errorf("%w: %s", ErrAbandoned, f.head.Reason)
	case StateAmbiguous:
		return causeError(f.head.Cause)
	}
	d := c.openCall(in, f)
	defer d.release()
	return d.windowClosed()
}

// Enqueue makes a request durable now, for Run to deliver. No order is promised. A
// name that is Pending is joined; one that is settled, abandoned or Ambiguous comes
// back with its key and an *Error that says so. Credentials are withheld from the
// journal, so a request that carries some needs [Options.Authorize]: else
// ErrCredentials.
func (c *Client) Enqueue(req *http.Request) (Key, error) {
	leave, closed := c.enter()
	defer leave()
	in, err := c.prepare("Enqueue", req, closed)
	if err == nil && (in.skip || in.read) {
		if in.req.Body != nil {
			in.req.Body.Close()
		}
		err = &InvalidError{"Request", req.Method, "is no intent, so it can't be enqueued"}
	}
	if err == nil && c.opts.Authorize == nil && len(in.live.Headers)+len(in.live.Query) > 0 {
		err = fmt.Errorf("%w: nothing can add them at delivery", ErrCredentials)
	}
	if err != nil {
		return "", c.refuse(in, err).failure()
	}
	in.queued = true
	return c.enqueue(in)
}

func (c *Client) enqueue(in *intent) (Key, error) {
	for {
		f, created, failed := c.findOrCreate(in)
		switch {
		case failed != nil:
			return failed.Key, failed
		case created:
			return c.queued(in, f.head), nil
		}
		var err error
		if f.head.State != StatePending {
			err = c.reservable(in, f)
		}
		if err == nil {
			err = c.joinQueue(f)
		}
		if errors.Is(err, ErrConflict) {
			continue // it moved: look again
		}
		if err != nil {
			o := c.fail(in, f, err)
			return o.key, o.failure()
		}
		return c.queued(in, f.head), nil
	}
}

// joinQueue marks a Pending entry as taken by the queue, also while a Do drives it:
// that one then doesn't withdraw it.
func (c *Client) joinQueue(f held) error {
	if f.head.Queued {
		return nil
	}
	h := *f.head
	h.Queued = true
	rec, err := c.recordOf(&h, f.rec.Rev)
	if err == nil {
		err = c.ks.Commit(context.Background(), Change{OpReplace, rec})
	}
	if err != nil && !errors.Is(err, ErrConflict) {
		return &storeError{err}
	}
	return err
}

func (c *Client) queued(in *intent, h *head) Key {
	in.fill(Result{Key: h.Key, Intent: h.Intent, Fate: h.Fate, Attempts: h.Attempts})
	c.hub.wake(h.Scope)
	return h.Key
}

func pathOf(raw string) (string, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return "", err
	}
	return u.EscapedPath(), nil
}
