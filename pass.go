package idem

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/idem-go/idem/internal/limit"
	"github.com/idem-go/idem/internal/record"
)

// call is one driver's pass over one entry.
type call struct {
	client  *Client
	in      *intent // nil on Resume and Run
	op      string
	plain   bool // a read: no entry
	carried bool // by Resume or Run: never withdrawn, told to Settled

	parent context.Context // the caller's
	ctx    context.Context // parent, ended also by Close
	unhook func()
	claim  Claim

	head *record.Head
	rev  uint64
	wire *wireRequest // the journaled bytes, key in place
	live withheld

	fresh []string // secrets that Authorize added to the last attempt

	dialect     Dialect       // today's
	before      bool          // see facts
	cargo       *cargo        // of a batch's call, else nil
	itemsBefore bool          // an earlier call may have applied one of the cargo's items
	claimAs     string        // the key whose claim is taken, if it isn't the entry's own
	asked       time.Duration // a wait that an item's answer asked for
	follows     bool          // a batch's call after one that settled something
	hop         *url.URL      // where the next attempt goes, nil: to the intent's URL
	visit       bool          // the hop is a GET: a poll, a fetch
	retryAt     time.Time
	patience    bool // pause gave up, not the caller
	delays      *limit.Delays
	began       time.Time
	tries       int // in this pass
	answer      *answer
	last        bool // answer is of the last attempt
	lastErr     error
	verdict     verdict
}

// newCall is the pass that creates an entry: everything that the intent pins, nothing
// written yet.
func (c *Client) newCall(in *intent, key Key) (*call, error) {
	w := *in.wire
	w.Header = in.wire.Header.Clone()
	u := *in.wire.URL
	w.URL = &u
	if in.keyed && in.req != nil {
		if err := in.dialect.place(&w, key); err != nil {
			return nil, err
		}
	}
	now := wallClock()
	sight, err := c.sight(in.ctx, now)
	if err != nil {
		return nil, &storeError{err}
	}
	d := c.pass(in.op, in.ctx)
	d.in, d.dialect, d.live, d.wire = in, in.dialect, in.live, &w
	d.head = &record.Head{
		Key: string(key), Scope: c.opts.Scope, Intent: in.name, Account: in.account, AccountGift: in.gift,
		State: uint8(StatePending), KeySource: uint8(in.source),
		Method: w.Method, URL: w.URL.String(), Fingerprint: in.sum,
		Created: now, FirstSent: now, Expires: in.expires, Epoch: sight.Epoch,
		Dialect: in.dialect.Name, Placement: uint8(in.dialect.Placement), Unkeyed: !in.keyed, WireKey: in.dialect.wireForm(key),
		Window: in.dialect.window(), Margin: in.dialect.margin(),
		WithheldHeaders: in.live.Headers, WithheldParams: in.live.Query,
		Queued: in.queued, Reserved: in.req == nil, Conditional: conditional(&w), Batch: in.batch, Item: in.item,
	}
	if in.queued {
		d.head.FirstSent, d.head.Epoch = time.Time{}, 0
	}
	return d, nil
}

// conditional tells a request whose own precondition keeps a late resend from
// overwriting what came after it (RFC 9110 §13.1).
func conditional(w *wireRequest) bool {
	return w.Header.Get("If-Match") != "" || w.Header.Get("If-None-Match") != "" || w.Header.Get("If-Unmodified-Since") != ""
}

// pass starts a call without an entry.
func (c *Client) pass(op string, ctx context.Context) *call {
	d := &call{client: c, op: op, parent: ctx, delays: c.opts.Retry.delays(), began: time.Now()}
	d.ctx, d.unhook = c.within(ctx)
	return d
}

// readCall is a pass for GET and its kin, which have no entry.
func (c *Client) readCall(in *intent) *call {
	d := c.pass(in.op, in.ctx)
	d.in, d.plain, d.dialect, d.live, d.wire = in, true, in.dialect, in.live, in.wire
	d.head = &record.Head{Method: in.wire.Method, URL: in.wire.URL.String(), Account: in.account}
	return d
}

// openCall is a pass over an entry that exists.
func (c *Client) openCall(in *intent, f held) *call {
	d := c.pass(in.op, in.ctx)
	d.in, d.head, d.live, d.dialect = in, f.head, in.live, in.dialect
	return d
}

// load takes over what the journal has, under the claim.
func (d *call) load(f held) error {
	d.head, d.rev = f.head, f.rec.Rev
	d.before = !d.head.FirstSent.IsZero() || Fate(d.head.Fate) == FateDone
	if d.head.Reserved {
		d.dialect = d.client.opts.Dialect
		return nil
	}
	m, err := d.client.codec.openMessage(f.rec, partRequest, f.rec.Request)
	if err != nil {
		return err
	}
	if d.wire, err = wireOf(m); err != nil {
		return fmt.Errorf("idem: entry %s: %w: %v", d.head.Key, ErrCorrupt, err)
	}
	if d.head.Call != "" {
		return fmt.Errorf("%w: its call %s carries it", ErrConflict, d.head.Call)
	}
	d.live = d.live.expecting(d.head.WithheldHeaders, d.head.WithheldParams)
	d.dialect, _ = d.client.opts.Dialect.route(d.wire.Method, d.wire.URL.EscapedPath())
	if d.head.PollURL != "" {
		return d.visitPoll(d.head.PollURL)
	}
	return nil
}

func claimID(scope string, key string) string {
	return strconv.Itoa(len(scope)) + ":" + scope + key
}

// take claims the entry. A call that comes back from below, out of a hook of the
// call that drives the entry, would wait for itself.
func (d *call) take(wait bool) error {
	id := claimID(d.head.Scope, cmp.Or(d.claimAs, d.head.Key))
	if slices.Contains(driving(d.ctx), id) {
		return fmt.Errorf("%w: the call was made from within the one that drives the entry", ErrConflict)
	}
	claim, err := d.client.ks.Claim(d.ctx, id, wait)
	if err != nil {
		if ended := endOf(d.ctx); ended != nil {
			return ended
		}
		return err
	}
	d.claim = claim
	d.endWith(claim.Lost())
	d.ctx = withDriving(d.ctx, id)
	return nil
}

// endWith ends the call when its claim is lost, in stores where that can happen.
func (d *call) endWith(lost <-chan struct{}) {
	if lost == nil {
		return
	}
	ctx, cancel := context.WithCancelCause(d.ctx)
	d.ctx = ctx
	go func() {
		select {
		case <-lost:
			cancel(fmt.Errorf("%w: the claim was lost", ErrConflict))
		case <-ctx.Done():
		}
	}()
}

// release gives the entry to the next driver. A body that is still to be read keeps
// the call's context until its end.
func (d *call) release() {
	if d.claim != nil {
		d.claim.Release()
	}
	if d.answer != nil {
		if s, ok := d.answer.rest.(*stream); ok {
			ended := s.done
			s.done = func() { ended(); d.unhook() }
			return
		}
	}
	d.unhook()
}

// guard gives the entry back if f panics, as long as no deferred release does.
func (d *call) guard(f func()) {
	ended := false
	defer func() {
		if !ended {
			d.leaveDoubt(&outcome{})
			d.release()
		}
	}()
	f()
	ended = true
}
