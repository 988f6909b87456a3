package idem

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/idem-go/idem/internal/crash"
	"github.com/idem-go/idem/internal/record"
)

// beginFailed tells what is known after the commit of a new entry failed: NotDone
// for a fresh request, if the journal says that the entry isn't there.
func (d *call) beginFailed(err error) outcome {
	o := d.outcome(&storeError{err})
	o.fate = FateUnknown
	if d.in.name != "" || d.in.key != "" {
		return o
	}
	ctx := context.WithoutCancel(d.ctx)
	gone := errors.Is(err, ErrFull) || errors.Is(err, ErrClosed)
	if !gone {
		gone = d.client.ks.Commit(ctx, Change{OpRemove, Record{Scope: d.head.Scope, Key: d.head.Key, Rev: 1}}) == nil
	}
	if !gone {
		_, readErr := d.client.ks.Read(ctx, Ref{Scope: d.head.Scope, Key: d.head.Key})
		gone = errors.Is(readErr, ErrNotFound)
	}
	if gone {
		o.fate, o.key = FateNotDone, ""
	}
	return o
}

// fate is what is known of the intent, all attempts considered.
func (d *call) fate() Fate {
	switch {
	case d.plain && d.last:
		return d.verdict.fate
	case Fate(d.head.Fate) == FateDone:
		return FateDone
	case d.before || d.itemsBefore:
		return FateUnknown
	}
	return FateNotDone
}

func (d *call) outcome(why error) outcome {
	o := outcome{
		in: d.in, op: d.op, key: Key(d.head.Key), name: d.head.Intent, attempts: d.head.Attempts,
		fate: d.fate(), answer: d.answer, last: d.last, why: why, retryAt: d.retryAt, replayed: d.verdict.replayed,
	}
	if !d.plain {
		o.entry = d.client.entryOf(d.head)
	}
	return o
}

// settle makes a final answer durable and returns it.
func (d *call) settle(v verdict) outcome {
	if d.plain {
		o := d.outcome(nil)
		o.final = true
		return o
	}
	if d.cargo != nil {
		return d.settleCall(v)
	}
	cause := ""
	if v.row == "mismatch" {
		cause = causeOf(ErrMismatch)
	}
	a := d.answer
	if v.row == rowCut.row { // unkeyed: there is no replay to wait for
		a = nil
	}
	return d.finish(v.fate, a, cause)
}

// finish settles the entry: in place, or away with it where nobody can ask for it
// again.
func (d *call) finish(fate Fate, a *answer, cause string) outcome {
	d.head.Fate = uint8(fate)
	crash.At(crash.Answered)
	err := d.commitEnd(fate, a, cause)
	crash.At(crash.Settled)
	o := d.outcome(nil)
	o.fate, o.answer = fate, a
	switch {
	case err != nil:
		return d.unsaved(o, err)
	case cause != "":
		o.why = d.explain(causeError(cause))
	case a == nil:
		o.why = d.explain(ErrSettled)
	default:
		o.final = true
	}
	d.client.traceEnded(o.entry, o.why)
	return o
}

// unsaved is the outcome of an answer that isn't durable: Done stays Done, but a
// refusal may be followed by a resend and an effect.
func (d *call) unsaved(o outcome, err error) outcome {
	o.why, o.final = err, false
	if o.fate == FateNotDone {
		o.fate = FateUnknown
	}
	d.client.traceEnded(o.entry, err)
	return o
}

func (d *call) commitEnd(fate Fate, a *answer, cause string) error {
	c := d.client
	if d.forgettable() {
		err := c.ks.Commit(context.WithoutCancel(d.ctx), Change{OpRemove, Record{Scope: d.head.Scope, Key: d.head.Key, Rev: d.rev}})
		if err == nil {
			d.head.State = uint8(StateSettled)
			return nil
		}
		if !errors.Is(err, ErrConflict) {
			return &storeError{err}
		}
	}
	sight, err := c.sight(d.ctx, wallClock())
	if err != nil {
		return &storeError{err}
	}
	settle := func(body *answer) error {
		return d.save(func(h *record.Head) {
			h.State, h.Fate, h.Cause, h.Settled = uint8(StateSettled), uint8(fate), cause, wallClock()
			h.SweepAge = sight.Age + c.keepFor(h)
			h.TooLarge = a != nil && body == nil
			h.RetryAt, h.PollURL, h.Call, h.InFlightSince = time.Time{}, "", "", time.Time{}
			h.Untold = d.carried && c.opts.Settled != nil
			if a != nil {
				h.Status, h.Trimmed = a.status, false
			}
			if cause == "" {
				h.Reason, h.LastError = "", ""
			}
		}, body)
	}
	if a == nil || a.rest != nil {
		return settle(nil)
	}
	if err = settle(a); errors.Is(err, ErrFull) {
		return settle(nil) // the fate matters more than the answer
	}
	return err
}

