package idem_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/mockserver"
)

// inSmallJournal runs f over a journal that is full after some entries.
func inSmallJournal(t *testing.T, f func(t *testing.T, w *resumeWorld)) {
	t.Helper()
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.close()
		var err error
		w.ks, err = idem.OpenKeystore(w.path, &idem.KeystoreOptions{MaxSize: 1 << 20})
		require.NoError(t, err)
		w.c, err = idem.New(w.ks, &w.opts)
		require.NoError(t, err)
		f(t, w)
	})
}

// fill enqueues until the journal is full, and returns how many it took. One refusal
// isn't enough: the next commit may find pages that were freed before.
func (w *resumeWorld) fill() (took int) {
	w.Helper()
	refused := 0
	for i := 0; refused < 20; i++ {
		name := fmt.Sprint("fill-", i)
		_, err := w.c.Enqueue(resumeReq(resumeNamed(name), name+`","pad":"`+strings.Repeat("x", 2000)))
		if err == nil {
			took++
			continue
		}
		refused++
		require.ErrorIs(w, err, idem.ErrFull)
		require.Equal(w, idem.FateUnknown, resumeError(w, err).Fate, "a failing journal: Unknown for a named request")
	}
	return took
}

func TestAFullJournalRefusesBeforeASend(t *testing.T) {
	inSmallJournal(t, func(t *testing.T, w *resumeWorld) {
		w.fill()
		big := strings.Repeat("y", 3000)
		_, err := w.c.Do(resumeReq(context.Background(), big))
		require.ErrorIs(t, err, idem.ErrFull)
		require.Equal(t, idem.FateNotDone, resumeError(t, err).Fate, "a fresh one")
		_, err = w.c.Do(resumeReq(resumeNamed("n"), big))
		require.ErrorIs(t, err, idem.ErrFull)
		require.Equal(t, idem.FateUnknown, resumeError(t, err).Fate)
		_, err = w.c.Enqueue(resumeReq(context.Background(), big))
		require.ErrorIs(t, err, idem.ErrFull)
		require.Zero(t, w.sent())
	})
}

func TestAFullJournalStillTakesTheResultsOfWhatItHolds(t *testing.T) {
	inSmallJournal(t, func(t *testing.T, w *resumeWorld) {
		n := w.fill()
		require.Equal(t, idem.Report{Done: n}, w.resume())
		require.Equal(t, n, w.sent())
	})
}

func TestAFullJournalNeitherLosesNorDoublesWhatItHolds(t *testing.T) {
	inSmallJournal(t, func(t *testing.T, w *resumeWorld) {
		n := w.fill()
		for range 5 {
			if _, err := w.c.Resume(context.Background(), nil); err != nil {
				require.ErrorIs(t, err, idem.ErrFull)
			}
		}
		w.restart(nil) // with room
		w.resume()
		require.Equal(t, n, w.srv.Total())
		for _, v := range w.srv.Values() {
			require.Equal(t, 1, w.srv.Effects(v))
			require.Len(t, w.srv.Keys(v), 1)
		}
		require.Equal(t, idem.Report{}, w.resume())
	})
}

func TestAJournalClosedUnderACallLosesNoFate(t *testing.T) {
	for status, want := range map[int]idem.Fate{0: idem.FateDone, 422: idem.FateUnknown, 401: idem.FateUnknown, 503: idem.FateUnknown} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			inResumeWorld(t, idem.Options{Dialect: idem.Dialect{KeyFirst: true}}, func(t *testing.T, w *resumeWorld) {
				f := mockserver.Fault{Kind: mockserver.FaultDelay, Delay: 10 * time.Second}
				if status != 0 {
					f.Kind, f.Status = mockserver.FaultStatus, status
				}
				w.srv.Script(f)
				done := make(chan error, 1)
				var r idem.Result
				go func() {
					_, err := w.c.Do(resumeReq(idem.WithResult(resumeNamed("a"), &r), "a"))
					done <- err
				}()
				synctest.Wait()
				require.NoError(t, w.ks.Close())
				err := <-done
				require.ErrorIs(t, err, idem.ErrClosed)
				require.Equal(t, want, resumeError(t, err).Fate)
				require.Equal(t, want, r.Fate)
				w.c.Close()
				w.open()
				require.Equal(t, idem.StatePending, w.entry("a").State)
				require.Equal(t, idem.Report{Done: 1}, w.resume())
				require.Equal(t, 1, w.srv.Effects("a"))
			})
		})
	}
}

