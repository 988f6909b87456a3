package idem_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

func (w *resumeWorld) reserve(name, payload string) (idem.Key, error) {
	return w.c.Reserve(context.Background(), name, []byte(payload))
}

func TestAReservedKeyIsDurableAndBoundToItsPayload(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		key, err := w.reserve("a", "pay 5")
		require.NoError(t, err)
		e := w.entry("a")
		require.True(t, e.Reserved)
		require.Equal(t, idem.StatePending, e.State)
		require.Equal(t, time.Now().UTC(), e.FirstSent.UTC(), "it counts as the first send")
		w.crash()
		time.Sleep(time.Hour)
		again, err := w.reserve("a", "pay 5")
		require.NoError(t, err)
		require.Equal(t, key, again)
		require.Equal(t, e.FirstSent, w.entry("a").FirstSent)

		got, err := w.reserve("a", "pay 6")
		require.ErrorIs(t, err, idem.ErrMismatch)
		require.Equal(t, idem.FateUnknown, resumeError(t, err).Fate)
		require.Equal(t, key, got)
		_, err = w.entry("a").Request(context.Background())
		require.ErrorIs(t, err, idem.ErrNotFound, "a reserved entry has no request")
	})
}

func TestAReservedNameThatIsSettledComesBackWithItsKey(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		for _, fate := range []idem.Fate{idem.FateDone, idem.FateNotDone} {
			name := fate.String()
			key, err := w.reserve(name, "p")
			require.NoError(t, err)
			require.NoError(t, w.c.Settle(context.Background(), key, idem.Finding{Fate: fate}))
			again, err := w.reserve(name, "p")
			require.ErrorIs(t, err, idem.ErrSettled)
			require.Equal(t, fate, resumeError(t, err).Fate)
			require.Equal(t, key, again)
		}
	})
}

// 4.1: unless the old intent is Settled NotDone, which a changed payload may follow
// with a new key.
func TestAChangedReservationMayFollowOneThatIsNotDone(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		key, err := w.reserve("a", "p")
		require.NoError(t, err)
		require.NoError(t, w.c.Settle(context.Background(), key, idem.Finding{Fate: idem.FateNotDone}))
		next, err := w.reserve("a", "mended")
		require.NoError(t, err)
		require.NotEqual(t, key, next)
		require.Equal(t, key, w.entry("a").Parent)
	})
}

func TestAReservationIsNeverSentByResumeOrRun(t *testing.T) {
	for _, placement := range []idem.Placement{idem.PlaceHeader, idem.PlaceQuotedHeader, idem.PlaceJSON, idem.PlaceQuery, idem.PlaceForm} {
		d := idem.Dialect{Placement: placement}
		if placement != idem.PlaceHeader && placement != idem.PlaceQuotedHeader {
			d.Field = "request_id"
		}
		inResumeWorld(t, idem.Options{Dialect: d}, func(t *testing.T, w *resumeWorld) {
			_, err := w.reserve("a", "p")
			require.NoError(t, err)
			_, heard := w.eachError(idem.Report{Unknown: 1})
			require.ErrorIs(t, heard, idem.ErrInDoubt)
			stop := w.run()
			time.Sleep(30 * time.Hour)
			require.NoError(t, stop())
			require.Zero(t, w.sent())
			e := w.entry("a")
			require.Equal(t, idem.StateAmbiguous, e.State)
			_, err = w.reserve("a", "p")
			require.ErrorIs(t, err, idem.ErrWindowClosed)
			require.Equal(t, idem.FateUnknown, resumeError(t, err).Fate)
		})
	}
}

func TestAReservationAsksReconcileOnlyWhenItsWindowIsOver(t *testing.T) {
	asked := 0
	hook := func(_ context.Context, e idem.Entry) (idem.Finding, error) {
		asked++
		return idem.Finding{Fate: idem.FateDone, Status: 200, Body: []byte("paid")}, nil
	}
	inResumeWorld(t, idem.Options{Reconcile: hook}, func(t *testing.T, w *resumeWorld) {
		key, err := w.reserve("a", "p")
		require.NoError(t, err)
		w.resume()
		require.Zero(t, asked, "whoever reserved it may be sending it now")
		time.Sleep(25 * time.Hour)
		require.Equal(t, idem.Report{Done: 1}, w.resume())
		require.Equal(t, 1, asked)
		again, err := w.reserve("a", "p")
		require.ErrorIs(t, err, idem.ErrSettled)
		require.Equal(t, key, again)
		require.Equal(t, idem.FateDone, resumeError(t, err).Fate)
	})
}

func TestAReservationLivesAsLongAsTheDialectsWindow(t *testing.T) {
	for _, window := range []time.Duration{7 * 24 * time.Hour, idem.Forever} {
		inResumeWorld(t, idem.Options{Dialect: idem.Dialect{Window: window}}, func(t *testing.T, w *resumeWorld) {
			key, err := w.reserve("a", "p")
			require.NoError(t, err)
			time.Sleep(6 * 24 * time.Hour)
			w.resume()
			require.Equal(t, idem.StatePending, w.entry("a").State)
			again, err := w.reserve("a", "p")
			require.NoError(t, err)
			require.Equal(t, key, again)
			time.Sleep(2 * 24 * time.Hour)
			w.resume()
			want := idem.StateAmbiguous
			if window == idem.Forever {
				want = idem.StatePending
			}
			require.Equal(t, want, w.entry("a").State)
		})
	}
}

func TestADoUnderAReservedNameIsAMismatch(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		key, err := w.reserve("a", "p")
		require.NoError(t, err)
		_, err = w.do("a")
		require.ErrorIs(t, err, idem.ErrMismatch)
		require.Contains(t, err.Error(), "reservation")
		_, err = w.c.Do(resumeReq(idem.WithStoredPayload(resumeNamed("a")), "a"))
		require.ErrorIs(t, err, idem.ErrMismatch)
		_, err = w.c.Do(resumeReq(idem.WithKey(context.Background(), key), "a"))
		require.ErrorIs(t, err, idem.ErrMismatch)
		require.Zero(t, w.sent())
	})
}

func TestReserveNeedsANameAndTakesTheCallersKey(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		_, err := w.reserve("", "p")
		require.ErrorIs(t, err, idem.ErrInvalid)
		require.Equal(t, idem.FateNotDone, resumeError(t, err).Fate)
		mine := idem.DeriveKey("queue", "message-1")
		key, err := w.c.Reserve(idem.WithKey(context.Background(), mine), "a", []byte("p"))
		require.NoError(t, err)
		require.Equal(t, mine, key)
		_, err = w.c.Reserve(idem.WithKey(context.Background(), idem.NewKey()), "a", []byte("p"))
		require.ErrorIs(t, err, idem.ErrMismatch)
	})
}
