// Package plain_test puts Client.Transport under an http.Client that knows nothing of it,
// as most code has one.
//
// What works. A lost answer is fetched under the same key. What isn't known is a
// *url.Error with the *idem.Error inside, for errors.As; an answer of 5xx that stayed is
// no error, and FateOf of it says Unknown.
//
// What to mind. http.Client.Timeout replaces the error by a text of its own: the fate is
// in WithResult alone. A deadline of the context keeps it. A form with files has another
// boundary every time, which is another request, until WithStoredPayload.
package plain_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/interop/internal/ours"
	"github.com/idem-go/idem/mockserver"
)

const order = `{"id":"7","amount":1999}`

func post(ctx context.Context, hc *http.Client, url, contentType, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", contentType)
	resp, err := hc.Do(req)
	if err == nil {
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
	}
	return resp, err
}

func TestALostAnswerIsFetchedUnderTheSameKeyWithTheSameBody(t *testing.T) {
	api := mockserver.Start(t, nil)
	api.Script(mockserver.Fault{Kind: mockserver.FaultDrop})
	hc := &http.Client{Transport: ours.Client(t, 6).Transport()}
	var r idem.Result
	resp, err := post(idem.WithResult(t.Context(), &r), hc, api.URL, "application/json", order)
	require.NoError(t, err)
	require.Equal(t, idem.FateDone, idem.FateOf(resp, err))
	require.Equal(t, idem.FateDone, r.Fate)
	require.Equal(t, 2, r.Attempts)
	require.Len(t, api.Requests(), 2)
	require.Equal(t, []string{string(r.Key)}, api.Keys("7"))
	require.Equal(t, []string{order}, api.Bodies("7"))
	require.Equal(t, 1, api.Effects("7"))
}

func TestWhatIsNotKnownIsAURLErrorWithTheFateInside(t *testing.T) {
	api := mockserver.Start(t, nil)
	api.Script(ours.Lost())
	hc := &http.Client{Transport: ours.Client(t, 3).Transport()}
	_, err := post(t.Context(), hc, api.URL, "application/json", order)
	var outer *url.Error
	require.ErrorAs(t, err, &outer)
	var e *idem.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, idem.FateUnknown, e.Fate)
	require.Equal(t, 3, e.Attempts)
	require.ErrorIs(t, err, idem.ErrExhausted)
}

func TestAnAnswerThatStayedA503IsNoErrorAndItsFateIsUnknown(t *testing.T) {
	api := mockserver.Start(t, nil)
	api.Script(ours.Busy(""))
	var r idem.Result
	hc := &http.Client{Transport: ours.Client(t, 3).Transport()}
	resp, err := post(idem.WithResult(t.Context(), &r), hc, api.URL, "application/json", order)
	require.NoError(t, err)
	require.Equal(t, 503, resp.StatusCode)
	require.Equal(t, idem.FateUnknown, idem.FateOf(resp, nil))
	require.ErrorIs(t, r.Err, idem.ErrExhausted)
}

func TestATimeoutOfTheHTTPClientLeavesTheFateToTheResultAndADeadlineKeepsIt(t *testing.T) {
	api := mockserver.Start(t, nil)
	api.Script(mockserver.Fault{Kind: mockserver.FaultHang, Times: -1})
	c := ours.Client(t, 3)
	var e *idem.Error
	var r idem.Result

	impatient := &http.Client{Transport: c.Transport(), Timeout: 50 * time.Millisecond}
	_, err := post(idem.WithResult(t.Context(), &r), impatient, api.URL, "application/json", order)
	require.ErrorContains(t, err, "Client.Timeout exceeded")
	require.False(t, errors.As(err, &e), "net/http keeps the text alone")
	require.Equal(t, idem.FateUnknown, r.Fate)
	require.NotEmpty(t, r.Key)

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = post(ctx, &http.Client{Transport: c.Transport()}, api.URL, "application/json", `{"id":"8"}`)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorAs(t, err, &e)
	require.Equal(t, idem.FateUnknown, e.Fate)
}

// form is a form with a file, whose boundary multipart draws by lot.
func form(t *testing.T) (contentType, body string) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	f, err := w.CreateFormFile("file", "invoice.pdf")
	require.NoError(t, err)
	_, err = io.WriteString(f, "%PDF")
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return w.FormDataContentType(), b.String()
}

func TestAFormWithFilesIsAnotherRequestEveryTimeUnlessTheStoredOneIsAskedFor(t *testing.T) {
	api, path := mockserver.Start(t, nil), ours.Journal(t)
	upload := func(ctx context.Context, attempts int) error {
		c := ours.Open(t, path, attempts, idem.Options{})
		defer c.Close()
		contentType, body := form(t)
		_, err := post(idem.WithIntent(ctx, "invoice-7"), c.HTTPClient(), api.URL+"/files", contentType, body)
		return err
	}
	api.Script(mockserver.Fault{Kind: mockserver.FaultDrop})
	require.Error(t, upload(t.Context(), 1))
	require.ErrorIs(t, upload(t.Context(), 6), idem.ErrMismatch)
	require.Len(t, api.Requests(), 1, "nothing was sent for the mismatch")

	require.NoError(t, upload(idem.WithStoredPayload(t.Context()), 6))
	require.Len(t, api.Bodies("files"), 1)
	require.Len(t, api.Keys("files"), 1)
	require.Equal(t, 1, api.Effects("files"))
}
