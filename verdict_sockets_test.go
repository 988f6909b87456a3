package idem_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

// verdictSocketClient is a client over real connections that is quick to retry.
func verdictSocketClient(t *testing.T, base http.RoundTripper, attempts int) *idem.Client {
	t.Helper()
	c := verdictClient(t, base, idem.Options{Retry: idem.RetryPolicy{MaxAttempts: attempts, BaseDelay: time.Millisecond, AttemptTimeout: 20 * time.Second}})
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func verdictTo(url, name, body string) *http.Request {
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(idem.WithIntent(context.Background(), name), "POST", url, r)
	if err != nil {
		panic(err)
	}
	return req
}

// verdictRaw is a TCP server that counts the requests it has read whole, and does
// with each what the test says.
type verdictRaw struct {
	url       string
	delivered atomic.Int32
	conns     atomic.Int32
}

func verdictListen(t *testing.T, serve func(n int, conn net.Conn) (goOn bool)) *verdictRaw {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &verdictRaw{url: "http://" + l.Addr().String() + "/charges"}
	var wg sync.WaitGroup
	t.Cleanup(func() { l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.conns.Add(1)
			wg.Go(func() {
				defer conn.Close()
				r := bufio.NewReader(conn)
				for {
					req, err := http.ReadRequest(r)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, req.Body)
					if !serve(int(s.delivered.Add(1)), conn) {
						return
					}
				}
			})
		}
	})
	return s
}

const verdictOK = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"

func verdictReset(conn net.Conn) {
	_ = conn.(*net.TCPConn).SetLinger(0)
	conn.Close()
}

func TestARefusedDialIsNotSent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	url := "http://" + l.Addr().String()
	l.Close()
	c := verdictSocketClient(t, nil, 3)
	resp, err := c.Do(verdictTo(url, "refused", "{}"))
	e := verdictErr(t, resp, err)
	require.Equal(t, idem.FateNotDone, e.Fate)
	require.ErrorIs(t, err, idem.ErrExhausted)
	require.Zero(t, e.Attempts, "no byte can have reached the wire")
	require.Equal(t, "withdrawn", verdictState(t, c, "refused"))
}

func TestANameThatDoesntResolveIsNotSent(t *testing.T) {
	c := verdictSocketClient(t, nil, 1)
	resp, err := c.Do(verdictTo("http://nobody.invalid/charges", "nobody", "{}"))
	require.Equal(t, idem.FateNotDone, verdictErr(t, resp, err).Fate, "%v", err)
	require.Equal(t, "withdrawn", verdictState(t, c, "nobody"))
}

func TestABadCertificateIsNotSentAndNotRetried(t *testing.T) {
	var delivered atomic.Int32
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { delivered.Add(1) }))
	srv.Config.ErrorLog = nil
	srv.StartTLS()
	defer srv.Close()
	c := verdictSocketClient(t, nil, 5)
	resp, err := c.Do(verdictTo(srv.URL, "certificate", "{}"))
	e := verdictErr(t, resp, err)
	require.Equal(t, idem.FateNotDone, e.Fate)
	require.Zero(t, e.Attempts)
	require.Zero(t, delivered.Load())
	require.Equal(t, "withdrawn", verdictState(t, c, "certificate"))
}

func TestTLSToAPlainServerIsNotSentAndNotRetried(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	c := verdictSocketClient(t, nil, 5)
	resp, err := c.Do(verdictTo(strings.Replace(srv.URL, "http:", "https:", 1), "plain", "{}"))
	e := verdictErr(t, resp, err)
	require.Equal(t, idem.FateNotDone, e.Fate, "%v", err)
	require.Zero(t, e.Attempts)
}

// The server reads the request whole and resets: it may have worked.
func TestAResetAfterTheBodyIsUnknownAndCounted(t *testing.T) {
	for _, body := range []string{`{"id":1}`, ""} {
		t.Run(fmt.Sprintf("%d bytes", len(body)), func(t *testing.T) {
			srv := verdictListen(t, func(n int, conn net.Conn) bool {
				if n == 1 { // warms a connection, so that net/http may take a loss for a stale one
					_, _ = io.WriteString(conn, verdictOK)
					return true
				}
				verdictReset(conn)
				return false
			})
			c := verdictSocketClient(t, nil, 3)
			_, err := c.Do(verdictTo(srv.url, "warm", body))
			require.NoError(t, err)
			resp, err := c.Do(verdictTo(srv.url, "reset", body))
			e := verdictErr(t, resp, err)
			require.Equal(t, idem.FateUnknown, e.Fate)
			require.Equal(t, 3, e.Attempts)
			require.Equal(t, int32(1+3), srv.delivered.Load(), "net/http sent again by itself")
			require.Equal(t, "pending", verdictState(t, c, "reset"))
		})
	}
}

// Five idle connections, all dead: net/http would try each of them.
func TestDeliveriesAreAttemptsOverManyIdleConnections(t *testing.T) {
	for _, body := range []string{`{"id":1}`, ""} {
		for _, reset := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d bytes, reset %v", len(body), reset), func(t *testing.T) {
				const idle = 5
				var warming sync.WaitGroup
				warming.Add(idle)
				srv := verdictListen(t, func(n int, conn net.Conn) bool {
					if n <= idle {
						warming.Done()
						warming.Wait()
						_, _ = io.WriteString(conn, verdictOK)
						return true
					}
					if reset {
						verdictReset(conn)
					}
					return false
				})
				c := verdictSocketClient(t, nil, 1)
				var calls sync.WaitGroup
				for i := range idle {
					calls.Go(func() {
						_, err := c.Do(verdictTo(srv.url, fmt.Sprint("warm-", i), body))
						require.NoError(t, err)
					})
				}
				calls.Wait()
				resp, err := c.Do(verdictTo(srv.url, "once", body))
				e := verdictErr(t, resp, err)
				require.Equal(t, idem.FateUnknown, e.Fate)
				require.Equal(t, 1, e.Attempts)
				require.Equal(t, int32(idle+1), srv.delivered.Load())
			})
		}
	}
}

