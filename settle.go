package idem

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/idem-go/idem/internal/crash"
)

// A pass over an entry ends in one of five ways: settled, withdrawn, left Pending,
// Ambiguous, or unsaved.

// settle makes a final answer durable and returns it.
func (d *call) settle(v verdict) (o outcome, over bool) {
	cause := ""
	if v.row == rowMismatch {
		cause = causeOf(ErrMismatch)
	}
	a := d.answer
	if v.row == rowCut { // unkeyed: there is no replay to wait for
		a = nil
	}
	return d.settleWith(v.fate, a, cause), true
}

// settleWith settles the entry: in place, or away with it where nobody can ask for it
// again.
func (d *call) settleWith(fate Fate, a *answer, cause string) outcome {
	d.head.Fate = fate
	err := d.commitEnd(fate, a, cause)
	return d.settled(fate, a, cause, err)
}

// settled is the outcome after the entry's end was committed, or wasn't.
func (d *call) settled(fate Fate, a *answer, cause string, err error) outcome {
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
	d.tracer.ended(d.parent, o.entry, o.why)
	return o
}

func (d *call) commitEnd(fate Fate, a *answer, cause string) error {
	crash.At(crash.Answered)
	defer crash.At(crash.Settled)
	if d.forgettable() {
		err := d.commit(d.entries.remove(d.head, d.rev))
		if err == nil {
			d.head.settle(fate, cause)
			return nil
		}
		if !errors.Is(err, ErrConflict) {
			return &storeError{err}
		}
	}
	sight, err := d.client.sweeper.sight(d.ctx)
	if err != nil {
		return &storeError{err}
	}
	settle := func(body *answer) error {
		return d.save(func(h *head) {
			h.settle(fate, cause)
			h.SweepAge = after(sight.Age, d.client.opts.keepFor(h))
			h.TooLarge = a != nil && body == nil
			h.Untold = d.background && d.client.opts.Settled != nil
			if a != nil {
				h.Status, h.Trimmed = a.status, false
			}
			if cause == "" {
				h.Reason, h.LastError = "", ""
			}
		}, body)
	}
	if !a.keepable() {
		return settle(nil)
	}
	if err = settle(a); errors.Is(err, ErrFull) {
		return settle(nil) // the fate matters more than the answer
	}
	return err
}

// forgettable tells an entry whose end is returned to the only one who could ask
// for it.
func (d *call) forgettable() bool {
	if d.background || d.in.key != "" || d.contended() {
		return false
	}
	return d.head.anonymous() && !d.head.Queued
}

// unsaved is the outcome of an answer that isn't durable: Done stays Done, but a
// refusal may be followed by a resend and an effect.
func (d *call) unsaved(o outcome, err error) outcome {
	o.why, o.final = err, false
	if o.fate == FateNotDone || errors.Is(err, ErrClaimLost) { // whoever has the claim now knows better
		o.fate = FateUnknown
	}
	d.tracer.ended(d.parent, o.entry, err)
	return o
}

// storeBroke is the outcome of a keystore that failed at this moment.
func (d *call) storeBroke(err error) outcome {
	return d.unsaved(d.outcome(nil), &storeError{err})
}

// door returns a refusal that came before processing. It isn't remembered. In the
// background a credential or a limit may be other tomorrow; the rest settles.
func (d *call) door(v verdict) outcome {
	refused := fmt.Errorf("idem: refused with status %d", d.answer.status)
	if !d.background {
		return d.ends.giveUp(d.enough(refused))
	}
	switch d.answer.status {
	case http.StatusUnauthorized, http.StatusProxyAuthRequired, http.StatusTooManyRequests:
		return d.leave(d.outcome(refused))
	}
	o, _ := d.ends.settle(v)
	return o
}

// endKind names how a pass ends that has no final answer.
type endKind uint8

const (
	endLeft      endKind = iota // stays Pending: whoever finds it next goes on
	endUnsaved                  // the keystore failed
	endRefused                  // the provider said to try again, but its last answer is one
	endWithdrawn                // nothing reached processing, and nobody else counts on the entry
	endExpired                  // nothing reached processing, and nothing may any more
	endStranded                 // something may have been processed, and a resend can't tell
)

// endFor chooses the end of a pass that stops for why.
func (d *call) endFor(why error) endKind {
	switch {
	case isStoreError(why):
		return endUnsaved
	case d.fate() == FateNotDone:
		return d.endUntouched(why)
	case errors.Is(why, ErrWindowClosed):
		return endStranded
	case errors.Is(why, ErrExpired):
		if passed(d.head.Expires) {
			return endStranded
		}
	}
	if d.head.Unkeyed && !d.head.Conditional && d.head.PollURL == "" {
		return endStranded
	}
	return endLeft
}

// endUntouched is endFor where nothing reached processing.
func (d *call) endUntouched(why error) endKind {
	switch {
	case d.refused():
		return endRefused
	case d.mayWithdraw():
		return endWithdrawn
	case d.contended(): // a waiter may have time left
		return endLeft
	case errors.Is(why, ErrExpired) && d.expires().Equal(d.head.Expires):
		return endExpired
	}
	return endLeft
}

// refused tells a last answer that is a refusal after processing.
func (d *call) refused() bool {
	return d.gaveUp && d.last && !d.verdict.door && d.verdict.fate == FateNotDone
}

// mayWithdraw tells whether nobody else counts on the entry.
func (d *call) mayWithdraw() bool {
	return !d.background && !d.head.Queued && d.client.life.Err() == nil && !d.contended()
}

