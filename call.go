package idem

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/idem-go/idem/internal/crash"
	"github.com/idem-go/idem/internal/limit"
	"github.com/idem-go/idem/internal/record"
)

// enough marks that the call stops trying though its caller would still wait: the
// last answer is then the caller's to see.
func (d *call) enough(why error) error {
	d.patience = true
	return why
}

// honourRetryAt keeps a wait that the provider asked an earlier pass for.
func (d *call) honourRetryAt() error {
	if d.plain || d.carried || d.head.RetryAt.IsZero() {
		return nil
	}
	wait := d.head.RetryAt.Sub(wallClock())
	if wait <= 0 || d.head.RetryEpoch != d.epoch() {
		return nil
	}
	d.retryAt = d.head.RetryAt
	if wait > d.client.opts.Retry.maxRetryAfter() {
		return fmt.Errorf("%w: the provider asks to wait until %s", ErrExhausted, d.retryAt.UTC().Format(time.RFC3339))
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

// epoch is the clock's, 0 if the store can't tell, which the next write will say. A
// RetryAt of another epoch means nothing: the clock was set back since.
func (d *call) epoch() uint64 {
	sight, err := d.client.sight(d.ctx, wallClock())
	if err != nil {
		return 0
	}
	return sight.Epoch
}

// barred tells why nothing may be sent now.
func (d *call) barred() error {
	if err := endOf(d.ctx); err != nil {
		return err
	}
	if d.plain || d.visit {
		return nil
	}
	if err := d.expired(); err != nil {
		return err
	}
	if d.before && !d.resendable() {
		return ErrUnkeyed
	}
	return d.windowClosed()
}

func (d *call) expired() error {
	if end := d.expires(); !d.plain && !end.IsZero() && !wallClock().Before(end) {
		return ErrExpired
	}
	return nil
}

// expires is the earlier of the call's and the entry's.
func (d *call) expires() time.Time {
	end := d.head.Expires
	if d.in != nil && !d.in.expires.IsZero() && (end.IsZero() || d.in.expires.Before(end)) {
		end = d.in.expires
	}
	return end
}

func (d *call) entryExpired() bool {
	return !d.head.Expires.IsZero() && !wallClock().Before(d.head.Expires)
}

// resendable tells whether a request that may have been processed may be sent again:
// under its key; or without one while its caller waits, if it is idempotent by HTTP
// (RFC 9110 §9.2.2); later only if its own precondition guards what came since.
func (d *call) resendable() bool {
	if !d.head.Unkeyed || d.head.Conditional {
		return true
	}
	idempotent := d.wire.Method == http.MethodPut || d.wire.Method == http.MethodDelete
	return idempotent && d.tries > 0 && !d.carried
}

// windowClosed tells whether the provider may have forgotten the key. A wall clock
// that was set back says nothing about the time since the first send, so whatever
// was sent before counts as past its window.
func (d *call) windowClosed() error {
	now := wallClock()
	sight, err := d.client.sight(d.ctx, now)
	if err != nil {
		return &storeError{err}
	}
	end, ends := d.windowEnd()
	if !ends {
		return nil
	}
	if !now.Before(end) {
		return fmt.Errorf("%w: first sent at %s", ErrWindowClosed, d.head.FirstSent.UTC().Format(time.RFC3339))
	}
	if sight.Epoch != d.head.Epoch {
		return fmt.Errorf("%w: the clock was set back since the first send", ErrWindowClosed)
	}
	return nil
}

// windowEnd is when sending has to end: the shorter of the window pinned at the
// first send and today's, less the margin.
func (d *call) windowEnd() (end time.Time, ends bool) {
	if d.plain || d.head.Unkeyed || d.head.FirstSent.IsZero() {
		return time.Time{}, false
	}
	open := Forever
	for _, w := range []struct{ window, margin time.Duration }{
		{d.head.Window, d.head.Margin}, {d.dialect.window(), d.dialect.margin()},
	} {
		if w.window != Forever {
			open = min(open, w.window-w.margin)
		}
	}
	return d.head.FirstSent.Add(open), open != Forever
}

// admit asks the breaker, and waits for its probe if the caller's deadline allows.
func (d *call) admit() (report func(limit.Health), err error) {
	group := d.client.opts.Breaker.group(d.wire.request(d.hookContext()))
	for {
		report, retryAt, ok := d.client.circuits.Allow(group, time.Now())
		if ok {
			return report, nil
		}
		wait := time.Until(retryAt)
		if _, limited := d.ctx.Deadline(); !limited || d.fits(wait) != nil {
			d.retryAt = retryAt.Round(0)
			return nil, ErrCircuitOpen
		}
		if err := d.sleep(wait); err != nil {
			return nil, err
		}
	}
}

// markSent makes the first send durable before it can happen. A new entry of Do is
// created with it.
func (d *call) markSent() error {
	if d.plain || !d.head.FirstSent.IsZero() {
		return nil
	}
	now := wallClock()
	sight, err := d.client.sight(d.ctx, now)
	if err != nil {
		return &storeError{err}
	}
	if err := d.save(func(h *record.Head) { h.FirstSent, h.Epoch = now, sight.Epoch }, nil); err != nil {
		return err
	}
	crash.At(crash.Committed)
	return nil
}

// storeFailed ends a call whose keystore failed before anything was sent in this
// pass. The entry stays as it is.
func (d *call) storeFailed(err error) outcome {
	o := d.outcome(err)
	if o.fate == FateNotDone {
		o.fate = FateUnknown
	}
	return o
}

func (d *call) facts() facts {
	return facts{
		request: d.wire, keyed: !d.head.Unkeyed, read: d.plain, before: d.before, done: Fate(d.head.Fate) == FateDone,
		minted: keySource(d.head.KeySource) == keyMinted, keyFirst: d.dialect.KeyFirst,
		again: !d.head.Unkeyed || d.head.Conditional || !d.carried && (d.wire.Method == http.MethodPut || d.wire.Method == http.MethodDelete),
	}
}

// learn takes in what an attempt taught.
func (d *call) learn(t tried, v verdict, elapsed time.Duration) verdict {
	d.tries++
	d.head.Attempts++
	d.last, d.lastErr, d.verdict = t.answer != nil, t.err, v
	d.retryAt = time.Time{}
	if !d.visit {
		d.hop = nil
	}
	if t.answer != nil {
		d.answer.closeRest()
		d.answer = t.answer
		if t.answer.cut != nil {
			d.lastErr = t.answer.cut
		}
	}
	d.client.traceAttempt(AttemptInfo{
		Key: Key(d.head.Key), Intent: d.head.Intent, Number: d.head.Attempts, Status: statusOf(t.answer),
		Fate: v.fate, Verdict: v.row, Elapsed: elapsed, Err: t.err,
	})
	if d.plain {
		return v
	}
	if d.cargo != nil {
		v = ofCargo(v)
	}
	switch {
	case v.row == rowCut.row && d.cargo == nil, v.row == rowPollElsewhere:
		d.before, d.head.Fate = true, uint8(FateDone)
	case v.fate == FateUnknown:
		d.before = true
	case v.fate == FateDone:
		d.client.budgets.Refund(originOf(d.wire.URL), time.Now())
	}
	switch {
	case v.then == stepInFlight:
		return d.inFlight(v)
	case d.cargo != nil && t.answer != nil && (decodable(v, t.answer) || v.then == stepFetch):
		v.then = stepDecode
	}
	d.verdict = v
	return v
}

// ofCargo takes back what a verdict on a batch's call doesn't say of its items: that a
// call was done, in an answer that can't be seen, doesn't mean that each of them was.
func ofCargo(v verdict) verdict {
	if v.row == rowCut.row || v.then == stepFetch {
		v.fate = FateUnknown
	}
	return v
}

// inFlight believes that an earlier send still runs, up to the dialect's cap. When it
// was first said is journaled, so that the cap holds over restarts.
func (d *call) inFlight(v verdict) verdict {
	now := wallClock()
	if d.head.InFlightSince.IsZero() {
		// A failure to write is met again by whatever ends this pass.
		_ = d.save(func(h *record.Head) { h.InFlightSince = now }, nil)
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
	policy := d.client.opts.Retry
	if v.then == stepAccepted && d.dialect.Accepted == AcceptedPoll && (!d.visit || v.row == rowPollElsewhere) {
		if err := d.startPoll(); err != nil {
			return err
		}
	}
	wait, tooLong := d.nextWait(v)
	switch {
	case tooLong:
		return d.enough(fmt.Errorf("%w: the provider asks to wait until %s", ErrExhausted, d.retryAt.UTC().Format(time.RFC3339)))
	case d.tries >= policy.maxAttempts():
		return d.enough(fmt.Errorf("%w after %d in this call", ErrExhausted, d.tries))
	case d.tries > 0 && !policy.NoBudget && !d.client.budgets.Take(originOf(d.wire.URL), time.Now()):
		return d.enough(ErrBudget)
	}
	if err := d.fits(wait); err != nil {
		return d.enough(err)
	}
	d.client.traceWaiting(Key(d.head.Key), wait)
	return d.sleep(wait)
}

// fits tells whether a wait ends while there is still something to wait for.
func (d *call) fits(wait time.Duration) error {
	if deadline, ok := d.ctx.Deadline(); ok && time.Until(deadline) <= wait {
		return fmt.Errorf("idem: the next attempt is due after the caller's deadline: %w", context.DeadlineExceeded)
	}
	if time.Since(d.began)+wait > d.client.opts.Retry.maxElapsed() {
		return fmt.Errorf("%w: the next attempt is due after %v", ErrExhausted, d.client.opts.Retry.maxElapsed())
	}
	next := wallClock().Add(wait)
	if end := d.expires(); !end.IsZero() && !next.Before(end) {
		return fmt.Errorf("%w before the next attempt is due", ErrExpired)
	}
	if end, ends := d.windowEnd(); ends && !next.Before(end) {
		return fmt.Errorf("%w: the next attempt is due after the window", ErrExhausted)
	}
	return nil
}

// nextWait is how long to wait before the next attempt: as the backoff says, or as the
// provider asks, which is then kept as RetryAt.
func (d *call) nextWait(v verdict) (wait time.Duration, tooLong bool) {
	backoff := d.delays.Next()
	hint, hinted := time.Duration(0), false
	if d.last {
		limited := d.answer.status == http.StatusTooManyRequests || d.answer.status == http.StatusServiceUnavailable
		hint, hinted = readHint(d.answer.header, limited, time.Now())
	}
	if d.asked > 0 {
		hint, hinted, d.asked = d.asked, true, 0
	}
	wait, tooLong = limit.Wait(backoff, min(hint, longestHint), hinted, d.client.opts.Retry.maxRetryAfter())
	switch v.then {
	case stepInFlight:
		wait = max(wait, d.dialect.InFlightDelay)
	case stepFollow:
		wait = 0
		if hinted { // RFC 9110 §10.2.3: the least time before the redirected request
			wait = min(hint, longestHint)
		}
		d.hop = sameOriginLocation(d.answer.from(d.wire), d.answer.header.Get("Location"))
	}
	if hinted {
		d.retryAt = wallClock().Add(wait)
	}
	return wait, tooLong
}

// longestHint keeps a Retry-After in the year 9999 from parking an entry for good,
// where no window would end it earlier.
const longestHint = 7 * 24 * time.Hour

func (d *call) sleep(wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-d.ctx.Done():
		return endOf(d.ctx)
	}
}

// hookContext is what hooks and Base get of the caller's context.
func (d *call) hookContext() context.Context {
	ctx := context.Context(belowContext{d.ctx})
	if _, given := AccountFrom(ctx); !given && d.head.Account != "" {
		ctx = WithAccount(ctx, d.head.Account)
	}
	return ctx
}

// expecting adds the names that the journal withheld from an entry's first request,
// each of which must stand on every attempt.
func (w withheld) expecting(headers, query []string) withheld {
	w.Headers = slices.Compact(slices.Sorted(slices.Values(slices.Concat(w.Headers, headers))))
	w.Query = slices.Compact(slices.Sorted(slices.Values(slices.Concat(w.Query, query))))
	return w
}

func (d *call) scrub(err error) error {
	return scrubError(err, append(d.live.secrets(), d.fresh...))
}

func statusOf(a *answer) int {
	if a == nil {
		return 0
	}
	return a.status
}

func sumOf(b []byte) []byte {
	sum := sha256.Sum256(b)
	return sum[:]
}
