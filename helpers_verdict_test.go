package idem_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

// verdictURL is where the scripted provider stands.
const verdictURL = "http://api.example/v1/charges?mode=live"

// verdictStep is what one send meets.
type verdictStep func(*http.Request) (*http.Response, error)

// verdictSent is one send as the provider would see it.
type verdictSent struct{ Method, URL, Key, Body string }

// verdictBase is a provider that answers by script, then with rest. It never
// fires a hook: what it says is all that the client learns.
type verdictBase struct {
	mu    sync.Mutex
	steps []verdictStep
	rest  verdictStep // nil: 200
	sent  []verdictSent
}

func (b *verdictBase) script(steps ...verdictStep) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.steps, b.sent, b.rest = steps, nil, nil
}

func (b *verdictBase) always(step verdictStep) {
	b.script()
	b.rest = step
}

func (b *verdictBase) sends() []verdictSent {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]verdictSent(nil), b.sent...)
}

// RoundTrip implements http.RoundTripper.
func (b *verdictBase) RoundTrip(req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil {
		body, _ = io.ReadAll(req.Body)
		req.Body.Close()
	}
	b.mu.Lock()
	b.sent = append(b.sent, verdictSent{req.Method, req.URL.String(), req.Header.Get("Idempotency-Key"), string(body)})
	step := b.rest
	if len(b.steps) > 0 {
		step, b.steps = b.steps[0], b.steps[1:]
	}
	b.mu.Unlock()
	if step == nil {
		step = verdictAnswer(200, `{"ok":true}`)
	}
	return step(req)
}

// verdictAnswer is a whole answer; headers are name, value, name, value, …
func verdictAnswer(status int, body string, headers ...string) verdictStep {
	return func(req *http.Request) (*http.Response, error) {
		h := http.Header{"Content-Type": {"application/json"}}
		for i := 0; i < len(headers); i += 2 {
			h.Add(headers[i], headers[i+1])
		}
		return &http.Response{
			StatusCode: status, Header: h, Request: req, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
		}, nil
	}
}

// verdictCut is an answer whose body ends before its length, or its last chunk.
func verdictCut(status int, chunked bool, headers ...string) verdictStep {
	whole := verdictAnswer(status, `{"id":"ch_1`, headers...)
	return func(req *http.Request) (*http.Response, error) {
		resp, _ := whole(req)
		resp.ContentLength = 40
		if chunked {
			resp.ContentLength, resp.TransferEncoding = -1, []string{"chunked"}
		}
		resp.Body = io.NopCloser(io.MultiReader(resp.Body, verdictReadError{io.ErrUnexpectedEOF}))
		return resp, nil
	}
}

// verdictOpen is an answer that ends with its connection: nothing says how long it is.
func verdictOpen(status int, body string) verdictStep {
	whole := verdictAnswer(status, body)
	return func(req *http.Request) (*http.Response, error) {
		resp, _ := whole(req)
		resp.ContentLength, resp.Close = -1, true
		return resp, nil
	}
}

type verdictReadError struct{ err error }

func (r verdictReadError) Read([]byte) (int, error) { return 0, r.err }

func verdictError(err error) verdictStep {
	return func(*http.Request) (*http.Response, error) { return nil, err }
}

var (
	verdictLost    = verdictError(io.EOF)
	verdictRefused = verdictError(&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)})
)

// verdictHang works until the attempt ends.
func verdictHang(req *http.Request) (*http.Response, error) {
	<-req.Context().Done()
	return nil, context.Cause(req.Context())
}

func verdictReq(ctx context.Context, method, body string) *http.Request {
	var r io.Reader
	if body != "" {
		r = bytes.NewReader([]byte(body))
	}
	req, err := http.NewRequestWithContext(ctx, method, verdictURL, r)
	if err != nil {
		panic(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	return req
}

// verdictNamed is a POST with a name.
func verdictNamed(name string) *http.Request {
	return verdictReq(idem.WithIntent(context.Background(), name), "POST", `{"amount":500}`)
}

// verdictClient opens a client over a journal of its own. The breaker is off
// unless the test gives a policy, so that one row can't open it for the next.
func verdictClient(t *testing.T, base http.RoundTripper, opts idem.Options) *idem.Client {
	t.Helper()
	opts.Base = base
	if opts.Breaker.MinRequests == 0 {
		opts.Breaker.Disabled = true
	}
	c, err := idem.Open(t.TempDir()+"/journal.db", &opts)
	require.NoError(t, err)
	return c
}

// verdictState tells in a word what is left of a name.
func verdictState(t *testing.T, c *idem.Client, name string) string {
	t.Helper()
	e, err := c.Lookup(context.Background(), name)
	if errors.Is(err, idem.ErrNotFound) {
		return "withdrawn"
	}
	require.NoError(t, err)
	switch e.State {
	case idem.StatePending:
		return "pending"
	case idem.StateAmbiguous:
		return "ambiguous"
	case idem.StateSettled:
		return "settled"
	}
	return fmt.Sprint(e.State)
}

// verdictErr is the *Error of a call that must have failed.
func verdictErr(t *testing.T, resp *http.Response, err error) *idem.Error {
	t.Helper()
	require.Nil(t, resp)
	var e *idem.Error
	require.ErrorAs(t, err, &e)
	require.Error(t, e.Err, "an *Error without a cause")
	return e
}

// verdictSame checks what holds for all sends of one intent: one key, one body.
func verdictSame(t *testing.T, sent []verdictSent) {
	t.Helper()
	for _, s := range sent {
		require.NotEmpty(t, s.Key)
		require.Equal(t, sent[0].Key, s.Key)
		require.Equal(t, sent[0].Body, s.Body)
	}
}

// verdictPatient has time for everything.
var verdictPatient = idem.RetryPolicy{MaxAttempts: 10, MaxElapsed: 24 * time.Hour, BaseDelay: time.Second, MaxDelay: time.Second}

// verdictTwice shows the client two connections before it answers.
func verdictTwice(step verdictStep) verdictStep {
	return func(req *http.Request) (*http.Response, error) {
		trace := httptrace.ContextClientTrace(req.Context())
		for range 2 {
			a, b := net.Pipe()
			b.Close()
			trace.GotConn(httptrace.GotConnInfo{Conn: a})
			a.Close()
		}
		return step(req)
	}
}
