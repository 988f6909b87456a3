package idem_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
)

// secretMark is in every secret of these tests, so that one search finds them all.
const secretMark = "hush"

const secretURL = "http://alice:hush-url@api.example/v1/payments?api_key=hush-apikey&page=2&access_token=hush-access&sig=hush-sig"

// secretRequest carries a credential in each place where one can stand.
func secretRequest(ctx context.Context) *http.Request {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, secretURL, strings.NewReader(`{"id":"order-1"}`))
	if err != nil {
		panic(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer hush-authorization")
	req.Header.Set("Proxy-Authorization", "Basic "+secretBase64("bob:hush-proxy"))
	req.Header.Set("Cookie", "sid=hush-cookie")
	req.Header.Set("X-Api-Key", "hush-xapikey")
	req.Header.Set("X-Acme-Token", "hush-custom")
	return req
}

func secretBase64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// secretRig is a client of which everything that people can read is kept.
type secretRig struct {
	t      *testing.T
	srv    *mockserver.Server
	path   string
	opts   *idem.Options
	client *idem.Client

	mu   sync.Mutex
	seen bytes.Buffer // logs, traces, errors
}

// newSecretRig opens a client over base, nil for the mock itself. It must be made
// within a bubble.
func newSecretRig(t *testing.T, change func(*secretRig)) *secretRig {
	r := &secretRig{t: t, path: filepath.Join(t.TempDir(), "journal")}
	r.srv = mockserver.New(&mockserver.Config{Handler: http.HandlerFunc(secretAnswer)})
	r.opts = &idem.Options{
		Base: r.srv.Transport(), Trace: r.trace(), Retry: idem.RetryPolicy{MaxAttempts: 3},
		Logger: slog.New(slog.NewTextHandler(r, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(r)
	}
	var err error
	r.client, err = idem.Open(r.path, r.opts)
	require.NoError(t, err)
	return r
}

// secretAnswer sets credentials and points to places with some.
func secretAnswer(w http.ResponseWriter, _ *http.Request) {
	for name, value := range secretAnswerHeader() {
		w.Header()[name] = value
	}
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, `{"ok":true}`)
}

func secretAnswerHeader() http.Header {
	return http.Header{
		"Set-Cookie":    {"sid=hush-setcookie; Path=/"},
		"X-Auth-Token":  {"hush-answertoken"},
		"Location":      {"http://eve:hush-location@api.example/v1/payments?access_token=hush-locationquery"},
		"Link":          {`<http://api.example/next?api_key=hush-link>; rel="next"`},
		"X-Debug-Echo":  {"see http://eve:hush-echo@api.example/?sig=hush-echosig"},
		"Authorization": {"hush-echoed"},
	}
}

// Write takes a log line.
func (r *secretRig) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen.Write(p)
}

// saw keeps what is shown to people.
func (r *secretRig) saw(what string, v any) { fmt.Fprintf(r, "%s: %+v\n", what, v) }

// heard keeps an error; an *Error's fields too.
func (r *secretRig) heard(err error) {
	if err == nil {
		return
	}
	r.saw("error", err.Error())
	var e *idem.Error
	if errors.As(err, &e) {
		r.saw("cause", e.Err.Error())
	}
}

func (r *secretRig) trace() *idem.Trace {
	return &idem.Trace{
		Began:      func(_ context.Context, e idem.Entry) { r.saw("began", e) },
		Attempt:    func(_ context.Context, i idem.AttemptInfo) { r.saw("attempt", i) },
		Waiting:    func(_ context.Context, key idem.Key, d time.Duration) { r.saw("waiting", key) },
		Ended:      func(_ context.Context, e idem.Entry, err error) { r.saw("ended", e); r.heard(err) },
		Overridden: func(_ context.Context, e idem.Entry) { r.saw("overridden", e) },
		Breaker:    func(_ context.Context, group, from, to string) { r.saw("breaker", group) },
	}
}

// do makes the call under the name order-1, and keeps its error.
func (r *secretRig) do() error {
	var result idem.Result
	resp, err := r.client.Do(secretRequest(idem.WithResult(idem.WithIntent(context.Background(), "order-1"), &result)))
	if err == nil {
		resp.Body.Close()
	}
	r.heard(err)
	r.heard(result.Err)
	return err
}

// pass runs Resume, and keeps what Each hears.
func (r *secretRig) pass() idem.Report {
	report, err := r.client.Resume(context.Background(), &idem.ResumeOptions{Each: func(e idem.Entry, err error) {
		r.saw("each", e)
		r.heard(err)
	}})
	require.NoError(r.t, err)
	return report
}

// requireSilence ends the rig and searches everything for secrets. kept is text that
// must be in the journal, so that a search of the wrong bytes can't pass.
func (r *secretRig) requireSilence(kept string) {
	r.t.Helper()
	for e, err := range r.client.Pending(context.Background()) {
		r.saw("pending", e)
		r.heard(err)
	}
	if e, err := r.client.Lookup(context.Background(), "order-1"); err == nil {
		r.saw("lookup", e)
	}
	require.NoError(r.t, r.client.Close())
	r.srv.Close()
	journal, err := os.ReadFile(r.path)
	require.NoError(r.t, err)
	require.Contains(r.t, string(journal), kept)
	requireNoSecret(r.t, "the journal", journal)
	r.mu.Lock()
	defer r.mu.Unlock()
	require.NotEmpty(r.t, r.seen.Bytes())
	requireNoSecret(r.t, "what people read", r.seen.Bytes())
}

func requireNoSecret(t *testing.T, where string, b []byte) {
	t.Helper()
	for _, s := range []string{secretMark, secretBase64("alice:hush-url"), secretBase64("bob:hush-proxy"), secretBase64("Bearer hush")[:12]} {
		if at := bytes.Index(b, []byte(s)); at >= 0 {
			t.Errorf("%s shows %q: …%q…", where, s, b[max(at-120, 0):min(at+40, len(b))])
			return
		}
	}
}

// secretBase fails as a careless RoundTripper does, with everything in the text.
type secretBase struct {
	next  http.RoundTripper
	fails int // how many attempts fail
	panic bool
}

func (b *secretBase) RoundTrip(req *http.Request) (*http.Response, error) {
	if b.fails == 0 {
		return b.next.RoundTrip(req)
	}
	b.fails--
	if b.panic {
		panic("the base panics over " + req.URL.String())
	}
	return nil, secretFailure(req)
}

func (b *secretBase) CloseIdleConnections() {}