func TestAJournalClosedInABackoffEndsTheCall(t *testing.T) {
	retry := idem.RetryPolicy{MaxAttempts: 5, BaseDelay: 10 * time.Second}
	inResumeWorld(t, idem.Options{Retry: retry}, func(t *testing.T, w *resumeWorld) {
		for _, f := range []mockserver.Fault{{Kind: mockserver.FaultReset}, {Kind: mockserver.FaultRefuse}} {
			w.srv.Script(f)
			done := make(chan error, 1)
			go func() { _, err := w.do("a"); done <- err }()
			time.Sleep(time.Second)
			require.NoError(t, w.ks.Close())
			err := <-done
			require.ErrorIs(t, err, idem.ErrClosed)
			require.Equal(t, idem.FateUnknown, resumeError(t, err).Fate)
			w.c.Close()
			w.open()
		}
		require.Equal(t, 1, w.sent(), "nothing is sent without a journal")
		require.Equal(t, idem.Report{Done: 1}, w.resume())
	})
}

// brokenKeystore fails its commits from a moment on.
type brokenKeystore struct {
	idem.Keystore
	err error
}

func (b *brokenKeystore) Commit(ctx context.Context, changes ...keystore.Change) error {
	if b.err != nil {
		return b.err
	}
	return b.Keystore.Commit(ctx, changes...)
}

func TestResumeSendsNothingWhenTheFirstSendCantBeWritten(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		require.NoError(t, w.c.Close())
		ks := &brokenKeystore{Keystore: w.ks}
		var err error
		w.c, err = idem.New(ks, &w.opts)
		require.NoError(t, err)
		w.enqueue("a")
		w.enqueue("b")
		ks.err = errors.New("input/output error")
		_, err = w.c.Resume(context.Background(), &idem.ResumeOptions{Concurrency: 1})
		require.ErrorIs(t, err, ks.err, "the journal's trouble is an error of the pass")
		require.ErrorIs(t, w.c.Run(context.Background()), ks.err)
		require.Zero(t, w.sent())
		ks.err = nil
		require.Equal(t, idem.Report{Done: 2}, w.resume())
	})
}

func TestTwoClientsOfAMemoryKeystoreShareItsDrivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := mockserver.New(nil)
		defer srv.Close()
		ks := idem.NewMemoryKeystore()
		defer ks.Close()
		opts := &idem.Options{Scope: "s", Base: srv.Transport()}
		var clients []*idem.Client
		for range 2 {
			c, err := idem.New(ks, opts)
			require.NoError(t, err)
			defer c.Close()
			clients = append(clients, c)
		}
		srv.Script(mockserver.Fault{Kind: mockserver.FaultDelay, Delay: 10 * time.Second})
		type result struct {
			recalled bool
			err      error
		}
		results := make(chan result, 6)
		for i := range 6 {
			go func() {
				resp, err := clients[i%2].Do(resumeReq(resumeNamed("a"), "a"))
				r := result{err: err}
				if err == nil {
					got, _ := idem.ResultOf(resp)
					r.recalled = got.Recalled
				}
				results <- r
			}()
		}
		recalled := 0
		for range 6 {
			r := <-results
			require.NoError(t, r.err)
			if r.recalled {
				recalled++
			}
		}
		require.Equal(t, 5, recalled)
		require.Len(t, srv.Requests(), 1)
	})
}

func TestTwoClientsOfAScopeMustAgree(t *testing.T) {
	ks := idem.NewMemoryKeystore()
	defer ks.Close()
	c, err := idem.New(ks, &idem.Options{Scope: "s", Account: "a"})
	require.NoError(t, err)
	for _, o := range []idem.Options{
		{Scope: "s", Account: "b"}, {Scope: "s"}, {}, {Scope: "s", Account: "a", Dialect: idem.Dialect{Window: time.Hour}},
	} {
		_, err := idem.New(ks, &o)
		require.ErrorIs(t, err, idem.ErrInvalid)
	}
	for _, o := range []idem.Options{{Scope: "s", Account: "a"}, {Scope: "t", Account: "b"}} {
		c, err := idem.New(ks, &o)
		require.NoError(t, err)
		require.NoError(t, c.Close())
	}
	require.NoError(t, c.Close())
	c, err = idem.New(ks, nil)
	require.NoError(t, err, "nobody else is there any more")
	require.NoError(t, c.Close())
}

func TestAClosedMemoryKeystoreEndsItsClients(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		ks := idem.NewMemoryKeystore()
		c, err := idem.New(ks, &w.opts)
		require.NoError(t, err)
		require.NoError(t, ks.Close())
		_, err = c.Do(resumeReq(resumeNamed("a"), "a"))
		require.ErrorIs(t, err, idem.ErrClosed)
		require.Equal(t, idem.FateUnknown, resumeError(t, err).Fate)
		_, err = c.Do(resumeReq(context.Background(), "a"))
		require.ErrorIs(t, err, idem.ErrClosed)
		require.Equal(t, idem.FateNotDone, resumeError(t, err).Fate)
		require.NoError(t, c.Close())
		require.Zero(t, w.sent())
	})
}
