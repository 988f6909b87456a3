package network

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
)

// resender is a proxy that sends every request twice by itself and passes one of the
// answers on, as some gateways do after a lost one.
type resender struct {
	upstream string
	first    bool          // pass the first answer on, and send again later
	later    chan struct{} // when
	done     sync.WaitGroup
}

func (p *resender) send(r *http.Request, body []byte) (*http.Response, error) {
	req, err := http.NewRequest(r.Method, p.upstream+r.URL.Path, io.NopCloser(bytes.NewReader(body)))
	if err != nil {
		return nil, err
	}
	req.Header, req.ContentLength = r.Header.Clone(), int64(len(body))
	return http.DefaultTransport.RoundTrip(req)
}

func (p *resender) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	resp, err := p.send(r, body)
	if err == nil && p.first {
		p.done.Go(func() {
			<-p.later
			if resp, err := p.send(r, body); err == nil {
				resp.Body.Close()
			}
		})
	} else if err == nil {
		resp.Body.Close()
		resp, err = p.send(r, body)
	}
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body)
}

func startResender(t *testing.T, upstream string, first bool) (p *resender, url string) {
	t.Helper()
	p = &resender{upstream: upstream, first: first, later: make(chan struct{})}
	l := httptest.NewServer(p)
	t.Cleanup(func() { l.Close(); http.DefaultTransport.(*http.Transport).CloseIdleConnections() })
	return p, l.URL
}

// The key prevents what the proxy would do.
func TestAProxyThatResendsHasNoSecondEffectUnderAKey(t *testing.T) {
	srv := newProvider(t, plainHTTP1, nil)
	_, url := startResender(t, "http://"+srv.addr, false)
	c := openClient(t, journalPath(t), options(nil))
	r, err := pay(c, payment(context.Background(), url, "order", 10))
	require.NoError(t, err)
	require.Equal(t, 1, r.Attempts)
	require.Len(t, srv.Requests(), 2, "the proxy sent it twice")
	audit(t, srv.Server, "order")
}

// Not promised, and shown: at a provider that ignores keys nobody here can prevent it, or
// even know.
func TestAProxyThatResendsDoublesWhatHasNoKey(t *testing.T) {
	srv := newProvider(t, plainHTTP1, &mockserver.Config{Profile: mockserver.Mute()})
	_, url := startResender(t, "http://"+srv.addr, false)
	opts := options(nil)
	opts.Dialect = idem.Dialect{Name: "none", Placement: idem.PlaceNone}
	c := openClient(t, journalPath(t), opts)
	r, err := pay(c, payment(context.Background(), url, "order", 10))
	require.NoError(t, err)
	require.Equal(t, 1, r.Attempts)
	require.Equal(t, 2, srv.Effects("order"))
}

// Not promised, and shown: a refusal that the proxy passes on may be followed by a copy
// of the request that takes effect.
func TestNotDoneBehindAProxyThatResendsIsNoPromise(t *testing.T) {
	srv := newProvider(t, plainHTTP1, &mockserver.Config{Faults: []mockserver.Fault{{Kind: mockserver.FaultStatus, Status: 402}}})
	p, url := startResender(t, "http://"+srv.addr, true)
	c := openClient(t, journalPath(t), options(nil))
	r, err := pay(c, payment(context.Background(), url, "order", 10))
	require.NoError(t, err)
	require.Equal(t, idem.FateNotDone, r.Fate)
	close(p.later)
	p.done.Wait()
	require.Equal(t, 1, srv.Effects("order"))
}
