package stress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
	"github.com/idem-go/idem/proof/rig"
)

// ledger expects that no business value had two effects or two bodies, and
// two keys only where all that the other one met were refusals at the door: that
// intent was withdrawn, and the next one under the name is another.
func ledger(t *testing.T, srv *mockserver.Server) {
	t.Helper()
	srv.Wait()
	keys := map[string]map[string]bool{}
	for _, r := range srv.Requests() {
		if r.Method == http.MethodGet || r.Status == http.StatusUnauthorized || r.Status == http.StatusTooManyRequests {
			continue
		}
		if keys[r.Value] == nil {
			keys[r.Value] = map[string]bool{}
		}
		keys[r.Value][r.Key] = true
	}
	for _, value := range srv.Values() {
		require.LessOrEqual(t, srv.Effects(value), 1, "effects of %s%s", value, rig.Story(srv, value))
		require.LessOrEqual(t, len(keys[value]), 1, "keys of %s%s", value, rig.Story(srv, value))
		require.Len(t, srv.Bodies(value), 1, "bodies of %s", value)
	}
}

var faults = []mockserver.Fault{
	{Kind: mockserver.FaultDrop}, {Kind: mockserver.FaultReset}, {Kind: mockserver.FaultReset, After: true},
	{Kind: mockserver.FaultCut}, {Kind: mockserver.FaultStatus, Status: 503}, {Kind: mockserver.FaultStatus, Status: 503, After: true},
	{Kind: mockserver.FaultRefuse}, {Kind: mockserver.FaultRateLimit}, {Kind: mockserver.FaultDelay, Delay: time.Second},
	{Kind: mockserver.FaultStatus, Status: 401}, {Kind: mockserver.FaultStatus, Status: 402}, {Kind: mockserver.FaultInFlight},
}

// anyCall are all public calls of a client. Each takes one of a few names, so
// that they meet.
var anyCall = []func(c *idem.Client, name string, serial int64){
	func(c *idem.Client, name string, _ int64) {
		_ = rig.Do(c, named(context.Background(), name, name))
	},
	func(c *idem.Client, name string, _ int64) {
		_ = rig.Do(c, named(context.Background(), name, name))
	},
	func(c *idem.Client, _ string, serial int64) {
		_ = rig.Do(c, rig.Post(context.Background(), fmt.Sprintf(`{"id":"anonymous-%d"}`, serial)))
	},
	func(c *idem.Client, name string, _ int64) {
		key := idem.DeriveKey("stress", name)
		_ = rig.Do(c, rig.Post(idem.WithKey(context.Background(), key), `{"id":"keyed-`+name+`"}`))
	},
	func(c *idem.Client, name string, _ int64) {
		req := rig.Post(context.Background(), `{"id":"sdk-`+name+`"}`)
		req.Header.Set("Idempotency-Key", string(idem.DeriveKey("sdk", name)))
		_ = rig.Read(c.HTTPClient().Do(req))
	},
	func(c *idem.Client, name string, _ int64) {
		_, _ = c.Enqueue(named(context.Background(), "queued-"+name, "queued-"+name))
	},
	func(c *idem.Client, name string, _ int64) {
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		_ = rig.Do(c, named(ctx, name, name))
	},
	func(c *idem.Client, _ string, _ int64) {
		req := rig.Post(context.Background(), "")
		req.Method, req.Body = http.MethodGet, nil
		_ = rig.Read(c.Do(req))
	},
	func(c *idem.Client, name string, _ int64) {
		_, _ = c.Reserve(context.Background(), "reserved-"+name, []byte(name))
	},
	func(c *idem.Client, _ string, _ int64) { _, _ = c.Resume(context.Background(), nil) },
	func(c *idem.Client, name string, _ int64) {
		if e, err := c.Lookup(context.Background(), name); err == nil {
			if req, err := e.Request(context.Background()); err == nil {
				_, _ = io.ReadAll(req.Body)
			}
			_, _ = e.Response(context.Background())
			_, _ = c.LookupKey(context.Background(), e.Key)
		}
	},
	func(c *idem.Client, name string, _ int64) {
		if e, err := c.Lookup(context.Background(), "reserved-"+name); err == nil {
			_ = c.Settle(context.Background(), e.Key, idem.Finding{Fate: idem.FateDone})
			_ = c.Forget(context.Background(), "reserved-"+name)
		}
	},
	func(c *idem.Client, name string, serial int64) {
		if e, err := c.Lookup(context.Background(), name); err == nil && serial%5 == 0 {
			_ = c.Abandon(context.Background(), e.Key, "stress")
		}
	},
	func(c *idem.Client, _ string, _ int64) {
		for e := range c.Pending(context.Background()) {
			_ = e.Key
		}
	},
}

func named(ctx context.Context, name, value string) *http.Request {
	return rig.Post(idem.WithIntent(ctx, name), `{"id":"`+value+`"}`)
}

