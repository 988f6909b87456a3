package idem_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
)

// closeUnder closes the client while Do is at work and opens another.
func (w *resumeWorld) closeUnder(ctx context.Context, id string, after time.Duration) error {
	w.Helper()
	done := make(chan error, 1)
	go func() { _, err := w.c.Do(resumeReq(ctx, id)); done <- err }()
	time.Sleep(after)
	require.NoError(w, w.c.Close())
	err := <-done
	c, openErr := idem.New(w.ks, &w.opts)
	require.NoError(w, openErr)
	w.c = c
	return err
}

func TestCloseLeavesWhatItInterruptsPending(t *testing.T) {
	retry := idem.RetryPolicy{MaxAttempts: 10, BaseDelay: 20 * time.Second, MaxDelay: 20 * time.Second}
	for name, f := range map[string]mockserver.Fault{
		"in an attempt":                   {Kind: mockserver.FaultHang},
		"before an effect":                {Kind: mockserver.FaultLate, Delay: time.Minute},
		"in a backoff":                    {Kind: mockserver.FaultReset},
		"in a backoff after refused dial": {Kind: mockserver.FaultRefuse},
		"while it waits as told":          {Kind: mockserver.FaultRateLimit, RetryAfter: 30 * time.Second},
	} {
		for _, ctx := range []context.Context{resumeNamed("a"), context.Background()} {
			t.Run(name, func(t *testing.T) {
				inResumeWorld(t, idem.Options{Retry: retry}, func(t *testing.T, w *resumeWorld) {
					w.srv.Script(f)
					err := w.closeUnder(ctx, "a", 5*time.Second)
					require.ErrorIs(t, err, idem.ErrClosed)
					require.Equal(t, idem.FateUnknown, resumeError(t, err).Fate)
					e, err := w.c.LookupKey(context.Background(), resumeError(t, err).Key)
					require.NoError(t, err, "never withdrawn")
					require.Equal(t, idem.StatePending, e.State)
					require.Contains(t, e.LastError, "closed")
					time.Sleep(time.Hour)
					require.Equal(t, idem.Report{Done: 1}, w.resume())
					require.Equal(t, 1, w.srv.Effects("a"))
					require.Len(t, w.srv.Keys("a"), 1)
				})
			})
		}
	}
}

func TestCloseLetsACommitFinish(t *testing.T) {
	var w0 *resumeWorld
	closed := make(chan error, 1)
	trace := &idem.Trace{Attempt: func(context.Context, idem.AttemptInfo) { // the answer is there, and not yet durable
		c := w0.c
		go func() { closed <- c.Close() }()
		time.Sleep(time.Second)
	}}
	synctest.Test(t, func(t *testing.T) {
		closed = make(chan error, 1)
		srv := mockserver.New(nil)
		defer srv.Close()
		path := t.TempDir() + "/journal.db"
		c, err := idem.Open(path, &idem.Options{Base: srv.Transport(), Trace: trace})
		require.NoError(t, err)
		w0 = &resumeWorld{T: t, c: c}
		resp, err := c.Do(resumeReq(resumeNamed("a"), "a"))
		require.NoError(t, err)
		require.Equal(t, 201, resp.StatusCode)
		require.NoError(t, <-closed)
		c, err = idem.Open(path, &idem.Options{Base: srv.Transport()})
		require.NoError(t, err)
		defer c.Close()
		e, err := c.Lookup(context.Background(), "a")
		require.NoError(t, err)
		require.Equal(t, idem.StateSettled, e.State)
		require.Equal(t, idem.FateDone, e.Fate)
	})
}

func TestCallsAfterCloseAreErrClosed(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.lose("a")
		key := w.entry("a").Key
		require.NoError(t, w.c.Close())
		require.NoError(t, w.c.Close(), "a second Close")
		ctx := context.Background()
		for what, call := range map[string]func() error{
			"Do": func() error { _, err := w.do("a"); return err },
			"Do GET": func() error {
				r, _ := http.NewRequest("GET", "http://api.example/", nil)
				_, err := w.c.Do(r)
				return err
			},
			"Transport": func() error { _, err := w.c.Transport().RoundTrip(resumeReq(ctx, "x")); return err },
			"Enqueue":   func() error { _, err := w.c.Enqueue(resumeReq(ctx, "x")); return err },
			"Reserve":   func() error { _, err := w.reserve("r", "p"); return err },
			"Resume":    func() error { _, err := w.c.Resume(ctx, nil); return err },
			"Run":       func() error { return w.c.Run(ctx) },
			"Lookup":    func() error { _, err := w.c.Lookup(ctx, "a"); return err },
			"LookupKey": func() error { _, err := w.c.LookupKey(ctx, key); return err },
			"Settle":    func() error { return w.c.Settle(ctx, key, resumeDone) },
			"Abandon":   func() error { return w.c.Abandon(ctx, key, "why") },
			"Forget":    func() error { return w.c.Forget(ctx, "a") },
			"Pending": func() error {
				for _, err := range w.c.Pending(ctx) {
					return err
				}
				return nil
			},
		} {
			require.ErrorIs(t, call(), idem.ErrClosed, what)
		}
		require.Equal(t, 1, w.sent())
	})
}

