package mockserver_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem/mockserver"
	"github.com/stretchr/testify/require"
)

// traced notes the hooks that fire under the context.
func traced(ctx context.Context, events *[]string) context.Context {
	note := func(e string) { *events = append(*events, e) }
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:      func(addr string) { note("get " + addr) },
		ConnectStart: func(_, addr string) { note("connect") },
		ConnectDone: func(_, _ string, err error) {
			note(map[bool]string{true: "connected", false: "refused"}[err == nil])
		},
		GotConn: func(i httptrace.GotConnInfo) {
			note("got " + i.Conn.RemoteAddr().String())
		},
		WroteHeaders:         func() { note("headers") },
		WroteRequest:         func(i httptrace.WroteRequestInfo) { note("request") },
		GotFirstResponseByte: func() { note("byte") },
	})
}

func TestTheTransportFiresTheTraceOfANewConnection(t *testing.T) {
	c := inMemory(t, nil)
	var events []string
	c.post(201, "k", order("o")) // without a trace
	_, _, err := c.try(traced(t.Context(), &events), "k", order("o"))
	require.NoError(t, err)
	require.Equal(t, []string{"get mockserver.invalid:80", "connect", "connected",
		"got mockserver.invalid:80", "headers", "request", "byte"}, events)
}

func TestARefusedDialProvesThatNothingWasSent(t *testing.T) {
	c := inMemory(t, nil)
	c.script(mockserver.Fault{Kind: mockserver.FaultRefuse})
	var events []string
	_, _, err := c.try(traced(t.Context(), &events), "k", order("o"))
	var op *net.OpError
	require.ErrorAs(t, err, &op)
	require.Equal(t, "dial", op.Op)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	require.Equal(t, []string{"get mockserver.invalid:80", "connect", "refused"}, events)
	require.Empty(t, c.api.Requests())
}

func TestAResetShowsNoResponseByte(t *testing.T) {
	c := inMemory(t, nil)
	c.script(mockserver.Fault{Kind: mockserver.FaultReset})
	var events []string
	_, _, err := c.try(traced(t.Context(), &events), "k", order("o"))
	require.ErrorIs(t, err, syscall.ECONNRESET)
	require.Equal(t, "request", events[len(events)-1])
}

func TestTheTransportReachesAnyHost(t *testing.T) {
	c := inMemory(t, nil)
	resp, err := c.http.Post("https://api.example.com:8443/v1/pay?x=1", "", strings.NewReader(order("o")))
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, "https://api.example.com:8443/v1/pay?x=1", c.api.Requests()[0].URL)
	require.Equal(t, "HTTP/1.1", resp.Proto)
	require.NotNil(t, resp.Request)
}

func TestTheTransportTakesItsOwnCopyOfTheRequest(t *testing.T) {
	c := inMemory(t, nil)
	body := []byte(order("o"))
	req := c.request(t.Context(), "k", "")
	req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	_, _, err := c.do(req)
	require.NoError(t, err)
	copy(body, "XXXXXX")
	req.Header.Set("Idempotency-Key", "changed")
	got := c.api.Requests()[0]
	require.Equal(t, order("o"), string(got.Body))
	require.Equal(t, "k", got.Header.Get("Idempotency-Key"))
}

func TestTheTransportSendsHeadersAsTheyGoOverTheWire(t *testing.T) {
	c := inMemory(t, nil)
	req := c.request(t.Context(), "", order("o"))
	req.Header["x-idempotency-key"] = nil
	req.Header["x-lower"] = []string{"1"}
	_, _, err := c.do(req)
	require.NoError(t, err)
	got := c.api.Requests()[0].Header
	require.Equal(t, []string{"1"}, got["X-Lower"])
	require.NotContains(t, got, "X-Idempotency-Key")
}

// tracker is a request body that knows whether it was closed.
type tracker struct {
	io.Reader
	closed bool
}

func (b *tracker) Close() error { b.closed = true; return nil }

