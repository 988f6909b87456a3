package idem

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/idem-go/idem/internal/secret"
	"github.com/idem-go/idem/internal/wire"
)

// keySource tells where an intent's key comes from, on which depends for how long
// it is remembered and who else may hold it.
type keySource uint8

const (
	keyMinted keySource = iota // by us
	keyCaller                  // WithKey
	keySDK                     // found on the request
)

// intent is a caller's request, read and checked.
type intent struct {
	op      string
	ctx     context.Context
	req     *http.Request // the caller's, never changed; nil for Reserve
	skip    bool          // sent as it is
	read    bool          // GET, HEAD, OPTIONS, TRACE
	name    string
	account string
	perCall bool // the account came from WithAccount
	key     Key  // "" until minted
	source  keySource
	given   Key                  // WithKey's
	derive  func(parent Key) Key // of a batch's item; nil: mint
	batch   string               // of a batch's item
	item    string               // its ID
	expires time.Time
	stored  bool // WithStoredPayload
	queued  bool
	payload []byte // of Reserve

	dialect Dialect
	keyed   bool
	wire    *wire.Request // without credentials and, until begin, without the key
	live    secret.Withheld
	sum     []byte
}

// named tells an intent that can be asked for again, by its name or its caller's key.
func (in *intent) named() bool { return in.name != "" || in.key != "" }

// mayHave tells whether the request may be the entry's: same account, no other
// name, no other key, same payload.
func (in *intent) mayHave(h *head) error {
	byName := in.name != "" && in.name == h.Intent
	switch {
	case h.Codec != "":
		return fmt.Errorf("%w: the key is that of a batch's call, which Batch, Resume and Run drive", ErrConflict)
	case h.Account != "" && h.Account != in.account:
		return fmt.Errorf("%w: the key belongs to account %q", ErrAccountChanged, h.Account)
	case in.name != "" && h.Intent != "" && !byName:
		return fmt.Errorf("%w: the key belongs to the intent %q, %s", ErrMismatch, h.Intent, h.holder())
	}
	same := in.samePayload(h)
	if byName {
		if !same && h.settledNotDone() && in.key != h.Key {
			return nil // a changed payload may follow what is NotDone
		}
		if in.given != "" && in.given != h.Key {
			return fmt.Errorf("%w: the name has another key and holds %s", ErrMismatch, h.holder())
		}
	}
	if !same && h.State != StateAbandoned {
		return fmt.Errorf("%w: it holds %s", ErrMismatch, h.holder())
	}
	return nil
}

// holder is what a mismatch says of the entry.
func (h *head) holder() string {
	if h.Reserved {
		return "a reservation"
	}
	return h.Method + " " + h.URL
}

// samePayload compares fingerprints, unless the caller wants the stored payload of
// something that may have happened. The stored request gets the new one's
// credentials, so both must go to the same origin.
func (in *intent) samePayload(h *head) bool {
	if bytes.Equal(in.sum, h.Fingerprint) {
		return true
	}
	mayGoOn := h.State == StatePending || h.Fate == FateDone
	if !in.stored || !mayGoOn || h.Reserved || in.req == nil {
		return false
	}
	stored, err := url.Parse(h.URL)
	return err == nil && wire.Origin(stored) == wire.Origin(in.wire.URL)
}

// fill gives the Result to WithResult's pointer.
func (in *intent) fill(r Result) {
	if p, ok := in.ctx.Value(resultPointerKey).(*Result); ok && p != nil {
		*p = r
	}
}

// prepare reads and checks a request. What is wrong with it is told before anything
// is journaled; the intent is returned with the error as far as it is known, for
// its name may hold something.
func (c *Client) prepare(op string, req *http.Request, closed error) (*intent, error) {
	in := &intent{op: op, ctx: context.Background(), req: req}
	if req == nil {
		return in, &InvalidError{"Request", nil, "must not be nil"}
	}
	in.ctx = req.Context()
	if req.Body != nil {
		defer func() {
			if base := in.skip && in.req == req && closed == nil; !base { // else Base closes it
				req.Body.Close()
			}
		}()
	}
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		in.read = true
	}
	if err := asInvalid(wire.Check(req)); err != nil {
		// The name or key may hold something all the same. A hook doesn't get a
		// request without a URL.
		_ = c.identify(in, func() string {
			if req.URL != nil {
				return c.opts.Name(req)
			}
			name, _ := IntentFrom(in.ctx)
			return name
		})
		return in, err
	}
	if c.opts.Skip != nil && c.opts.Skip(req) {
		in.skip = true
		return in, closed
	}
	if !in.read {
		if err := c.identify(in, func() string { return c.opts.Name(req) }); err != nil {
			return in, err
		}
	}
	if err := c.readPayload(in); err != nil {
		return in, err
	}
	return in, closed
}

