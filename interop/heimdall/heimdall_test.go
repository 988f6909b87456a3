// Package heimdall_test puts gojek/heimdall over Client.HTTPClient. It is no
// RoundTripper, so it can't be below.
//
// What works. Its retries are one intent under one key. An answer that it returns has the
// fate, for FateOf.
//
// What to mind. Its MultiError keeps the texts of errors alone: neither errors.Is nor
// errors.As finds anything, and FateOf of it is Unknown whatever happened. Ask WithResult,
// through a request of your own: Post takes no context. Its retries are off unless
// WithRetryCount turns them on; it sleeps after the last one too.
package heimdall_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/gojek/heimdall/v7/httpclient"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/interop/internal/ours"
	"github.com/idem-go/idem/mockserver"
)

func over(hc *http.Client, retries int) *httpclient.Client {
	return httpclient.NewClient(httpclient.WithHTTPClient(hc), httpclient.WithRetryCount(retries))
}

func post(ctx context.Context, hc *httpclient.Client, url, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := hc.Do(req)
	if resp != nil {
		resp.Body.Close()
	}
	return resp, err
}

const order = `{"id":"7","amount":1999}`

func TestItsRetriesGoOnWithTheOneIntentThatTheNameStandsFor(t *testing.T) {
	api := mockserver.Start(t, nil)
	api.Script(mockserver.Fault{Kind: mockserver.FaultDrop, Times: 4})
	var r idem.Result
	ctx := idem.WithResult(idem.WithIntent(t.Context(), "order-7"), &r)
	resp, err := post(ctx, over(ours.Client(t, 3).HTTPClient(), 2), api.URL, order)
	require.NoError(t, err)
	require.Equal(t, idem.FateDone, idem.FateOf(resp, err))
	require.Equal(t, 5, r.Attempts, "over its two tries")
	require.Equal(t, []string{string(r.Key)}, api.Keys("7"))
	require.Equal(t, []string{order}, api.Bodies("7"))
	require.Equal(t, 1, api.Effects("7"))
}

func TestItsMultiErrorUnwrapsToNothingSoTheFateIsInTheResultAlone(t *testing.T) {
	api := mockserver.Start(t, nil)
	hc := over(ours.Client(t, 3).HTTPClient(), 0)
	var r idem.Result
	ctx := idem.WithResult(idem.WithIntent(t.Context(), "order-7"), &r)
	_, err := post(ctx, hc, api.URL, order)
	require.NoError(t, err)

	_, err = post(ctx, hc, api.URL, `{"id":"7","amount":2999}`)
	require.ErrorContains(t, err, idem.ErrMismatch.Error()[len("idem: "):])
	require.NotErrorIs(t, err, idem.ErrMismatch)
	var e *idem.Error
	require.False(t, errors.As(err, &e))
	require.Equal(t, idem.FateUnknown, idem.FateOf(nil, err), "what is not the library's proves nothing")
	require.Equal(t, idem.FateDone, r.Fate)
	require.ErrorIs(t, r.Err, idem.ErrMismatch)
	require.Len(t, api.Requests(), 1)
}

func TestAnAnswerThatStayedA503IsNoErrorAndHasTheFate(t *testing.T) {
	api := mockserver.Start(t, nil)
	api.Script(ours.Busy(""))
	var r idem.Result
	resp, err := post(idem.WithResult(t.Context(), &r), over(ours.Client(t, 3).HTTPClient(), 0), api.URL, order)
	require.NoError(t, err)
	require.Equal(t, 503, resp.StatusCode)
	require.Equal(t, idem.FateUnknown, idem.FateOf(resp, err))
	require.ErrorIs(t, r.Err, idem.ErrExhausted)
}

func TestAttemptsMultiplyUnderANameAndEndAtTheDoubtWithoutOne(t *testing.T) {
	attempts := func(ctx context.Context, hc *http.Client, retries int) int {
		api := mockserver.Start(t, nil)
		api.Script(ours.Lost())
		_, err := post(ctx, over(hc, retries), api.URL, order)
		require.Error(t, err)
		require.LessOrEqual(t, len(api.Keys("7")), 1)
		return len(api.Requests())
	}
	named := idem.WithIntent(t.Context(), "order-7")
	require.Equal(t, 3, attempts(t.Context(), &http.Client{}, 2), "heimdall alone")
	require.Equal(t, 9, attempts(named, ours.Client(t, 3).HTTPClient(), 2))
	require.Equal(t, 3, attempts(named, ours.Client(t, 3).HTTPClient(), 0))
	require.Equal(t, 3, attempts(t.Context(), ours.Client(t, 3).HTTPClient(), 2))
}

func TestItsClientIsNoRoundTripperAndSoCantBeBelowByItself(t *testing.T) {
	_, isOne := any(over(&http.Client{}, 2)).(http.RoundTripper)
	require.False(t, isOne)
}