func TestTheTransportClosesEveryRequestBody(t *testing.T) {
	c := inMemory(t, nil)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		ctx   context.Context
		fault mockserver.FaultKind
	}{{t.Context(), ""}, {t.Context(), mockserver.FaultRefuse}, {t.Context(), mockserver.FaultReset}, {gone, ""}} {
		c.api.Heal()
		c.script(mockserver.Fault{Kind: tt.fault})
		body := &tracker{Reader: strings.NewReader("x")}
		req := c.request(tt.ctx, "k", "")
		req.Body, req.ContentLength = body, 1
		resp, err := c.api.Transport().RoundTrip(req)
		require.Equal(t, err == nil, resp != nil)
		require.True(t, body.closed)
	}
}

func TestABodyThatIsNotAsDeclaredIsNotProcessed(t *testing.T) {
	c := inMemory(t, nil)
	req := c.request(t.Context(), "k", "short")
	req.ContentLength = 10
	_, _, err := c.do(req)
	require.ErrorContains(t, err, "ContentLength=10 with Body length 5")

	broken := errors.New("broken")
	req = c.request(t.Context(), "k", "")
	req.Body, req.ContentLength = io.NopCloser(io.MultiReader(strings.NewReader("x"), errReader{broken})), 5
	_, _, err = c.do(req)
	require.ErrorIs(t, err, broken)
	require.Empty(t, c.api.Requests())
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

func TestACancelFreesARequestWhoseBodyNeverComes(t *testing.T) {
	c := inMemory(t, nil)
	pipe, w := io.Pipe()
	defer w.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	req := c.request(ctx, "k", "")
	req.Body, req.ContentLength = pipe, -1
	_, _, err := c.do(req)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestAnAnswersBodyEndsWithTheContext(t *testing.T) {
	c := inMemory(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := c.http.Do(c.request(ctx, "k", order("o")))
	require.NoError(t, err)
	cancel()
	_, err = io.ReadAll(resp.Body)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, resp.Body.Close())
}

func TestACancelTellsItsCause(t *testing.T) {
	c := inMemory(t, nil)
	c.script(mockserver.Fault{Kind: mockserver.FaultHang})
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("shutting down")
	time.AfterFunc(10*time.Millisecond, func() { cancel(cause) })
	_, _, err := c.try(ctx, "k", order("o"))
	require.ErrorIs(t, err, cause)
}

func TestYearsPassInAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := inMemory(t, &mockserver.Config{Window: mockserver.Forever})
		for range 10 {
			c.post(201, "k", order("o"))
			time.Sleep(365 * 24 * time.Hour)
		}
		c.effects(1, "o")
	})
}

func TestAnEmptyAnswerHasNoBody(t *testing.T) {
	both(t, &mockserver.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(204)
	})}, func(c *client) {
		resp, text := c.post(204, "k", order("o"))
		require.Zero(t, resp.ContentLength)
		require.Empty(t, text)
	})
}

func TestTheTransportShakesHandsOverTLS(t *testing.T) {
	var events []string
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		TLSHandshakeStart: func() { events = append(events, "start") },
		TLSHandshakeDone: func(s tls.ConnectionState, err error) {
			events = append(events, s.ServerName)
		},
		GotConn:          func(httptrace.GotConnInfo) { events = append(events, "got") },
		WroteHeaderField: func(name string, v []string) { events = append(events, name) },
	})
	c := inMemory(t, &mockserver.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.NotNil(t, r.TLS)
		require.Equal(t, "api.test", r.Host)
		require.Nil(t, r.Context().Value(secret{}), "the client's context stays with the client")
	})})
	req, _ := http.NewRequestWithContext(context.WithValue(ctx, secret{}, 1), "POST", "https://api.test", nil)
	req.Header.Set("X-One", "1")
	_, _, err := c.do(req)
	require.NoError(t, err)
	require.Equal(t, []string{"start", "api.test", "got", "X-One"}, events)
}

type secret struct{}

func TestAHeadRequestGetsNoBody(t *testing.T) {
	both(t, nil, func(c *client) {
		resp, err := c.http.Head(c.api.URL + "/orders/none")
		require.NoError(t, err)
		defer resp.Body.Close()
		require.Equal(t, 404, resp.StatusCode)
		require.Equal(t, int64(len(`{"error":"not_found"}`)), resp.ContentLength)
	})
}
