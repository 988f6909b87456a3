package tap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"
)

// errProxyRefused is the proof that a proxy didn't connect us.
var errProxyRefused = errors.New("idem: the proxy refused the connection")

const (
	dialTimeout      = 10 * time.Second
	handshakeTimeout = 10 * time.Second
)

// NewTransport is [http.DefaultTransport] over connections that count what they write, its
// proxy's refusals typed, so that a [Spy] can prove as much as there is to prove. Dials
// and TLS handshakes may take 10 s each.
func NewTransport() *http.Transport {
	t := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, MaxIdleConns: 100, IdleConnTimeout: 90 * time.Second}
	if d, ok := http.DefaultTransport.(*http.Transport); ok { // a program may have put another
		t = d.Clone()
	}
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}
	t.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &countedConn{Conn: conn}, nil
	}
	t.TLSHandshakeTimeout = handshakeTimeout
	t.MaxIdleConnsPerHost = 64
	t.OnProxyConnectResponse = func(_ context.Context, _ *url.URL, _ *http.Request, resp *http.Response) error {
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%w: %s", errProxyRefused, resp.Status)
		}
		return nil
	}
	return t
}