func TestAllCallsAtOnceHaveAtMostOneEffectEach(t *testing.T) {
	seed := rig.Seed(t)
	synctest.Test(t, func(t *testing.T) {
		srv := mockserver.New(&mockserver.Config{Seed: seed, Rate: 0.4, Faults: faults})
		defer srv.Close()
		path := t.TempDir() + "/journal"
		c, err := idem.Open(path, &idem.Options{
			Base: srv.Transport(), Retry: idem.RetryPolicy{MaxAttempts: 3}, Settled: func(context.Context, idem.Entry) error { return nil },
		})
		require.NoError(t, err)
		run, stop := context.WithCancel(context.Background())
		var running, callers sync.WaitGroup
		running.Go(func() { _ = c.Run(run) })
		var serial atomic.Int64
		for g := range 12 {
			random := rand.New(rand.NewPCG(seed, uint64(g)))
			callers.Go(func() {
				for range 25 {
					call := anyCall[random.IntN(len(anyCall))]
					call(c, fmt.Sprintf("name-%d", random.IntN(6)), serial.Add(1))
				}
			})
		}
		callers.Wait()
		stop()
		running.Wait()
		ledger(t, srv)
		srv.Heal()
		_, err = c.Resume(context.Background(), nil)
		require.NoError(t, err)
		require.NoError(t, c.Close())
		ledger(t, srv)
	})
}

// With IDEM_STRESS=all there are 10,000.
func TestThousandsOfCallsAtOnceHaveOneEffectEach(t *testing.T) {
	n := 2000
	if os.Getenv("IDEM_STRESS") == "all" {
		n = 10_000
	}
	srv := mockserver.New(nil)
	defer srv.Close()
	c, err := idem.Open(t.TempDir()+"/journal", &idem.Options{Base: srv.Transport()})
	require.NoError(t, err)
	defer c.Close()
	var calls sync.WaitGroup
	var failed atomic.Int64
	for i := range n {
		calls.Go(func() {
			name := fmt.Sprintf("name-%d", i%(n/2)) // each name twice
			if err := rig.Do(c, named(context.Background(), name, name)); err != nil {
				failed.Add(1)
				t.Error(err)
			}
		})
	}
	calls.Wait()
	require.Zero(t, failed.Load())
	require.Equal(t, n/2, srv.Total())
	require.Len(t, srv.Requests(), n/2, "the second call of a name shares the first one's answer")
	require.Zero(t, rig.Pending(c))
}

// Whatever Close interrupts stays Pending, and the next client finds it out.
func TestCloseDuringEverythingLosesNothing(t *testing.T) {
	for round := range 8 {
		synctest.Test(t, func(t *testing.T) {
			srv := mockserver.New(nil)
			defer srv.Close()
			path := t.TempDir() + "/journal"
			c, err := idem.Open(path, &idem.Options{Base: srv.Transport()})
			require.NoError(t, err)
			srv.Script(mockserver.Fault{Kind: mockserver.FaultDelay, Delay: time.Second, Times: 6},
				mockserver.Fault{Kind: mockserver.FaultDelay, After: true, Delay: time.Second, Times: 6},
				mockserver.Fault{Kind: mockserver.FaultStatus, Status: 503, Times: 6}, mockserver.Fault{Kind: mockserver.FaultRefuse, Times: 6})
			const n = 24
			errs := make([]error, n)
			var calls sync.WaitGroup
			calls.Go(func() {
				if err := c.Run(context.Background()); !errors.Is(err, idem.ErrClosed) {
					t.Errorf("Run: %v", err)
				}
			})
			for i := range n {
				calls.Go(func() {
					name := fmt.Sprintf("name-%d", i)
					errs[i] = rig.Do(c, named(context.Background(), name, name))
				})
			}
			time.Sleep(time.Duration(round) * 170 * time.Millisecond)
			require.NoError(t, c.Close())
			calls.Wait()
			require.NoError(t, c.Close(), "a second Close")

			srv.Heal()
			c, err = idem.Open(path, &idem.Options{Base: srv.Transport()})
			require.NoError(t, err)
			defer c.Close()
			for i, err := range errs {
				name := fmt.Sprintf("name-%d", i)
				if err == nil {
					require.Equal(t, 1, srv.Effects(name))
					continue
				}
				require.ErrorIs(t, err, idem.ErrClosed)
				require.Equal(t, idem.FateUnknown, idem.FateOf(nil, err), "a named call that Close interrupts")
			}
			_, err = c.Resume(context.Background(), nil)
			require.NoError(t, err)
			require.Zero(t, rig.Pending(c))
			for i := range n {
				name := fmt.Sprintf("name-%d", i)
				require.NoError(t, rig.Do(c, named(context.Background(), name, name)))
				rig.Ledger(t, srv, name, 1)
			}
		})
	}
}