// A server that closes an idle connection at the moment of the next send: sent or
// not, one attempt is at most one delivery, and the retry gets through.
func TestAnIdleConnectionThatTheServerClosesCostsNoSecondEffect(t *testing.T) {
	for _, body := range []string{`{"id":1}`, ""} {
		srv := verdictListen(t, func(n int, conn net.Conn) bool {
			_, _ = io.WriteString(conn, verdictOK)
			return false // keep-alive was promised, and is not kept
		})
		c := verdictSocketClient(t, nil, 10)
		for i := range 30 {
			before := srv.delivered.Load()
			resp, err := c.Do(verdictTo(srv.url, fmt.Sprint("idle-", i), body))
			require.NoError(t, err)
			r, _ := idem.ResultOf(resp)
			require.LessOrEqual(t, srv.delivered.Load()-before, int32(r.Attempts))
		}
		require.Equal(t, int32(30), srv.delivered.Load())
	}
}

func TestDeliveriesAreAttemptsOverHTTP2(t *testing.T) {
	for _, body := range []string{`{"id":1}`, ""} {
		t.Run(fmt.Sprintf("%d bytes", len(body)), func(t *testing.T) {
			var delivered atomic.Int32
			srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				require.Equal(t, 2, r.ProtoMajor)
				if n := delivered.Add(1); n == 1 {
					return
				}
				panic(http.ErrAbortHandler) // RST_STREAM
			}))
			srv.EnableHTTP2 = true
			srv.StartTLS()
			defer srv.Close()
			c := verdictSocketClient(t, srv.Client().Transport, 3)
			_, err := c.Do(verdictTo(srv.URL, "warm", body))
			require.NoError(t, err)
			resp, err := c.Do(verdictTo(srv.URL, "reset", body))
			e := verdictErr(t, resp, err)
			require.Equal(t, idem.FateUnknown, e.Fate)
			require.Equal(t, 3, e.Attempts)
			require.Equal(t, int32(1+3), delivered.Load())
		})
	}
}

// Every answer ends its connection, so that each next request may meet a GOAWAY.
func TestAGracefulGoAwayIsNoSecondEffect(t *testing.T) {
	var delivered atomic.Int32
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		delivered.Add(1)
		w.Header().Set("Connection", "close") // GOAWAY in HTTP/2
	}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	pool := x509.NewCertPool()
	pool.AddCert(srv.Certificate())
	base := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: pool}}
	defer base.CloseIdleConnections()
	c := verdictSocketClient(t, base, 5)
	for i := range 20 {
		resp, err := c.Do(verdictTo(srv.URL, fmt.Sprint("away-", i), ""))
		require.NoError(t, err)
		require.Equal(t, 2, resp.ProtoMajor)
	}
	require.Equal(t, int32(20), delivered.Load())
}

// A Base that tells nothing means sent; so does one that shows a connection which
// isn't ours.
func TestABaseThatProvesNothingMeansSent(t *testing.T) {
	broken := errors.New("broken")
	mine, theirs := net.Pipe()
	defer mine.Close()
	defer theirs.Close()
	for name, base := range map[string]verdictStep{
		"no hooks": verdictError(broken),
		"a connection that isn't ours": func(req *http.Request) (*http.Response, error) {
			httptrace.ContextClientTrace(req.Context()).GotConn(httptrace.GotConnInfo{Conn: mine})
			return nil, broken
		},
		"a connection that is nil": func(req *http.Request) (*http.Response, error) {
			httptrace.ContextClientTrace(req.Context()).GotConn(httptrace.GotConnInfo{})
			return nil, broken
		},
		"a failed dial, then a connection": func(req *http.Request) (*http.Response, error) {
			trace := httptrace.ContextClientTrace(req.Context())
			trace.ConnectDone("tcp", "[::1]:80", errors.New("no route"))
			trace.ConnectDone("tcp", "127.0.0.1:80", nil)
			trace.GotConn(httptrace.GotConnInfo{Conn: mine})
			return nil, broken
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := verdictSocketClient(t, base, 1)
			resp, err := c.Do(verdictNamed("proves nothing"))
			require.Equal(t, idem.FateUnknown, verdictErr(t, resp, err).Fate)
			require.ErrorIs(t, err, broken)
			require.Equal(t, "pending", verdictState(t, c, "proves nothing"))
		})
	}
}

func TestACancelWhileTheServerWorksIsUnknown(t *testing.T) {
	for _, body := range []string{`{"id":1}`, ""} {
		arrived := make(chan struct{})
		release := make(chan struct{})
		srv := verdictListen(t, func(int, net.Conn) bool {
			close(arrived)
			<-release
			return false
		})
		c := verdictSocketClient(t, nil, 3)
		ctx, cancel := context.WithCancel(context.Background())
		go func() { <-arrived; cancel() }()
		req := verdictTo(srv.url, "working", body)
		resp, err := c.Do(req.WithContext(idem.WithIntent(ctx, "working")))
		e := verdictErr(t, resp, err)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, idem.FateUnknown, e.Fate)
		require.Equal(t, 1, e.Attempts)
		require.Equal(t, int32(1), srv.delivered.Load())
		require.Equal(t, "pending", verdictState(t, c, "working"))
		close(release)
	}
}
