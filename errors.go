package idem

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idem/internal/tap"
	"github.com/idem-go/idem/keystore"
)

// These errors say that nothing was tried, because what was asked for makes no
// sense or names something that isn't there.
var (
	// ErrInvalid is matched by every *InvalidError.
	ErrInvalid = keystore.ErrInvalid

	// ErrMismatch means that the name or key already belongs to another
	// request. It is a programming error: no byte was sent, and no new key is
	// ever chosen to make it go away.
	ErrMismatch = errors.New("idem: the name or key holds another request")

	// ErrBodyTooLarge means that a request body is longer than
	// [Options.MaxBody], or that a recalled response had a body longer than
	// [Options.MaxResult] and so was kept without it.
	ErrBodyTooLarge = errors.New("idem: body too large")

	// ErrNotFound means that the keystore has no such entry, or that an entry
	// has no such part.
	ErrNotFound = keystore.ErrNotFound

	// ErrConflict means that an entry has a driver, or changed since it was
	// read; the same call may succeed later.
	ErrConflict = keystore.ErrConflict

	// ErrClosed means that the client or keystore was closed.
	ErrClosed = keystore.ErrClosed
)

// These errors say why a call stopped before it knew that its effect happened.
// The Fate of the *Error around them says what is known.
var (
	// ErrCircuitOpen means that the breaker refused the attempt.
	ErrCircuitOpen = errors.New("idem: circuit open")

	// ErrInDoubt means that an answer can't tell whether the effect happened,
	// or that an equal anonymous request of this process was left Unknown.
	ErrInDoubt = errors.New("idem: in doubt")

	// ErrWindowClosed means that the provider may have forgotten the key, so
	// that a resend could act a second time.
	ErrWindowClosed = errors.New("idem: window closed")

	// ErrExpired means that the time given to [WithExpiry] has passed.
	ErrExpired = errors.New("idem: expired")

	// ErrExhausted means that [RetryPolicy.MaxAttempts] or
	// [RetryPolicy.MaxElapsed] was reached.
	ErrExhausted = errors.New("idem: attempts exhausted")

	// ErrBudget means that the retry budget of the origin is spent.
	ErrBudget = errors.New("idem: retry budget spent")

	// ErrUnkeyed means that the provider takes no key for this request, so
	// that it can't be sent again.
	ErrUnkeyed = errors.New("idem: request without a key can't be resent")

	// ErrAbandoned means that a person gave the intent up with
	// [Client.Abandon].
	ErrAbandoned = errors.New("idem: abandoned")

	// ErrSettled means that the intent's end is already known.
	ErrSettled = errors.New("idem: already settled")

	// ErrCredentials means that the request needs credentials that the journal
	// withheld and nothing supplies now.
	ErrCredentials = errors.New("idem: credentials missing")

	// ErrAccountChanged means that the entry was made for another account or
	// dialect than the client's of today.
	ErrAccountChanged = errors.New("idem: account or dialect changed")
)

// These errors come from the keystore.
var (
	// ErrLocked means that another process holds the journal.
	ErrLocked = keystore.ErrLocked

	// ErrCorrupt means that the journal, or a record in it, is damaged. The
	// file is left as it is.
	ErrCorrupt = keystore.ErrCorrupt

	// ErrFull means that the journal has no room. Nothing was written.
	ErrFull = keystore.ErrFull

	// ErrUnavailable means that the keystore can't be reached now. Nothing is sent
	// unguarded: a fresh request is NotDone, what was sent before stays Unknown, and
	// [Client.Run] tries again.
	ErrUnavailable = keystore.ErrUnavailable

	// ErrClaimLost means that a call's right to drive its entry ran out, in a keystore
	// that works with leases, and somebody else may have taken it. Nothing was written
	// since, and the call's own knowledge ends there: its Fate is Unknown.
	ErrClaimLost = keystore.ErrClaimLost

	// ErrSealed means that a record was encrypted with a key that is in
	// neither [Options.Seal] nor [Options.Unseal]. The record is kept.
	ErrSealed = errors.New("idem: sealed with another key")
)

// Error is what every failed call for an intent returns. Its Fate answers whether the
// effect happened; everything else is evidence.
type Error struct {
	Op       string         // the method that failed: "Do", "Resume", …
	Intent   string         // the business name; "" if the intent has none
	Key      Key            // the intent's key; "" if it never got one
	Attempts int            // requests that may have reached the wire, over the intent's life
	Fate     Fate           // what is known of the effect
	RetryAt  time.Time      // when the next try makes sense; zero if nobody said
	Response *http.Response // the last answer, its body read; nil if there was none
	Err      error          // the sentinel and the cause, for errors.Is and errors.As
}

// Error tells the fate before the cause, and no secret.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "idem: %s", e.Op)
	if e.Intent != "" {
		fmt.Fprintf(&b, " %q", shownName(e.Intent))
	}
	if e.Key != "" {
		fmt.Fprintf(&b, " (key %s)", e.Key)
	}
	fmt.Fprintf(&b, ": %s", e.Fate)
	if e.Attempts > 0 {
		fmt.Fprintf(&b, " after %d attempt(s)", e.Attempts)
	}
	if e.Response != nil {
		fmt.Fprintf(&b, ", last status %d", e.Response.StatusCode)
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %s", strings.ReplaceAll(e.Err.Error(), "idem: ", ""))
	}
	if !e.RetryAt.IsZero() {
		fmt.Fprintf(&b, "; retry at %s", e.RetryAt.UTC().Format(time.RFC3339))
	}
	return b.String()
}

// shownName is an intent's name as people know it: a batch's item without the length
// that keeps its name apart.
func shownName(name string) string {
	n, rest, ok := strings.Cut(name, ":")
	length, err := strconv.Atoi(n)
	if ok && err == nil && length < len(rest) && rest[length] == '/' {
		return rest
	}
	return name
}

// Unwrap gives errors.Is and errors.As the sentinel and the cause.
func (e *Error) Unwrap() error { return e.Err }

// Timeout tells whether the cause was a deadline or a network timeout.
func (e *Error) Timeout() bool {
	if errors.Is(e.Err, context.DeadlineExceeded) {
		return true
	}
	var t interface{ Timeout() bool }
	return errors.As(e.Err, &t) && t.Timeout()
}

// InvalidError names the field that makes no sense. It is ErrInvalid.
type InvalidError struct {
	Field string // "Request.URL", "Options.Keep", "Dialect.Window", …
	Value any    // what stood there; never a secret
	Why   string // what should stand there
}

// Error names the field, its value and what is wrong with it.
func (e *InvalidError) Error() string {
	if e.Value == nil {
		return fmt.Sprintf("idem: invalid %s: %s", e.Field, e.Why)
	}
	return fmt.Sprintf("idem: invalid %s %s: %s", e.Field, quoteValue(e.Value), e.Why)
}

// Is makes errors.Is(err, ErrInvalid) true.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// quoteValue keeps one bad value from filling a log: it quotes strings and cuts
// them at 80 bytes.
func quoteValue(v any) string {
	s := fmt.Sprintf("%v", v)
	if len(s) > 80 {
		s = s[:80] + "…"
	}
	if _, ok := v.(fmt.Stringer); ok {
		return s
	}
	switch v.(type) {
	case string, Key, []byte:
		return fmt.Sprintf("%q", s)
	}
	return s
}

// NotSent marks err as a transport's own word that it sent nothing of the request, for an
// [Options.Base] that fails before the wire, say because its token source does. The
// attempt is then NotDone, and isn't counted.
func NotSent(err error) error { return &tap.NotSentError{Err: err} }
