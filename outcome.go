package idem

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// outcome is what one call learned, before Do or Transport gives it its form.
type outcome struct {
	in       *intent // nil on Resume and Run
	op       string
	key      Key
	name     string
	attempts int
	fate     Fate
	final    bool    // answer ends the matter, or is returned as a refusal at the door
	last     bool    // answer is of the last attempt, not of an earlier one
	answer   *answer // nil: none in this call
	why      error   // what stopped the call; nil if final
	retryAt  time.Time

	replayed, recalled, trimmed, unkeyed bool

	hop *http.Response // the redirect that isn't followed

	skipped bool // no intent: resp and why are what Base said
	resp    *http.Response

	entry Entry // as left behind; zero if there is none
}

// forDo is a response exactly if the provider gave a final answer.
func (o outcome) forDo() (*http.Response, error) {
	if o.skipped {
		return o.resp, o.why
	}
	if o.final {
		return o.response(nil), nil
	}
	return nil, o.failure()
}

// forTransport is the last answer as it is, unless it would be taken for the truth.
func (o outcome) forTransport() (*http.Response, error) {
	if o.skipped {
		return o.resp, o.why
	}
	if o.presentable() {
		return o.response(o.why), nil
	}
	if o.why == nil {
		o.why = fmt.Errorf("%w, although the answer is a %d", ErrSettled, o.answer.status)
	}
	return nil, o.failure()
}

func (o outcome) presentable() bool {
	switch {
	case o.in != nil && o.in.read:
		return o.answer != nil && (o.final || o.last) && (o.answer.cut == nil || o.final)
	case o.answer == nil || !o.final && !o.last:
		return false
	case o.answer.status >= 300 && o.answer.status < 500 && o.fate != FateNotDone:
		return false
	}
	return !o.storeBroke() && (o.answer.cut == nil || o.final)
}

// storeBroke tells an outcome that isn't durable, whatever the provider said.
func (o outcome) storeBroke() bool {
	return isStoreError(o.why)
}

func (o outcome) result(err error) Result {
	r := Result{
		Key: o.key, Intent: o.name, Attempts: o.attempts, Fate: o.fate, RetryAt: o.retryAt, Err: err,
		Replayed: o.replayed, Recalled: o.recalled, Trimmed: o.trimmed, Unkeyed: o.unkeyed,
	}
	if o.answer != nil {
		r.Status = o.answer.status
	}
	return r
}

// response builds the response and hangs the Result on its request.
func (o outcome) response(err error) *http.Response {
	resp := o.answer.response()
	r := o.result(err)
	if o.in != nil && o.in.req != nil {
		resp.Request = withResult(o.in.req, r)
		o.in.fill(r)
	}
	return resp
}

// failure builds the *Error.
func (o outcome) failure() *Error {
	e := &Error{
		Op: o.op, Intent: o.name, Key: o.key, Attempts: o.attempts,
		Fate: o.fate, RetryAt: o.retryAt, Err: o.why,
	}
	if o.answer != nil {
		o.answer.closeRest()
		e.Response = o.answer.response()
		if o.in != nil && o.in.req != nil {
			e.Response.Request = withResult(o.in.req, o.result(e))
		}
	}
	if o.hop != nil {
		e.Response = o.hop
	}
	if o.in != nil {
		o.in.fill(o.result(e))
	}
	return e
}

// storeError marks a failure of the keystore, which makes what it concerns not
// durable.
type storeError struct{ error }

func (e *storeError) Unwrap() error { return e.error }

// causes are the reasons for which an entry is Ambiguous or refused, as they stand
// in the journal, and what callers hear of them.
var causes = []struct {
	code string
	err  error
}{
	{"window", ErrWindowClosed},
	{"expired", ErrExpired},
	{"unkeyed", ErrUnkeyed},
	{"mismatch", ErrMismatch},
	{causeDone, ErrSettled},
	{"doubt", ErrInDoubt},
}

// causeDone is Done by an earlier attempt whose answer the provider doesn't repeat.
const causeDone = "done"

func causeOf(err error) string {
	for _, c := range causes {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	return "doubt"
}

func causeError(code string) error {
	for _, c := range causes {
		if c.code == code {
			return c.err
		}
	}
	return ErrInDoubt
}
