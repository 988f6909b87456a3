// Package retryable_test puts hashicorp/go-retryablehttp over Client.HTTPClient, and shows
// that it is refused below.
//
// What works. Its attempts are one intent, named or not, under one key: a call with a name
// goes on where the last one stopped, one without is refused (ErrInDoubt) once it is in
// doubt. Attempts multiply: 3 of ours and its 2 retries are 9 with a name. A lost answer is
// a chain of errors that ends in the *idem.Error.
//
// What to mind. A 503 that stays is "giving up after 3 attempt(s)", which holds nothing:
// ask WithResult, or set PassthroughErrorHandler, which returns the answer. Set RetryMax
// to 0: NewClient makes it 4.
package retryable_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/interop/internal/ours"
	"github.com/idem-go/idem/mockserver"
)

func over(hc *http.Client, retries int) *retryablehttp.Client {
	rc := retryablehttp.NewClient()
	rc.HTTPClient, rc.RetryMax, rc.Logger = hc, retries, nil
	rc.RetryWaitMin, rc.RetryWaitMax = time.Millisecond, time.Millisecond
	return rc
}

func post(ctx context.Context, rc *retryablehttp.Client, url string) (*http.Response, error) {
	req, err := retryablehttp.NewRequestWithContext(ctx, http.MethodPost, url, []byte(`{"id":"7"}`))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := rc.Do(req)
	if resp != nil {
		resp.Body.Close()
	}
	return resp, err
}

func TestItsRetriesGoOnWithTheOneIntentThatTheNameStandsFor(t *testing.T) {
	api := mockserver.Start(t, nil)
	api.Script(mockserver.Fault{Kind: mockserver.FaultDrop, Times: 4})
	var r idem.Result
	ctx := idem.WithResult(idem.WithIntent(t.Context(), "order-7"), &r)
	resp, err := post(ctx, over(ours.Client(t, 3).HTTPClient(), 2), api.URL)
	require.NoError(t, err)
	require.Equal(t, idem.FateDone, idem.FateOf(resp, err))
	require.Equal(t, 5, r.Attempts, "over its two tries")
	require.Len(t, api.Requests(), 5)
	require.Equal(t, []string{string(r.Key)}, api.Keys("7"))
	require.Len(t, api.Bodies("7"), 1)
	require.Equal(t, 1, api.Effects("7"))
}

func TestAttemptsMultiplyUnderANameAndEndAtTheDoubtWithoutOne(t *testing.T) {
	attempts := func(ctx context.Context, hc *http.Client, retries int) (int, error) {
		api := mockserver.Start(t, nil)
		api.Script(ours.Lost())
		_, err := post(ctx, over(hc, retries), api.URL)
		require.Error(t, err)
		require.LessOrEqual(t, len(api.Keys("7")), 1)
		return len(api.Requests()), err
	}
	named := func() context.Context { return idem.WithIntent(t.Context(), "order-7") }
	n, _ := attempts(t.Context(), &http.Client{}, 2)
	require.Equal(t, 3, n, "by itself")
	n, err := attempts(named(), ours.Client(t, 3).HTTPClient(), 2)
	require.Equal(t, 9, n)
	require.ErrorIs(t, err, idem.ErrExhausted)
	n, err = attempts(named(), ours.Client(t, 3).HTTPClient(), 0)
	require.Equal(t, 3, n)
	require.ErrorIs(t, err, idem.ErrExhausted)
	n, err = attempts(t.Context(), ours.Client(t, 3).HTTPClient(), 2)
	require.Equal(t, 3, n)
	require.ErrorIs(t, err, idem.ErrInDoubt)
	var e *idem.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, idem.FateUnknown, e.Fate)
}

func TestItsErrorOfAnAnswerHoldsNoFateUnlessTheAnswerIsPassedThrough(t *testing.T) {
	for name, passes := range map[string]bool{"as it comes": false, "PassthroughErrorHandler": true} {
		t.Run(name, func(t *testing.T) {
			api := mockserver.Start(t, nil)
			api.Script(ours.Busy(""))
			rc := over(ours.Client(t, 3).HTTPClient(), 0)
			if passes {
				rc.ErrorHandler = retryablehttp.PassthroughErrorHandler
			}
			var r idem.Result
			resp, err := post(idem.WithResult(idem.WithIntent(t.Context(), "order-7"), &r), rc, api.URL)
			require.Equal(t, idem.FateUnknown, r.Fate)
			require.ErrorIs(t, r.Err, idem.ErrExhausted)
			if passes {
				require.NoError(t, err)
				require.Equal(t, idem.FateUnknown, idem.FateOf(resp, nil))
				return
			}
			require.ErrorContains(t, err, "giving up after 1 attempt(s)")
			var e *idem.Error
			require.False(t, errors.As(err, &e))
		})
	}
}

func TestBelowItIsRefusedForItSendsByItself(t *testing.T) {
	rc := over(&http.Client{}, 2)
	_, err := idem.Open(ours.Journal(t), &idem.Options{Base: rc.StandardClient().Transport})
	require.ErrorIs(t, err, idem.ErrInvalid)
	require.ErrorContains(t, err, "Options.Base")
}
