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

const resumeWindow = 24*time.Hour - 5*time.Minute // the default, less its margin

func TestNothingIsSentPastTheWindow(t *testing.T) {
	for way, pass := range resumeWays {
		t.Run(way, func(t *testing.T) {
			inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
				w.srv.Script(mockserver.Fault{Kind: mockserver.FaultHang})
				done := make(chan error, 1)
				go func() { _, err := w.do("a"); done <- err }()
				synctest.Wait()
				w.crash()
				<-done
				time.Sleep(25 * time.Hour)
				pass(w)
				require.Equal(t, 1, w.sent())
				e := w.entry("a")
				require.Equal(t, idem.StateAmbiguous, e.State)
				require.NotEmpty(t, e.Reason)
				require.True(t, e.RetryAt.IsZero())
				for range 2 {
					_, err := w.do("a")
					require.ErrorIs(t, err, idem.ErrWindowClosed)
					require.Equal(t, idem.FateUnknown, resumeError(t, err).Fate)
					require.Equal(t, e.Key, resumeError(t, err).Key)
				}
				require.Equal(t, 1, w.sent())
			})
		})
	}
}

func TestTheWindowEndsAtItsMargin(t *testing.T) {
	for _, late := range []bool{false, true} {
		inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
			w.lose("a")
			end := w.entry("a").FirstSent.Add(resumeWindow)
			if late {
				time.Sleep(time.Until(end))
				_, err := w.do("a")
				require.ErrorIs(t, err, idem.ErrWindowClosed)
				require.Equal(t, 1, w.sent())
				return
			}
			time.Sleep(time.Until(end) - time.Nanosecond)
			w.do("a")
			require.Equal(t, 2, w.sent())
		})
	}
}

func TestAnAttemptEndsWithTheWindow(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.lose("a")
		end := w.entry("a").FirstSent.Add(resumeWindow)
		time.Sleep(time.Until(end) - 10*time.Second)
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultHang})
		_, err := w.do("a")
		require.Error(t, err)
		require.Equal(t, end.UTC(), time.Now().UTC(), "not the 30 s of an attempt")
		require.Equal(t, 2, w.sent())
	})
}

func TestNoRetryLeavesAfterTheWindow(t *testing.T) {
	retry := idem.RetryPolicy{MaxAttempts: 100, BaseDelay: 10 * time.Second, MaxElapsed: 48 * time.Hour}
	inResumeWorld(t, idem.Options{Retry: retry}, func(t *testing.T, w *resumeWorld) {
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultDelay, Delay: 20 * time.Second, Times: -1})
		ctx, cancel := context.WithTimeout(resumeNamed("a"), time.Second)
		defer cancel()
		_, err := w.c.Do(resumeReq(ctx, "a"))
		require.Error(t, err)
		end := w.entry("a").FirstSent.Add(resumeWindow)
		time.Sleep(time.Until(end) - time.Minute)
		w.srv.Heal()
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultReset, Times: -1})
		w.do("a")
		for _, r := range w.srv.Requests() {
			require.True(t, r.Time.Before(end), "%v", r.Time)
		}
		require.Greater(t, w.sent(), 2)
	})
}

func TestFirstSentIsKeptOverPassesAndRestarts(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.lose("a")
		first := w.entry("a").FirstSent
		faults := []mockserver.Fault{
			{Kind: mockserver.FaultRefuse}, {Kind: mockserver.FaultReset},
			{Kind: mockserver.FaultStatus, Status: 401}, {Kind: mockserver.FaultRateLimit}, {Kind: mockserver.FaultStatus, Status: 503},
		}
		for i, f := range faults {
			w.srv.Script(f)
			time.Sleep(time.Hour)
			if i%2 == 0 {
				w.do("a")
			} else {
				w.resume()
			}
			w.crash()
			require.Equal(t, first, w.entry("a").FirstSent, "%v", f)
		}
		require.Equal(t, len(faults), w.sent(), "a refused dial doesn't arrive")
	})
}

func TestFirstSentIsClearedWhenNothingReachedProcessing(t *testing.T) {
	faults := []mockserver.Fault{
		{Kind: mockserver.FaultRefuse}, {Kind: mockserver.FaultStatus, Status: 401}, {Kind: mockserver.FaultRateLimit},
	}
	for _, f := range faults {
		inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
			w.enqueue("a")
			f.Times = 3
			w.srv.Script(f)
			for range 3 { // a weekend
				require.Equal(t, idem.Report{Unknown: 1}, w.resume())
				require.True(t, w.entry("a").FirstSent.IsZero())
				time.Sleep(20 * time.Hour)
			}
			w.srv.Script(mockserver.Fault{Kind: mockserver.FaultReset})
			now := time.Now()
			w.resume()
			require.Equal(t, now.UTC(), w.entry("a").FirstSent.UTC())
			require.Equal(t, idem.Report{Done: 1}, w.resume())
			require.Len(t, w.srv.Keys("a"), 1)
		})
	}
}

