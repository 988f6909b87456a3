package idem

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// recall answers from the journal, without network. errMoved means that the name was
// forgotten meanwhile.
func (c *Client) recall(in *intent, f held) (outcome, error) {
	f, err := c.entries.whole(in.ctx, f.head.Key)
	switch {
	case errors.Is(err, ErrNotFound), err == nil && f.head.State != StateSettled:
		return outcome{}, errMoved
	case err != nil:
		return c.fail(in, f, err), nil
	case in.mayHave(f.head) != nil || !in.samePayload(f.head): // the key was forgotten, and used anew
		return outcome{}, errMoved
	}
	return c.recallFrom(in, f), nil
}

// recallFrom is the answer that stands in a settled entry.
func (c *Client) recallFrom(in *intent, f held) outcome {
	d := c.newCall(in.op, in.ctx)
	defer d.end()
	d.serves(in)
	d.head, d.rev = f.head, f.rec.Rev
	if err := d.adopt(in); err != nil {
		return d.unsaved(d.outcome(nil), err)
	}
	clearDoubt(f.head.Key)
	o := d.outcome(nil)
	o.fate, o.recalled = f.head.Fate, true
	a, err := c.entries.answer(f)
	o.answer, o.trimmed = a, f.head.trimmed()
	switch {
	case err != nil:
		o.why, o.trimmed = err, false
	case f.head.Cause != "":
		o.why = fmt.Errorf("%w: %s", causeError(f.head.Cause), f.head.Reason)
	case o.answer == nil:
		o.why = fmt.Errorf("%w, and no answer is kept", ErrSettled)
	default:
		o.final = true
	}
	return o
}

// trimmed tells a result whose body isn't kept.
func (h *head) trimmed() bool { return h.Trimmed || h.TooLarge && h.Status != 0 }

// answer rebuilds the stored answer, nil if there is none; where its body isn't kept,
// the first Read says so, for an empty body would look like an answer.
func (s *entries) answer(f held) (*answer, error) {
	h := f.head
	switch {
	case h.Status == 0:
		return nil, nil
	case h.TooLarge:
		return &answer{status: h.Status, lost: fmt.Errorf("%w to keep: it was over MaxResult or a stream, or the journal was full", ErrBodyTooLarge)}, nil
	case h.Trimmed:
		return &answer{status: h.Status, lost: fmt.Errorf("idem: the result was swept after Keep: %w", ErrNotFound)}, nil
	}
	m, err := s.openResponse(f.rec)
	if err != nil {
		return nil, err
	}
	return answerOf(m), nil
}

// fail is the outcome of a call that ended before it had the right to send.
func (c *Client) fail(in *intent, f held, err error) outcome {
	o := outcome{in: in, op: in.op, name: in.name, why: err}
	var inDoubt *doubtError
	switch {
	case errors.As(err, &inDoubt):
		o.key, o.fate = inDoubt.key, inDoubt.fate
	case f.head != nil:
		o.key, o.attempts, o.retryAt = f.head.Key, f.head.Attempts, f.head.RetryAt
		o.fate = holderFate(f.head, err)
		o.entry = c.entries.entry(f.head)
	case f.rec.Key != "":
		o.key = Key(f.rec.Key) // there, but unreadable
	case in.seen, in.mayBeGone(err): // it may have ended, and gone with its end
	case !in.named() || isOwnRefusal(err):
		o.fate = FateNotDone
	}
	if in.key != "" && doubtsOf(c.entries.doubt(in))[in.key] == FateDone { // the journal doesn't know
		o.key, o.fate = in.key, FateDone
	}
	return o
}

// outcome is what a hop that isn't sent tells of its intent: what was known of it. The
// Result that its caller has stays as it is.
func (e *redirectError) outcome(in *intent) outcome {
	in.ctx = context.WithValue(in.ctx, resultPointerKey, (*Result)(nil))
	return outcome{
		in: in, op: in.op, key: e.intent.Key, name: e.intent.Intent, attempts: e.intent.Attempts, fate: e.intent.Fate,
		retryAt: e.intent.RetryAt, why: e, hop: e.resp,
	}
}

// mayBeGone tells a call that ended while it looked for a key of its caller's, which may be
// that of an anonymous intent: such an entry goes with its end, so that its absence proves
// nothing.
func (in *intent) mayBeGone(err error) bool {
	ended := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	return ended && in.name == "" && in.given != ""
}

// nothingSent is the fate after bad input to a method that sends nothing before it has
// checked what it was given.
func nothingSent(err error) Fate {
	if errors.Is(err, ErrInvalid) {
		return FateNotDone
	}
	return FateUnknown
}

// failed is why a look-up or a person's change failed, with what is known of the
// intent.
func (c *Client) failed(op, name string, key Key, f held, why error) *Error {
	e := &Error{Op: op, Intent: name, Key: key, Fate: nothingSent(why), Err: why}
	if h := f.head; h != nil {
		e.Intent, e.Key, e.Attempts, e.RetryAt, e.Fate = h.Intent, h.Key, h.Attempts, h.RetryAt, holderFate(h, why)
	}
	return e
}

// isOwnRefusal tells errors after which an absent entry is still known to be absent.
func isOwnRefusal(err error) bool {
	if isStoreError(err) {
		return false
	}
	return slices.ContainsFunc([]error{ErrExpired, ErrInvalid, ErrFull, context.Canceled, context.DeadlineExceeded},
		func(own error) bool { return errors.Is(err, own) })
}

// holderFate is what is known of the intent that has the name or key.
func holderFate(h *head, err error) Fate {
	if errors.Is(err, ErrAccountChanged) || errors.Is(err, ErrAbandoned) {
		return FateUnknown
	}
	if h.State != StateSettled && h.Fate == FateNotDone {
		return FateUnknown
	}
	if errors.Is(err, ErrMismatch) && h.Fate != FateDone {
		return FateUnknown
	}
	return h.Fate
}

// refuse is the outcome of a call that can't begin. Nothing was sent for it, but its
// name or key may hold something.
func (c *Client) refuse(in *intent, err error) outcome {
	var hop *redirectError
	if errors.As(err, &hop) {
		return hop.outcome(in)
	}
	if in.skip {
		return outcome{in: in, op: in.op, why: err, fate: FateNotDone}
	}
	if in.read || !in.named() && in.sum == nil {
		return outcome{in: in, op: in.op, why: err, fate: FateNotDone}
	}
	if !in.named() {
		if doubtful := c.entries.inDoubt(in); doubtful != nil {
			o := c.fail(in, held{}, doubtful)
			o.why = err
			return o
		}
	}
	f, findErr := c.entries.find(in)
	switch {
	case errors.Is(findErr, ErrNotFound) && errors.Is(err, ErrClosed) && in.named():
		return outcome{in: in, op: in.op, name: in.name, key: in.key, why: err} // another client may be at it
	case errors.Is(findErr, ErrNotFound):
		return outcome{in: in, op: in.op, name: in.name, why: err, fate: FateNotDone}
	case findErr != nil:
		return outcome{in: in, op: in.op, name: in.name, key: in.key, why: err}
	}
	return c.fail(in, f, err)
}
