package idem_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

// A plain http.Client follows redirects by itself: what it makes of an intent's is a
// request that looks like success, or the intent at another origin.
func TestARedirectOfAnIntentIsNotFollowed(t *testing.T) {
	for _, status := range []int{301, 302, 307, 308} {
		var strangers, authorized atomic.Int32
		stranger := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { strangers.Add(1) }))
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, stranger.URL+r.URL.RequestURI(), status)
		}))
		c, err := idem.Open(t.TempDir()+"/journal", &idem.Options{Authorize: func(r *http.Request) error {
			authorized.Add(1)
			r.Header.Set("Authorization", "Bearer s3cr3t")
			return nil
		}})
		require.NoError(t, err)
		var result idem.Result
		ctx := idem.WithResult(idem.WithIntent(context.Background(), "n"), &result)
		req, err := http.NewRequestWithContext(ctx, "POST", srv.URL+"/charges", strings.NewReader("{}"))
		require.NoError(t, err)
		client := http.Client{Transport: c.Transport()}
		resp, err := client.Do(req)
		require.Nil(t, resp)
		var e *idem.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, idem.FateNotDone, e.Fate, "moved before it was looked at")
		require.Equal(t, status, e.Response.StatusCode)
		require.Equal(t, idem.FateNotDone, result.Fate, "the Result is still the intent's")
		require.Equal(t, status, result.Status)
		require.Zero(t, strangers.Load())
		require.Equal(t, int32(1), authorized.Load())
		require.NoError(t, c.Close())
		srv.Close()
		stranger.Close()
	}
}

func TestAReadThatIsRedirectedElsewhereTakesNoCredentialsAlong(t *testing.T) {
	var seen atomic.Value
	stranger := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen.Store(r.Header.Get("X-Api-Key")) }))
	defer stranger.Close()
	srv := httptest.NewServer(http.RedirectHandler(stranger.URL, http.StatusFound))
	defer srv.Close()
	c, err := idem.Open(t.TempDir()+"/journal", &idem.Options{Authorize: func(r *http.Request) error {
		r.Header.Set("X-Api-Key", "s3cr3t")
		return nil
	}})
	require.NoError(t, err)
	defer c.Close()
	resp, err := (&http.Client{Transport: c.Transport()}).Get(srv.URL)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, "", seen.Load())
}

func TestTheJournaledBytesStandOnTheRequestWhateverAHookDoes(t *testing.T) {
	for name, hook := range map[string]func(*http.Request) error{
		"a signer that reads the body": func(r *http.Request) error { _, err := io.ReadAll(r.Body); return err },
		"one that puts another": func(r *http.Request) error {
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader("other")), 5
			return nil
		},
		"one that takes it away": func(r *http.Request) error {
			r.Body, r.ContentLength, r.GetBody, r.TransferEncoding = nil, 0, nil, []string{"chunked"}
			return nil
		},
	} {
		base := &verdictBase{}
		c := verdictClient(t, base, idem.Options{Authorize: hook})
		base.script(verdictAnswer(503, ""), verdictAnswer(200, "{}"))
		_, err := c.Do(verdictNamed("n"))
		require.NoError(t, err, name)
		for _, s := range base.sends() {
			require.JSONEq(t, `{"amount":500}`, s.Body, name)
		}
		require.NoError(t, c.Close())
	}
}

func TestAHookThatLooksIntoTheBodyLeavesItWhole(t *testing.T) {
	type order struct{ ID string }
	read := func(r *http.Request) string {
		b, _ := io.ReadAll(r.Body)
		var o order
		_ = json.Unmarshal(b, &o)
		return o.ID
	}
	for _, length := range []int64{0, int64(len(`{"ID":"o-1"}`))} { // 0 with a body promises nothing
		base := &verdictBase{}
		c := verdictClient(t, base, idem.Options{
			Name: read,
			Skip: func(r *http.Request) bool { return read(r) == "upload" },
		})
		req := verdictReq(context.Background(), "POST", "")
		req.Body, req.ContentLength = io.NopCloser(strings.NewReader(`{"ID":"o-1"}`)), length
		resp, err := c.Do(req)
		require.NoError(t, err)
		r, _ := idem.ResultOf(resp)
		require.Equal(t, "o-1", r.Intent)
		require.Equal(t, `{"ID":"o-1"}`, base.sends()[0].Body)

		req = verdictReq(context.Background(), "POST", "")
		req.Body, req.ContentLength = io.NopCloser(strings.NewReader(`{"ID":"upload"}`)), length
		_, err = c.Do(req)
		require.NoError(t, err)
		require.Equal(t, `{"ID":"upload"}`, base.sends()[1].Body, "also where it is skipped")
		require.NoError(t, c.Close())
	}
}