func TestASlowAuthorizeDoesNotSendPastTheWindow(t *testing.T) {
	var pause time.Duration
	auth := func(r *http.Request) error { time.Sleep(pause); return nil }
	opts := idem.Options{Authorize: auth, Dialect: idem.Dialect{Window: time.Hour}}
	inResumeWorld(t, opts, func(t *testing.T, w *resumeWorld) {
		w.lose("a", "b")
		end := w.entry("a").FirstSent.Add(55 * time.Minute)
		time.Sleep(time.Until(end) - 5*time.Second)
		pause = 20 * time.Second
		_, err := w.do("a")
		require.ErrorIs(t, err, idem.ErrWindowClosed)
		require.Equal(t, idem.FateUnknown, resumeError(t, err).Fate)
		require.Equal(t, idem.StateAmbiguous, w.entry("a").State)
		w.resume()
		require.Equal(t, idem.StateAmbiguous, w.entry("b").State)
		require.Equal(t, 2, w.sent())
	})
}

func TestAFirstAuthorizeThatOutlastsTheWindowIsNotDone(t *testing.T) {
	auth := func(r *http.Request) error { time.Sleep(10 * time.Second); return nil }
	opts := idem.Options{Authorize: auth, Dialect: idem.Dialect{Window: 5 * time.Second}}
	inResumeWorld(t, opts, func(t *testing.T, w *resumeWorld) {
		_, err := w.do("a")
		require.Error(t, err)
		require.Equal(t, idem.FateNotDone, resumeError(t, err).Fate)
		require.Zero(t, w.sent())
		_, err = w.c.Lookup(context.Background(), "a")
		require.ErrorIs(t, err, idem.ErrNotFound, "the name is free again")
	})
}

func TestRetryAtIsNeverPastTheWindowsEnd(t *testing.T) {
	for name, f := range map[string]mockserver.Fault{
		"503":  {Kind: mockserver.FaultStatus, Status: 503, RetryAfter: 100 * time.Hour},
		"9999": {Kind: mockserver.FaultStatus, Status: 503, Header: http.Header{"Retry-After": {"Fri, 31 Dec 9999 23:59:59 GMT"}}},
		"429":  {Kind: mockserver.FaultRateLimit, RetryAfter: 100 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
				w.lose("a")
				time.Sleep(20 * time.Hour)
				w.srv.Script(f)
				w.do("a")
				e := w.entry("a")
				require.Equal(t, e.FirstSent.Add(resumeWindow), e.RetryAt)
				require.Equal(t, idem.Report{Skipped: 1}, w.resume())
				time.Sleep(4 * time.Hour)
				w.resume()
				require.Equal(t, idem.StateAmbiguous, w.entry("a").State)
			})
		})
	}
}

func TestAForeverWindowNeverCloses(t *testing.T) {
	inResumeWorld(t, idem.Options{Dialect: idem.Dialect{Window: idem.Forever}}, func(t *testing.T, w *resumeWorld) {
		w.lose("a", "b")
		time.Sleep(40 * 365 * 24 * time.Hour)
		_, err := w.do("a")
		require.NoError(t, err)
		_, err = w.ks.Clock(context.Background(), time.Now().AddDate(50, 0, 0), time.Minute)
		require.NoError(t, err)
		require.Equal(t, idem.Report{Done: 1}, w.resume(), "nor does a clock that was set back close it")
	})
}

func TestTheShorterOfThePinnedAndTodaysWindowHolds(t *testing.T) {
	hour, day := time.Hour, 24*time.Hour
	for _, c := range []struct{ then, today time.Duration }{{day, hour}, {hour, day}, {idem.Forever, hour}, {hour, idem.Forever}} {
		inResumeWorld(t, idem.Options{Dialect: idem.Dialect{Window: c.then}}, func(t *testing.T, w *resumeWorld) {
			w.lose("early", "late")
			w.restart(func(o *idem.Options) { o.Dialect.Window = c.today })
			_, err := w.do("early")
			require.NoError(t, err)
			time.Sleep(2 * time.Hour)
			_, err = w.do("late")
			require.ErrorIs(t, err, idem.ErrWindowClosed)
			require.Equal(t, 3, w.sent())
		})
	}
}

func TestAnAuthorizeThatOutlastsItsAttemptSentNothing(t *testing.T) {
	pause := 40 * time.Second
	auth := func(r *http.Request) error { time.Sleep(pause); return nil }
	inResumeWorld(t, idem.Options{Authorize: auth}, func(t *testing.T, w *resumeWorld) {
		_, err := w.do("a")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, idem.FateNotDone, resumeError(t, err).Fate)
		require.Zero(t, w.sent())
		w.enqueue("b")
		require.Equal(t, idem.Report{Unknown: 1}, w.resume())
		require.True(t, w.entry("b").FirstSent.IsZero())
		pause = 0
		require.Equal(t, idem.Report{Done: 1}, w.resume())
	})
}