func (d *call) giveUp(why error) outcome {
	o := d.outcome(d.explain(why))
	switch d.endFor(why) {
	case endUnsaved:
		return d.unsaved(o, why)
	case endRefused:
		o, _ = d.settle(d.verdict)
		return o
	case endWithdrawn:
		return d.withdraw(o)
	case endExpired:
		return d.expire(o)
	case endStranded:
		cause, reason := d.strandedBy(why)
		return d.ambiguous(reason, cause)
	}
	return d.leave(o)
}

// expire settles what was never processed in its time.
func (d *call) expire(o outcome) outcome {
	cause := causeOf(ErrExpired)
	err := d.commitEnd(FateNotDone, nil, cause)
	if errors.Is(err, errMoreTime) {
		return d.leave(o)
	}
	return d.settled(FateNotDone, nil, cause, err)
}

// strandedBy is why a resend can't tell: the window, the expiry, or that there is no
// key.
func (d *call) strandedBy(why error) (cause string, reason error) {
	switch {
	case errors.Is(why, ErrWindowClosed):
		return causeOf(ErrWindowClosed), why
	case errors.Is(why, ErrExpired) && passed(d.head.Expires):
		return causeOf(ErrExpired), why
	}
	return causeOf(ErrUnkeyed), d.explain(why)
}

// withdraw removes an entry of which no attempt reached processing, and only then
// says NotDone.
func (d *call) withdraw(o outcome) outcome {
	err := d.remove()
	if errors.Is(err, ErrConflict) && d.alone() {
		if err = d.merge(FateNotDone); err == nil {
			return d.leave(o) // enqueued meanwhile
		}
	}
	if err != nil {
		return d.unsaved(o, &storeError{err})
	}
	o.fate, o.key = FateNotDone, d.head.Key
	if d.gaveUp && d.last && d.verdict.door {
		o.final = true
	}
	o.entry.Fate = FateNotDone
	d.tracer.ended(d.parent, o.entry, o.why)
	return o
}

// leave keeps the entry as it is, Pending, with the reason. Whoever finds it next
// goes on.
func (d *call) leave(o outcome) outcome {
	retryAt, epoch := d.keptRetryAt(o), d.epoch(d.ctx)
	err := d.save(func(h *head) {
		h.RetryAt, h.RetryEpoch, h.LastError = retryAt, epoch, shortText(o.why)
		d.scheduleNext(h)
		if !d.before.any() {
			h.unsend()
		}
	}, nil)
	o.entry = d.entries.entry(d.head)
	if o.fate == FateNotDone {
		o.fate = FateUnknown
	}
	if err != nil {
		return d.unsaved(o, err)
	}
	if !retryAt.IsZero() {
		d.client.hub.wake(d.head.Scope)
	}
	d.tracer.ended(d.parent, o.entry, o.why)
	return o
}

// scheduleNext says when Run comes back to an entry that a pass in the background left.
// Any other call leaves it to Run at once.
func (d *call) scheduleNext(h *head) {
	h.NextTry = time.Time{}
	if !d.background {
		return
	}
	rest := d.client.opts.Retry.passRest(h.Passes)
	h.NextTry = d.bounds.clock.now().Add(max(rest, d.wait))
	h.Passes++
}

// keptRetryAt is the RetryAt that is written down: within the window, the provider's
// own and not the breaker's, and not over, for that would wake Run at once, and again.
func (d *call) keptRetryAt(o outcome) time.Time {
	at := o.retryAt
	if end, ends := d.windowEnd(); ends && d.before.attempt && at.After(end) {
		at = end
	}
	if errors.Is(o.why, ErrCircuitOpen) {
		at = d.head.RetryAt
	}
	if !at.After(d.bounds.clock.now()) {
		return time.Time{}
	}
	return at
}

// stop ends a pass on an answer that can't tell, and asks Reconcile.
func (d *call) stop(v verdict) outcome {
	why := v.reason()
	if d.head.Fate == FateDone && errors.Is(why, ErrInDoubt) {
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
	d.before.attempt = true
	err := d.finish(func(h *head) {
		h.strand(cause, shortText(why))
		h.LastError = h.Reason
	})
	o := d.outcome(d.explain(why))
	switch {
	case errors.Is(err, errMoreTime):
		return d.leave(o)
	case err != nil:
		return d.unsaved(o, err)
	}
	d.tracer.ended(d.parent, o.entry, o.why)
	return d.reconcile(o)
}

// reconcile asks the provider, through the caller's hook, what happened. An error
// of the hook changes nothing; it is asked again in the next pass.
func (d *call) reconcile(o outcome) outcome {
	if !d.mayReconcile() {
		return o
	}
	found, err := d.client.opts.Reconcile(d.hookContext(), d.entries.entry(d.head))
	if err == nil {
		err = found.validate()
	}
	if err != nil {
		o.why = fmt.Errorf("%w; reconcile: %w", o.why, d.scrub(err))
		return o
	}
	if found.Fate == FateUnknown || found.Fate == FateNotDone && d.head.Fate == FateDone {
		if err := d.save(func(h *head) { h.Reconciled = true }, nil); err != nil {
			return d.unsaved(o, err)
		}
		return o
	}
	d.head.Reconciled = true
	d.answer.closeRest() // what Reconcile found takes its place
	end := d.settleWith(found.Fate, found.answer(), "")
	if found.Fate == FateNotDone && !end.final && !end.storeBroke() {
		end.why = o.why
	}
	return end
}

// mayReconcile tells whether the hook can be asked for this entry now: a batch's call
// is nothing that a provider knows.
func (d *call) mayReconcile() bool {
	return d.client.opts.Reconcile != nil && d.alone() && !d.head.Reconciled && d.ctx.Err() == nil
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
