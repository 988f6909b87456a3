package dialect_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dialect"
	"github.com/idem-go/idem/mockserver"
)

// hinted is what becomes of an answer: where the call ends if nothing else comes,
// and whether something else is asked for.
type hinted struct {
	ending
	again bool
}

var (
	withdrawn   = ending{fate: idem.FateNotDone}
	final       = hinted{notDone, false}
	finalAtDoor = hinted{withdrawn, false}
	stuck       = hinted{ambiguous, false}
	// once more, and then the answer is the caller's
	finalLater  = hinted{notDone, true}
	atDoorLater = hinted{withdrawn, true}
	openLater   = hinted{open, true}
)

// hintTable has the ways of {true, false, absent} at four statuses.
var hintTable = map[int][3]hinted{
	400: {finalLater, final, final},
	409: {finalLater, final, final},
	429: {atDoorLater, finalAtDoor, atDoorLater},
	500: {openLater, stuck, openLater},
}

// hinting are the presets whose provider has a header for hints. silent is what
// its absence means in an answer of the provider's own: the column to read.
var hinting = []struct {
	preset       idem.Dialect
	header, body string
	path         string
	silent       int
}{
	{dialect.Stripe(), "Stripe-Should-Retry", `{"error":{"type":"api_error"}}`, "/v1/charges", 2},
	{dialect.Increase(), "X-Should-Retry", `{"type":"internal_server_error"}`, "/ach_transfers", 2},
	{dialect.Adyen(), "Transient-Error", `{"status":500,"errorCode":"905"}`, "/v71/payments", 1},
	{dialect.Adyen(), "Transient-Error", `<html>not Adyen's own</html>`, "/v71/payments", 2},
}

// The answers come over sockets, so that the header is read as a server writes it.
func TestAHintDecidesWhetherTheSameKeyIsTriedAgain(t *testing.T) {
	for _, h := range hinting {
		for status, row := range hintTable {
			for column, value := range []string{"true", "false", ""} {
				want := row[column]
				if value == "" {
					want = row[h.silent]
				}
				t.Run(fmt.Sprintf("%s %s %d %q", h.preset.Name, h.body[:1], status, value), func(t *testing.T) {
					header := http.Header{}
					if value != "" {
						header.Set(h.header, value)
					}
					answer := mockserver.Fault{Kind: mockserver.FaultStatus, Status: status, Header: header, Body: h.body, Times: -1}
					requireHinted(t, provider{preset: h.preset, path: h.path, profile: mockserver.Mute()}, answer, want)
				})
			}
		}
	}
}

func requireHinted(t *testing.T, p provider, answer mockserver.Fault, want hinted) {
	t.Helper()
	api := mockserver.Start(t, &mockserver.Config{Profile: p.profile, Faults: []mockserver.Fault{answer}})
	b := &bench{T: t, provider: p, api: api, ks: idem.NewMemoryKeystore(), opts: idem.Options{
		Dialect: p.preset, Breaker: idem.BreakerPolicy{Disabled: true},
		Retry: idem.RetryPolicy{MaxAttempts: 2, BaseDelay: time.Millisecond, NoBudget: true},
	}}
	b.client = b.open(b.ks)
	req := b.named("o")
	req.URL.Scheme, req.URL.Host = "http", api.URL[len("http://"):]
	end, err := b.do(req)
	require.Equal(t, want.ending, end, "%v", err)
	require.Equal(t, want.again, len(b.posts()) == 2)
	require.LessOrEqual(t, len(b.api.Keys("o")), 1)
}

// Adyen's own suggestion for 503 with 703, to send without a key, is never taken.
func TestAdyensBrokenKeyStoreIsNoReasonToSendWithoutAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := provider{preset: dialect.Adyen(), profile: mockserver.Adyen(), path: "/v71/payments"}.bench(t, nil)
		b.api.Script(mockserver.Fault{Kind: mockserver.FaultStatus, Status: 503, Body: `{"status":503,"errorCode":"703"}`,
			Header: http.Header{"Transient-Error": {"true"}}, Times: 3})
		end, err := b.do(b.named("o"))
		require.NoError(t, err)
		require.Equal(t, done, end)
		b.once("o", 1)
		require.NotEqual(t, []string{""}, b.api.Keys("o"))
	})
}

// A wait that an in-flight answer asks for is kept, and one that the provider's
// pages ask for (Checkout.com: 30 seconds) is never undercut.
func TestAnInFlightAnswerIsWaitedForAsLongAsAsked(t *testing.T) {
	for name, tc := range map[string]struct {
		p     provider
		asked time.Duration
		want  time.Duration
	}{
		"Stripe, asked":             {provider{preset: dialect.Stripe(), profile: mockserver.StripeV1(), path: "/v1/charges"}, 20 * time.Second, 20 * time.Second},
		"Checkout.com, silent":      {provider{preset: dialect.Checkout(), profile: mockserver.Checkout(), path: "/payments"}, 0, 30 * time.Second},
		"Checkout.com, asks sooner": {provider{preset: dialect.Checkout(), profile: mockserver.Checkout(), path: "/payments"}, time.Second, 30 * time.Second},
		"Checkout.com, asks later":  {provider{preset: dialect.Checkout(), profile: mockserver.Checkout(), path: "/payments"}, 45 * time.Second, 45 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := tc.p.bench(t, nil)
				b.api.Script(mockserver.Fault{Kind: mockserver.FaultInFlight, RetryAfter: tc.asked})
				began := time.Now()
				end, err := b.do(b.named("o"))
				require.NoError(t, err)
				require.Equal(t, done, end)
				require.Equal(t, tc.want, time.Since(began))
			})
		})
	}
}
