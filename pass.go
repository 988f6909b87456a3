package idem

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/idem-go/idem/internal/limit"
	"github.com/idem-go/idem/internal/secret"
	"github.com/idem-go/idem/internal/wire"
)

// pass is one go at one request: it sends, waits and sends again, as long as whoever
// drives it says so. It knows no journal.
type pass struct {
	client  *Client
	op      string
	parent  context.Context // the caller's
	ctx     context.Context // parent, ended also by Close and by the loss of the claim
	unhook  func()
	account string // whose credentials hooks are to add; "" if nobody said

	reads   bool            // of a GET or its kin, by which nothing can happen
	foreign bool            // a redirect led to another origin: no credentials
	dialect Dialect         // today's
	wire    *wire.Request   // what every attempt sends, key in place
	live    secret.Withheld // the credentials of today's request
	fresh   []string        // secrets that Authorize added to the last attempt
	limit   int64           // how much of an answer is read at once, in bytes

	hop     *url.URL // where the next attempt goes; nil: to the request's own URL
	polling bool     // the hop is a GET: a poll, or the fetch of a resource

	delays  *limit.Delays
	began   time.Time
	tries   int           // in this pass
	wait    time.Duration // that the next attempt has to wait, where the pass doesn't wait for it
	asked   time.Duration // a wait that a batch item's answer asked for
	retryAt time.Time
	gaveUp  bool // the pass ended by itself: its caller would still wait, and sees the last answer

	answer  *answer
	last    bool // answer is of the last attempt
	lastErr error
	verdict verdict
	cutSum  []byte // of a body that looked cut: the same again is whole
}

func newPass(c *Client, op string, ctx context.Context) pass {
	p := pass{client: c, op: op, parent: ctx, limit: c.opts.MaxResult, delays: c.opts.Retry.delays(), began: time.Now()}
	p.ctx, p.unhook = c.within(ctx)
	return p
}

// end gives the context up. A body that is still to be read keeps it until its end.
func (p *pass) end() {
	if p.answer != nil {
		if s := p.answer.stream(); s != nil {
			ended, unhook := s.done, p.unhook
			s.done = func() { ended(); unhook() }
			return
		}
	}
	p.unhook()
}

// endWith ends the pass when its claim is lost, in stores where that can happen.
func (p *pass) endWith(lost <-chan struct{}) {
	if lost == nil {
		return
	}
	ctx, cancel := context.WithCancelCause(p.ctx)
	p.ctx = ctx
	go func() {
		select {
		case <-lost:
			cancel(ErrClaimLost)
		case <-ctx.Done():
		}
	}()
}

// try makes one attempt and judges it. The breaker hears of every attempt that it let
// through, also if Base or a hook panics.
func (p *pass) try(s sender, judge func(tried) verdict, report func(limit.Health)) (tried, verdict) {
	defer report(limit.Neutral) // the first report counts
	p.answer.closeRest()        // or it keeps a connection that this attempt may need
	began := time.Now()
	t := p.attempt(s)
	if t.stopped != nil {
		return t, verdict{}
	}
	t.elapsed = time.Since(began)
	p.tries++
	v := judge(t)
	if t.cut() && p.ctx.Err() != nil {
		v.failing = false // the caller's end cut it, which says nothing about the provider
	}
	switch {
	case v.failing:
		report(limit.Failed)
	case t.answer != nil && v.row != rowCut:
		report(limit.Healthy)
	}
	p.keep(t, v)
	return t, v
}

// keep takes in what an attempt brought.
func (p *pass) keep(t tried, v verdict) {
	p.last, p.lastErr, p.verdict = t.answer != nil, t.err, v
	p.retryAt = time.Time{}
	if !p.polling {
		p.hop = nil
	}
	if t.answer == nil {
		return
	}
	p.answer.closeRest()
	p.answer = t.answer
	if t.cut() {
		p.lastErr = t.answer.cut
	}
}

