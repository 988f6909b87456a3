package network

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
)

// TestMain fails the run if a goroutine of the library outlives the tests. Those of
// toxiproxy end when they please.
func TestMain(m *testing.M) {
	code := m.Run()
	for range 100 {
		buf := make([]byte, 4<<20)
		buf = buf[:runtime.Stack(buf, true)]
		if !strings.Contains(string(buf), "github.com/idem-go/idem.(") {
			os.Exit(code)
		}
		time.Sleep(20 * time.Millisecond)
	}
	fmt.Fprintln(os.Stderr, "goroutines of idem left behind")
	os.Exit(max(code, 1))
}

// seeded is a source of IDEM_SEED, or of a seed that is printed.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("IDEM_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("IDEM_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// protocol is how a client and a provider speak.
type protocol string

const (
	plainHTTP1 protocol = "HTTP/1.1"
	tlsHTTP1   protocol = "HTTP/1.1 over TLS"
	tlsHTTP2   protocol = "HTTP/2 over TLS"
)

// provider is a mock that listens in one of the protocols.
type provider struct {
	*mockserver.Server
	listener *httptest.Server
	scheme   string
	addr     string
}

func newProvider(t *testing.T, p protocol, cfg *mockserver.Config) *provider {
	t.Helper()
	srv := mockserver.New(cfg)
	l := httptest.NewUnstartedServer(srv)
	l.Config.ErrorLog = quiet
	out := &provider{Server: srv, listener: l, scheme: "https"}
	switch p {
	case plainHTTP1:
		out.scheme = "http"
		l.Start()
	case tlsHTTP2:
		l.EnableHTTP2 = true
		l.StartTLS()
	default:
		l.StartTLS()
	}
	out.addr = l.Listener.Addr().String()
	t.Cleanup(func() {
		l.CloseClientConnections()
		srv.Close()
		l.Close()
	})
	return out
}

// base is a transport that trusts the provider.
func (p *provider) base(t *testing.T) *http.Transport {
	t.Helper()
	base := p.listener.Client().Transport.(*http.Transport).Clone()
	t.Cleanup(base.CloseIdleConnections)
	return base
}

// options retry fast and leave what isn't found out to Resume.
func options(base http.RoundTripper) *idem.Options {
	return &idem.Options{
		Base:    base,
		Retry:   idem.RetryPolicy{MaxAttempts: 3, BaseDelay: 5 * time.Millisecond, MaxDelay: 30 * time.Millisecond, NoBudget: true},
		Breaker: idem.BreakerPolicy{Disabled: true},
	}
}

func openClient(t *testing.T, path string, opts *idem.Options) *idem.Client {
	t.Helper()
	c, err := idem.Open(path, opts)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// journalPath is in memory where that can be: these tests are about the network.
func journalPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "idem")
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir + "/journal"
}

// payment is a named call; the name is its business value too.
func payment(ctx context.Context, url, name string, size int) *http.Request {
	body := fmt.Sprintf(`{"id":%q,"note":%q}`, name, strings.Repeat("n", size))
	req, err := http.NewRequestWithContext(idem.WithIntent(ctx, name), http.MethodPost, url+"/v1/payments", strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	req.Header.Set("Content-Type", "application/json")
	return req
}

// pay makes the call and returns what is known of it.
func pay(c *idem.Client, req *http.Request) (idem.Result, error) {
	var r idem.Result
	resp, err := c.Do(req.WithContext(idem.WithResult(req.Context(), &r)))
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	return r, err
}

// payAll makes calls at once and checks each fate against the ledger.
func payAll(t *testing.T, c *idem.Client, srv *mockserver.Server, url string, names []string, size int) (fates map[idem.Fate]int) {
	t.Helper()
	results := make([]idem.Result, len(names))
	var calls sync.WaitGroup
	for i, name := range names {
		calls.Go(func() { results[i], _ = pay(c, payment(context.Background(), url, name, size)) })
	}
	calls.Wait()
	fates = map[idem.Fate]int{}
	for i, r := range results {
		fates[r.Fate]++
		switch r.Fate {
		case idem.FateDone:
			require.Equal(t, 1, srv.Effects(names[i]), "%s was said to be Done", names[i])
		case idem.FateNotDone:
			require.Zero(t, srv.Effects(names[i]), "%s was said to be NotDone", names[i])
		}
	}
	return fates
}

// audit expects one effect of each name, under one key and with the same bytes.
func audit(t *testing.T, srv *mockserver.Server, names ...string) {
	t.Helper()
	srv.Wait()
	for _, name := range names {
		require.Equal(t, 1, srv.Effects(name), "effects of %s", name)
		require.Len(t, srv.Keys(name), 1, "keys of %s", name)
		require.Len(t, srv.Bodies(name), 1, "bodies of %s", name)
	}
}

func numbered(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("payment-%d", i))
	}
	return names
}
