package stress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
	"github.com/idem-go/idem/proof/rig"
)

// listener is a mock behind a real listener whose connections are counted.
type listener struct {
	*mockserver.Server
	http *httptest.Server

	mu           sync.Mutex
	opened, most int
	open         map[net.Conn]bool
}

func listen(t *testing.T, cfg *mockserver.Config) *listener {
	l := &listener{Server: mockserver.New(cfg), open: map[net.Conn]bool{}}
	l.http = httptest.NewUnstartedServer(l.Server)
	l.http.Config.ConnState = func(c net.Conn, state http.ConnState) {
		l.mu.Lock()
		defer l.mu.Unlock()
		switch state {
		case http.StateNew:
			l.opened++
			l.open[c] = true
			l.most = max(l.most, len(l.open))
		case http.StateClosed, http.StateHijacked:
			delete(l.open, c)
		}
	}
	l.http.Start()
	t.Cleanup(func() { l.http.Close(); l.Server.Close() })
	return l
}

func (l *listener) conns() (opened, open int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.opened, len(l.open)
}

func TestCallersThatNeverCloseTheirResponseLeakNoConnection(t *testing.T) {
	srv := listen(t, nil)
	c, err := idem.Open(t.TempDir()+"/journal", rig.Options())
	require.NoError(t, err)
	for i := range 60 {
		body := fmt.Sprintf(`{"id":"leak-%d"}`, i)
		_, err := c.Do(rig.Request(context.Background(), srv.http.URL, body)) //nolint:bodyclose // that is the point
		require.NoError(t, err)
		get, err := http.NewRequest(http.MethodGet, srv.http.URL+"/v1/payments", nil)
		require.NoError(t, err)
		_, err = c.Do(get) //nolint:bodyclose // that is the point
		require.NoError(t, err)
	}
	opened, _ := srv.conns()
	require.LessOrEqual(t, opened, 3, "connections are used again")
	require.NoError(t, c.Close())
	require.Eventually(t, func() bool { _, open := srv.conns(); return open == 0 }, 10*time.Second, time.Millisecond, "Close leaves none open")
}

func TestFaultyCallsLeakNoConnection(t *testing.T) {
	srv := listen(t, nil)
	c, err := idem.Open(t.TempDir()+"/journal", rig.Options())
	require.NoError(t, err)
	for i := range 8 {
		srv.Script(
			mockserver.Fault{Kind: mockserver.FaultReset}, mockserver.Fault{Kind: mockserver.FaultDrop},
			mockserver.Fault{Kind: mockserver.FaultCut}, mockserver.Fault{Kind: mockserver.FaultCutHead},
			mockserver.Fault{Kind: mockserver.FaultStatus, Status: 503},
		)
		require.NoError(t, rig.Do(c, rig.Request(context.Background(), srv.http.URL, fmt.Sprintf(`{"id":"leak-%d"}`, i))))
	}
	_, open := srv.conns()
	require.LessOrEqual(t, open, 3)
	require.NoError(t, c.Close())
	require.Eventually(t, func() bool { _, open := srv.conns(); return open == 0 }, 10*time.Second, time.Millisecond)
}

// large answers with a body over MaxResult, or with a stream of events, in
// pieces, so that most of it comes after the head.
func large(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Accept") == "text/event-stream" {
		w.Header().Set("Content-Type", "text/event-stream")
	}
	w.WriteHeader(http.StatusCreated)
	for range 64 {
		_, _ = w.Write(bytes.Repeat([]byte("x"), 16<<10))
	}
}

func TestALargeOrStreamedAnswerIsHandedOverWhole(t *testing.T) {
	for _, accept := range []string{"", "text/event-stream"} {
		t.Run("accept "+accept, func(t *testing.T) {
			srv := listen(t, &mockserver.Config{Handler: http.HandlerFunc(large)})
			opts := rig.Options()
			opts.MaxResult = 1000
			c, err := idem.Open(t.TempDir()+"/journal", opts)
			require.NoError(t, err)
			defer c.Close()
			for _, name := range []string{"", "named"} {
				ctx := context.Background()
				if name != "" {
					ctx = idem.WithIntent(ctx, name)
				}
				req := rig.Request(ctx, srv.http.URL, `{"id":"large`+name+`"}`)
				req.Header.Set("Accept", accept)
				resp, err := c.Do(req)
				require.NoError(t, err)
				runtime.Gosched()
				b, err := io.ReadAll(resp.Body)
				require.NoError(t, err, "after %d bytes", len(b))
				require.Len(t, b, 1<<20)
				require.NoError(t, resp.Body.Close())
			}
		})
	}
}

