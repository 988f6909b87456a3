package idem_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
)

// setBack shows the journal a clock that is ahead, so that the next sighting is one
// of a clock that was set back.
func (w *resumeWorld) setBack(ahead time.Duration) {
	w.Helper()
	_, err := w.ks.Clock(context.Background(), time.Now().Add(ahead), 5*time.Minute)
	require.NoError(w, err)
}

func TestAClockSetBackClosesTheWindowsOfWhatWasSent(t *testing.T) {
	for way, pass := range resumeWays {
		t.Run(way, func(t *testing.T) {
			inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
				w.lose("a")
				w.enqueue("unsent")
				w.setBack(6 * time.Minute)
				pass(w)
				w.resume()
				require.Equal(t, idem.StateAmbiguous, w.entry("a").State)
				_, err := w.do("a")
				require.ErrorIs(t, err, idem.ErrWindowClosed)
				require.Zero(t, w.srv.Effects("a"))
				require.Equal(t, 1, w.srv.Effects("unsent"), "what was never sent has no window")

				w.lose("new") // the mark dropped to the clock: new intents are fine
				_, err = w.do("new")
				require.NoError(t, err)
				require.Equal(t, 1, w.srv.Effects("new"))
			})
		})
	}
}

func TestAClockWithinTheMarginClosesNothing(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.lose("a")
		w.setBack(4 * time.Minute)
		require.Equal(t, idem.Report{Done: 1}, w.resume())
	})
}

func TestAnotherClientsSightingCountsForAll(t *testing.T) {
	inResumeWorld(t, idem.Options{Scope: "one"}, func(t *testing.T, w *resumeWorld) {
		w.lose("a")
		other := w.opts
		other.Scope = "two"
		c2, err := idem.New(w.ks, &other)
		require.NoError(t, err)
		defer c2.Close()
		w.setBack(time.Hour)
		_, err = c2.Do(resumeReq(resumeNamed("x"), "x")) // it is this one that sees the setback
		require.NoError(t, err)
		w.resume()
		require.Equal(t, idem.StateAmbiguous, w.entry("a").State)
	})
}

func TestASetbackInTheMiddleOfACallStopsItsRetries(t *testing.T) {
	retry := idem.RetryPolicy{MaxAttempts: 5, BaseDelay: time.Second}
	inResumeWorld(t, idem.Options{Retry: retry}, func(t *testing.T, w *resumeWorld) {
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultReset, Delay: time.Second, Times: 5})
		done := make(chan error, 1)
		go func() { _, err := w.do("a"); done <- err }()
		time.Sleep(500 * time.Millisecond)
		w.setBack(time.Hour)
		err := <-done
		require.ErrorIs(t, err, idem.ErrWindowClosed)
		require.Equal(t, 1, w.sent())
	})
}

// One minute in 2099, then the right time again: three bubbles over one journal.
func TestAMinuteFarInTheFutureSweepsNoNames(t *testing.T) {
	path := t.TempDir() + "/journal.db"
	inResumeWorldAt(t, path, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		_, err := w.do("paid")
		require.NoError(t, err)
		w.lose("open")
		w.enqueue("queued")
	})
	inResumeWorldAt(t, path, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		time.Sleep(99 * 365 * 24 * time.Hour)
		w.entry("paid") // a sighting, with its sweep
		_, err := w.do("paid-then")
		require.NoError(t, err)
		w.lose("sent-then")
		w.enqueue("queued-then")
	})
	inResumeWorldAt(t, path, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		for _, name := range []string{"paid", "paid-then"} {
			resp, err := w.do(name)
			require.NoError(t, err)
			r, _ := idem.ResultOf(resp)
			require.True(t, r.Recalled)
			require.False(t, r.Trimmed)
		}
		w.resume()
		require.Equal(t, idem.StateAmbiguous, w.entry("open").State)
		require.Equal(t, idem.StateAmbiguous, w.entry("sent-then").State)
		require.Equal(t, 1, w.srv.Effects("queued"))
		require.Equal(t, 1, w.srv.Effects("queued-then"), "it isn't to wait until 2099")
		require.Equal(t, 2, w.sent())
		for range 29 {
			time.Sleep(24 * time.Hour)
			w.resume()
		}
		require.False(t, w.entry("paid-then").Trimmed)
		for range 3 {
			time.Sleep(24 * time.Hour)
			w.resume()
		}
		require.True(t, w.entry("paid-then").Trimmed, "Keep counts on from there")
	})
}

func TestAnOutcomeOfAClockThatWasAheadIsStillTold(t *testing.T) {
	path := t.TempDir() + "/journal.db"
	var told resumeLog
	fail := func(context.Context, idem.Entry) error { return context.Canceled }
	hook := func(_ context.Context, e idem.Entry) error { told.add(e.Intent); return nil }
	inResumeWorldAt(t, path, idem.Options{Settled: fail}, func(t *testing.T, w *resumeWorld) {
		time.Sleep(99 * 365 * 24 * time.Hour)
		w.enqueue("a")
		w.resume()
	})
	inResumeWorldAt(t, path, idem.Options{Settled: hook}, func(t *testing.T, w *resumeWorld) {
		w.resume()
		require.Equal(t, []string{"a"}, told.all())
	})
}

// A RetryAt that a wrong clock wrote lies decades ahead.
func TestARetryAtOfAClockThatWasAheadDoesNotHoldAnEntryForEver(t *testing.T) {
	path := t.TempDir() + "/journal.db"
	inResumeWorldAt(t, path, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		time.Sleep(99 * 365 * 24 * time.Hour)
		w.enqueue("queued")
		w.lose("sent")
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultRateLimit, RetryAfter: time.Hour, Times: 2})
		w.resume()
		require.False(t, w.entry("sent").RetryAt.IsZero())
	})
	inResumeWorldAt(t, path, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		time.Sleep(48 * time.Hour)
		w.resume()
		require.Equal(t, idem.StateAmbiguous, w.entry("sent").State)
		require.Equal(t, 1, w.srv.Effects("queued"))
	})
}
