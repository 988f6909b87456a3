// Package stripe_test drives stripe-go over Client.Transport with dialect.Stripe, against
// stripe-mock in this process and, for faults, against this module's own mock.
//
// What works. The SDK mints a key for every call; it is found, journaled and kept. Under
// a name the journal's key wins over a newly minted one, also after a restart, and a
// settled name is recalled without network. Bodies that the SDK sends chunked, with
// ContentLength 0, arrive whole and with their length. A key in use is waited for, where
// the SDK gives up at once. Refusals stay the SDK's own *stripe.Error; everything that
// isn't known is an *idem.Error through it, and WithResult tells the fate under either.
//
// What the SDK's retries do, with MaxNetworkRetries 2 over a client of at most 3
// attempts: 9 requests where the answer is lost, isn't JSON, or is a 409 in use, and 3
// where the SDK reads an error as JSON (429, 503), which it doesn't repeat. With
// MaxNetworkRetries 0 it is 3 for each of the five; by itself, with its 2, the SDK makes
// 3, 3, 1, 1 and 1. It is one key in any case. Set 0.
package stripe_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v85"
	"github.com/stripe/stripe-mock/embedded"
	"github.com/stripe/stripe-mock/server"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dialect"
	"github.com/idem-go/idem/interop/internal/wire"
	"github.com/idem-go/idem/mockserver"
)

const sdkKey = `^\d{19}_.{6}$` // <nanoseconds>_<random>: what stripe-go mints for every call

func journal(t *testing.T) string { return filepath.Join(t.TempDir(), "payments.db") }

