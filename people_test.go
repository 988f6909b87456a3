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

var resumeDone = idem.Finding{Fate: idem.FateDone, Status: 200, Header: http.Header{"X-Found": {"yes"}}, Body: []byte("found")}

func TestPeopleMustNotTouchAnEntryThatHasADriver(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultDelay, Delay: 10 * time.Second})
		done := make(chan error, 1)
		go func() { _, err := w.do("a"); done <- err }()
		synctest.Wait()
		key := w.entry("a").Key
		ctx := context.Background()
		require.ErrorIs(t, w.c.Settle(ctx, key, idem.Finding{Fate: idem.FateNotDone}), idem.ErrConflict)
		require.ErrorIs(t, w.c.Settle(ctx, key, resumeDone), idem.ErrConflict)
		require.ErrorIs(t, w.c.Abandon(ctx, key, "why"), idem.ErrConflict)
		require.ErrorIs(t, w.c.Forget(ctx, "a"), idem.ErrConflict)
		require.NoError(t, <-done)
		require.Equal(t, idem.FateDone, w.entry("a").Fate)
		require.Equal(t, 201, w.entry("a").Status)
	})
}

func TestSettleGivesLaterCallsTheirAnswer(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.lose("a")
		require.NoError(t, w.c.Settle(context.Background(), w.entry("a").Key, resumeDone))
		w.crash()
		resp, err := w.do("a")
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		require.Equal(t, "yes", resp.Header.Get("X-Found"))
		require.Equal(t, "found", bodyOf(t, resp))
		require.Equal(t, idem.FateDone, idem.FateOf(resp, err))
		require.Equal(t, 1, w.sent())
	})
}

func TestSettleWithoutAnAnswerSaysTheFate(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.lose("yes", "no")
		ctx := context.Background()
		require.NoError(t, w.c.Settle(ctx, w.entry("yes").Key, idem.Finding{Fate: idem.FateDone}))
		require.NoError(t, w.c.Settle(ctx, w.entry("no").Key, idem.Finding{Fate: idem.FateNotDone}))
		_, err := w.do("yes")
		require.ErrorIs(t, err, idem.ErrSettled)
		require.Equal(t, idem.FateDone, resumeError(t, err).Fate)
		_, err = w.do("no")
		require.ErrorIs(t, err, idem.ErrSettled)
		require.Equal(t, idem.FateNotDone, resumeError(t, err).Fate)
		require.Equal(t, 2, w.sent())
	})
}

func TestDoneSeenLaterOverridesNotDoneAndAbandoned(t *testing.T) {
	var traced resumeLog
	trace := &idem.Trace{Overridden: func(_ context.Context, e idem.Entry) { traced.add(e.Intent + " " + e.State.String()) }}
	inResumeWorld(t, idem.Options{Trace: trace}, func(t *testing.T, w *resumeWorld) {
		w.lose("not", "given-up", "plain")
		ctx := context.Background()
		require.NoError(t, w.c.Settle(ctx, w.entry("not").Key, idem.Finding{Fate: idem.FateNotDone}))
		require.NoError(t, w.c.Abandon(ctx, w.entry("given-up").Key, "why"))
		require.Empty(t, traced.all())
		for _, name := range []string{"not", "given-up", "plain"} {
			require.NoError(t, w.c.Settle(ctx, w.entry(name).Key, resumeDone))
			e := w.entry(name)
			require.Equal(t, idem.StateSettled, e.State)
			require.Equal(t, idem.FateDone, e.Fate)
			resp, err := w.do(name)
			require.NoError(t, err)
			require.Equal(t, "found", bodyOf(t, resp))
		}
		require.Equal(t, []string{"not Settled", "given-up Abandoned"}, traced.all())
	})
}

func TestNotDoneNeverOverridesDone(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		_, err := w.do("done")
		require.NoError(t, err)
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultCut})
		_, err = w.do("cut")
		require.Equal(t, idem.FateDone, idem.FateOf(nil, err))
		for _, name := range []string{"done", "cut"} {
			before := w.entry(name)
			err := w.c.Settle(context.Background(), before.Key, idem.Finding{Fate: idem.FateNotDone})
			require.ErrorIs(t, err, idem.ErrSettled)
			require.Equal(t, before, w.entry(name))
		}
	})
}

