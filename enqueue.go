package idem

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/idem-go/idem/internal/wire"
)

// Reserve gives a durable key for a call that is made elsewhere: a gRPC call, a
// queue message, an SDK's ClientToken field. The payload is what makes the call the
// same: another one under the name is ErrMismatch. It counts as the first send, so
// [Settle] it when the outcome is known. A name that is settled comes back with its
// key and an *Error with ErrSettled.
func (c *Client) Reserve(ctx context.Context, name string, payload []byte) (Key, error) {
	leave, err := c.enter()
	defer leave()
	in := &intent{op: "Reserve", ctx: ctx, payload: payload, dialect: c.opts.Dialect, keyed: true}
	in.name = name
	if named := c.identify(in, nil); named != nil {
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
	in.wire = &wire.Request{URL: new(url.URL)}
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
	for range maxMoves {
		f, err := c.entries.find(in)
		if err == nil {
			err = in.mayHave(f.head)
		}
		var old *held
		switch {
		case errors.Is(err, ErrNotFound):
		case err != nil:
			return f, false, c.fail(in, f, err).failure()
		case f.head.State == StateSettled && !in.samePayload(f.head):
			old = &f
		default:
			return f, false, nil
		}
		d, o, err := c.create(in, old)
		if errors.Is(err, errMoved) {
			continue
		}
		if d == nil {
			return held{}, false, o.failure()
		}
		d.release()
		return held{head: d.head}, true, nil
	}
	return held{}, false, outcome{in: in, op: in.op, name: in.name, key: in.key, why: errAlwaysMoved}.failure()
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
	d := c.newCall(in.op, in.ctx)
	defer d.end()
	d.serves(in)
	d.head = f.head
	return d.windowClosed(d.ctx)
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
			err = c.joinQueue(in, f)
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
func (c *Client) joinQueue(in *intent, f held) error {
	longer := !f.head.Expires.IsZero() && (in.expires.IsZero() || in.expires.After(f.head.Expires))
	if f.head.Queued && !longer {
		return nil
	}
	h := *f.head
	h.Queued = true
	if longer { // the queue's promise outlives the other call's
		h.Expires = in.expires
	}
	change, err := c.entries.replace(&h, f.rec.Rev, nil)
	if err == nil {
		err = c.entries.commit(context.Background(), change)
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