func TestANameHookMayAskForTheBodyAgain(t *testing.T) {
	c := verdictClient(t, &verdictBase{}, idem.Options{Name: func(r *http.Request) string {
		body, err := r.GetBody()
		require.NoError(t, err)
		b, err := io.ReadAll(body)
		require.NoError(t, err)
		return string(b)
	}})
	resp, err := c.Do(verdictReq(context.Background(), "POST", "order-1"))
	require.NoError(t, err)
	r, _ := idem.ResultOf(resp)
	require.Equal(t, "order-1", r.Intent)
	require.NoError(t, c.Close())
}

// stalledBody gives nothing until it is closed.
type stalledBody struct{ closed chan struct{} }

func (b *stalledBody) Read([]byte) (int, error) { <-b.closed; return 0, io.ErrClosedPipe }
func (b *stalledBody) Close() error {
	select {
	case <-b.closed:
	default:
		close(b.closed)
	}
	return nil
}

func TestABodyThatStallsEndsWithItsCallerOrTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &verdictBase{}
		c := verdictClient(t, base, idem.Options{})
		ctx, cancel := context.WithTimeout(idem.WithIntent(context.Background(), "n"), time.Second)
		defer cancel()
		req := verdictReq(ctx, "POST", "")
		req.Body = &stalledBody{make(chan struct{})}
		_, err := c.Do(req)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, idem.FateNotDone, idem.FateOf(nil, err))

		req = verdictReq(idem.WithIntent(context.Background(), "m"), "POST", "")
		req.Body = &stalledBody{make(chan struct{})}
		done := make(chan error, 1)
		go func() { _, err := c.Do(req); done <- err }()
		synctest.Wait()
		require.NoError(t, c.Close())
		require.ErrorIs(t, <-done, idem.ErrClosed)
		require.Empty(t, base.sends())
	})
}

func TestAConnectionIsClosedWhereTheRequestAsksForIt(t *testing.T) {
	var closed atomic.Bool
	base := &verdictBase{}
	c := verdictClient(t, roundTrip(func(r *http.Request) (*http.Response, error) {
		closed.Store(r.Close)
		return base.RoundTrip(r)
	}), idem.Options{Retry: idem.RetryPolicy{MaxAttempts: 1}})
	defer c.Close()
	base.script(verdictLost)
	req := verdictNamed("n")
	req.Close = true
	_, err := c.Do(req)
	require.Error(t, err)
	require.True(t, closed.Load())
	closed.Store(false)
	_, err = c.Resume(context.Background(), nil)
	require.NoError(t, err)
	require.True(t, closed.Load(), "also on a resend")
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestAnAnswersRestDoesntKeepTheConnectionThatARetryNeeds(t *testing.T) {
	var calls atomic.Int32
	release := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) > 1 {
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		for range 100 { // an error page without end
			_, _ = io.WriteString(w, strings.Repeat("x", 64<<10))
		}
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	defer srv.Close()
	defer close(release)
	c, err := idem.Open(t.TempDir()+"/journal", &idem.Options{
		Base:  &http.Transport{MaxConnsPerHost: 1},
		Retry: idem.RetryPolicy{MaxAttempts: 2, BaseDelay: time.Millisecond, AttemptTimeout: 20 * time.Second},
	})
	require.NoError(t, err)
	defer c.Close()
	resp, err := c.Do(verdictTo(srv.URL, "n", "{}"))
	require.NoError(t, err)
	require.Equal(t, idem.FateDone, idem.FateOf(resp, err))
}

// sendsHeader keeps what a header was on each send.
func sendsHeader(base http.RoundTripper, name string, into *[]string) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		*into = append(*into, r.Header.Get(name))
		return base.RoundTrip(r)
	})
}

func TestWhatASignatureCoversComesWithIt(t *testing.T) {
	for _, header := range []string{"X-Timestamp", "X-Nonce", "Content-Digest", "X-Custom"} {
		base := &verdictBase{}
		var sent []string
		c := verdictClient(t, sendsHeader(base, header, &sent), idem.Options{
			Retry: idem.RetryPolicy{MaxAttempts: 1}, Dialect: idem.Dialect{SignedWith: []string{"X-Custom"}},
		})
		base.script(verdictLost)
		for _, at := range []string{"1000", "2000"} {
			req := verdictNamed("n")
			req.Header.Set(header, at)
			req.Header.Set("X-Signature", "signed at "+at)
			_, _ = c.Do(req)
		}
		require.Equal(t, []string{"1000", "2000"}, sent, header)
		require.NoError(t, c.Close())
	}
}

