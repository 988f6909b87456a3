package idem

import (
	"context"
	"crypto/cipher"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/idem-go/idem/internal/tap"
)

// Options say how a client works. A nil *Options works, every zero field has a
// default, and the client copies what it is given and never writes to it.
type Options struct {
	// Scope is the namespace in the journal, one for each provider: names and
	// keys are unique within it. At most 255 bytes. An empty scope is for a
	// client that has its journal to itself.
	Scope string

	// Account is the non-secret identity of the provider account, such as an
	// account id, not an API key, which may rotate. It is pinned in entries:
	// another account neither recalls nor resends them.
	Account string

	// Base sends one request. It must not resend by itself; known retriers and
	// this package's own transports are refused. Nil is a clone of
	// http.DefaultTransport that belongs to the client.
	Base http.RoundTripper

	// Dialect is how the provider takes keys. Zero is the header
	// Idempotency-Key, a raw UUIDv7, a window of 24 hours.
	Dialect Dialect

	Retry   RetryPolicy
	Breaker BreakerPolicy

	// Name names a request's intent; "" leaves it unnamed. Nil takes the name
	// that WithIntent put into the request's context.
	Name func(*http.Request) string

	// RequireName refuses an intent that has neither a name nor a key of the caller's
	// own (WithKey): nothing would find it again after a crash, and a repeat of the call
	// would be another intent.
	RequireName bool

	// Skip tells which requests are no intents. They are sent as they are, once,
	// without key or journal, their bodies unread: an SDK's large uploads, say.
	Skip func(*http.Request) bool

	// Authorize adds credentials or a signature to each attempt, after the key
	// is in place and with GetBody set. The journal keeps no credentials, so a
	// resumed request has none but these. An error stops the call, NotDone if
	// nothing was sent before. It is not called for another origin than the
	// intent's.
	Authorize func(*http.Request) error

	// Reconcile asks the provider what happened where a resend can't tell. It is
	// called at most once a pass until it returns nil. FateNotDone means "can no
	// longer happen"; something that is not found is FateUnknown.
	Reconcile func(context.Context, Entry) (Finding, error)

	// Settled hears every outcome that no Do returned: those of Run, Resume and
	// Settle. It is called again, over restarts, until it returns nil, so it must
	// bear repetition. Nil: nobody is told.
	Settled func(context.Context, Entry) error

	// Resume is how Run, and Resume without options of its own, go about it.
	Resume ResumeOptions

	// Codecs write and read the batches that name them.
	Codecs map[string]BatchCodec

	// Seal encrypts what the journal keeps of requests, answers and fingerprints;
	// names, keys and states stay readable. Its nonces are random, so an AEAD with
	// nonces of 12 bytes should be rotated long before 2^32 writes. Nil keeps them
	// in the clear, in a file of mode 0600. Unseal are older seals, for reading.
	Seal   cipher.AEAD
	Unseal []cipher.AEAD

	Trace  *Trace       // optional callbacks
	Logger *slog.Logger // nil: silent

	MaxBody   int64 // largest request body, in bytes, that it will journal; default 4 MiB
	MaxResult int64 // largest response body, in bytes, that it will keep, of a batch's call as much for each item and at most 64 MiB in all; default 1 MiB

	// Keep is how long results of settled intents are kept, counted in time that
	// the journal has lived through; at least the longest finite window; default
	// the longer of 30 days and that. Afterwards only name, fingerprint and fate
	// stay, for a year.
	Keep time.Duration
}

const (
	defaultMaxBody   = 4 << 20
	defaultMaxResult = 1 << 20
	defaultKeep      = 30 * 24 * time.Hour
	tombstoneKeep    = 365 * 24 * time.Hour
	maxName          = 512
	maxScope         = 255
)

// withDefaults returns a checked copy.
func (o *Options) withDefaults() (Options, error) {
	var out Options
	if o != nil {
		out = *o
	}
	out.Unseal, out.Codecs = slices.Clone(out.Unseal), maps.Clone(out.Codecs)
	if err := out.validate(); err != nil {
		return Options{}, err
	}
	if out.MaxBody == 0 {
		out.MaxBody = defaultMaxBody
	}
	if out.MaxResult == 0 {
		out.MaxResult = defaultMaxResult
	}
	// One byte more is read, to tell a body that is longer.
	out.MaxBody, out.MaxResult = min(out.MaxBody, math.MaxInt64-1), min(out.MaxResult, math.MaxInt64-1)
	if out.Keep == 0 {
		out.Keep = max(defaultKeep, out.Dialect.longestWindow())
	}
	return out, nil
}

func (o *Options) validate() error {
	checks := []func() error{
		o.Dialect.validate, o.Retry.validate, o.Breaker.validate,
		func() error { return o.Resume.validate("Options.Resume") },
		o.validateNames, o.validateLimits, o.validateCodecs,
		func() error { return refuseRetrier(o.Base) },
	}
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (o *Options) validateNames() error {
	if !isText(o.Scope, maxScope) {
		return &InvalidError{"Options.Scope", o.Scope, "must be UTF-8 of at most 255 bytes"}
	}
	if !isText(o.Account, maxScope) {
		return &InvalidError{"Options.Account", o.Account, "must be UTF-8 of at most 255 bytes"}
	}
	return nil
}

// isText tells UTF-8 of at most so many bytes.
func isText(s string, limit int) bool { return len(s) <= limit && utf8.ValidString(s) }

func (o *Options) validateLimits() error {
	for _, limit := range []struct {
		field string
		value int64
	}{{"MaxBody", o.MaxBody}, {"MaxResult", o.MaxResult}, {"Keep", int64(o.Keep)}} {
		if limit.value < 0 {
			return &InvalidError{"Options." + limit.field, limit.value, "must not be negative"}
		}
	}
	window := o.Dialect.longestWindow()
	if o.Keep > 0 && o.Keep < window {
		why := fmt.Sprintf("must be at least the window of %v, or a name could be forgotten while its key still counts", window)
		return &InvalidError{"Options.Keep", o.Keep, why}
	}
	return nil
}

func (o *Options) validateCodecs() error {
	if slices.Contains(o.Unseal, nil) {
		return &InvalidError{"Options.Unseal", nil, "has a nil seal"}
	}
	for name, codec := range o.Codecs {
		if name == "" || codec == nil {
			return &InvalidError{"Options.Codecs", name, "needs a name and a codec"}
		}
	}
	return nil
}

func refuseRetrier(base http.RoundTripper) error {
	if base == nil {
		return nil
	}
	if _, ours := base.(*transport); ours {
		return &InvalidError{"Options.Base", "idem.Transport", "must not resend by itself"}
	}
	if name, why := tap.Fault(base); why != "" {
		return &InvalidError{"Options.Base", name, why}
	}
	return nil
}

// keepFor is how long a settled entry is kept: an SDK mints a key for each of its
// calls and asks for it again only while it retries.
func (o *Options) keepFor(h *head) time.Duration {
	bySDK := h.KeySource == keySDK && h.Intent == "" && !h.Queued
	if bySDK && h.Window != Forever {
		return h.Window
	}
	return o.Keep
}

// checkName tells why name can't be an intent's.
func checkName(name string) error {
	if name == "" || !isText(name, maxName) {
		return &InvalidError{"Intent", name, "must be 1 to 512 bytes of UTF-8"}
	}
	return nil
}