// keepFor is how long a settled entry is kept: an SDK mints a key for each of its
// calls and asks for it again only while it retries.
func (c *Client) keepFor(h *record.Head) time.Duration {
	if keySource(h.KeySource) == keySDK && h.Intent == "" && !h.Queued && h.Window != Forever {
		return h.Window
	}
	return c.opts.Keep
}

// forgettable tells an entry whose end is returned to the only one who could ask
// for it.
func (d *call) forgettable() bool {
	h := d.head
	return !d.carried && h.Intent == "" && keySource(h.KeySource) == keyMinted && !h.Queued &&
		d.in.key == "" && !d.claim.Contended()
}

// refusedAtDoor returns a refusal that came before processing. It isn't remembered.
func (d *call) refusedAtDoor(v verdict) outcome {
	switch {
	case d.plain:
		return d.settle(v)
	case d.cargo != nil && d.answer.status == http.StatusRequestEntityTooLarge && len(d.cargo.items) > 1:
		return d.tooLarge(v)
	case !d.carried:
		d.patience = true
		return d.giveUp(fmt.Errorf("idem: refused with status %d", d.answer.status))
	case d.answer.status == http.StatusUnauthorized || d.answer.status == http.StatusProxyAuthRequired || d.answer.status == http.StatusTooManyRequests:
		return d.leave(d.outcome(fmt.Errorf("idem: refused with status %d", d.answer.status)))
	}
	return d.settle(v)
}

// giveUp ends a pass without an end of the intent.
func (d *call) giveUp(why error) outcome {
	o := d.outcome(d.explain(why))
	notDone := !d.before && !d.itemsBefore && Fate(d.head.Fate) != FateDone
	var broke *storeError
	switch {
	case d.plain:
		o.final = d.patience && d.last && d.answer.status < 500 && d.answer.cut == nil
		return o
	case errors.As(why, &broke):
		return d.unsaved(o, why)
	case notDone && d.last && d.patience && !d.verdict.door && d.verdict.fate == FateNotDone:
		return d.settle(d.verdict) // the provider said to try again, but it is an answer
	case notDone && d.mayWithdraw():
		return d.withdraw(o)
	case notDone && d.claim.Contended(): // a waiter may have time left
	case notDone && errors.Is(why, ErrExpired) && d.expires().Equal(d.head.Expires):
		if d.cargo != nil {
			return d.expireItems(o)
		}
		return d.finish(FateNotDone, nil, causeOf(ErrExpired))
	case notDone:
	case errors.Is(why, ErrWindowClosed):
		return d.ambiguous(why, causeOf(ErrWindowClosed))
	case errors.Is(why, ErrExpired) && d.entryExpired():
		return d.ambiguous(why, causeOf(ErrExpired))
	case d.head.Unkeyed && !d.head.Conditional && d.head.PollURL == "":
		return d.ambiguous(o.why, causeOf(ErrUnkeyed))
	}
	return d.leave(o)
}

// mayWithdraw tells whether nobody else counts on the entry.
func (d *call) mayWithdraw() bool {
	return !d.carried && !d.head.Queued && d.client.life.Err() == nil && !d.claim.Contended()
}

// withdraw removes an entry of which no attempt reached processing, and only then
// says NotDone.
func (d *call) withdraw(o outcome) outcome {
	err := d.remove()
	if errors.Is(err, ErrConflict) && d.cargo == nil {
		if err = d.merge(context.WithoutCancel(d.ctx), FateNotDone); err == nil {
			return d.leave(o) // enqueued meanwhile
		}
	}
	if err != nil {
		return d.unsaved(o, &storeError{err})
	}
	o.fate, o.key = FateNotDone, Key(d.head.Key)
	if d.patience && d.last && d.verdict.door {
		o.final = true
	}
	o.entry.Fate = FateNotDone
	d.client.traceEnded(o.entry, o.why)
	return o
}

