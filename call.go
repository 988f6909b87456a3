package idem

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem/internal/crash"
	"github.com/idem-go/idem/internal/wire"
)

// call is one driver's pass over one entry.
type call struct {
	pass
	hold
	in         *intent // nil on Resume and Run
	ends       ending  // the call itself; of a batch, its batchCall
	before     earlier
	sharedKeys bool // a batch's call whose items' keys the provider honours
	background bool // driven by Resume or Run: never withdrawn, its end is told to Settled
}

// earlier tells what may have been processed before the attempt that is judged.
type earlier struct {
	attempt bool // an earlier attempt of this entry was Unknown, or Done with its result missing
	items   bool // of a batch: an earlier call may have applied one of the items
}

func (e earlier) any() bool { return e.attempt || e.items }

// ending is how a pass over an entry ends. An intent by itself ends as its call says;
// a batch's call ends for each of its items.
type ending interface {
	// weigh says what a verdict means here.
	weigh(v verdict) verdict

	// settle takes a final answer. over is false if the same call is to be sent again.
	settle(v verdict) (o outcome, over bool)

	// door takes a refusal that came before processing.
	door(v verdict) outcome

	// giveUp ends a pass without an end of the intent.
	giveUp(why error) outcome
}

func (c *Client) newCall(op string, ctx context.Context) *call {
	d := &call{pass: newPass(c, op, ctx), hold: hold{entries: c.entries, tracer: c.tracer, writes: context.WithoutCancel(ctx)}}
	d.bounds.clock = c.sweeper
	d.ends = d
	return d
}

// newEntry is the call that creates an entry: everything that the intent pins, nothing
// written yet.
func (c *Client) newEntry(in *intent, key Key) (*call, error) {
	w := *in.wire
	w.Header = in.wire.Header.Clone()
	u := *in.wire.URL
	w.URL = &u
	if in.keyed && in.req != nil {
		if err := in.dialect.place(&w, key); err != nil {
			return nil, err
		}
	}
	sight, err := c.sweeper.sight(in.ctx)
	if err != nil {
		return nil, &storeError{err}
	}
	d := c.newCall(in.op, in.ctx)
	d.serves(in)
	d.wire, d.account = &w, in.account
	d.head = &head{
		Key: key, Scope: c.opts.Scope, Intent: in.name, Account: in.account, AccountPerCall: in.perCall,
		State: StatePending, KeySource: in.source,
		Method: w.Method, URL: w.URL.String(), Fingerprint: in.sum,
		Created: sight.Now, FirstSent: sight.Now, Expires: in.expires, Epoch: sight.Epoch,
		Dialect: in.dialect.Name, Placement: in.dialect.Placement, Unkeyed: !in.keyed, WireKey: in.dialect.spot().Spell(string(key)),
		Window: in.dialect.window(), Margin: in.dialect.margin(),
		WithheldHeaders: in.live.Headers, WithheldParams: in.live.Query,
		Queued: in.queued, Reserved: in.req == nil, Conditional: conditional(&w), Batch: in.batch, Item: in.item,
	}
	if in.queued {
		d.head.unsend()
	}
	return d, nil
}

// conditional tells a PUT or DELETE whose own precondition keeps a late resend from
// overwriting what came after it (RFC 9110 §13.1): the entity tag it was made for, or
// that nothing is there yet. "If-Match: *" and dates hold for what came later, too.
func conditional(w *wire.Request) bool {
	if !w.Idempotent() {
		return false
	}
	match := w.Header.Get("If-Match")
	return strings.Contains(match, `"`) || w.Header.Get("If-None-Match") == "*"
}

// serves binds the call to the request of a caller, whose credentials it takes.
func (d *call) serves(in *intent) {
	d.in, d.live, d.dialect, d.bounds.expires = in, in.live, in.dialect, in.expires
	d.bounds.under(in.dialect)
}

// load takes over what the journal has, under the claim.
func (d *call) load(f held) error {
	d.head, d.rev, d.account, d.cutSum = f.head, f.rec.Rev, f.head.Account, f.head.CutSum
	d.before.attempt = !d.head.FirstSent.IsZero() || d.head.Fate == FateDone
	if d.before.attempt {
		d.head.Attempts = max(d.head.Attempts, 1) // what a crash kept from being counted
		if d.head.DoubtAt.IsZero() {
			d.head.DoubtAt = d.bounds.clock.now()
		}
	}
	if d.head.Reserved {
		d.dialect = d.client.opts.Dialect
		d.bounds.under(d.dialect)
		return nil
	}
	m, err := d.entries.openRequest(f.rec)
	if err != nil {
		return err
	}
	if d.wire, err = wire.RequestOf(m); err != nil {
		return fmt.Errorf("idem: entry %s: %w: %v", d.head.Key, ErrCorrupt, err)
	}
	if d.head.Call != "" {
		return fmt.Errorf("%w: its call %s carries it", ErrConflict, d.head.Call)
	}
	d.expectCredentials()
	d.dialect, _ = d.client.opts.Dialect.route(d.wire.Method, d.wire.URL.EscapedPath())
	d.bounds.under(d.dialect)
	if d.head.PollURL != "" {
		return d.pollAt(d.head.PollURL)
	}
	return nil
}

