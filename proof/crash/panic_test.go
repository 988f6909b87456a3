package crash

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/crash"
	"github.com/idem-go/idem/mockserver"
	"github.com/idem-go/idem/proof/rig"
)

// panicOnce makes calls panic the first time that they pass a point; the caller must
// end it.
func panicOnce(point crash.Point) (end func()) {
	var passed atomic.Bool
	crash.SetHook(func(p crash.Point) {
		if p == point && passed.CompareAndSwap(false, true) {
			panic("crash test: panics here")
		}
	})
	return func() { crash.SetHook(nil) }
}

// panicky runs a call that panics, as an HTTP server would that serves on.
func panicky(t *testing.T, call func() error) {
	t.Helper()
	require.Panics(t, func() { _ = call() })
}

// A process that survives a panic, in a hook, say, goes on with the same client:
// nothing stays locked, nothing happens twice.
func TestACallThatPanicsAnywhereIsFoundOutByTheSameClient(t *testing.T) {
	kinds := []string{"Do named", "Do anonymous", "Do with key", "Transport with an SDK's key"}
	for _, kind := range kinds {
		for point := crash.Uncommitted; point <= crash.Settled; point++ {
			t.Run(fmt.Sprintf("%s/%s", kind, pointNames[point]), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { panicAndGoOn(t, kind, point) })
			})
		}
	}
}

func panicAndGoOn(t *testing.T, kind string, point crash.Point) {
	srv := mockserver.New(nil)
	defer srv.Close()
	c, err := idem.Open(t.TempDir()+"/journal", &idem.Options{Base: srv.Transport()})
	require.NoError(t, err)
	defer c.Close()
	const url = "http://api.example"
	end := panicOnce(point)
	panicky(t, func() error { return callOf[kind](c, url) })
	end()

	again := panicInTime(t, func() error { return callOf[kind](c, url) })
	inDoubt := kind == "Do anonymous" && point != crash.Uncommitted && point != crash.Settled
	if inDoubt {
		require.ErrorIs(t, again, idem.ErrInDoubt)
	} else if kind != "Do anonymous" {
		require.NoError(t, again)
	}
	require.NoError(t, panicInTime(t, func() error { return callOf["Resume"](c, "") }))
	require.Zero(t, rig.Pending(c))
	if kind == "Do anonymous" && point == crash.Settled {
		return // it is gone, and the caller's repeat is another intent
	}
	rig.Ledger(t, srv, rig.Value, 1)
}

// panicInTime fails a call that waits for a claim which nobody gives back.
func panicInTime(t *testing.T, call func() error) error {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- call() }()
	select {
	case err := <-ended:
		return err
	case <-time.After(time.Hour):
		t.Fatal("the call waits for ever")
		return nil
	}
}

// Each hook may panic; the entry is then free for the next call.
func TestAPanicInAHookLeavesTheNameUsable(t *testing.T) {
	for _, hook := range []string{"Began", "Attempt", "Waiting", "Ended", "Authorize", "Base", "Name", "Skip", "Group", "Reconcile"} {
		for _, name := range []string{rig.Name, ""} {
			t.Run(fmt.Sprintf("%s, name %q", hook, name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { panicInHook(t, hook, name) })
			})
		}
	}
}

func panicInHook(t *testing.T, hook, name string) {
	srv := mockserver.New(nil)
	defer srv.Close()
	var passed atomic.Bool
	boom := func(at string) {
		if at == hook && passed.CompareAndSwap(false, true) {
			panic(at)
		}
	}
	opts := &idem.Options{
		Base:      panicBase{srv.Transport(), func() { boom("Base") }},
		Name:      func(r *http.Request) string { boom("Name"); n, _ := idem.IntentFrom(r.Context()); return n },
		Skip:      func(*http.Request) bool { boom("Skip"); return false },
		Authorize: func(*http.Request) error { boom("Authorize"); return nil },
		Reconcile: func(context.Context, idem.Entry) (idem.Finding, error) { boom("Reconcile"); return idem.Finding{}, nil },
		Breaker:   idem.BreakerPolicy{Group: func(r *http.Request) string { boom("Group"); return r.URL.Host }},
		Trace: &idem.Trace{
			Began:   func(context.Context, idem.Entry) { boom("Began") },
			Attempt: func(context.Context, idem.AttemptInfo) { boom("Attempt") },
			Waiting: func(context.Context, idem.Key, time.Duration) { boom("Waiting") },
			Ended:   func(context.Context, idem.Entry, error) { boom("Ended") },
		},
	}
	c, err := idem.Open(t.TempDir()+"/journal", opts)
	require.NoError(t, err)
	switch hook {
	case "Waiting":
		srv.Script(mockserver.Fault{Kind: mockserver.FaultStatus})
	case "Reconcile":
		srv.Script(mockserver.Fault{Kind: mockserver.FaultReset}, mockserver.Fault{Kind: mockserver.FaultStatus, Status: 403})
	}
	ctx := context.Background()
	if name != "" {
		ctx = idem.WithIntent(ctx, name)
	}
	call := func() error { return rig.Do(c, rig.Request(ctx, "http://api.example", rig.Body)) }
	panicky(t, call)
	again := panicInTime(t, call)
	if name != "" {
		require.NoError(t, again)
	}
	require.NoError(t, panicInTime(t, func() error { return callOf["Resume"](c, "") }))
	require.Zero(t, rig.Pending(c))
	if name == "" && hook == "Ended" {
		require.NoError(t, c.Close())
		return // it was Done and is gone
	}
	rig.Ledger(t, srv, rig.Value, 1)
	require.NoError(t, panicInTime(t, c.Close))
}

type panicBase struct {
	http.RoundTripper
	first func()
}

func (b panicBase) RoundTrip(req *http.Request) (*http.Response, error) {
	b.first()
	return b.RoundTripper.RoundTrip(req)
}