func TestSettleAgainKeepsTheAnswer(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		resp, err := w.do("a")
		require.NoError(t, err)
		body := bodyOf(t, resp)
		require.NoError(t, w.c.Settle(context.Background(), w.entry("a").Key, idem.Finding{Fate: idem.FateDone}))
		require.NoError(t, w.c.Settle(context.Background(), w.entry("a").Key, resumeDone))
		resp, err = w.do("a")
		require.NoError(t, err)
		require.Equal(t, body, bodyOf(t, resp), "what the provider said stands")
	})
}

func TestSettleRefusesAFindingThatSaysNothing(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.lose("a")
		for _, f := range []idem.Finding{
			{}, {Fate: 7}, {Fate: -1}, {Fate: idem.FateDone, Status: 99}, {Fate: idem.FateDone, Body: []byte("x")},
		} {
			require.ErrorIs(t, w.c.Settle(context.Background(), w.entry("a").Key, f), idem.ErrInvalid)
		}
		require.ErrorIs(t, w.c.Settle(context.Background(), idem.NewKey(), resumeDone), idem.ErrNotFound)
		require.Equal(t, idem.StatePending, w.entry("a").State)
	})
}

func TestNothingIsSentForAnAbandonedIntent(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.lose("a")
		key := w.entry("a").Key
		ctx := context.Background()
		require.NoError(t, w.c.Abandon(ctx, key, "customer left"))
		require.NoError(t, w.c.Abandon(ctx, key, "again"))
		require.Equal(t, "customer left", w.entry("a").Reason)
		require.Equal(t, idem.Report{}, w.resume())
		_, err := w.do("a")
		require.ErrorIs(t, err, idem.ErrAbandoned)
		require.Equal(t, idem.FateUnknown, resumeError(t, err).Fate)
		require.Contains(t, err.Error(), "customer left")
		_, err = w.c.Do(resumeReq(resumeNamed("a"), "other"))
		require.ErrorIs(t, err, idem.ErrAbandoned)
		require.Equal(t, 1, w.sent())
		for e := range w.c.Pending(ctx) {
			t.Fatalf("%v is neither Pending nor Ambiguous", e)
		}

		require.NoError(t, w.c.Forget(ctx, "a"))
		resp, err := w.do("a")
		require.NoError(t, err)
		require.Equal(t, 201, resp.StatusCode)
		require.NotEqual(t, key, w.entry("a").Key)
		e, err := w.c.LookupKey(ctx, key)
		require.NoError(t, err)
		require.Equal(t, idem.StateAbandoned, e.State, "still findable by its key")
	})
}

func TestAbandonRefusesWhatIsSettled(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		_, err := w.do("a")
		require.NoError(t, err)
		require.ErrorIs(t, w.c.Abandon(context.Background(), w.entry("a").Key, "why"), idem.ErrSettled)
		require.ErrorIs(t, w.c.Abandon(context.Background(), idem.NewKey(), "why"), idem.ErrNotFound)
	})
}

func TestForgetFreesASettledName(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		ctx := context.Background()
		_, err := w.do("a")
		require.NoError(t, err)
		key := w.entry("a").Key
		require.NoError(t, w.c.Forget(ctx, "a"))
		_, err = w.c.Lookup(ctx, "a")
		require.ErrorIs(t, err, idem.ErrNotFound)
		require.ErrorIs(t, w.c.Forget(ctx, "a"), idem.ErrNotFound)
		resp, err := w.c.Do(resumeReq(resumeNamed("a"), "quite-another"))
		require.NoError(t, err)
		r, _ := idem.ResultOf(resp)
		require.False(t, r.Recalled)
		require.NotEqual(t, key, r.Key)
	})
}

