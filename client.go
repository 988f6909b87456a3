package idem

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/idem-go/idem/internal/limit"
	"github.com/idem-go/idem/internal/record"
	"github.com/idem-go/idem/internal/tap"
)

// Client makes calls that happen once. All methods may be called at once from any
// goroutine. Close it when done.
type Client struct {
	opts     Options // checked, defaults filled
	ks       Keystore
	owned    bool // Close closes ks
	hub      *hub
	entries  *entries
	tracer   tracer
	base     http.RoundTripper
	ownBase  *http.Transport // nil: Base is the caller's
	circuits *limit.Circuits // nil: none
	budgets  *limit.Budgets
	sweeper  *sweeper

	life context.Context // ends with Close
	end  context.CancelCauseFunc

	mu       sync.Mutex     // guards stopping and the first Add of calls
	stopping bool           // no new calls
	draining chan struct{}  // closed with it
	calls    sync.WaitGroup // calls under way
	closing  sync.Once
	closeErr error // guarded by closing
	untold   untold
}

// Open returns a client over the bbolt journal at path, which it creates if absent
// (mode 0600) and owns: Close closes it. A journal that another process holds is
// [ErrLocked], a damaged one [ErrCorrupt]; bad options are an [*InvalidError] before
// the file is touched.
func Open(path string, opts *Options) (*Client, error) {
	if _, err := opts.withDefaults(); err != nil {
		return nil, err
	}
	ks, err := OpenKeystore(path, nil)
	if err != nil {
		return nil, err
	}
	c, err := New(ks, opts)
	if err != nil {
		return nil, errors.Join(err, ks.Close())
	}
	c.owned = true
	return c, nil
}

// New returns a client over a keystore that stays the caller's. Several clients may
// share one, each with a scope of its own; two of the same scope must agree on
// account and dialect.
func New(ks Keystore, opts *Options) (*Client, error) {
	if isNil(ks) {
		return nil, &InvalidError{"Keystore", nil, "must not be nil"}
	}
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Client{opts: o, ks: ks, base: o.Base, tracer: tracer{o.Trace, o.Logger}, budgets: limit.NewBudgets(), draining: make(chan struct{})}
	c.entries = &entries{ks: ks, scope: o.Scope, seal: record.Sealer{Seal: o.Seal, Unseal: o.Unseal}}
	c.sweeper = &sweeper{entries: c.entries, tolerance: o.Dialect.leastMargin()}
	c.life, c.end = context.WithCancelCause(context.Background())
	if c.base == nil {
		c.ownBase = tap.NewTransport()
		c.base = c.ownBase
	}
	c.circuits = o.Breaker.circuits(c.tracer.breaker)
	if c.hub, err = join(c); err != nil {
		return nil, err
	}
	return c, nil
}

// Do sends req as one intent and returns the provider's final answer, its body
// read: a 2xx, or a refusal that ends the matter. Everything else is an *Error.
// Either way [FateOf] answers whether it happened.
//
// POST, PUT, PATCH, DELETE and unknown methods are intents. GET, HEAD, OPTIONS and
// TRACE get retries and the breaker, without key or journal. The request is not
// changed; its body is read and closed.
func (c *Client) Do(req *http.Request) (*http.Response, error) {
	return c.serve("Do", req).forDo()
}

// serve is the whole life of one call.
func (c *Client) serve(op string, req *http.Request) outcome {
	if err := c.usable(); err != nil {
		return outcome{op: op, fate: FateNotDone, why: err}
	}
	leave, closed := c.enter()
	defer leave()
	in, err := c.prepare(op, req, closed)
	return c.serveIntent(in, err)
}

// serveIntent goes on where prepare ended.
func (c *Client) serveIntent(in *intent, err error) outcome {
	switch {
	case err != nil:
		return c.refuse(in, err) // nothing journaled, nothing sent
	case in.skip && in.op == "Batch":
		return c.refuseSkipped(in)
	case in.skip:
		return c.skip(in)
	case in.read:
		return c.serveRead(in)
	}
	d, o := c.begin(in) // adopt or mint the key, take the claim, commit
	if d == nil {
		return o // recalled, mismatched, in doubt, …
	}
	defer d.release()
	defer func() { c.entries.leaveDoubt(in, d.head.Key, &o) }()
	o = d.drive()
	return o
}

// drive sends until the end is known or this pass is over. Do, Transport, Batch, Resume
// and Run all come through here.
func (d *call) drive() outcome {
	if err := d.honourRetryAt(); err != nil {
		return d.ends.giveUp(err)
	}
	for {
		report, err := d.mayAttempt() // canceled, closed, expired, window closed, the breaker
		if err != nil {
			return d.ends.giveUp(err)
		}
		if err := d.markSent(); err != nil { // durable before a byte can leave
			report(limit.Neutral)
			return d.storeFailed(err)
		}
		t, v := d.try(d, d.judge, report)
		if t.stopped != nil {
			return d.ends.giveUp(t.stopped)
		}
		switch v = d.learn(t, v); v.then {
		case stepSettle:
			if o, over := d.ends.settle(v); over {
				return o
			}
		case stepReturn:
			return d.ends.door(v)
		case stepFail:
			return d.ends.giveUp(t.err)
		case stepStop:
			return d.stop(v)
		case stepAmbiguous:
			return d.ambiguous(v.reason(), causeOf(v.why))
		case stepFetch:
			if o, over := d.fetch(); over {
				return o
			}
		}
		if err := d.pause(v); err != nil { // stepRetry, stepInFlight, stepAccepted, stepFollow
			return d.ends.giveUp(err)
		}
	}
}