// identify takes name, key, account and expiry from the context.
func (c *Client) identify(in *intent, name func() string) error {
	if key, ok := in.ctx.Value(keyKey).(Key); ok { // first: it may hold something though the name is bad
		in.given, in.key, in.source = key, key, keyCaller
	}
	in.account, in.perCall = c.opts.accountOf(in.ctx)
	if item, ok := in.ctx.Value(itemKeyKey).(itemIntent); ok {
		in.name, in.derive, in.batch, in.item = item.name, item.key, item.batch, item.item
		in.expires, _ = in.ctx.Value(expiryKey).(time.Time)
		in.stored, _ = in.ctx.Value(storedPayloadKey).(bool)
		return nil
	}
	if given, ok := IntentFrom(in.ctx); ok && in.req != nil && given == "" {
		return checkName(given)
	}
	in.name = name()
	if in.name != "" {
		if err := checkName(in.name); err != nil {
			in.name = ""
			return err
		}
	}
	if len(in.account) > maxScope {
		return &InvalidError{"Account", in.account, "must be at most 255 bytes"}
	}
	in.expires, _ = in.ctx.Value(expiryKey).(time.Time)
	in.stored, _ = in.ctx.Value(storedPayloadKey).(bool)
	return nil
}

// readPayload reads the body and takes the request apart: what is journaled, what
// is withheld, the key that an SDK has put there, the fingerprint.
func (c *Client) readPayload(in *intent) error {
	body, err := readAll(in.req.Body, in.req.ContentLength, c.opts.MaxBody)
	w := wire.From(in.req, body)
	if err == nil && isTokenRequest(w) {
		in.skip, in.req = true, wire.WithBody(in.req, body)
		return nil
	}
	badKey := c.findKey(in, w) // also of a request whose body is bad: the key may hold something
	if err == nil {
		err = badKey
	}
	if err != nil {
		return err
	}
	if !in.read {
		sum := in.dialect.fingerprint(w)
		in.sum = sum[:]
	}
	in.wire, in.live = in.dialect.withhold(w)
	return nil
}

// findKey chooses the dialect and takes up the key that an SDK has put into the
// request.
func (c *Client) findKey(in *intent, w *wire.Request) error {
	in.dialect, in.keyed = c.opts.Dialect.route(w.Method, w.URL.EscapedPath())
	if in.keyed && !in.read {
		found, err := in.dialect.find(w)
		if err != nil {
			return err
		}
		if found != "" && found != in.given {
			in.key, in.source = found, keySDK
		}
	}
	if in.source == keyMinted {
		return nil
	}
	err := in.dialect.checkKey(in.key)
	if err != nil {
		in.key = ""
	}
	return err
}

// refuseSkipped ends a batch item that is to happen once, but whose request would be
// sent without key or journal: a rerun would send it again.
func (c *Client) refuseSkipped(in *intent) outcome {
	if in.req.Body != nil {
		in.req.Body.Close()
	}
	err := c.identify(in, func() string { return "" }) // the name is forced
	if err == nil {
		err = &InvalidError{"Request", in.req.Method, "is no intent, so it can't be part of a batch"}
	}
	in.skip = false
	return c.refuse(in, err)
}

// skip sends a request that is no intent, as it is.
func (c *Client) skip(in *intent) outcome {
	resp, err := c.base.RoundTrip(in.req.WithContext(belowContext{in.ctx}))
	if resp != nil {
		resp.Request = in.req
	}
	_, live := in.dialect.withhold(&wire.Request{URL: in.req.URL, Header: in.req.Header})
	return outcome{skipped: true, resp: resp, why: secret.Error(err, live.Secrets())}
}
