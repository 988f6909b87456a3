package dialect_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dialect"
	"github.com/idem-go/idem/mockserver"
)

// provider is a preset beside the mock that behaves as its provider does, and a
// request that the provider keys.
type provider struct {
	name    string // what the test is called; "" is the preset's name
	preset  idem.Dialect
	profile mockserver.Profile
	method  string // "" is POST
	path    string
	form    bool // the body is a form and not JSON

	window time.Duration // how long the key protects the request

	// What the pair shows; zero is what most do.
	mismatch  mismatch
	lost402   ending // a 402 whose first answer was lost
	failed500 ending // a 500 that did nothing
	fetches   bool   // a repeat of what is done is fetched from elsewhere
	locks     bool   // a 500 locks the key
	unkeyed   bool   // nothing protects a repeat
}

// mismatch is what becomes of another payload under a key that a lost journal, or
// another program, has used before.
type mismatch string

const (
	refused   mismatch = ""          // the provider says so
	mistaken  mismatch = "mistaken"  // it says so in words that fit any refusal
	unnoticed mismatch = "unnoticed" // it answers as to the first one: the payload is lost
	compared  mismatch = "compared"  // it says "done", and the resource turns out to be another
	executed  mismatch = "executed"  // it takes it for a new request
)

// ending is where a call ends.
type ending struct {
	fate  idem.Fate
	state idem.State
}

var (
	done      = ending{idem.FateDone, idem.StateSettled}
	notDone   = ending{idem.FateNotDone, idem.StateSettled}
	open      = ending{idem.FateUnknown, idem.StatePending}
	ambiguous = ending{idem.FateUnknown, idem.StateAmbiguous}
)

func (p provider) title() string {
	if p.name != "" {
		return p.name
	}
	return p.preset.Name
}

// each runs one scenario against every provider, each in a bubble of its own.
func each(t *testing.T, scenario func(*testing.T, provider)) {
	for _, p := range append(profiled(), placedOnly()...) {
		t.Run(p.title(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { scenario(t, p) })
		})
	}
}

// bench is a provider with a client and its journal.
type bench struct {
	*testing.T
	provider
	api    *mockserver.Server
	ks     idem.Keystore
	client *idem.Client
	opts   idem.Options
}

// bench sets p up. The client tries six times, at most two seconds apart, and
// gives an attempt one second.
func (p provider) bench(t *testing.T, cfg *mockserver.Config, change ...func(*idem.Options)) *bench {
	t.Helper()
	if cfg == nil {
		cfg = &mockserver.Config{}
	}
	cfg.Profile = p.profile
	b := &bench{T: t, provider: p, api: mockserver.New(cfg), ks: idem.NewMemoryKeystore()}
	t.Cleanup(b.api.Close)
	b.opts = idem.Options{
		Scope: p.preset.Name, Base: b.api.Transport(), Dialect: p.preset,
		Breaker: idem.BreakerPolicy{Disabled: true},
		Retry: idem.RetryPolicy{MaxAttempts: 6, AttemptTimeout: time.Second, MaxElapsed: 24 * time.Hour,
			BaseDelay: time.Second, MaxDelay: 2 * time.Second, NoBudget: true},
		Authorize: func(req *http.Request) error {
			req.Header.Set("Authorization", "Bearer secret")
			return nil
		},
	}
	for _, c := range change {
		c(&b.opts)
	}
	b.client = b.open(b.ks)
	return b
}

// open returns a client over a keystore, which is a restart where the keystore
// is the old one.
func (b *bench) open(ks idem.Keystore) *idem.Client {
	b.Helper()
	c, err := idem.New(ks, &b.opts)
	require.NoError(b, err)
	b.Cleanup(func() { c.Close() })
	return c
}

// restart ends the client and starts the next one over its journal.
func (b *bench) restart() {
	b.Helper()
	require.NoError(b, b.client.Close())
	b.client = b.open(b.ks)
}

// request is the one that the provider keys, for a business value.
func (b *bench) request(ctx context.Context, value string) *http.Request {
	b.Helper()
	method, body, kind := "POST", `{"id":"`+value+`","amount":12345678901234567890.10, "note":"\u00e9"}`, "application/json"
	if b.method != "" {
		method = b.method
	}
	if b.form {
		body, kind = "Action=RunInstances&id="+value+"&Tag=a%20b", "application/x-www-form-urlencoded"
	}
	req, err := http.NewRequestWithContext(ctx, method, "https://api.example"+b.path, strings.NewReader(body))
	require.NoError(b, err)
	req.Header.Set("Content-Type", kind)
	return req
}

// named is that request under the value as its name.
func (b *bench) named(value string) *http.Request {
	return b.request(idem.WithIntent(b.Context(), value), value)
}

// do sends it and tells where it ended.
func (b *bench) do(req *http.Request) (ending, error) {
	b.Helper()
	resp, err := b.client.Do(req)
	name, _ := idem.IntentFrom(req.Context())
	end := ending{fate: idem.FateOf(resp, err)}
	e, lookErr := b.client.Lookup(b.Context(), name)
	if !errors.Is(lookErr, idem.ErrNotFound) {
		require.NoError(b, lookErr)
		end.state = e.State
	}
	return end, err
}

// posts are the requests that could have an effect.
func (b *bench) posts() (list []mockserver.Request) {
	for _, r := range b.api.Requests() {
		if r.Method != http.MethodGet {
			list = append(list, r)
		}
	}
	return list
}

// once checks what holds of every intent: one effect at most, one key, one body.
func (b *bench) once(value string, effects int) {
	b.Helper()
	require.Equal(b, effects, b.api.Effects(value), "effects")
	require.Len(b, b.api.Keys(value), 1, "keys")
	require.Len(b, b.api.Bodies(value), 1, "bodies")
}

// preset finds a preset by its name.
func preset(name string) idem.Dialect {
	d, ok := dialect.ByName(name)
	if !ok {
		panic("no preset " + name)
	}
	return d
}