func TestAPresignedURLMayBeMadeAnew(t *testing.T) {
	for _, query := range [][2]string{
		{"X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=k%2Fa&X-Amz-Date=1&X-Amz-Expires=60&X-Amz-SignedHeaders=host&X-Amz-Signature=s1",
			"X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=k%2Fb&X-Amz-Date=2&X-Amz-Expires=90&X-Amz-SignedHeaders=host&X-Amz-Signature=s2"},
		{"X-Goog-Algorithm=a&X-Goog-Credential=c&X-Goog-Date=1&X-Goog-Expires=9&X-Goog-SignedHeaders=host&X-Goog-Signature=s",
			"X-Goog-Algorithm=a&X-Goog-Credential=d&X-Goog-Date=2&X-Goog-Expires=8&X-Goog-SignedHeaders=host&X-Goog-Signature=t"},
		{"comp=block&sv=2024&sr=b&se=2026-01-01&sp=w&sig=abc", "comp=block&sv=2024&sr=b&se=2026-01-02&sp=w&sig=xyz"},
	} {
		base := &verdictBase{}
		c := verdictClient(t, base, idem.Options{Retry: idem.RetryPolicy{MaxAttempts: 1}})
		base.script(verdictLost)
		for i, q := range query {
			req := verdictNamed("n")
			req.URL.RawQuery = q
			resp, err := c.Do(req)
			require.NotErrorIs(t, err, idem.ErrMismatch)
			require.Equal(t, i == 1, idem.FateOf(resp, err) == idem.FateDone)
		}
		sent := base.sends()
		require.Len(t, sent, 2)
		require.Contains(t, sent[1].URL, query[1], "the new URL, whole")
		e, err := c.Lookup(context.Background(), "n")
		require.NoError(t, err)
		require.NotContains(t, e.URL, "ig=")
		require.NotContains(t, e.URL, "Expires")
		require.NoError(t, c.Close())
	}
}

func TestTodaysRequestDecidesWhichCredentialsItBrings(t *testing.T) {
	base := &verdictBase{}
	c := verdictClient(t, base, idem.Options{Retry: idem.RetryPolicy{MaxAttempts: 1}})
	defer c.Close()
	base.script(verdictLost)
	req := verdictNamed("n")
	req.Header.Set("X-Api-Key", "old")
	req.Header.Set("Cookie", "lb=17")
	_, err := c.Do(req)
	require.Error(t, err)
	req = verdictNamed("n")
	req.Header.Set("Authorization", "Bearer new")
	_, err = c.Do(req)
	require.NoError(t, err)
}

func TestAnEmptyCredentialIsNotDemandedBack(t *testing.T) {
	base := &verdictBase{}
	c := verdictClient(t, base, idem.Options{})
	defer c.Close()
	req := verdictNamed("n")
	req.URL.RawQuery = "start_token=&a=1"
	req.Header.Set("X-Session-Id", "")
	_, err := c.Do(req)
	require.NoError(t, err)
}

func TestAResendHasTheBytesOfTheFirstSend(t *testing.T) {
	var urls, headers []string
	base := &verdictBase{}
	c := verdictClient(t, roundTrip(func(r *http.Request) (*http.Response, error) {
		urls, headers = append(urls, r.URL.String()), append(headers, r.Header.Get("X-Note"))
		return base.RoundTrip(r)
	}), idem.Options{Retry: idem.RetryPolicy{MaxAttempts: 1}})
	defer c.Close()
	base.script(verdictLost)
	req := verdictNamed("n")
	req.URL.RawQuery = "a=\xff\xfe&b=1#2"
	req.Header.Set("X-Note", "caf\xe9")
	_, err := c.Do(req)
	require.Error(t, err)
	_, err = c.Resume(context.Background(), nil)
	require.NoError(t, err)
	require.Len(t, urls, 2)
	require.Equal(t, urls[0], urls[1])
	require.Equal(t, []string{"caf\xe9", "caf\xe9"}, headers)
}

func TestANameCanBeRequired(t *testing.T) {
	base := &verdictBase{}
	c := verdictClient(t, base, idem.Options{RequireName: true})
	defer c.Close()
	_, err := c.Do(verdictReq(context.Background(), "POST", "{}"))
	require.ErrorIs(t, err, idem.ErrInvalid)
	require.Equal(t, idem.FateNotDone, idem.FateOf(nil, err))
	require.Empty(t, base.sends())
	for _, ctx := range []context.Context{idem.WithIntent(context.Background(), "n"), idem.WithKey(context.Background(), idem.NewKey())} {
		_, err = c.Do(verdictReq(ctx, "POST", "{}"))
		require.NoError(t, err)
	}
	_, err = c.Do(verdictReq(context.Background(), "GET", ""))
	require.NoError(t, err)
}
