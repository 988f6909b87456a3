// Package rig is what the proofs share: the one call that all of them make, a ledger of
// what the provider saw, and a watch over what a process does to its files.
package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
)

// The one intent of most proofs. The body's id is the business value that the mock
// counts.
const (
	Name  = "order-1"
	Key   = idem.Key("0190b6a0-0000-7000-8000-00000000c4a5")
	Value = "order-1"
	Body  = `{"id":"order-1","amount":500}`
)

// nowhere is a provider that is only in memory.
const nowhere = "http://api.example"

// Request is a JSON request to the provider at url.
func Request(ctx context.Context, url, body string) *http.Request {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/payments", strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	req.Header.Set("Content-Type", "application/json")
	return req
}

// Post is a JSON request to a provider that isn't there but in memory.
func Post(ctx context.Context, body string) *http.Request { return Request(ctx, nowhere, body) }

// Sized is a named call to that provider, whose body has about this size. The name is
// its business value too.
func Sized(name string, size int) *http.Request {
	body := fmt.Sprintf(`{"id":%q,"note":%q}`, name, strings.Repeat("n", size))
	return Post(idem.WithIntent(context.Background(), name), body)
}

// Options retry fast and long, and refuse nothing.
func Options() *idem.Options {
	return &idem.Options{
		Retry: idem.RetryPolicy{
			BaseDelay: 5 * time.Millisecond, MaxDelay: 50 * time.Millisecond, MaxAttempts: 50, NoBudget: true,
		},
		Breaker: idem.BreakerPolicy{Disabled: true},
	}
}

// Open waits for the lock of a process that has died but is not yet gone.
func Open(path string, opts *idem.Options) (*idem.Client, error) {
	for range 50 {
		c, err := idem.Open(path, opts)
		if !errors.Is(err, idem.ErrLocked) {
			return c, err
		}
	}
	return nil, idem.ErrLocked
}

// Do makes a call that must create something.
func Do(c *idem.Client, req *http.Request) error { return Read(c.Do(req)) }

// Read reads an answer, which must tell of something created.
func Read(resp *http.Response, err error) error {
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.ReadAll(resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusCreated {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil
}

// Pending counts the entries that are Pending or Ambiguous.
func Pending(c *idem.Client) int {
	n := 0
	for range c.Pending(context.Background()) {
		n++
	}
	return n
}

// Ledger checks what the provider saw of a business value: one key, one body, and this
// many effects.
func Ledger(t testing.TB, srv *mockserver.Server, value string, effects int) {
	t.Helper()
	srv.Wait()
	require.Equal(t, effects, srv.Effects(value), "effects of %s: %s", value, Story(srv, value))
	if effects > 0 {
		require.Len(t, srv.Keys(value), 1, "keys of %s: %s", value, Story(srv, value))
		require.NotEqual(t, "", srv.Keys(value)[0])
		require.Len(t, srv.Bodies(value), 1, "bodies of %s", value)
	}
}

// Story tells of each request for a business value, a line each.
func Story(srv *mockserver.Server, value string) string {
	var b strings.Builder
	for _, r := range srv.Requests() {
		if r.Value == value {
			fmt.Fprintf(&b, "\n%s key=%s fault=%q status=%d effect=%v replayed=%v",
				r.Time.Format("05.000"), r.Key, r.Fault, r.Status, r.Effect, r.Replayed)
		}
	}
	return b.String()
}