// admit asks the breaker, and waits for its probe if the caller's deadline allows.
func (p *pass) admit(fits func(time.Duration) error) (report func(limit.Health), err error) {
	group := p.client.opts.Breaker.group(p.wire.HTTP(p.hookContext()))
	for {
		report, retryAt, ok := p.client.circuits.Allow(p.parent, group, time.Now())
		if ok {
			return report, nil
		}
		wait := time.Until(retryAt)
		if _, limited := p.ctx.Deadline(); !limited || fits(wait) != nil {
			p.retryAt = retryAt.Round(0)
			return nil, ErrCircuitOpen
		}
		if err := p.sleep(wait); err != nil {
			return nil, err
		}
	}
}

// nextPause is how long to wait before the next attempt; or why there is none.
func (p *pass) nextPause(v verdict, fits func(time.Duration) error) (time.Duration, error) {
	policy := p.client.opts.Retry
	wait, tooLong := p.nextWait(v)
	switch {
	case tooLong:
		return 0, p.enough(p.waitTooLong())
	case p.tries >= policy.maxAttempts():
		return 0, p.enough(fmt.Errorf("%w after %d in this call", ErrExhausted, p.tries))
	case p.tries > 0 && !p.mayRetry():
		return 0, p.enough(ErrBudget)
	}
	if err := fits(wait); err != nil {
		return 0, p.enough(err)
	}
	return wait, nil
}

func (p *pass) mayRetry() bool {
	return p.client.opts.Retry.NoBudget || p.client.budgets.Take(wire.Origin(p.wire.URL), time.Now())
}

// enough marks that the pass ends though its caller would still wait: the last answer
// is then the caller's to see.
func (p *pass) enough(why error) error {
	p.gaveUp = true
	return why
}

func (p *pass) waitTooLong() error {
	return fmt.Errorf("%w: the provider asks to wait until %s", ErrExhausted, p.retryAt.UTC().Format(time.RFC3339))
}

// fits tells whether a wait ends while there is still something to wait for.
func (p *pass) fits(wait time.Duration) error {
	if deadline, ok := p.ctx.Deadline(); ok && time.Until(deadline) <= wait {
		return fmt.Errorf("idem: the next attempt is due after the caller's deadline: %w", context.DeadlineExceeded)
	}
	if limit := p.client.opts.Retry.maxElapsed(); wait > limit-time.Since(p.began) {
		return fmt.Errorf("%w: the next attempt is due after %v", ErrExhausted, limit)
	}
	return nil
}

// nextWait is how long to wait before the next attempt: as the backoff says, or as the
// provider asks, which is then kept as RetryAt.
func (p *pass) nextWait(v verdict) (wait time.Duration, tooLong bool) {
	hint, hinted := p.hint()
	wait, tooLong = limit.Wait(p.delays.Next(), min(hint, longestHint), hinted, p.client.opts.Retry.maxRetryAfter())
	switch v.then {
	case stepInFlight:
		wait = max(wait, p.dialect.InFlightDelay)
	case stepFollow:
		wait = 0
		if hinted { // RFC 9110 §10.2.3: the least time before the redirected request
			wait = min(hint, longestHint)
		}
		p.hop = wire.SameOrigin(p.answer.from(p.wire), p.answer.header.Get("Location"))
	}
	if hinted {
		p.retryAt = p.client.sweeper.now().Add(wait)
	}
	return wait, tooLong
}

// hint is the wait that the provider asks for.
func (p *pass) hint() (wait time.Duration, hinted bool) {
	if asked := p.asked; asked > 0 {
		p.asked = 0
		return asked, true
	}
	if !p.last {
		return 0, false
	}
	status := p.answer.status
	limited := status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
	return wire.ReadHint(p.answer.header, limited, time.Now())
}

// longestHint keeps a Retry-After in the year 9999 from parking an entry for good,
// where no window would end it earlier.
const longestHint = 7 * 24 * time.Hour

func (p *pass) sleep(wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-p.ctx.Done():
		return endOf(p.ctx)
	}
}