func TestForgetRefusesWhatMayBeSentTwice(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.lose("pending", "ambiguous")
		time.Sleep(25 * time.Hour)
		_, err := w.do("ambiguous")
		require.ErrorIs(t, err, idem.ErrWindowClosed)
		require.Equal(t, idem.StateAmbiguous, w.entry("ambiguous").State)
		for _, name := range []string{"pending", "ambiguous"} {
			require.ErrorIs(t, w.c.Forget(context.Background(), name), idem.ErrConflict)
			w.entry(name)
		}
		require.ErrorIs(t, w.c.Forget(context.Background(), "nobody"), idem.ErrNotFound)
		require.ErrorIs(t, w.c.Forget(context.Background(), ""), idem.ErrInvalid)
	})
}

func TestForgetOfAnOutcomeNobodyHeardStillTellsIt(t *testing.T) {
	var told resumeLog
	fail := true
	hook := func(_ context.Context, e idem.Entry) error {
		if fail {
			return context.Canceled
		}
		told.add(string(e.Key))
		return nil
	}
	inResumeWorld(t, idem.Options{Settled: hook}, func(t *testing.T, w *resumeWorld) {
		key := w.enqueue("a")
		w.resume()
		require.NoError(t, w.c.Forget(context.Background(), "a"))
		next := w.enqueue("a")
		require.NotEqual(t, key, next)
		fail = false
		w.resume()
		require.Equal(t, []string{string(key), string(next)}, told.all())
	})
}

func TestALookupKeepsToItsAccount(t *testing.T) {
	inResumeWorld(t, idem.Options{Account: "main"}, func(t *testing.T, w *resumeWorld) {
		ctx := idem.WithAccount(context.Background(), "tenant")
		_, err := w.c.Do(resumeReq(idem.WithIntent(ctx, "a"), "a"))
		require.NoError(t, err)
		_, err = w.c.Lookup(context.Background(), "a")
		require.ErrorIs(t, err, idem.ErrNotFound)
		require.ErrorIs(t, w.c.Forget(context.Background(), "a"), idem.ErrNotFound)
		e, err := w.c.Lookup(ctx, "a")
		require.NoError(t, err)
		require.Equal(t, "tenant", e.Account)
		require.NoError(t, w.c.Forget(ctx, "a"))
	})
}

func TestPendingYieldsOldestFirstWhileWritersGoOn(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.lose("a", "b", "c")
		require.NoError(t, w.c.Abandon(context.Background(), w.entry("b").Key, "no"))
		var names []string
		for e, err := range w.c.Pending(context.Background()) {
			require.NoError(t, err)
			if e.Intent == "a" {
				w.enqueue("d")
			}
			names = append(names, e.Intent)
			req, err := e.Request(context.Background())
			require.NoError(t, err)
			require.Equal(t, "POST", req.Method)
		}
		require.Equal(t, []string{"a", "c"}, names[:2])
	})
}

// Whoever hears that a change is refused also hears what is known of the intent.
func TestARefusedChangeSaysTheFate(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		ctx := context.Background()
		_, err := w.do("a")
		require.NoError(t, err)
		done := w.entry("a")
		w.lose("b")
		for name, tc := range map[string]struct {
			err  error
			is   error
			fate idem.Fate
			key  idem.Key
		}{
			"NotDone after Done":   {w.c.Settle(ctx, done.Key, idem.Finding{Fate: idem.FateNotDone}), idem.ErrSettled, idem.FateDone, done.Key},
			"given up after Done":  {w.c.Abandon(ctx, done.Key, "why"), idem.ErrSettled, idem.FateDone, done.Key},
			"forgotten in between": {w.c.Forget(ctx, "b"), idem.ErrConflict, idem.FateUnknown, w.entry("b").Key},
			"no such key":          {w.c.Abandon(ctx, "nobody", "why"), idem.ErrNotFound, idem.FateUnknown, "nobody"},
		} {
			require.ErrorIs(t, tc.err, tc.is, name)
			require.Equal(t, tc.fate, idem.FateOf(nil, tc.err), name)
			require.Equal(t, tc.key, resumeError(t, tc.err).Key, name)
		}
		_, err = w.c.Lookup(ctx, "nobody")
		require.ErrorIs(t, err, idem.ErrNotFound)
		require.Equal(t, "nobody", resumeError(t, err).Intent)
	})
}
