package idem

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/idem-go/idem/internal/limit"
	"github.com/idem-go/idem/keystore"
)

// ResumeOptions say how Resume and Run go about it. The zero value is the default.
type ResumeOptions struct {
	Concurrency int     // entries driven at once; default 4
	Rate        float64 // entries begun a second; 0: no limit

	// Each is called after each entry of a pass, one call at a time, with what is
	// known then; the error says why an entry isn't settled, nil if it is. An entry
	// that can't be read is reported with its key alone.
	Each func(Entry, error)
}

func (o ResumeOptions) validate(field string) error {
	switch {
	case o.Concurrency < 0:
		return &InvalidError{field + ".Concurrency", o.Concurrency, "must not be negative"}
	case !(o.Rate >= 0) || o.Rate > 1e9:
		return &InvalidError{field + ".Rate", o.Rate, "must be 0 to 1e9 entries a second"}
	}
	return nil
}

// Report counts the entries of a pass by what is known of them at its end. Skipped
// ones weren't tried: driven by another call, not due yet, or of another account or
// dialect.
type Report struct{ Done, NotDone, Unknown, Skipped int }

// Resume drives every entry of the client's scope that is due and has no driver,
// once, and returns when all are through: under the key and with the bytes of the
// journal. Nil options are [Options.Resume]. What can't be sent is reported to Each
// and kept. The error is the journal's, or why ctx ended; an entry's own trouble is
// not an error.
func (c *Client) Resume(ctx context.Context, opts *ResumeOptions) (Report, error) {
	leave, err := c.enter()
	defer leave()
	if err != nil {
		return Report{}, fmt.Errorf("idem: Resume: %w", err)
	}
	o := c.opts.Resume
	if opts != nil {
		o = *opts
	}
	if err := o.validate("ResumeOptions"); err != nil {
		return Report{}, err
	}
	p := c.newRound(ctx, "Resume", o)
	report, err := p.run()
	if err != nil {
		err = fmt.Errorf("idem: Resume: %w", err)
	}
	return report, err
}

const (
	defaultConcurrency = 4
)

// round is one walk over the open entries of a scope, or all that Run does.
type round struct {
	client *Client
	ctx    context.Context
	op     string
	opts   ResumeOptions

	mu     sync.Mutex // guards what follows
	report Report
	err    error // the journal's

	each  chan struct{} // holds a token while Each runs; a mutex would stop fake clocks
	epoch uint64        // of the clock, when the round began
	start time.Time     // when that was
	pace  limit.Pacer
}

func (c *Client) newRound(ctx context.Context, op string, o ResumeOptions) *round {
	if o.Concurrency == 0 {
		o.Concurrency = defaultConcurrency
	}
	return &round{client: c, ctx: ctx, op: op, opts: o, each: make(chan struct{}, 1), pace: limit.Pacer{Rate: o.Rate}}
}