// mayAttempt asks everything that can forbid the next attempt, the breaker last.
func (d *call) mayAttempt() (report func(limit.Health), err error) {
	if err := d.whyStop(); err != nil {
		return nil, err
	}
	return d.admit(d.fits)
}

// Transport returns the client as a RoundTripper, to put under an SDK. It returns
// the last answer whatever its status, so that the SDK parses its own errors; but a
// 3xx or 4xx while the fate is anything but NotDone is an *Error, so that nobody
// takes it for the truth. [WithResult] tells the fate from under any SDK.
//
// Most SDKs mint a key for each of their calls. It holds over the SDK's own retries,
// but the caller's repeat of a call comes with another, and is another intent: give
// such calls a name.
func (c *Client) Transport() http.RoundTripper { return &transport{c} }

// transport is the client under somebody else's SDK.
type transport struct{ client *Client }

// RoundTrip implements http.RoundTripper. The request is not changed, its body is
// read and closed.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	return t.client.serve("Transport", req).forTransport()
}

// CloseIdleConnections lets http.Client.CloseIdleConnections reach Base.
func (t *transport) CloseIdleConnections() {
	if b, ok := t.client.base.(interface{ CloseIdleConnections() }); ok {
		b.CloseIdleConnections()
	}
}

// HTTPClient returns an http.Client over Transport that follows no redirects: a
// followed 302 turns a POST into a GET that looks like success.
func (c *Client) HTTPClient() *http.Client {
	return &http.Client{
		Transport:     c.Transport(),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Close stops new calls, interrupts those under way, which leave their entries
// Pending, waits until they have written what they know, and closes a journal that
// the client owns. A second Close returns nil. A hook must not call it: it would
// wait for itself.
func (c *Client) Close() error {
	if err := c.usable(); err != nil {
		return err
	}
	c.stop()
	c.end(ErrClosed)
	c.calls.Wait()
	first := false
	c.closing.Do(func() {
		first = true
		c.hub.leave(c)
		if c.ownBase != nil {
			c.ownBase.CloseIdleConnections()
		}
		if c.owned {
			c.closeErr = c.ks.Close()
		}
	})
	if !first {
		return nil
	}
	return c.closeErr
}

// Shutdown stops new calls, which get ErrClosed, lets those under way come to their end,
// and then closes the client. Run takes nothing new, finishes what it has begun, and
// returns. When ctx ends first, what is still under way is interrupted as by Close, and
// the error is ctx's. A hook must not call it.
func (c *Client) Shutdown(ctx context.Context) error {
	if err := c.usable(); err != nil {
		return err
	}
	c.stop()
	done := make(chan struct{})
	go func() { c.calls.Wait(); close(done) }()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = endOf(ctx)
	}
	return errors.Join(err, c.Close())
}

// stop lets no new call in.
func (c *Client) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.stopping {
		c.stopping = true
		close(c.draining)
	}
}

// stopped tells whether Close or Shutdown has begun.
func (c *Client) stopped() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopping
}

// usable names the mistake of using a client that nobody made.
func (c *Client) usable() error {
	if c == nil || c.entries == nil {
		return &InvalidError{"Client", nil, "is nil or zero: make one with Open or New"}
	}
	return nil
}

// Compact gives the space back that removed entries leave in the client's keystore, if
// that can do it, as the journal of [Open] can: see [BoltKeystore.Compact]. Else the
// error is errors.ErrUnsupported. A journal that is mostly free is compacted by itself
// when it is opened, if that takes less than a second.
func (c *Client) Compact(ctx context.Context) error {
	leave, err := c.enter()
	defer leave()
	if err != nil {
		return fmt.Errorf("idem: Compact: %w", err)
	}
	store, ok := c.ks.(interface{ Compact(context.Context) error })
	if !ok {
		return fmt.Errorf("idem: Compact: %w", errors.ErrUnsupported)
	}
	return store.Compact(ctx)
}

// enter counts a call in, so that Close waits for it.
func (c *Client) enter() (leave func(), closed error) {
	if err := c.usable(); err != nil {
		return func() {}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopping {
		return func() {}, ErrClosed
	}
	c.calls.Add(1)
	return c.calls.Done, nil
}

// within returns ctx, ended also by Close, with the cause ErrClosed.
func (c *Client) within(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(c.life, func() { cancel(ErrClosed) })
	return ctx, func() { unhook(); cancel(nil) }
}

// closedErr is ErrClosed once Close has begun; a context that ends with it may hear of
// it a moment later.
func (c *Client) closedErr() error {
	if c.life.Err() != nil {
		return ErrClosed
	}
	return nil
}

// endOf tells why ctx ended: errors.Is finds both what ctx says and its cause.
func endOf(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	switch {
	case err == nil:
		return nil
	case errors.Is(cause, ErrClosed), errors.Is(cause, ErrClaimLost):
		return cause
	case errors.Is(cause, err):
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// wallClock is the time without its monotonic reading, which stands still while a
// machine sleeps.
func wallClock() time.Time { return time.Now().Round(0) }
