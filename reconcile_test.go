package idem_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
)

// resumeOracle is a Reconcile hook that says what it is told to say.
type resumeOracle struct {
	resumeLog
	found idem.Finding
	err   error
}

func (o *resumeOracle) hook(ctx context.Context, e idem.Entry) (idem.Finding, error) {
	name, named := idem.IntentFrom(ctx)
	o.add(fmt.Sprint(e.Intent, name, named))
	return o.found, o.err
}

// resumeWays are the calls that come upon an entry.
var resumeWays = map[string]func(*resumeWorld){
	"Do":     func(w *resumeWorld) { w.do("a") },
	"Resume": func(w *resumeWorld) { w.resume() },
	"Run": func(w *resumeWorld) {
		stop := w.run()
		require.NoError(w, stop())
	},
}

func TestReconcileDecidesWhatAResendCantTell(t *testing.T) {
	for way, pass := range resumeWays {
		for _, fate := range []idem.Fate{idem.FateDone, idem.FateNotDone, idem.FateUnknown} {
			t.Run(fmt.Sprint(way, fate), func(t *testing.T) {
				oracle := &resumeOracle{found: idem.Finding{Fate: fate}}
				if fate == idem.FateDone {
					oracle.found = resumeDone
				}
				inResumeWorld(t, idem.Options{Reconcile: oracle.hook}, func(t *testing.T, w *resumeWorld) {
					w.lose("a")
					require.Empty(t, oracle.all(), "a resend can tell")
					time.Sleep(25 * time.Hour)
					pass(w)
					require.Equal(t, []string{"afalse"}, oracle.all(), "asked once, and the context carries no name")
					e := w.entry("a")
					require.Equal(t, fate, e.Fate)
					if fate == idem.FateUnknown {
						require.Equal(t, idem.StateAmbiguous, e.State)
					} else {
						require.Equal(t, idem.StateSettled, e.State)
					}
					w.restart(nil)
					resp, err := w.do("a")
					require.Equal(t, fate, idem.FateOf(resp, err))
					if fate == idem.FateDone {
						require.NoError(t, err)
						require.Equal(t, "found", bodyOf(t, resp))
					}
					w.resume()
					require.Len(t, oracle.all(), 1, "once answered, never again")
					require.Equal(t, 1, w.sent())
				})
			})
		}
	}
}

func TestAnErrorOfReconcileKeepsTheEntryAndIsAskedAgainInTheNextPass(t *testing.T) {
	for way, pass := range resumeWays {
		t.Run(way, func(t *testing.T) {
			oracle := &resumeOracle{err: errors.New("look-up is down")}
			inResumeWorld(t, idem.Options{Reconcile: oracle.hook}, func(t *testing.T, w *resumeWorld) {
				w.lose("a")
				time.Sleep(25 * time.Hour)
				pass(w)
				require.Len(t, oracle.all(), 1, "once a pass")
				require.Equal(t, idem.StateAmbiguous, w.entry("a").State)
				_, err := w.do("a")
				require.ErrorIs(t, err, oracle.err)
				require.ErrorIs(t, err, idem.ErrWindowClosed)
				require.Equal(t, idem.FateUnknown, resumeError(t, err).Fate)
				require.Len(t, oracle.all(), 2)
				w.restart(nil)
				oracle.err, oracle.found = nil, resumeDone
				pass(w)
				require.Len(t, oracle.all(), 3)
				require.Equal(t, idem.FateDone, w.entry("a").Fate)
				require.Equal(t, 1, w.sent())
			})
		})
	}
}

func TestAFindingThatMakesNoSenseCountsAsAnError(t *testing.T) {
	oracle := &resumeOracle{found: idem.Finding{Fate: 9}}
	inResumeWorld(t, idem.Options{Reconcile: oracle.hook}, func(t *testing.T, w *resumeWorld) {
		w.lose("a")
		time.Sleep(25 * time.Hour)
		_, err := w.do("a")
		require.ErrorIs(t, err, idem.ErrInvalid)
		_, err = w.do("a")
		require.ErrorIs(t, err, idem.ErrInvalid)
		require.Len(t, oracle.all(), 2)
	})
}