// hookContext is what hooks and Base get of the caller's context.
func (p *pass) hookContext() context.Context {
	ctx := context.Context(belowContext{p.ctx})
	if _, given := AccountFrom(ctx); !given && p.account != "" {
		ctx = WithAccount(ctx, p.account)
	}
	return ctx
}

func (p *pass) scrub(err error) error {
	return secret.Error(err, append(p.live.Secrets(), p.fresh...))
}

// info is what Trace hears of an attempt that has no entry.
func (p *pass) info(t tried, v verdict) AttemptInfo {
	return AttemptInfo{
		Number: p.tries, Status: statusOf(t.answer), Fate: v.own, Verdict: v.row.String(), Elapsed: t.elapsed, Err: t.err,
	}
}

func statusOf(a *answer) int {
	if a == nil {
		return 0
	}
	return a.status
}

// explain joins why a pass stopped with what the last attempt met.
func (p *pass) explain(why error) error {
	if p.lastErr != nil && !errors.Is(why, p.lastErr) {
		return fmt.Errorf("%w: %w", why, p.lastErr)
	}
	if p.last && !errors.Is(why, ErrSettled) {
		return fmt.Errorf("%w (status %d)", why, p.answer.status)
	}
	return why
}

// outcome is what the pass alone can tell.
func (p *pass) outcome(in *intent, why error) outcome {
	return outcome{
		in: in, op: p.op, attempts: p.tries, answer: p.answer, last: p.last, why: why,
		retryAt: p.retryAt, replayed: p.verdict.replayed,
	}
}

// A pass by itself is a sender that nothing but its context stops.

func (p *pass) next() (w *wire.Request, ours bool) {
	w = new(wire.Request)
	*w = *p.wire
	return w, !p.foreign
}

func (p *pass) whyStop() error { return endOf(p.ctx) }

func (p *pass) expired() error { return nil }

func (p *pass) attemptTime() time.Duration { return p.client.opts.Retry.attemptTimeout() }

// serveRead sends a GET or its kin: with retries and the breaker, but without key or
// entry, for nothing can happen by it.
func (c *Client) serveRead(in *intent) outcome {
	p := newPass(c, in.op, in.ctx)
	defer p.end()
	p.dialect, p.live, p.wire, p.account = in.dialect, in.live, in.wire, in.account
	p.reads, p.foreign = true, foreignHop(in.req)
	judge := func(t tried) verdict { return judge(p.dialect, facts{request: p.wire, read: true}, t) }
	for {
		if err := endOf(p.ctx); err != nil {
			return p.readEnded(in, err)
		}
		report, err := p.admit(p.fits)
		if err != nil {
			return p.readEnded(in, err)
		}
		t, v := p.try(&p, judge, report)
		if t.stopped != nil {
			return p.readEnded(in, t.stopped)
		}
		c.tracer.attempt(p.parent, p.info(t, v))
		switch v.then {
		case stepSettle:
			o := p.outcome(in, nil)
			o.fate, o.final = v.fate, true
			return o
		case stepFail:
			return p.readEnded(in, t.err)
		}
		if err := p.readPause(v); err != nil {
			return p.readEnded(in, err)
		}
	}
}

func (p *pass) readPause(v verdict) error {
	if err := endOf(p.ctx); err != nil {
		return err
	}
	wait, err := p.nextPause(v, p.fits)
	if err != nil {
		return err
	}
	p.client.tracer.waiting(p.parent, "", "", wait)
	return p.sleep(wait)
}

// readEnded is the outcome of a read without a final answer. A refusal that outlasted
// the retries is an answer all the same.
func (p *pass) readEnded(in *intent, why error) outcome {
	o := p.outcome(in, p.explain(why))
	o.fate = FateNotDone
	if p.last {
		o.fate = p.verdict.fate
		o.final = p.gaveUp && p.answer.status < 500 && p.answer.cut == nil
	}
	return o
}
