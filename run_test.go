package idem_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
)

func TestRunDeliversWhatIsEnqueuedAtOnce(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.enqueue("before")
		stop := w.run()
		require.Equal(t, 1, w.srv.Effects("before"))
		time.Sleep(10 * time.Second)
		began := time.Now()
		w.enqueue("after")
		synctest.Wait()
		require.Equal(t, 1, w.srv.Effects("after"))
		require.Equal(t, began, time.Now())
		require.NoError(t, stop())
		require.Equal(t, idem.StateSettled, w.entry("after").State)
	})
}

func TestRunDeliversWhatIsEnqueuedWhileAPassIsUnderWay(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.enqueue("slow")
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultDelay, Delay: 10 * time.Second})
		stop := w.run()
		time.Sleep(time.Second)
		w.enqueue("next")
		time.Sleep(9 * time.Second)
		synctest.Wait()
		require.Equal(t, 1, w.srv.Effects("next"), "right after the pass, not a minute later")
		require.NoError(t, stop())
	})
}

func TestRunDeliversForAnotherClientOfTheKeystore(t *testing.T) {
	inResumeWorld(t, idem.Options{Scope: "s"}, func(t *testing.T, w *resumeWorld) {
		other, err := idem.New(w.ks, &w.opts)
		require.NoError(t, err)
		defer other.Close()
		stop := w.run()
		_, err = other.Enqueue(resumeReq(context.Background(), "a"))
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, 1, w.srv.Effects("a"))
		require.NoError(t, stop())
	})
}

func TestRunWakesAtRetryAt(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultRateLimit, RetryAfter: 20 * time.Second})
		w.enqueue("a")
		began := time.Now()
		stop := w.run()
		require.Equal(t, began.Add(20*time.Second).UTC(), w.entry("a").RetryAt.UTC())
		time.Sleep(20*time.Second - time.Millisecond)
		synctest.Wait()
		require.Equal(t, 1, w.sent())
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, 1, w.srv.Effects("a"))
		require.NoError(t, stop())
	})
}

func TestRunWakesAtARetryAtThatADoLeft(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.lose("a")
		stop := w.run()
		require.Equal(t, 1, w.srv.Effects("a"))
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultStatus, Status: 503, RetryAfter: 10 * time.Second})
		_, err := w.do("b")
		require.Error(t, err)
		time.Sleep(10*time.Second + time.Millisecond)
		synctest.Wait()
		require.Equal(t, 1, w.srv.Effects("b"))
		require.NoError(t, stop())
	})
}

// The pauses double from a second, each with half of it as jitter either way.
func TestRunComesBackToWhatItLeftAfterPausesThatGrow(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultReset, Times: -1})
		w.enqueue("a")
		stop := w.run()
		require.Equal(t, 1, w.sent())
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		require.InDelta(t, 10, w.sent(), 4)
		require.NoError(t, stop())
	})
}

func TestRunDoesNotHammerWhatItLeftWhenOtherWorkArrives(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultReset})
		w.enqueue("left")
		stop := w.run()
		for i := range 50 {
			w.enqueue(fmt.Sprint("n", i))
			time.Sleep(time.Millisecond)
		}
		require.Zero(t, w.srv.Effects("left"), "no wake-up shortens its pause")
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, 1, w.srv.Effects("left"))
		require.Equal(t, 52, w.sent())
		require.NoError(t, stop())
	})
}

// The wait that a provider asked for may be over while the breaker is open.
func TestRunSleepsThroughAnOpenBreaker(t *testing.T) {
	var passes resumeLog
	trace := &idem.Trace{Ended: func(_ context.Context, e idem.Entry, _ error) {
		passes.add(e.Intent)
		if len(passes.all()) > 200 {
			panic("Run spins")
		}
	}}
	opts := idem.Options{
		Trace: trace, Resume: idem.ResumeOptions{Concurrency: 1},
		Breaker: idem.BreakerPolicy{MinRequests: 2, OpenFor: 10 * time.Minute},
	}
	inResumeWorld(t, opts, func(t *testing.T, w *resumeWorld) {
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultRateLimit, RetryAfter: 30 * time.Second},
			mockserver.Fault{Kind: mockserver.FaultStatus, Status: 503, Times: 4})
		w.enqueue("told-to-wait")
		stop := w.run()
		for i := range 4 {
			w.enqueue(fmt.Sprint("n", i))
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		require.Less(t, len(passes.all()), 50)
		require.Zero(t, w.srv.Effects("told-to-wait"))
		w.srv.Heal()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		require.Equal(t, 1, w.srv.Effects("told-to-wait"))
		require.NoError(t, stop())
	})
}

func TestRunEndsWithItsContextAndInterruptsWhatIsUnderWay(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.enqueue("a")
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultHang})
		stop := w.run()
		require.NoError(t, stop())
		e := w.entry("a")
		require.Equal(t, idem.StatePending, e.State)
		require.NotEmpty(t, e.LastError)
		require.False(t, e.FirstSent.IsZero())

		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		require.NoError(t, w.c.Run(ctx), "also if it has ended before")
		require.Equal(t, 1, w.sent())
	})
}

func TestRunEndsWithClose(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		ended := make(chan error, 1)
		go func() { ended <- w.c.Run(context.Background()) }()
		synctest.Wait()
		require.NoError(t, w.c.Close())
		require.ErrorIs(t, <-ended, idem.ErrClosed)
		require.ErrorIs(t, w.c.Run(context.Background()), idem.ErrClosed)
	})
}