func TestTheFateOfACallAfterClose(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.lose("a")
		require.NoError(t, w.c.Close())
		_, err := w.do("a")
		require.Equal(t, idem.FateUnknown, resumeError(t, err).Fate)
		_, err = w.c.Do(resumeReq(context.Background(), "x"))
		require.Equal(t, idem.FateNotDone, resumeError(t, err).Fate, "a fresh one")
		_, err = w.do("never-seen")
		require.Equal(t, idem.FateUnknown, resumeError(t, err).Fate, "ErrClosed: Unknown for a named request")
	})
}

func TestCloseWaitsForRunAndResume(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.enqueue("a")
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultHang})
		done := make(chan error, 1)
		go func() { _, err := w.c.Resume(context.Background(), nil); done <- err }()
		synctest.Wait()
		require.NoError(t, w.c.Close())
		require.ErrorIs(t, <-done, idem.ErrClosed)
		w.restart(nil)
		e := w.entry("a")
		require.Equal(t, idem.StatePending, e.State)
		require.Contains(t, e.LastError, "closed")
		require.Equal(t, idem.Report{Done: 1}, w.resume())
		require.Equal(t, 1, w.srv.Effects("a"))
	})
}

func TestAWaiterOfAClosedClientHearsUnknown(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		other, err := idem.New(w.ks, &idem.Options{Scope: "", Base: w.srv.Transport()})
		require.ErrorIs(t, err, idem.ErrInvalid, "an empty scope beside another client")
		require.Nil(t, other)
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultHang})
		errs := make(chan error, 2)
		for range 2 {
			go func() { _, err := w.do("a"); errs <- err }()
			synctest.Wait()
		}
		require.NoError(t, w.c.Close())
		for range 2 {
			err := <-errs
			require.ErrorIs(t, err, idem.ErrClosed)
			require.Equal(t, idem.FateUnknown, resumeError(t, err).Fate)
		}
		w.restart(nil)
		require.Equal(t, idem.Report{Done: 1}, w.resume())
	})
}

func TestEveryCallOfAClosedClientSaysSo(t *testing.T) {
	srv := mockserver.New(nil)
	defer srv.Close()
	c, err := idem.Open(t.TempDir()+"/journal", &idem.Options{Base: srv.Transport()})
	require.NoError(t, err)
	_, err = c.Do(resumeReq(resumeNamed("done"), "done"))
	require.NoError(t, err)
	require.NoError(t, c.Close())
	const key = idem.Key("0190b6a0-0000-7000-8000-00000000c4a5")
	ctx := context.Background()
	_, errNamed := c.Do(resumeReq(resumeNamed("done"), "done"))
	_, errFresh := c.Do(post(ctx, `{"id":"fresh"}`))
	_, errKeyed := c.Do(post(idem.WithKey(ctx, key), `{"id":"keyed"}`))
	_, errSDK := c.HTTPClient().Do(post(ctx, `{"id":"fresh"}`))
	_, errQueue := c.Enqueue(resumeReq(resumeNamed("new"), "new"))
	_, errReserve := c.Reserve(ctx, "new", nil)
	_, errLookup := c.Lookup(ctx, "done")
	_, errKey := c.LookupKey(ctx, key)
	_, errResume := c.Resume(ctx, nil)
	for what, err := range map[string]error{
		"Do named": errNamed, "Do fresh": errFresh, "Do keyed": errKeyed, "SDK": errSDK, "Enqueue": errQueue, "Reserve": errReserve,
		"Lookup": errLookup, "LookupKey": errKey, "Resume": errResume, "Run": c.Run(ctx),
		"Settle": c.Settle(ctx, key, idem.Finding{Fate: idem.FateDone}), "Abandon": c.Abandon(ctx, key, ""), "Forget": c.Forget(ctx, "done"),
	} {
		require.ErrorIs(t, err, idem.ErrClosed, what)
	}
	for _, err := range c.Pending(ctx) {
		require.ErrorIs(t, err, idem.ErrClosed)
	}
	require.Equal(t, idem.FateUnknown, idem.FateOf(nil, errNamed), "the journal can't be asked")
	require.Equal(t, idem.FateUnknown, idem.FateOf(nil, errKeyed))
	require.Equal(t, idem.FateNotDone, idem.FateOf(nil, errFresh))
}
