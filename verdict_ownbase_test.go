package idem_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

// verdictOwnTLS is a client over the transport that it makes itself, which trusts srv.
func verdictOwnTLS(t *testing.T, srv *httptest.Server, attempts int) *idem.Client {
	t.Helper()
	c := verdictSocketClient(t, nil, attempts)
	pool := x509.NewCertPool()
	pool.AddCert(srv.Certificate())
	idem.OwnBase(c).TLSClientConfig = &tls.Config{RootCAs: pool}
	return c
}

func verdictTLS(t *testing.T, http2 bool, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.EnableHTTP2 = http2
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv
}

// The same over both protocols, with and without a body: what the server gets is
// what the client counted, and a handler that died has been reached.
func TestDeliveriesAreAttemptsOverTheClientsOwnTransport(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		for _, body := range []string{`{"id":1}`, ""} {
			t.Run(fmt.Sprintf("HTTP/2 %v, %d bytes", http2, len(body)), func(t *testing.T) {
				var delivered atomic.Int32
				srv := verdictTLS(t, http2, func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					if delivered.Add(1) > 1 {
						panic(http.ErrAbortHandler)
					}
				})
				c := verdictOwnTLS(t, srv, 3)
				resp, err := c.Do(verdictTo(srv.URL, "warm", body))
				require.NoError(t, err)
				require.Equal(t, http2, resp.ProtoMajor == 2)
				resp, err = c.Do(verdictTo(srv.URL, "dies", body))
				e := verdictErr(t, resp, err)
				require.Equal(t, idem.FateUnknown, e.Fate)
				require.Equal(t, 3, e.Attempts)
				require.Equal(t, int32(1+3), delivered.Load())
				require.Equal(t, "pending", verdictState(t, c, "dies"))
			})
		}
	}
}

func TestConnectionsThatEndWithEachAnswerCostNothing(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		for _, body := range []string{`{"id":1}`, ""} {
			t.Run(fmt.Sprintf("HTTP/2 %v, %d bytes", http2, len(body)), func(t *testing.T) {
				var delivered atomic.Int32
				srv := verdictTLS(t, http2, func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					delivered.Add(1)
					w.Header().Set("Connection", "close")
				})
				c := verdictOwnTLS(t, srv, 5)
				for i := range 20 {
					_, err := c.Do(verdictTo(srv.URL, fmt.Sprint("away-", i), body))
					require.NoError(t, err)
				}
				require.Equal(t, int32(20), delivered.Load())
			})
		}
	}
}

// The server drops its idle connections between two calls, as one that restarts does.
func TestAServerThatDroppedItsIdleConnectionsIsReachedAgain(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		for _, body := range []string{`{"id":1}`, ""} {
			t.Run(fmt.Sprintf("HTTP/2 %v, %d bytes", http2, len(body)), func(t *testing.T) {
				var delivered atomic.Int32
				srv := verdictTLS(t, http2, func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					delivered.Add(1)
				})
				c := verdictOwnTLS(t, srv, 5)
				for i := range 20 {
					before := delivered.Load()
					resp, err := c.Do(verdictTo(srv.URL, fmt.Sprint("idle-", i), body))
					require.NoError(t, err)
					r, _ := idem.ResultOf(resp)
					require.LessOrEqual(t, delivered.Load()-before, int32(r.Attempts))
					srv.CloseClientConnections()
				}
				require.Equal(t, int32(20), delivered.Load())
			})
		}
	}
}

func TestAProxyThatRefusesToConnectIsNotSent(t *testing.T) {
	for _, status := range []int{403, 407, 502} {
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(status) }))
		c := verdictSocketClient(t, nil, 2)
		to, err := url.Parse(proxy.URL)
		require.NoError(t, err)
		idem.OwnBase(c).Proxy = http.ProxyURL(to)
		resp, err := c.Do(verdictTo("https://api.example/charges", "proxied", "{}"))
		e := verdictErr(t, resp, err)
		require.Equal(t, idem.FateNotDone, e.Fate, "%v", err)
		require.Equal(t, "withdrawn", verdictState(t, c, "proxied"))
		proxy.Close()
	}
}

func TestAProxyThatIsDownIsNotSent(t *testing.T) {
	down := httptest.NewServer(http.NotFoundHandler())
	down.Close()
	to, err := url.Parse(down.URL)
	require.NoError(t, err)
	for _, target := range []string{"http://api.example/charges", "https://api.example/charges"} {
		c := verdictSocketClient(t, nil, 1)
		idem.OwnBase(c).Proxy = http.ProxyURL(to)
		resp, err := c.Do(verdictTo(target, "proxied", "{}"))
		require.Equal(t, idem.FateNotDone, verdictErr(t, resp, err).Fate, "%v", err)
	}
}

// Cut by the wire, not by a script: the length promises more, or the last chunk
// never comes.
func TestABodyCutOnTheWireIsReplayed(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		for _, framing := range []string{"length", "chunked"} {
			t.Run(fmt.Sprintf("HTTP/2 %v, %s", http2, framing), func(t *testing.T) {
				var delivered atomic.Int32
				srv := verdictTLS(t, http2, func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					if delivered.Add(1) == 1 {
						if framing == "length" {
							w.Header().Set("Content-Length", "40")
						}
						w.WriteHeader(201)
						_, _ = io.WriteString(w, `{"id":"ch`)
						w.(http.Flusher).Flush()
						panic(http.ErrAbortHandler)
					}
					_, _ = io.WriteString(w, `{"id":"ch_1"}`)
				})
				c := verdictOwnTLS(t, srv, 3)
				resp, err := c.Do(verdictTo(srv.URL, "cut", "{}"))
				require.NoError(t, err)
				body, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.Equal(t, `{"id":"ch_1"}`, string(body))
				require.Equal(t, int32(2), delivered.Load())
			})
		}
	}
}
