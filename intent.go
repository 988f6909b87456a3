package idem

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
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
	body    io.ReadCloser // the caller's, to be closed
	closing sync.Once
	skip    bool // sent as it is
	read    bool // GET, HEAD, OPTIONS, TRACE
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
	seen    bool   // an entry of it was there, though it may be gone by now
	ended   bool   // that was an anonymous one, which goes with its end: Done, maybe
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
	in.ctx, in.body = req.Context(), req.Body
	if origin, ours := redirectedFrom(req); ours {
		in.closeBody()
		return in, &redirectError{origin, req.Response}
	}
	in.read = isRead(req.Method)
	if err := asInvalid(wire.Check(req)); err != nil {
		in.closeBody()
		_ = c.identify(in, nil) // the name or key may hold something all the same
		return in, err
	}
	if c.skips(in) {
		if closed != nil {
			in.closeBody()
		}
		return in, closed
	}
	defer in.closeBody()
	return in, cmp.Or(c.readIntent(in), closed)
}

// readIntent reads the body, and then asks who the intent is: a hook that looks into the
// body gets a reader of its own.
func (c *Client) readIntent(in *intent) error {
	body, bad := c.readBody(in)
	if !in.read {
		if err := c.identify(in, body); err != nil {
			return err
		}
	}
	return c.readPayload(in, body, bad)
}

// readBody reads the caller's body to its end, or until the caller or the client ends.
func (c *Client) readBody(in *intent) ([]byte, error) {
	if in.req.Body == nil {
		return readAll(nil, in.req.ContentLength, c.opts.MaxBody)
	}
	ctx, done := c.within(in.ctx)
	defer done()
	unhook := context.AfterFunc(ctx, in.closeBody) // a body that stalls
	defer unhook()
	body, err := readAll(in.req.Body, in.req.ContentLength, c.opts.MaxBody)
	if ended := endOf(ctx); err != nil && ended != nil {
		return body, ended
	}
	return body, err
}

// closeBody closes the caller's body once, whatever stands in for its request by now.
func (in *intent) closeBody() {
	if in.body != nil {
		in.closing.Do(func() { in.body.Close() })
	}
}

// isRead tells methods by which nothing happens.
func isRead(method string) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// skips asks the hook that tells what is no intent. It may look into the body: what it
// reads goes out all the same.
func (c *Client) skips(in *intent) bool {
	if c.opts.Skip == nil {
		return false
	}
	req, peek := in.req, (*peeked)(nil)
	if req.Body != nil && req.Body != http.NoBody {
		peek = &peeked{from: req.Body}
		req = req.Clone(in.ctx)
		req.Body, req.GetBody = peek, nil
	}
	in.skip = c.opts.Skip(req)
	if peek != nil && peek.read.Len() > 0 {
		in.req = in.req.Clone(in.ctx)
		in.req.Body = peek.whole()
	}
	return in.skip
}

// peeked is a body that remembers what was read of it. Closing it does nothing.
type peeked struct {
	from io.ReadCloser
	read bytes.Buffer
}

func (p *peeked) Read(b []byte) (int, error) {
	n, err := p.from.Read(b)
	p.read.Write(b[:n])
	return n, err
}

func (p *peeked) Close() error { return nil }

// whole is the body from its beginning.
func (p *peeked) whole() io.ReadCloser {
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(p.read.Bytes()), p.from), p.from}
}

// redirectedFrom tells a request that net/http made by following a redirect, in a chain
// that began with an intent of ours, and what is known of that.
func redirectedFrom(req *http.Request) (Result, bool) {
	for resp := req.Response; resp != nil; resp = resp.Request.Response {
		if r, ok := ResultOf(resp); ok && r.Key != "" {
			return r, true
		}
		if resp.Request == nil {
			break
		}
	}
	return Result{}, false
}

// redirectError stops a hop: a followed redirect of a charge is a GET that looks like
// success, or the charge at another origin.
type redirectError struct {
	intent Result
	resp   *http.Response
}

func (e *redirectError) Error() string {
	return fmt.Sprintf("idem: the provider redirects the intent (status %d), which is not followed", e.resp.StatusCode)
}

// foreignHop tells a read that a redirect sent to another origin than it began at, where
// nobody's credentials belong.
func foreignHop(req *http.Request) bool {
	first := req
	for first.Response != nil && first.Response.Request != nil {
		first = first.Response.Request
	}
	return wire.Origin(first.URL) != wire.Origin(req.URL)
}

// identify takes name, key, account and expiry from the context. The hook that names
// gets a body of its own, and no request without a URL.
func (c *Client) identify(in *intent, body []byte) error {
	if key, ok := in.ctx.Value(keyKey).(Key); ok { // first: it may hold something though the name is bad
		in.given, in.key, in.source = key, key, keyCaller
	}
	in.account, in.perCall = c.opts.accountOf(in.ctx)
	in.expires, _ = in.ctx.Value(expiryKey).(time.Time)
	in.stored, _ = in.ctx.Value(storedPayloadKey).(bool)
	if item, ok := in.ctx.Value(itemKeyKey).(itemIntent); ok {
		in.name, in.derive, in.batch, in.item = item.name, item.key, item.batch, item.item
		return checkContext(in)
	}
	if given, ok := IntentFrom(in.ctx); ok && in.req != nil && given == "" {
		return checkName(given)
	}
	if in.name = c.nameOf(in, body); in.name != "" {
		if err := checkName(in.name); err != nil {
			in.name = ""
			return err
		}
	}
	return checkContext(in)
}

func (c *Client) nameOf(in *intent, body []byte) string {
	name, _ := IntentFrom(in.ctx)
	switch {
	case in.req == nil:
		return in.name // Reserve's
	case c.opts.Name == nil, in.req.URL == nil:
		return name
	}
	shown := wire.WithBody(in.req, body)
	shown.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil } // it isn't sent
	return c.opts.Name(shown)
}

// checkContext refuses an account or an expiry that can't be journaled.
func checkContext(in *intent) error {
	switch {
	case !isText(in.account, maxScope):
		return &InvalidError{"Account", in.account, "must be UTF-8 of at most 255 bytes"}
	case in.expires.Year() > 9999:
		return &InvalidError{"Expiry", in.expires, "must be before the year 10000"}
	}
	return nil
}

// readPayload takes the request apart: what is journaled, what is withheld, the key that
// an SDK has put there, the fingerprint.
func (c *Client) readPayload(in *intent, body []byte, err error) error {
	w := wire.From(in.req, body)
	if err == nil && isTokenRequest(w) {
		in.skip, in.req = true, wire.WithBody(in.req, body)
		return nil
	}
	badKey := c.findKey(in, w) // also of a request whose body is bad: the key may hold something
	if err = cmp.Or(err, badKey); err != nil {
		return err
	}
	if !in.read {
		sum := in.dialect.fingerprint(w)
		in.sum = sum[:]
	}
	in.wire, in.live = in.dialect.withhold(w)
	return c.needsName(in)
}

// needsName refuses an intent that nothing would find again, where the options say so.
func (c *Client) needsName(in *intent) error {
	if !c.opts.RequireName || in.read || in.name != "" || in.source == keyCaller {
		return nil
	}
	return &InvalidError{"Intent", nil, "needs a name (WithIntent) or a key of yours (WithKey), by Options.RequireName"}
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
	in.closeBody()
	err := c.identify(in, nil) // the name is forced
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