func TestRunEndsWithAnErrorOfTheJournal(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		ended := make(chan error, 1)
		go func() { ended <- w.c.Run(context.Background()) }()
		synctest.Wait()
		require.NoError(t, w.ks.Close())
		err := <-ended
		require.ErrorIs(t, err, idem.ErrClosed)
	})
}

func TestRefusalsUnderRun(t *testing.T) {
	for status, stays := range map[int]bool{
		401: true, 407: true, 429: true,
		403: false, 411: false, 413: false, 414: false, 431: false, 400: false, 422: false,
	} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
				w.srv.Script(mockserver.Fault{Kind: mockserver.FaultStatus, Status: status})
				w.enqueue("a")
				stop := w.run()
				e := w.entry("a")
				if !stays {
					require.Equal(t, idem.StateSettled, e.State)
					require.Equal(t, idem.FateNotDone, e.Fate)
					require.Equal(t, status, e.Status)
					resp, err := e.Response(context.Background())
					require.NoError(t, err)
					require.Equal(t, status, resp.StatusCode)
					require.NoError(t, stop())
					return
				}
				require.Equal(t, idem.StatePending, e.State)
				require.NotEmpty(t, e.LastError)
				require.True(t, e.FirstSent.IsZero(), "refused at the door, with nothing before")
				time.Sleep(time.Minute + time.Second)
				synctest.Wait()
				require.Equal(t, 1, w.srv.Effects("a"))
				require.NoError(t, stop())
			})
		})
	}
}

func TestTheSettledHookIsToldUntilItReturnsNil(t *testing.T) {
	var told resumeLog
	fail := true
	hook := func(_ context.Context, e idem.Entry) error {
		told.add(fmt.Sprint(e.Intent, " ", e.State, " ", e.Fate, " ", e.Status))
		if fail {
			return errors.New("not now")
		}
		return nil
	}
	inResumeWorld(t, idem.Options{Settled: hook}, func(t *testing.T, w *resumeWorld) {
		w.enqueue("a")
		require.Equal(t, idem.Report{Done: 1}, w.resume())
		require.Len(t, told.all(), 1)
		w.resume()
		require.Len(t, told.all(), 2)
		w.restart(nil)
		w.resume()
		require.Len(t, told.all(), 3)
		fail = false
		w.crash()
		stop := w.run()
		time.Sleep(time.Hour)
		require.NoError(t, stop())
		w.resume()
		require.Len(t, told.all(), 4, "once it took it, never again")
		for _, line := range told.all() {
			require.Equal(t, "a Settled Done 201", line)
		}
	})
}

func TestTheSettledHookHearsWhatNoDoReturned(t *testing.T) {
	var told resumeLog
	hook := func(_ context.Context, e idem.Entry) error { told.add(fmt.Sprint(e.Intent, e.Fate)); return nil }
	inResumeWorld(t, idem.Options{Settled: hook}, func(t *testing.T, w *resumeWorld) {
		_, err := w.do("returned")
		require.NoError(t, err)
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultFail, Status: 422})
		_, err = w.do("refused")
		require.NoError(t, err)
		w.lose("later")
		_, err = w.do("later")
		require.NoError(t, err)
		w.enqueue("joined")
		_, err = w.do("joined")
		require.NoError(t, err)
		w.resume()
		require.Empty(t, told.all(), "Do returned all of these")

		w.lose("resumed", "settled", "given-up")
		require.NoError(t, w.c.Settle(context.Background(), w.entry("settled").Key, idem.Finding{Fate: idem.FateNotDone}))
		require.Equal(t, []string{"settled" + fmt.Sprint(idem.FateNotDone)}, told.all())
		require.NoError(t, w.c.Abandon(context.Background(), w.entry("given-up").Key, "enough"))
		w.resume()
		require.Equal(t, []string{"settled" + fmt.Sprint(idem.FateNotDone), "resumed" + fmt.Sprint(idem.FateDone)}, told.all())
		require.Equal(t, 1, w.srv.Effects("joined"))
	})
}

func TestTheSettledHookOfARestartedClientHearsWhatACrashKeptFromIt(t *testing.T) {
	var told resumeLog
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.restart(func(o *idem.Options) {
			o.Settled = func(context.Context, idem.Entry) error {
				w.ks.Close() // the process dies in the hook
				return nil
			}
		})
		w.enqueue("a")
		_, err := w.c.Resume(context.Background(), nil)
		_ = err
		w.c.Close()
		w.opts.Settled = func(_ context.Context, e idem.Entry) error { told.add(e.Intent); return nil }
		w.open()
		w.resume()
		require.Equal(t, []string{"a"}, told.all())
		require.Equal(t, 1, w.sent())
	})
}

func TestASettledHookMayUseTheClient(t *testing.T) {
	var w0 *resumeWorld
	hook := func(ctx context.Context, e idem.Entry) error {
		if e.Intent == "a" {
			req := resumeReq(idem.WithIntent(ctx, "follow-up"), "follow-up")
			if _, err := w0.c.Enqueue(req); err != nil {
				return err
			}
			_, err := w0.c.Do(resumeReq(ctx, "a-again")) // must not take the name
			return err
		}
		return nil
	}
	inResumeWorld(t, idem.Options{Settled: hook}, func(t *testing.T, w *resumeWorld) {
		w0 = w
		w.enqueue("a")
		stop := w.run()
		synctest.Wait()
		require.NoError(t, stop())
		require.Equal(t, 1, w.srv.Effects("follow-up"))
		require.Equal(t, 1, w.srv.Effects("a-again"))
		require.Equal(t, 1, w.srv.Effects("a"))
	})
}