// A call keeps nothing of its caller's context once it has returned, however many
// calls a client makes in its life.
func TestACallKeepsNothingOfItsContext(t *testing.T) {
	srv := mockserver.New(nil)
	defer srv.Close()
	c, err := idem.Open(t.TempDir()+"/journal", &idem.Options{Base: srv.Transport(), Retry: idem.RetryPolicy{MaxAttempts: 1}})
	require.NoError(t, err)
	defer c.Close()
	calls := map[string]func(context.Context){
		"Do": func(ctx context.Context) { _ = rig.Do(c, rig.Post(ctx, `{"id":"a"}`)) },
		"Do, recalled": func(ctx context.Context) {
			for range 2 {
				_ = rig.Do(c, rig.Post(idem.WithIntent(ctx, "b"), `{"id":"b"}`))
			}
		},
		"Do, lost": func(ctx context.Context) {
			srv.Script(mockserver.Fault{Kind: mockserver.FaultDrop})
			_ = rig.Do(c, rig.Post(ctx, `{"id":"c"}`))
		},
		"Do, refused": func(ctx context.Context) { _ = rig.Do(c, rig.Post(idem.WithIntent(ctx, "b"), `{"id":"other"}`)) },
		"Do GET": func(ctx context.Context) {
			req := rig.Post(ctx, "")
			req.Method, req.Body = http.MethodGet, nil
			_ = rig.Do(c, req)
		},
		"Resume":  func(ctx context.Context) { _, _ = c.Resume(ctx, nil) },
		"Reserve": func(ctx context.Context) { _, _ = c.Reserve(ctx, "r", nil); _, _ = c.Reserve(ctx, "r", nil) },
		"Enqueue": func(ctx context.Context) { _, _ = c.Enqueue(rig.Post(ctx, `{"id":"q"}`)) },
		"Lookup":  func(ctx context.Context) { _, _ = c.Lookup(ctx, "b") },
		"Settle": func(ctx context.Context) {
			_ = c.Settle(ctx, "none", idem.Finding{Fate: idem.FateDone})
			if e, err := c.Lookup(ctx, "r"); err == nil {
				_ = c.Settle(ctx, e.Key, idem.Finding{Fate: idem.FateDone})
			}
		},
	}
	for _, name := range []string{"Do", "Do, recalled", "Do, lost", "Do, refused", "Do GET", "Resume", "Reserve", "Enqueue", "Lookup", "Settle"} {
		t.Run(name, func(t *testing.T) {
			gone := make(chan struct{})
			use(calls[name], gone)
			require.Eventually(t, func() bool {
				runtime.GC()
				select {
				case <-gone:
					return true
				default:
					return false
				}
			}, 3*time.Second, time.Millisecond, "the context is still held")
		})
	}
}

type heldValue struct{}

// use makes a call under a context whose end as garbage closes gone.
func use(call func(context.Context), gone chan struct{}) {
	value := &[1 << 16]byte{}
	runtime.AddCleanup(value, func(ch chan struct{}) { close(ch) }, gone)
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), heldValue{}, value))
	call(ctx)
	cancel()
}

// A hook may use the client: it is under no lock.
func TestAHookMayCallBack(t *testing.T) {
	srv := mockserver.New(nil)
	defer srv.Close()
	var c *idem.Client
	back := func(hook string) {
		ctx := context.Background()
		_, err := c.Lookup(ctx, "order-1")
		if err != nil && !errors.Is(err, idem.ErrNotFound) {
			t.Errorf("%s: %v", hook, err)
		}
		for range c.Pending(ctx) {
		}
		_ = rig.Do(c, rig.Post(idem.WithIntent(ctx, "inner-"+hook), `{"id":"inner-`+hook+`"}`))
	}
	var mu sync.Mutex
	called := map[string]bool{}
	once := func(hook string) {
		mu.Lock()
		first := !called[hook]
		called[hook] = true
		mu.Unlock()
		if first {
			back(hook)
		}
	}
	var err error
	c, err = idem.Open(t.TempDir()+"/journal", &idem.Options{
		Base:      srv.Transport(),
		Retry:     idem.RetryPolicy{BaseDelay: time.Millisecond, MaxDelay: 2 * time.Millisecond, MaxAttempts: 3},
		Breaker:   idem.BreakerPolicy{MinRequests: 8, FailureRate: 0.1, OpenFor: 5 * time.Millisecond},
		Name:      func(r *http.Request) string { once("Name"); n, _ := idem.IntentFrom(r.Context()); return n },
		Authorize: func(*http.Request) error { once("Authorize"); return nil },
		Reconcile: func(context.Context, idem.Entry) (idem.Finding, error) {
			once("Reconcile")
			return idem.Finding{}, nil
		},
		Settled: func(context.Context, idem.Entry) error { once("Settled"); return nil },
		Trace: &idem.Trace{
			Began:   func(context.Context, idem.Entry) { once("Began") },
			Attempt: func(context.Context, idem.AttemptInfo) { once("Attempt") },
			Waiting: func(context.Context, idem.Key, time.Duration) { once("Waiting") },
			Ended:   func(context.Context, idem.Entry, error) { once("Ended") },
			Breaker: func(context.Context, string, string, string) { once("Breaker") },
		},
	})
	require.NoError(t, err)
	defer c.Close()
	srv.Script(mockserver.Fault{Kind: mockserver.FaultStatus, Status: 503, Times: -1})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for range 4 { // until the breaker opens
		_ = rig.Do(c, rig.Post(idem.WithIntent(ctx, "order-1"), `{"id":"order-1"}`))
	}
	srv.Heal()
	time.Sleep(10 * time.Millisecond) // the breaker may be probed
	_, err = c.Resume(ctx, &idem.ResumeOptions{Each: func(idem.Entry, error) { once("Each") }})
	require.NoError(t, err)
	require.Equal(t, 1, srv.Effects("order-1"))
	for _, want := range []string{"Name", "Authorize", "Began", "Attempt", "Waiting", "Ended", "Settled", "Each", "Breaker"} {
		require.True(t, called[want], want)
	}
}