// run walks oldest first, with as many workers as the options allow. Entries made
// after its start are left to the next round.
func (p *round) run() (Report, error) {
	ctx, done := p.client.within(p.ctx)
	defer done()
	sight, err := p.client.sweeper.sight(ctx)
	if err != nil {
		return p.report, err
	}
	p.epoch, p.start = sight.Epoch, sight.Now
	if _, err := p.client.tellAll(ctx, false); err != nil {
		return p.report, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work := make(chan keystore.Record)
	var workers sync.WaitGroup
	for range p.opts.Concurrency {
		workers.Go(func() {
			for rec := range work {
				p.visit(ctx, rec)
				if err := p.failure(); err != nil {
					cancel(err)
				}
			}
		})
	}
	err = p.feed(ctx, work)
	close(work)
	workers.Wait()
	return p.report, cmp.Or(err, p.failure(), p.client.closedErr(), endOf(ctx))
}

// feed hands the open entries to the workers.
func (p *round) feed(ctx context.Context, work chan<- keystore.Record) error {
	for rec, err := range p.client.entries.scan(ctx, keystore.LaneOpen, time.Time{}) {
		if err != nil && !errors.Is(err, ErrCorrupt) {
			if ended := endOf(ctx); ended != nil {
				return nil
			}
			return err
		}
		if err != nil {
			p.tell(Entry{Key: Key(rec.Key), Scope: rec.Scope}, FateUnknown, err)
			continue
		}
		if rec.Order.After(p.start) && !rec.Order.After(p.client.sweeper.now()) {
			continue // made after the start; one of a later day was made by a clock that has been set back
		}
		select {
		case work <- rec:
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// visit drives an entry of Resume's, if it is due and ours.
func (p *round) visit(ctx context.Context, rec keystore.Record) {
	h, err := p.client.entries.openHead(rec)
	if err != nil {
		p.tell(Entry{Key: Key(rec.Key), Scope: rec.Scope, entries: p.client.entries}, FateUnknown, err)
		return
	}
	if h.Call != "" { // an item goes with its call
		return
	}
	waits := h.RetryEpoch == p.epoch && h.RetryAt.After(p.client.sweeper.now())
	if err := p.client.opts.mine(h); err != nil || waits {
		p.skip(p.client.entries.entry(h), err)
		return
	}
	if _, over := p.drive(ctx, rec, h); !over {
		p.skip(p.client.entries.entry(h), nil)
	}
}

// drive takes one entry through its pass. over is false if another call has it.
func (p *round) drive(ctx context.Context, rec keystore.Record, h *head) (o outcome, over bool) {
	e := p.client.entries.entry(h)
	if !p.pace.Wait(ctx) {
		return outcome{entry: e}, true
	}
	if h.Codec != "" {
		return p.driveCall(ctx, e, h)
	}
	o, err := p.client.resumeEntry(ctx, p.op, h)
	switch {
	case errors.Is(err, errDriven):
		return o, false
	case err != nil:
		o.entry = e
		p.tell(e, h.Fate, err)
	case o.entry.State == StateSettled:
		p.tell(o.entry, o.fate, nil)
	default:
		p.tell(o.entry, o.fate, o.why)
	}
	p.note(ctx, o.why)
	return o, true
}

// driveCall takes a batch's call through its pass.
func (p *round) driveCall(ctx context.Context, e Entry, h *head) (o outcome, over bool) {
	end, err := p.resumeCall(ctx, h)
	switch {
	case errors.Is(err, errDriven):
		return o, false
	case err != nil && !isStoreError(err):
		p.tell(e, FateUnknown, err)
		return outcome{entry: e, why: err}, true
	}
	p.note(ctx, err)
	return end, true
}

// note remembers a failure of the keystore, which ends the round. A conflict, and a claim
// that was lost, are one entry's own trouble.
func (p *round) note(ctx context.Context, err error) {
	own := errors.Is(err, ErrConflict) || errors.Is(err, ErrClaimLost)
	if !isStoreError(err) || own || ctx.Err() != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

// failure takes the noted failure.
func (p *round) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.err
	if p.op == "Run" {
		p.err = nil
	}
	return err
}

func (p *round) skip(e Entry, err error) {
	p.mu.Lock()
	p.report.Skipped++
	p.mu.Unlock()
	if err != nil || p.op == "Resume" {
		p.callEach(e, err)
	}
}

func (p *round) tell(e Entry, fate Fate, err error) {
	p.mu.Lock()
	switch {
	case fate == FateDone:
		p.report.Done++
	case fate == FateNotDone:
		p.report.NotDone++
	default:
		p.report.Unknown++
	}
	p.mu.Unlock()
	p.callEach(e, err)
}

func (p *round) callEach(e Entry, err error) {
	if p.opts.Each == nil {
		return
	}
	p.each <- struct{}{}
	defer func() { <-p.each }()
	p.opts.Each(e, err)
}

// errDriven means that another call drives the entry.
var errDriven = errors.New("idem: another call drives the entry")

// mine guards what was made for another account or dialect from today's credentials.
func (o *Options) mine(h *head) error {
	if h.Account != "" && h.Account != o.Account && !h.AccountPerCall {
		return fmt.Errorf("%w: made for account %q", ErrAccountChanged, h.Account)
	}
	if h.Reserved {
		return nil
	}
	path, err := pathOf(h.URL)
	if err != nil {
		return fmt.Errorf("idem: entry %s: %w: %v", h.Key, ErrCorrupt, err)
	}
	if today, _ := o.Dialect.route(h.Method, path); today.Name != h.Dialect {
		return fmt.Errorf("%w: made for dialect %q", ErrAccountChanged, h.Dialect)
	}
	return nil
}

// holdDue claims an open entry for Resume or Run, and is errDriven where another call
// has it, has ended it, or was told to wait meanwhile.
func (c *Client) holdDue(ctx context.Context, op string, h *head) (*call, held, error) {
	if h.AccountPerCall {
		ctx = WithAccount(ctx, h.Account)
	}
	d, f, err := c.hold(op, ctx, h, false)
	switch {
	case errors.Is(err, ErrConflict), errors.Is(err, ErrNotFound):
		return nil, f, errDriven
	case err != nil:
		return nil, f, err
	}
	d.background = true
	if !f.head.open() || d.waits(d.ctx, f.head) {
		d.release()
		return nil, f, errDriven
	}
	return d, f, nil
}

// resumeEntry drives one entry of the journal, if nobody else does.
func (c *Client) resumeEntry(ctx context.Context, op string, h *head) (outcome, error) {
	d, f, err := c.holdDue(ctx, op, h)
	if err != nil {
		return outcome{}, err
	}
	defer d.release()
	defer func() { d.answer.closeRest() }() // nobody reads on
	if err := d.load(f); err != nil {
		return outcome{}, err
	}
	if d.head.Account == "" && c.opts.Account != "" {
		err := c.entries.nameIsFree(ctx, c.opts.Account, d.head.Intent)
		if err == nil {
			err = d.save(func(h *head) { h.adopt(c.opts.Account, false) }, nil)
		}
		if errors.Is(err, ErrConflict) { // the account has an intent of that name: this entry's trouble alone
			return outcome{}, fmt.Errorf("%w: account %q: %w", ErrAccountChanged, c.opts.Account, err)
		}
		if err != nil {
			return d.storeFailed(err), nil
		}
		d.account = d.head.Account
	}
	o := passOver(d)
	if o.entry.State == StateSettled {
		c.tell(d)
	}
	return o, nil
}

// passOver is what a pass does with an entry, by its state.
func passOver(d *call) outcome {
	switch {
	case d.head.State == StateAmbiguous:
		return d.reconcile(d.outcome(causeError(d.head.Cause)))
	case d.head.Reserved:
		return reserved(d)
	}
	return d.drive()
}

// reserved can't be sent from here. Whoever reserved it may be sending it now, so
// that the provider is asked only when the window is over.
func reserved(d *call) outcome {
	if err := d.windowClosed(d.ctx); errors.Is(err, ErrWindowClosed) {
		return d.ambiguous(err, causeOf(ErrWindowClosed))
	}
	return d.outcome(fmt.Errorf("%w: it was reserved for a call made elsewhere", ErrInDoubt))
}

func pathOf(raw string) (string, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return "", err
	}
	return u.EscapedPath(), nil
}
