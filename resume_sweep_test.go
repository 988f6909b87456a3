package idem_test

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
)

// days lets days pass, each with a sighting of the clock.
func (w *resumeWorld) days(n int) {
	w.Helper()
	for range n {
		time.Sleep(24 * time.Hour)
		w.resume()
	}
}

func TestAResultPastKeepLeavesATombstoneThatStopsARerun(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		_, err := w.do("paid")
		require.NoError(t, err)
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultFail, Status: 422})
		_, err = w.do("refused")
		require.NoError(t, err)
		w.days(29)
		require.False(t, w.entry("paid").Trimmed)
		w.days(2)

		e := w.entry("paid")
		require.True(t, e.Trimmed)
		require.Equal(t, idem.FateDone, e.Fate)
		_, err = e.Request(context.Background())
		require.ErrorIs(t, err, idem.ErrNotFound)
		_, err = e.Response(context.Background())
		require.ErrorIs(t, err, idem.ErrNotFound)

		check := func() {
			t.Helper()
			for name, want := range map[string]idem.Fate{"paid": idem.FateDone, "refused": idem.FateNotDone} {
				resp, err := w.do(name)
				require.NoError(t, err)
				require.Equal(t, want, idem.FateOf(resp, err))
				r, _ := idem.ResultOf(resp)
				require.True(t, r.Recalled && r.Trimmed)
				_, err = io.ReadAll(resp.Body)
				require.Error(t, err, "an empty body would look like an answer")
				_, err = w.c.Do(resumeReq(resumeNamed("paid"), "other"))
				require.ErrorIs(t, err, idem.ErrMismatch)
				require.Equal(t, idem.FateDone, resumeError(t, err).Fate)
			}
			_, err = w.c.Enqueue(resumeReq(resumeNamed("paid"), "paid"))
			require.ErrorIs(t, err, idem.ErrSettled)
		}
		check()
		w.crash()
		w.days(360)
		check()
		require.Equal(t, 2, w.sent())
		w.days(7)
		_, err = w.c.Lookup(context.Background(), "paid")
		require.ErrorIs(t, err, idem.ErrNotFound)
	})
}

func TestAGapOfMoreThanADayCountsAsADay(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		_, err := w.do("paid")
		require.NoError(t, err)
		for range 20 {
			time.Sleep(300 * 24 * time.Hour)
			w.resume()
		}
		require.False(t, w.entry("paid").Trimmed)
		w.days(11)
		require.True(t, w.entry("paid").Trimmed)
	})
}

func TestOnlySettledEntriesAreSwept(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.lose("ambiguous", "abandoned")
		require.NoError(t, w.c.Abandon(context.Background(), w.entry("abandoned").Key, "why"))
		key, err := w.c.Reserve(context.Background(), "reserved", []byte("p"))
		require.NoError(t, err)
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultStatus, Status: 401, Times: -1})
		w.enqueue("pending")
		w.days(450)
		require.Equal(t, idem.StateAmbiguous, w.entry("ambiguous").State)
		require.Equal(t, idem.StateAbandoned, w.entry("abandoned").State)
		require.Equal(t, idem.StatePending, w.entry("pending").State)
		require.Equal(t, key, w.entry("reserved").Key)
		w.srv.Heal()
		require.Equal(t, 1, w.resume().Done)
		require.Equal(t, 1, w.srv.Effects("pending"))
	})
}

func TestAQueuedAnonymousResultIsKeptForKeepAndThenStopsARerunByKey(t *testing.T) {
	inResumeWorld(t, idem.Options{Keep: 48 * time.Hour}, func(t *testing.T, w *resumeWorld) {
		key, err := w.c.Enqueue(resumeReq(context.Background(), "x"))
		require.NoError(t, err)
		w.resume()
		w.days(4)
		resp, err := w.c.Do(resumeReq(idem.WithKey(context.Background(), key), "x"))
		require.NoError(t, err)
		r, _ := idem.ResultOf(resp)
		require.True(t, r.Trimmed)
		require.Equal(t, 1, w.sent())
	})
}

func TestASweptReservationStillHasItsKeyAndFate(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		key, err := w.reserve("a", "p")
		require.NoError(t, err)
		require.NoError(t, w.c.Settle(context.Background(), key, resumeDone))
		w.days(32)
		again, err := w.reserve("a", "p")
		require.ErrorIs(t, err, idem.ErrSettled)
		require.Equal(t, key, again)
		require.Equal(t, idem.FateDone, resumeError(t, err).Fate)
		_, err = w.reserve("a", "q")
		require.ErrorIs(t, err, idem.ErrMismatch)
	})
}

func TestASettledNameStillBlocksWhileItsWindowIsOpen(t *testing.T) {
	d := idem.Dialect{Window: 60 * 24 * time.Hour}
	_, err := idem.New(idem.NewMemoryKeystore(), &idem.Options{Dialect: d, Keep: 30 * 24 * time.Hour})
	require.ErrorIs(t, err, idem.ErrInvalid, "Keep is at least a finite window")
	inResumeWorld(t, idem.Options{Dialect: d}, func(t *testing.T, w *resumeWorld) {
		_, err := w.do("a")
		require.NoError(t, err)
		w.days(59)
		require.False(t, w.entry("a").Trimmed)
	})
}

func TestManyOldResultsAreSweptBitByBit(t *testing.T) {
	opts := idem.Options{Keep: 24 * time.Hour, Retry: idem.RetryPolicy{NoBudget: true}}
	inResumeWorld(t, opts, func(t *testing.T, w *resumeWorld) {
		const n = 300 // more than one sweep takes
		for i := range n {
			_, err := w.c.Do(resumeReq(idem.WithKey(context.Background(), idem.DeriveKey("n", string(rune(i)))), "x"))
			require.NoError(t, err)
		}
		w.days(2)
		time.Sleep(time.Minute)
		w.resume()
		w.resume()
		trimmed := 0
		for i := range n {
			e, err := w.c.LookupKey(context.Background(), idem.DeriveKey("n", string(rune(i))))
			require.NoError(t, err)
			if e.Trimmed {
				trimmed++
			}
		}
		require.Equal(t, n, trimmed)
	})
}