// expectCredentials demands what the journal withheld, where the request isn't made
// anew: on Resume and Run. In Do today's request decides which credentials it brings,
// for a key may have become a token, and a balancer's cookie may be gone; only one that
// brings none at all, with no hook to add some, is kept from being refused.
func (d *call) expectCredentials() {
	headers := d.head.WithheldHeaders
	if d.in != nil {
		brought := len(d.in.live.Headers) + len(d.in.live.Query)
		if brought > 0 || d.client.opts.Authorize != nil {
			return
		}
		headers = slices.DeleteFunc(slices.Clone(headers), func(name string) bool { return name == "Cookie" })
	}
	d.live = d.live.Expecting(headers, d.head.WithheldParams)
}

// guard gives the entry back if f panics, as long as no deferred release does.
func (d *call) guard(f func()) {
	ended := false
	defer func() {
		if !ended {
			d.entries.leaveDoubt(d.in, d.head.Key, &outcome{})
			d.release()
		}
	}()
	f()
	ended = true
}

// next is the request to send now: the intent's, or a poll.
func (d *call) next() (w *wire.Request, ours bool) {
	hop := *d.wire
	if d.hop != nil {
		hop.URL = d.hop
	}
	if d.polling {
		hop = wire.Request{Method: http.MethodGet, URL: d.hop, Header: http.Header{}}
		if accept := d.wire.Header.Get("Accept"); accept != "" {
			hop.Header.Set("Accept", accept)
		}
	} else if !d.head.Unkeyed {
		d.dialect.placeFirstSent(&hop, d.head.FirstSent)
	}
	return &hop, wire.Origin(hop.URL) == wire.Origin(d.wire.URL)
}

// whyStop tells why nothing may be sent now.
func (d *call) whyStop() error {
	if err := endOf(d.ctx); err != nil {
		return err
	}
	if d.polling {
		return nil
	}
	if err := d.expired(); err != nil {
		return err
	}
	if d.before.attempt && !d.resendable() {
		return ErrUnkeyed
	}
	return d.windowClosed(d.ctx)
}

// honourRetryAt keeps a wait that the provider asked an earlier pass for.
func (d *call) honourRetryAt() error {
	if d.background || !d.waits(d.ctx, d.head) {
		return nil
	}
	d.retryAt = d.head.RetryAt
	wait := d.retryAt.Sub(d.bounds.clock.now())
	if wait > d.client.opts.Retry.maxRetryAfter() {
		return d.waitTooLong()
	}
	if err := d.fits(wait); err != nil {
		return err
	}
	if err := d.sleep(wait); err != nil {
		return err // the time stays: whoever comes next keeps it
	}
	d.retryAt = time.Time{}
	return nil
}

// attemptTime is the attempt's own limit, cut at the end of the window: a byte that
// left later could act again.
func (d *call) attemptTime() time.Duration {
	limit := d.pass.attemptTime()
	if end, ends := d.windowEnd(); ends {
		limit = min(limit, max(end.Sub(d.bounds.clock.now()), 0))
	}
	return limit
}

// fits tells whether a wait ends while there is still something to wait for.
func (d *call) fits(wait time.Duration) error {
	if err := d.pass.fits(wait); err != nil {
		return err
	}
	if end := d.expires(); !end.IsZero() && !wallClock().Add(wait).Before(end) {
		return fmt.Errorf("%w before the next attempt is due", ErrExpired)
	}
	if end, ends := d.windowEnd(); ends && !d.bounds.clock.now().Add(wait).Before(end) {
		return fmt.Errorf("%w: the next attempt is due after the window", ErrExhausted)
	}
	return nil
}

// resendable tells whether a request that may have been processed may be sent again:
// under its key; or without one while its own caller waits, if it is idempotent by HTTP
// (RFC 9110 §9.2.2); later only if its own precondition guards what came since. ADR 5
// has the reasons.
func (d *call) resendable() bool {
	if !d.head.Unkeyed || d.head.Conditional {
		return true
	}
	return d.wire.Idempotent() && d.tries > 0 && !d.background
}

// expired tells why the first byte must not leave any more, though a connection is there:
// the dial may have taken long, or the machine slept.
func (d *call) expired() error {
	if err := d.hold.expired(); err != nil {
		return err
	}
	if end, ends := d.windowEnd(); ends && !d.bounds.clock.now().Before(end) {
		return ErrWindowClosed
	}
	return nil
}