func TestReconcileIsNotAskedWhereAResendCanTell(t *testing.T) {
	faults := []mockserver.Fault{
		{Kind: mockserver.FaultReset}, {Kind: mockserver.FaultDrop}, {Kind: mockserver.FaultCut}, {Kind: mockserver.FaultRefuse},
		{Kind: mockserver.FaultStatus, Status: 503}, {Kind: mockserver.FaultStatus, Status: 408},
		{Kind: mockserver.FaultRateLimit}, {Kind: mockserver.FaultInFlight},
	}
	oracle := &resumeOracle{}
	for _, f := range faults {
		inResumeWorld(t, idem.Options{Reconcile: oracle.hook}, func(t *testing.T, w *resumeWorld) {
			w.lose("a")
			w.srv.Script(f)
			w.do("a")
			w.srv.Script(f)
			w.resume()
			require.Empty(t, oracle.all(), "%v", f.Kind)
		})
	}
}

func TestReconcileIsAskedOnceAPassOfAPendingEntryThatCantTell(t *testing.T) {
	oracle := &resumeOracle{err: errors.New("down")}
	inResumeWorld(t, idem.Options{Reconcile: oracle.hook}, func(t *testing.T, w *resumeWorld) {
		w.lose("a")
		refusal := mockserver.Fault{Kind: mockserver.FaultStatus, Status: 422} // something before: it can't tell
		w.srv.Script(refusal)
		_, err := w.do("a")
		require.ErrorIs(t, err, idem.ErrInDoubt)
		require.ErrorIs(t, err, oracle.err)
		require.Len(t, oracle.all(), 1)
		require.Equal(t, idem.StatePending, w.entry("a").State)
		oracle.err = nil
		w.srv.Script(refusal)
		require.Equal(t, idem.Report{Unknown: 1}, w.resume())
		require.Len(t, oracle.all(), 2)
		w.srv.Script(refusal)
		require.Equal(t, idem.Report{Unknown: 1}, w.resume())
		require.Len(t, oracle.all(), 2, "once answered, never again")
		require.Equal(t, idem.Report{Done: 1}, w.resume())
	})
}

func TestANotDoneFoundByReconcileMayBeFollowedByAChangedPayload(t *testing.T) {
	oracle := &resumeOracle{found: idem.Finding{Fate: idem.FateNotDone}}
	inResumeWorld(t, idem.Options{Reconcile: oracle.hook}, func(t *testing.T, w *resumeWorld) {
		w.lose("a")
		old := w.entry("a").Key
		time.Sleep(25 * time.Hour)
		_, err := w.do("a")
		require.Equal(t, idem.FateNotDone, idem.FateOf(nil, err))
		resp, err := w.c.Do(resumeReq(resumeNamed("a"), "mended"))
		require.NoError(t, err)
		require.Equal(t, 201, resp.StatusCode)
		require.Equal(t, old, w.entry("a").Parent)
	})
}

func TestReconcileCantTurnDoneIntoNotDone(t *testing.T) {
	oracle := &resumeOracle{found: idem.Finding{Fate: idem.FateNotDone}}
	inResumeWorld(t, idem.Options{Reconcile: oracle.hook}, func(t *testing.T, w *resumeWorld) {
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultCut})
		_, err := w.do("a")
		require.Equal(t, idem.FateDone, idem.FateOf(nil, err))
		time.Sleep(25 * time.Hour)
		require.Equal(t, idem.Report{Done: 1}, w.resume())
		require.Len(t, oracle.all(), 1)
		_, err = w.do("a")
		require.Equal(t, idem.FateDone, idem.FateOf(nil, err))
	})
}

func TestWhatReconcileSettlesUnderRunIsTold(t *testing.T) {
	oracle := &resumeOracle{found: resumeDone}
	var told resumeLog
	settled := func(_ context.Context, e idem.Entry) error { told.add(e.Intent); return nil }
	inResumeWorld(t, idem.Options{Reconcile: oracle.hook, Settled: settled}, func(t *testing.T, w *resumeWorld) {
		w.lose("a", "b")
		time.Sleep(25 * time.Hour)
		_, err := w.do("b")
		require.NoError(t, err)
		stop := w.run()
		require.NoError(t, stop())
		require.Equal(t, []string{"a"}, told.all(), "Do returned b")
	})
}

func TestRunAsksReconcileOnceAMinuteWhileItFails(t *testing.T) {
	oracle := &resumeOracle{err: errors.New("down")}
	inResumeWorld(t, idem.Options{Reconcile: oracle.hook}, func(t *testing.T, w *resumeWorld) {
		w.lose("a")
		time.Sleep(25 * time.Hour)
		stop := w.run()
		for i := range 30 {
			w.enqueue(fmt.Sprint("n", i))
			time.Sleep(time.Second)
		}
		require.Len(t, oracle.all(), 1)
		time.Sleep(5 * time.Minute)
		require.LessOrEqual(t, len(oracle.all()), 7)
		require.GreaterOrEqual(t, len(oracle.all()), 5)
		require.NoError(t, stop())
	})
}