// leave keeps the entry as it is, Pending, with the reason. Whoever finds it next
// goes on.
func (d *call) leave(o outcome) outcome {
	retryAt := o.retryAt
	if end, ends := d.windowEnd(); ends && d.before && retryAt.After(end) {
		retryAt = end
	}
	if errors.Is(o.why, ErrCircuitOpen) {
		retryAt = d.head.RetryAt // the breaker's, not the provider's
	}
	if !retryAt.After(wallClock()) {
		retryAt = time.Time{} // over: it would wake Run at once, and again
	}
	epoch := d.epoch()
	err := d.save(func(h *record.Head) {
		h.RetryAt, h.RetryEpoch, h.LastError = retryAt, epoch, shortText(o.why)
		if !d.before && !d.itemsBefore {
			h.FirstSent, h.Epoch = time.Time{}, 0
		}
	}, nil)
	o.entry = d.client.entryOf(d.head)
	if o.fate == FateNotDone {
		o.fate = FateUnknown
	}
	if err != nil {
		return d.unsaved(o, err)
	}
	if !retryAt.IsZero() {
		d.client.hub.wake(d.head.Scope)
	}
	d.client.traceEnded(o.entry, o.why)
	return o
}

// stop ends a pass on an answer that can't tell, and asks Reconcile.
func (d *call) stop(v verdict) outcome {
	why := v.reason()
	if Fate(d.head.Fate) == FateDone && errors.Is(why, ErrInDoubt) {
		why = fmt.Errorf("idem: done, but its result is missing: %w", io.ErrUnexpectedEOF)
	}
	o := d.outcome(d.explain(why))
	if o.fate == FateNotDone {
		o.fate = FateUnknown
	}
	o = d.leave(o)
	if o.storeBroke() {
		return o
	}
	return d.reconcile(o)
}

// ambiguous ends all sending for the intent, and asks Reconcile.
func (d *call) ambiguous(why error, cause string) outcome {
	d.before = true
	change := func(h *record.Head) {
		h.State, h.Cause, h.Reason, h.LastError = uint8(StateAmbiguous), cause, shortText(why), shortText(why)
		h.Settled, h.RetryAt = wallClock(), time.Time{}
	}
	err := d.end(change)
	o := d.outcome(d.explain(why))
	if err != nil {
		return d.unsaved(o, err)
	}
	d.client.traceEnded(o.entry, o.why)
	return d.reconcile(o)
}

// reconcile asks the provider, through the caller's hook, what happened. An error
// of the hook changes nothing; it is asked again in the next pass.
func (d *call) reconcile(o outcome) outcome {
	hook := d.client.opts.Reconcile
	if hook == nil || d.cargo != nil || d.head.Reconciled || d.ctx.Err() != nil {
		return o
	}
	found, err := hook(d.hookContext(), d.client.entryOf(d.head))
	if err == nil {
		err = found.validate()
	}
	if err != nil {
		o.why = fmt.Errorf("%w; reconcile: %w", o.why, d.scrub(err))
		return o
	}
	if found.Fate == FateUnknown || found.Fate == FateNotDone && Fate(d.head.Fate) == FateDone {
		if err := d.save(func(h *record.Head) { h.Reconciled = true }, nil); err != nil {
			return d.unsaved(o, err)
		}
		return o
	}
	d.head.Reconciled = true
	end := d.finish(found.Fate, found.answer(), "")
	if found.Fate == FateNotDone && !end.final && !end.storeBroke() {
		end.why = o.why
	}
	return end
}

// explain joins why a call stopped with what the last attempt met.
func (d *call) explain(why error) error {
	switch {
	case d.lastErr == nil || errors.Is(why, d.lastErr):
		if d.last && !errors.Is(why, ErrSettled) {
			return fmt.Errorf("%w (status %d)", why, d.answer.status)
		}
		return why
	}
	return fmt.Errorf("%w: %w", why, d.lastErr)
}

// reason is the sentinel behind stepStop and stepAmbiguous.
func (v verdict) reason() error {
	if v.why != nil {
		return v.why
	}
	return ErrInDoubt
}

// shortText keeps what the journal says of an error to a line.
func shortText(err error) string {
	s := err.Error()
	if len(s) > 300 {
		s = s[:300] + "…"
	}
	return s
}
