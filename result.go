package idem

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/idem-go/idem/internal/wire"
)

// Fate is what is known of an intent's effect.
type Fate int

// The fates. The zero value claims nothing.
const (
	FateUnknown Fate = iota // it may have happened
	FateNotDone             // it did not happen, and nothing sent so far can make it happen
	FateDone                // it happened
)

// String returns "Unknown", "NotDone" or "Done".
func (f Fate) String() string {
	switch f {
	case FateNotDone:
		return "NotDone"
	case FateDone:
		return "Done"
	}
	return "Unknown"
}

// MarshalText returns String's text, so that JSON and logs have it.
func (f Fate) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText reads what MarshalText writes. Any other text is [ErrInvalid].
func (f *Fate) UnmarshalText(text []byte) error {
	for _, known := range []Fate{FateUnknown, FateNotDone, FateDone} {
		if known.String() == string(text) {
			*f = known
			return nil
		}
	}
	return &InvalidError{"Fate", string(text), "must be Unknown, NotDone or Done"}
}

// Result tells what is known after a call. [WithResult] and [ResultOf] give it.
type Result struct {
	Key      Key       // "" if the intent never got one
	Intent   string    // the business name, "" if it has none
	Attempts int       // requests that may have reached the wire, over the intent's life
	Status   int       // of the last answer, 0 if there was none
	Fate     Fate      // what is known of the effect
	RetryAt  time.Time // when the next try makes sense; zero if nobody said
	Err      error     // why there is no final answer, nil if there is; set also where Transport hands over a last answer that isn't one

	Replayed bool // the provider marked its answer as the stored one
	Recalled bool // the answer came from the journal, without network
	Unkeyed  bool // sent without a key, which the provider takes none for here: Key is then ours alone
	Trimmed  bool // recalled without its body, which was swept or too large to keep
}

// FateOf answers "did it happen?" for what [Client.Do] returned:
//
//	resp, err := client.Do(req)
//	switch idem.FateOf(resp, err) { … }
//
// An error that isn't this package's, or a response that isn't, is Unknown.
func FateOf(resp *http.Response, err error) Fate {
	if err != nil {
		var e *Error
		if errors.As(err, &e) {
			return e.Fate
		}
		return FateUnknown
	}
	r, _ := ResultOf(resp)
	return r.Fate
}

// ResultOf returns the Result that hangs on the response's request, so that it
// survives wrappers of the body and of the response.
func ResultOf(resp *http.Response) (Result, bool) {
	if resp == nil || resp.Request == nil {
		return Result{}, false
	}
	r, ok := resp.Request.Context().Value(resultKey).(Result)
	return r, ok
}

// JSON decodes the body of a 2xx answer into a T and closes it:
//
//	charge, err := idem.JSON[Charge](client.Do(req))
//
// A refusal becomes an *Error with its Fate and the Response, whose body can be
// read again. A 2xx body that doesn't decode is an *Error as well, whose Fate is
// still Done. An empty body leaves T zero.
func JSON[T any](resp *http.Response, err error) (T, error) {
	var v T
	if err != nil {
		return v, err
	}
	if resp == nil {
		return v, &Error{Op: "JSON", Err: &InvalidError{"Response", nil, "must not be nil without an error"}}
	}
	if resp.Body == nil {
		resp.Body = http.NoBody
	}
	body, readErr := io.ReadAll(resp.Body)
	resp.Body.Close()
	resp.Body = wire.NewBody(body, nil)
	fail := func(cause error) error {
		r, _ := ResultOf(resp)
		return &Error{Op: "JSON", Intent: r.Intent, Key: r.Key, Attempts: r.Attempts, Fate: r.Fate, RetryAt: r.RetryAt, Response: resp, Err: cause}
	}
	switch {
	case readErr != nil:
		return v, fail(readErr)
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return v, fail(fmt.Errorf("idem: refused with status %d", resp.StatusCode))
	case len(body) == 0:
		return v, nil
	}
	if err := json.Unmarshal(body, &v); err != nil {
		return v, fail(fmt.Errorf("idem: decode answer: %w", err))
	}
	return v, nil
}

// withResult returns req under a context that carries r.
func withResult(req *http.Request, r Result) *http.Request {
	return req.WithContext(context.WithValue(req.Context(), resultKey, r))
}