func open(t *testing.T, path string, attempts int) *idem.Client {
	c, err := idem.Open(path, &idem.Options{
		Scope: "stripe", Dialect: dialect.Stripe(),
		Retry: idem.RetryPolicy{MaxAttempts: attempts, BaseDelay: time.Millisecond, NoBudget: true},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// sdk is stripe-go over hc, talking to base, without its sleeps.
func sdk(hc *http.Client, base string, retries int64) *stripe.Client {
	backend := stripe.GetBackendWithConfig(stripe.APIBackend, &stripe.BackendConfig{
		URL: stripe.String(base), HTTPClient: hc, MaxNetworkRetries: stripe.Int64(retries),
		LeveledLogger: &stripe.LeveledLogger{Level: stripe.LevelNull},
	})
	backend.(*stripe.BackendImplementation).SetNetworkRetriesSleep(false)
	return stripe.NewClient("sk_test_123", stripe.WithBackends(&stripe.Backends{API: backend}))
}

func under(c *idem.Client) *http.Client { return &http.Client{Transport: c.Transport()} }

func charge(ctx context.Context, sc *stripe.Client, order string, amount int64) (*stripe.Charge, error) {
	return sc.V1Charges.Create(ctx, &stripe.ChargeCreateParams{
		Amount: stripe.Int64(amount), Currency: stripe.String("eur"), Metadata: map[string]string{"order": order},
	})
}

// stripeMock is stripe-mock in this process. Its OpenAPI takes seconds to load.
var stripeMock = sync.OnceValue(func() http.Handler {
	spec, err := server.LoadSpec(embedded.OpenAPISpec, "")
	must(err)
	fixtures, err := server.LoadFixtures(embedded.OpenAPIFixtures, "")
	must(err)
	stub, err := server.NewStubServer(fixtures, spec, false, false)
	must(err)
	return http.HandlerFunc(stub.HandleRequest)
})

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// ledger is a mock with Stripe's ways, which counts charges by order.
func ledger(t *testing.T) *mockserver.Server {
	return mockserver.Start(t, &mockserver.Config{
		Profile: mockserver.StripeV1(),
		Value: func(_ *http.Request, body []byte) string {
			form, _ := url.ParseQuery(string(body))
			return form.Get("metadata[order]")
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"id":"ch_1","object":"charge","amount":%s}`, r.PostFormValue("amount"))
		}),
	})
}

func TestStripeMockTakesWhatTheSDKSendsThroughTheClientUnderTheSDKsOwnKey(t *testing.T) {
	api := wire.Start(t, stripeMock())
	c := open(t, journal(t), 6)
	var result idem.Result
	ctx := idem.WithResult(idem.WithIntent(t.Context(), "order-1"), &result)

	ch, err := charge(ctx, sdk(under(c), api.URL, 0), "1", 1999)
	require.NoError(t, err)
	require.Regexp(t, `^ch_`, ch.ID)
	require.Equal(t, idem.FateDone, result.Fate)

	require.Len(t, api.Requests(), 1)
	r := api.Requests()[0]
	require.Regexp(t, sdkKey, r.Header.Get("Idempotency-Key"))
	require.Equal(t, string(result.Key), r.Header.Get("Idempotency-Key"))
	require.Equal(t, "Bearer sk_test_123", r.Header.Get("Authorization"))
	e, err := c.Lookup(t.Context(), "order-1")
	require.NoError(t, err)
	require.Equal(t, result.Key, e.Key)
}

func TestABodyThatTheSDKSendsInChunksWithLengthZeroArrivesWholeAndWithItsLength(t *testing.T) {
	api := wire.Start(t, stripeMock())
	_, err := charge(t.Context(), sdk(&http.Client{}, api.URL, 0), "1", 1999)
	require.NoError(t, err)
	_, err = charge(t.Context(), sdk(under(open(t, journal(t), 6)), api.URL, 0), "1", 1999)
	require.NoError(t, err)

	alone, under := api.Requests()[0], api.Requests()[1]
	require.True(t, alone.Chunked, "stripe-go by itself")
	require.False(t, under.Chunked)
	require.Equal(t, string(alone.Body), string(under.Body))
	require.Contains(t, string(under.Body), "amount=1999")
}

func TestALostAnswerIsFetchedUnderTheSameKeyAndTheSDKSeesNothingOfIt(t *testing.T) {
	api := wire.Start(t, stripeMock())
	sc := sdk(under(open(t, journal(t), 6)), api.URL, 0)
	_, err := charge(t.Context(), sc, "0", 1) // the connection has been used before
	require.NoError(t, err)
	api.Lose(1)

	var result idem.Result
	_, err = charge(idem.WithResult(t.Context(), &result), sc, "1", 1999)
	require.NoError(t, err)
	require.Equal(t, 2, result.Attempts)
	require.Len(t, api.Requests(), 3)
	require.Len(t, api.Distinct(wire.Header("Idempotency-Key")), 2)
}

func TestANameKeepsItsKeyOverARestartThoughTheSDKMintsAnother(t *testing.T) {
	api, path := ledger(t), journal(t)
	run := func(attempts int) (*stripe.Charge, idem.Result, error) {
		c := open(t, path, attempts)
		defer c.Close()
		var r idem.Result
		ch, err := charge(idem.WithResult(idem.WithIntent(t.Context(), "order-7"), &r), sdk(under(c), api.URL, 0), "7", 1999)
		return ch, r, err
	}

	api.Script(mockserver.Fault{Kind: mockserver.FaultDrop}) // charged; the answer is lost
	_, first, err := run(1)
	require.Error(t, err)
	require.Equal(t, idem.FateUnknown, first.Fate)
	var e *idem.Error
	require.ErrorAs(t, err, &e, "through stripe-go's error")

	ch, second, err := run(6)
	require.NoError(t, err)
	require.Equal(t, "ch_1", ch.ID)
	require.True(t, second.Replayed)
	require.Equal(t, first.Key, second.Key)

	ch, third, err := run(6)
	require.NoError(t, err)
	require.EqualValues(t, 1999, ch.Amount)
	require.True(t, third.Recalled)

	require.Equal(t, []string{string(first.Key)}, api.Keys("7"))
	require.Equal(t, 1, api.Effects("7"))
	require.Len(t, api.Requests(), 2)
}

func TestANameKeepsItsKeyOverARestartAtStripeMock(t *testing.T) {
	api, path := wire.Start(t, stripeMock()), journal(t)
	run := func() (r idem.Result, err error) {
		c := open(t, path, 1)
		defer c.Close()
		_, err = charge(idem.WithResult(idem.WithIntent(t.Context(), "order-7"), &r), sdk(under(c), api.URL, 0), "7", 1999)
		return r, err
	}
	api.Lose(1)
	first, err := run()
	require.Error(t, err)
	second, err := run()
	require.NoError(t, err)
	third, err := run()
	require.NoError(t, err)
	require.True(t, third.Recalled)
	require.Equal(t, first.Key, second.Key)
	require.Len(t, api.Requests(), 2)
	require.Equal(t, []string{string(first.Key)}, api.Distinct(wire.Header("Idempotency-Key")))
	require.Len(t, api.Distinct(wire.Body), 1)
}

func TestANameWithManyMetadataIsTheSameRequestEveryTime(t *testing.T) {
	api := ledger(t)
	sc := sdk(under(open(t, journal(t), 6)), api.URL, 0)
	meta := map[string]string{"order": "8"}
	for i := range 9 {
		meta[fmt.Sprint("k", i)] = "v"
	}
	ctx := idem.WithIntent(t.Context(), "order-8")
	for range 2 {
		_, err := sc.V1Charges.Create(ctx, &stripe.ChargeCreateParams{Amount: stripe.Int64(1), Currency: stripe.String("eur"), Metadata: meta})
		require.NoError(t, err)
	}
	require.Equal(t, 1, api.Effects("8"))
}

func TestANameThatHoldsAnotherAmountIsAMismatchAndNothingIsSent(t *testing.T) {
	api := ledger(t)
	sc := sdk(under(open(t, journal(t), 6)), api.URL, 2)
	var r idem.Result
	ctx := idem.WithResult(idem.WithIntent(t.Context(), "order-9"), &r)
	_, err := charge(ctx, sc, "9", 1999)
	require.NoError(t, err)
	_, err = charge(ctx, sc, "9", 2999)
	require.ErrorIs(t, err, idem.ErrMismatch)
	require.Equal(t, idem.FateDone, r.Fate, "of the intent that has the name")
	require.Len(t, api.Requests(), 1)
}

func TestAKeyInUseIsWaitedForWhereTheSDKByItselfGivesUp(t *testing.T) {
	busy := mockserver.Fault{Kind: mockserver.FaultInFlight, Times: 2}
	alone, api := ledger(t), ledger(t)
	alone.Script(busy)
	_, err := charge(t.Context(), sdk(&http.Client{}, alone.URL, 2), "1", 1)
	var refused *stripe.Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, stripe.ErrorCodeIdempotencyKeyInUse, refused.Code)

	api.Script(busy)
	var r idem.Result
	_, err = charge(idem.WithResult(t.Context(), &r), sdk(under(open(t, journal(t), 6)), api.URL, 0), "1", 1)
	require.NoError(t, err)
	require.Equal(t, 3, r.Attempts)
	require.Equal(t, 1, api.Effects("1"))
}

func TestAStored500EndsTheTriesAndTheSDKReadsItWhileTheResultSaysUnknown(t *testing.T) {
	api := ledger(t)
	api.Script(mockserver.Fault{Kind: mockserver.FaultFail, Body: `{"error":{"type":"api_error","message":"sorry"}}`, Header: http.Header{"Content-Type": {"application/json"}}})
	c := open(t, journal(t), 6)
	var r idem.Result
	ctx := idem.WithResult(idem.WithIntent(t.Context(), "order-3"), &r)
	_, err := charge(ctx, sdk(under(c), api.URL, 2), "3", 1)
	var failed *stripe.Error
	require.ErrorAs(t, err, &failed)
	require.Equal(t, 500, failed.HTTPStatusCode)
	require.Equal(t, "sorry", failed.Msg)
	require.Equal(t, idem.FateUnknown, r.Fate)
	require.Len(t, api.Requests(), 1, "Stripe-Should-Retry: false")

	_, err = charge(ctx, sdk(under(c), api.URL, 2), "3", 1)
	require.ErrorIs(t, err, idem.ErrInDoubt)
	require.Len(t, api.Requests(), 1)
	e, err := c.Lookup(t.Context(), "order-3")
	require.NoError(t, err)
	require.Equal(t, idem.StateAmbiguous, e.State)
}

func TestADeclinedCardIsTheSDKsErrorAndNotDone(t *testing.T) {
	api := ledger(t)
	api.Script(mockserver.Fault{Kind: mockserver.FaultFail, Status: 402, Body: `{"error":{"type":"card_error","code":"card_declined"}}`})
	var r idem.Result
	_, err := charge(idem.WithResult(t.Context(), &r), sdk(under(open(t, journal(t), 6)), api.URL, 2), "1", 1)
	var declined *stripe.Error
	require.ErrorAs(t, err, &declined)
	require.Equal(t, stripe.ErrorCodeCardDeclined, declined.Code)
	require.Equal(t, idem.FateNotDone, r.Fate)
	require.Len(t, api.Requests(), 1)
}

// alone is the SDK with its 2 retries over a plain http.Client, under0 and under2 are
// the SDK without and with them over a client of at most 3 attempts.
func TestAttemptsOfTheSDKAndOfTheClientMultiplyUnlessTheSDKsRetriesAreOff(t *testing.T) {
	status := func(code int, body string) mockserver.Fault {
		return mockserver.Fault{Kind: mockserver.FaultStatus, Status: code, Body: body, Times: -1}
	}
	for _, tc := range []struct {
		name                  string
		fault                 mockserver.Fault
		alone, under0, under2 int
	}{
		{"the answer is lost", mockserver.Fault{Kind: mockserver.FaultDrop, Times: -1}, 3, 3, 9},
		{"503 with HTML", status(503, "<html>"), 3, 3, 9},
		{"503 with JSON", status(503, `{"error":{"type":"api_error"}}`), 1, 3, 3},
		{"429 with JSON", status(429, `{"error":{"type":"invalid_request_error","code":"rate_limit"}}`), 1, 3, 3},
		{"409 key in use", mockserver.Fault{Kind: mockserver.FaultInFlight, Times: -1}, 1, 3, 9},
	} {
		t.Run(tc.name, func(t *testing.T) {
			attempts := func(hc *http.Client, retries int64) int {
				api := ledger(t)
				api.Script(tc.fault)
				_, err := charge(t.Context(), sdk(hc, api.URL, retries), "1", 1)
				require.Error(t, err)
				require.Len(t, api.Keys("1"), 1)
				return len(api.Requests())
			}
			require.Equal(t, tc.alone, attempts(&http.Client{}, 2))
			require.Equal(t, tc.under0, attempts(under(open(t, journal(t), 3)), 0))
			require.Equal(t, tc.under2, attempts(under(open(t, journal(t), 3)), 2))
		})
	}
}