// markSent makes the first send durable before it can happen. A new entry of Do is
// created with it.
func (d *call) markSent() error {
	if !d.head.FirstSent.IsZero() {
		return nil
	}
	sight, err := d.bounds.clock.sight(d.ctx)
	if err != nil {
		return &storeError{err}
	}
	if err := d.save(func(h *head) { h.FirstSent, h.Epoch = sight.Now, sight.Epoch }, nil); err != nil {
		return err
	}
	crash.At(crash.Committed)
	return nil
}

func (d *call) judge(t tried) verdict {
	if d.polling {
		return d.judgePoll(t)
	}
	return judge(d.dialect, d.facts(), t)
}

func (d *call) facts() facts {
	return facts{
		request: d.wire, keyed: !d.head.Unkeyed, before: d.before.attempt, done: d.head.Fate == FateDone,
		minted: d.mintedAlone(), keyFirst: d.dialect.KeyFirst && !d.head.Unkeyed, quiet: d.quiet(), again: d.resendable(),
	}
}

// mintedAlone tells a random key that was minted here. A batch derives its items' keys,
// which another machine may hold as well.
func (d *call) mintedAlone() bool {
	return d.head.KeySource == keyMinted && d.head.Item == "" && !d.sharedKeys
}

// quiet tells whether the last attempt in doubt was so long ago that the provider can no
// longer act on it.
func (d *call) quiet() bool {
	within, doubt := d.dialect.SettlesWithin, d.head.DoubtAt
	return within > 0 && !doubt.IsZero() && d.bounds.clock.now().Sub(doubt) > within
}

// weigh is the verdict itself: it speaks of this intent alone.
func (d *call) weigh(v verdict) verdict { return v }

// learn takes in what an attempt taught.
func (d *call) learn(t tried, v verdict) verdict {
	number := d.head.Attempts + 1
	if t.mayHaveLeft() {
		d.head.Attempts = number
	}
	d.head.CutSum = d.cutSum
	info := d.info(t, v)
	info.Key, info.Intent, info.Number = d.head.Key, d.head.Intent, number
	d.tracer.attempt(d.parent, info)
	v = d.ends.weigh(v)
	switch {
	case v.row == rowPollElsewhere, v.row == rowCut && v.fate == FateDone:
		d.before.attempt, d.head.Fate = true, FateDone
	case v.fate == FateUnknown:
		d.before.attempt = true
	case v.fate == FateDone:
		d.client.budgets.Refund(wire.Origin(d.wire.URL), time.Now())
	}
	if v.own == FateUnknown {
		d.head.DoubtAt = d.bounds.clock.now()
	}
	if v.then == stepInFlight {
		return d.inFlight(v)
	}
	d.verdict = v
	return v
}

// inFlight believes that an earlier send still runs, up to the dialect's cap. When it
// was first said is journaled, so that the cap holds over restarts.
func (d *call) inFlight(v verdict) verdict {
	now := d.bounds.clock.now()
	if d.head.InFlightSince.IsZero() {
		// A failure to write is met again by whatever ends this pass.
		_ = d.save(func(h *head) { h.InFlightSince = now }, nil)
		d.head.InFlightSince = now
	}
	if now.Sub(d.head.InFlightSince) > d.dialect.inFlightMax() {
		v.then, v.why = stepAmbiguous, fmt.Errorf("%w: in flight for over %v", ErrInDoubt, d.dialect.inFlightMax())
	}
	return v
}

// pause prepares the next attempt and waits for it; or says why there is none.
func (d *call) pause(v verdict) error {
	if err := endOf(d.ctx); err != nil {
		return err
	}
	if d.startsPoll(v) {
		if err := d.startPoll(); err != nil {
			return err
		}
	}
	wait, err := d.nextPause(v, d.fits)
	if err != nil {
		return err
	}
	if d.background && d.op == opRun && wait > 0 { // the worker is free for others meanwhile
		d.wait = wait
		return d.enough(errLater)
	}
	d.tracer.waiting(d.parent, d.head.Key, d.head.Intent, wait)
	return d.sleep(wait)
}

const opRun = "Run"

// errLater ends a pass of Run over an entry that is to be tried again.
var errLater = errors.New("idem: it is tried again later")

func (d *call) outcome(why error) outcome {
	o := d.pass.outcome(d.in, why)
	o.key, o.name, o.attempts = d.head.Key, d.head.Intent, d.head.Attempts
	o.fate, o.entry, o.unkeyed = d.fate(), d.entries.entry(d.head), d.head.Unkeyed
	return o
}

// fate is what is known of the intent, all attempts considered.
func (d *call) fate() Fate {
	switch {
	case d.head.Fate == FateDone:
		return FateDone
	case d.before.any():
		return FateUnknown
	}
	return FateNotDone
}

func (d *call) storeFailed(err error) outcome {
	o := d.outcome(err)
	if o.fate == FateNotDone {
		o.fate = FateUnknown
	}
	return o
}

func isStoreError(err error) bool {
	var broke *storeError
	return errors.As(err, &broke)
}
