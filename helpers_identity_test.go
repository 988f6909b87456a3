package idem_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
)

const idURL = "http://api.example/v1/payments"

// idBench is a client on a real journal before a mock server, all within one bubble.
type idBench struct {
	t   *testing.T
	srv *mockserver.Server
	ks  *idem.BoltKeystore
	c   *idem.Client
}

// idBubble runs f in a bubble; change may adapt the client's options to the server.
func idBubble(t *testing.T, change func(*idem.Options), f func(t *testing.T, b *idBench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, idNew(t, nil, change)) })
}

func idNew(t *testing.T, cfg *mockserver.Config, change func(*idem.Options)) *idBench {
	t.Helper()
	srv := mockserver.New(cfg)
	t.Cleanup(srv.Close)
	ks, err := idem.OpenKeystore(t.TempDir()+"/journal.db", nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ks.Close()) })
	b := &idBench{t: t, srv: srv, ks: ks}
	b.c = b.client(change)
	return b
}

// client opens one more client on the bench's keystore.
func (b *idBench) client(change func(*idem.Options)) *idem.Client {
	b.t.Helper()
	o := &idem.Options{Scope: "pay", Base: b.srv.Transport()}
	if change != nil {
		change(o)
	}
	c, err := idem.New(b.ks, o)
	require.NoError(b.t, err)
	b.t.Cleanup(func() { require.NoError(b.t, c.Close()) })
	return c
}

// lose makes the effect of each request happen and its answer get lost, until Heal.
func (b *idBench) lose() {
	b.srv.Script(mockserver.Fault{Kind: mockserver.FaultDrop, Times: -1})
}

// answer scripts one answer from in front of the API.
func (b *idBench) answer(status int) {
	b.srv.Script(mockserver.Fault{Kind: mockserver.FaultStatus, Status: status, Body: `{"error":"no"}`})
}

// open lists what is Pending or Ambiguous.
func (b *idBench) open() []idem.Entry {
	b.t.Helper()
	var out []idem.Entry
	for e, err := range b.c.Pending(context.Background()) {
		require.NoError(b.t, err)
		out = append(out, e)
	}
	return out
}

// keys are the keys that the server saw, one for each request.
func (b *idBench) keys() []string {
	var out []string
	for _, r := range b.srv.Requests() {
		out = append(out, strings.Join(r.Header.Values("Idempotency-Key"), ","))
	}
	return out
}

func (b *idBench) do(ctx context.Context, body string, change ...func(*http.Request)) (*http.Response, idem.Result, error) {
	b.t.Helper()
	return idDo(b.t, b.c, ctx, body, change...)
}

// idDo sends body and returns the answer with the Result that WithResult filled.
func idDo(t *testing.T, c *idem.Client, ctx context.Context, body string, change ...func(*http.Request)) (*http.Response, idem.Result, error) {
	t.Helper()
	var r idem.Result
	resp, err := c.Do(idPost(idem.WithResult(ctx, &r), body, change...))
	require.NotEqual(t, resp == nil, err == nil, "an answer or an error, not both")
	if err != nil {
		var e *idem.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, e.Fate, r.Fate)
		require.Equal(t, e.Key, r.Key)
	} else {
		hung, ok := idem.ResultOf(resp)
		require.True(t, ok)
		require.Equal(t, hung, r)
	}
	require.Equal(t, r.Fate, idem.FateOf(resp, err))
	return resp, r, err
}

func idPost(ctx context.Context, body string, change ...func(*http.Request)) *http.Request {
	req, err := http.NewRequestWithContext(ctx, "POST", idURL, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for _, f := range change {
		f(req)
	}
	return req
}

func idNamed(name string) context.Context { return idem.WithIntent(context.Background(), name) }

func idKeyed(key idem.Key) context.Context { return idem.WithKey(context.Background(), key) }

// idHeader sets a header under exactly this spelling.
func idHeader(name string, values ...string) func(*http.Request) {
	return func(r *http.Request) { r.Header[name] = append(r.Header[name], values...) }
}

func idBodyOf(t *testing.T, resp *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return string(b)
}

// idBase is a Base made of a function.
type idBase func(*http.Request) (*http.Response, error)

func (f idBase) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// idReader counts what is done with a request's body.
type idReader struct {
	io.Reader
	ends, closed int
}

func (r *idReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil {
		r.ends++
	}
	return n, err
}

func (r *idReader) Close() error { r.closed++; return nil }

func idBody(s string) *idReader { return &idReader{Reader: strings.NewReader(s)} }

// idBroken is a body that fails after a few bytes.
func idBroken(s string) *idReader {
	return &idReader{Reader: io.MultiReader(bytes.NewBufferString(s), idFailing{})}
}

var errIDBroken = errors.New("the disk is gone")

type idFailing struct{}

func (idFailing) Read([]byte) (int, error) { return 0, errIDBroken }

// idBubbleOf is idBubble with a server of its own kind.
func idBubbleOf(t *testing.T, cfg *mockserver.Config, change func(*idem.Options), f func(t *testing.T, b *idBench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, idNew(t, cfg, change)) })
}
