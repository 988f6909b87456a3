// Package resty_test puts go-resty over Client.HTTPClient.
//
// What works. A lost answer is fetched under one key with one body. What isn't known is an
// error with the *idem.Error inside; an answer of any status is a *resty.Response and no
// error, whose RawResponse has the fate, for FateOf. Retries are off unless SetRetryCount
// turns them on; they are one intent under one key then.
//
// What to mind. SetFile and SetMultipartFields draw a boundary by lot: a name needs
// SetMultipartBoundary with one of your own, or WithStoredPayload. SetAuthToken is withheld
// like any Authorization, so Resume and Run need Options.Authorize.
package resty_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-resty/resty/v2"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/interop/internal/ours"
	"github.com/idem-go/idem/mockserver"
)

const order = `{"id":"7","amount":1999}`

type failure struct{ Message string }

func over(hc *http.Client, retries int) *resty.Client {
	return resty.NewWithClient(hc).SetRetryCount(retries).
		SetRetryWaitTime(time.Millisecond).SetRetryMaxWaitTime(time.Millisecond).
		AddRetryCondition(func(r *resty.Response, err error) bool { return err != nil || r.StatusCode() >= 500 })
}

func post(ctx context.Context, rc *resty.Client, url string) (*resty.Response, error) {
	return rc.R().SetContext(ctx).SetHeader("Content-Type", "application/json").
		SetAuthToken("sk_test_123").SetError(&failure{}).SetBody(order).Post(url)
}

func TestALostAnswerIsFetchedUnderTheSameKeyWithTheSameBody(t *testing.T) {
	api := mockserver.Start(t, nil)
	api.Script(mockserver.Fault{Kind: mockserver.FaultDrop})
	var r idem.Result
	resp, err := post(idem.WithResult(t.Context(), &r), over(ours.Client(t, 6).HTTPClient(), 0), api.URL)
	require.NoError(t, err)
	require.Equal(t, 201, resp.StatusCode())
	require.Equal(t, idem.FateDone, idem.FateOf(resp.RawResponse, err))
	require.Equal(t, 2, r.Attempts)
	require.Equal(t, []string{string(r.Key)}, api.Keys("7"))
	require.Equal(t, []string{order}, api.Bodies("7"))
	require.Equal(t, 1, api.Effects("7"))
	for _, seen := range api.Requests() {
		require.Equal(t, "Bearer sk_test_123", seen.Header.Get("Authorization"))
	}
}

func TestWhatIsNotKnownIsAnErrorWithTheFateInside(t *testing.T) {
	api := mockserver.Start(t, nil)
	api.Script(ours.Lost())
	_, err := post(t.Context(), over(ours.Client(t, 3).HTTPClient(), 0), api.URL)
	var e *idem.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, idem.FateUnknown, e.Fate)
	require.ErrorIs(t, err, idem.ErrExhausted)
}

func TestARefusalIsARestyResponseWithItsErrorReadAndNotDone(t *testing.T) {
	api := mockserver.Start(t, nil)
	api.Script(mockserver.Fault{
		Kind: mockserver.FaultFail, Status: 422, Body: `{"Message":"no such account"}`,
		Header: http.Header{"Content-Type": {"application/json"}},
	})
	var r idem.Result
	resp, err := post(idem.WithResult(t.Context(), &r), over(ours.Client(t, 3).HTTPClient(), 2), api.URL)
	require.NoError(t, err)
	require.Equal(t, "no such account", resp.Error().(*failure).Message)
	require.Equal(t, idem.FateNotDone, idem.FateOf(resp.RawResponse, err))
	require.Equal(t, idem.FateNotDone, r.Fate)
	require.Len(t, api.Requests(), 1)
}

func TestAttemptsMultiplyUnderANameAndEndAtTheDoubtWithoutOne(t *testing.T) {
	for name, fault := range map[string]mockserver.Fault{"the answer is lost": ours.Lost(), "503": ours.Busy("{}")} {
		t.Run(name, func(t *testing.T) {
			attempts := func(ctx context.Context, hc *http.Client, retries int) int {
				api := mockserver.Start(t, nil)
				api.Script(fault)
				_, _ = post(ctx, over(hc, retries), api.URL)
				require.LessOrEqual(t, len(api.Keys("7")), 1)
				return len(api.Requests())
			}
			named := idem.WithIntent(t.Context(), "order-7")
			require.Equal(t, 3, attempts(t.Context(), &http.Client{}, 2), "resty alone")
			require.Equal(t, 9, attempts(named, ours.Client(t, 3).HTTPClient(), 2))
			require.Equal(t, 3, attempts(named, ours.Client(t, 3).HTTPClient(), 0))
			require.Equal(t, 3, attempts(t.Context(), ours.Client(t, 3).HTTPClient(), 2))
		})
	}
}

func TestAnUploadUnderANameNeedsABoundaryOfItsOwnOrTheStoredPayload(t *testing.T) {
	api := mockserver.Start(t, nil)
	rc := over(ours.Client(t, 3).HTTPClient(), 0)
	upload := func(ctx context.Context, name, boundary string) error {
		req := rc.R().SetContext(idem.WithIntent(ctx, name)).
			SetFileReader("file", "invoice.pdf", strings.NewReader("%PDF"))
		_, err := req.SetMultipartBoundary(boundary).Post(api.URL + "/" + name)
		return err
	}
	require.NoError(t, upload(t.Context(), "by-lot", ""))
	require.ErrorIs(t, upload(t.Context(), "by-lot", ""), idem.ErrMismatch)
	require.NoError(t, upload(idem.WithStoredPayload(t.Context()), "by-lot", ""))
	for range 2 {
		require.NoError(t, upload(t.Context(), "given", "invoice-7"))
	}
	require.Equal(t, 1, api.Effects("by-lot"))
	require.Equal(t, 1, api.Effects("given"))
	require.Len(t, api.Requests(), 2)
}
