package idem_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
)

func TestResumeDrivesEachEntryOnceAndOldestFirst(t *testing.T) {
	inResumeWorld(t, idem.Options{Resume: idem.ResumeOptions{Concurrency: 1}}, func(t *testing.T, w *resumeWorld) {
		w.lose("a", "b", "c")
		w.srv.Script(mockserver.Fault{}, mockserver.Fault{Kind: mockserver.FaultReset}, mockserver.Fault{})
		require.Equal(t, idem.Report{Done: 2, Unknown: 1}, w.resume())
		require.Equal(t, []string{"a", "b", "c", "a", "b", "c"}, w.values())
		require.Equal(t, idem.Report{Done: 1}, w.resume())
		require.Equal(t, idem.Report{}, w.resume())
		require.Equal(t, 7, w.sent())
		for _, v := range []string{"a", "b", "c"} {
			require.Equal(t, 1, w.srv.Effects(v))
			require.Len(t, w.srv.Keys(v), 1)
			require.Len(t, w.srv.Bodies(v), 1)
		}
	})
}

func TestResumeCountsARefusalAsNotDone(t *testing.T) {
	inResumeWorld(t, idem.Options{Dialect: idem.Dialect{KeyFirst: true}}, func(t *testing.T, w *resumeWorld) {
		w.lose("a")
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultFail, Status: 422})
		require.Equal(t, idem.Report{NotDone: 1}, w.resume())
		resp, err := w.do("a")
		require.NoError(t, err)
		require.Equal(t, 422, resp.StatusCode)
		require.Equal(t, idem.FateNotDone, idem.FateOf(resp, err))
	})
}

func TestResumeKeepsToItsConcurrency(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		var names []string
		for i := range 9 {
			names = append(names, fmt.Sprint("n", i))
		}
		w.lose(names...)
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultDelay, Delay: 10 * time.Second, Times: 9})
		began := time.Now()
		r, err := w.c.Resume(context.Background(), &idem.ResumeOptions{Concurrency: 3})
		require.NoError(t, err)
		require.Equal(t, idem.Report{Done: 9}, r)
		require.Equal(t, 30*time.Second, time.Since(began), "three rounds of three")
	})
}

func TestResumeDrivesFourAtOnceByDefault(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.lose("a", "b", "c", "d", "e")
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultDelay, Delay: 10 * time.Second, Times: 5})
		began := time.Now()
		w.resume()
		require.Equal(t, 20*time.Second, time.Since(began))
	})
}

func TestResumeKeepsToItsRate(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.lose("a", "b", "c", "d", "e")
		began := time.Now()
		_, err := w.c.Resume(context.Background(), &idem.ResumeOptions{Concurrency: 5, Rate: 0.5})
		require.NoError(t, err)
		require.Equal(t, 8*time.Second, time.Since(began), "one at once, then one every two seconds")
	})
}

func TestWhatIsSkippedTakesNoneOfTheRate(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		for _, name := range []string{"a", "b", "c"} {
			w.enqueue(name)
		}
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultRateLimit, RetryAfter: 12 * time.Hour, Times: 3})
		w.resume()
		time.Sleep(time.Second)
		w.lose("d")
		began := time.Now()
		r, err := w.c.Resume(context.Background(), &idem.ResumeOptions{Rate: 0.1})
		require.NoError(t, err)
		require.Equal(t, idem.Report{Done: 1, Skipped: 3}, r)
		require.Less(t, time.Since(began), 10*time.Second, "Rate is for entries begun, and three were only looked at")
	})
}

func TestEachIsCalledOneAtATimeForEveryEntry(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.lose("a", "b", "c", "d")
		w.srv.Script(mockserver.Fault{}, mockserver.Fault{}, mockserver.Fault{}, mockserver.Fault{Kind: mockserver.FaultReset})
		var inside sync.Mutex
		heard := map[string]int{}
		var failures int
		_, err := w.c.Resume(context.Background(), &idem.ResumeOptions{Concurrency: 4, Each: func(e idem.Entry, err error) {
			require.True(t, inside.TryLock(), "two calls of Each overlap")
			defer inside.Unlock()
			runtime.Gosched()
			heard[e.Intent]++
			if err != nil {
				failures++
				require.Equal(t, idem.StatePending, e.State)
			} else {
				require.Equal(t, idem.StateSettled, e.State)
				require.Equal(t, idem.FateDone, e.Fate)
			}
		}})
		require.NoError(t, err)
		require.Equal(t, map[string]int{"a": 1, "b": 1, "c": 1, "d": 1}, heard)
		require.Equal(t, 1, failures)
	})
}

func TestEachHearsNoErrorOfAnEntryThatIsSettledWithoutAnAnswer(t *testing.T) {
	hook := func(context.Context, idem.Entry) (idem.Finding, error) {
		return idem.Finding{Fate: idem.FateDone}, nil
	}
	inResumeWorld(t, idem.Options{Reconcile: hook}, func(t *testing.T, w *resumeWorld) {
		w.lose("a")
		time.Sleep(25 * time.Hour)
		var heard error
		_, err := w.c.Resume(context.Background(), &idem.ResumeOptions{Each: func(e idem.Entry, err error) {
			require.Equal(t, idem.StateSettled, e.State)
			heard = err
		}})
		require.NoError(t, err)
		require.NoError(t, heard, "the error says why an entry isn't settled, nil if it is")
	})
}

func TestResumeLeavesOtherScopesAlone(t *testing.T) {
	inResumeWorld(t, idem.Options{Scope: "one"}, func(t *testing.T, w *resumeWorld) {
		other := w.opts
		other.Scope = "two"
		c2, err := idem.New(w.ks, &other)
		require.NoError(t, err)
		defer c2.Close()
		w.lose("a")
		before, err := c2.Resume(context.Background(), nil)
		require.NoError(t, err)
		require.Equal(t, idem.Report{}, before)
		require.Equal(t, 1, w.sent())
		require.Equal(t, idem.Report{Done: 1}, w.resume())
	})
}

func TestResumeSkipsWhatHasADriverAndWhatIsNotDue(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.enqueue("later")
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultRateLimit, RetryAfter: time.Hour})
		require.Equal(t, idem.Report{Unknown: 1}, w.resume())
		require.Equal(t, time.Now().Add(time.Hour).UTC(), w.entry("later").RetryAt.UTC())

		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultDelay, Delay: 10 * time.Second})
		done := make(chan error, 1)
		go func() { _, err := w.do("driven"); done <- err }()
		synctest.Wait()
		require.Equal(t, idem.Report{Skipped: 2}, w.resume())
		require.NoError(t, <-done)
		require.Equal(t, 2, w.sent())

		time.Sleep(time.Hour)
		require.Equal(t, idem.Report{Done: 1}, w.resume())
	})
}

// The walk reads entries ahead. What it read may be old when a worker takes it up.
func TestResumeKeepsARetryAtThatCameWhileTheEntryWaitedForAWorker(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.lose("slow", "other")
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultDelay, Delay: 20 * time.Second})
		ended := make(chan idem.Report, 1)
		go func() {
			r, _ := w.c.Resume(context.Background(), &idem.ResumeOptions{Concurrency: 1})
			ended <- r
		}()
		synctest.Wait()
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultRateLimit, RetryAfter: time.Hour})
		_, err := w.do("other")
		require.Error(t, err)
		due := w.entry("other").RetryAt
		require.False(t, due.IsZero())
		require.Equal(t, idem.Report{Done: 1, Skipped: 1}, <-ended)
		require.Equal(t, due, w.entry("other").RetryAt)
		require.Zero(t, w.srv.Effects("other"), "sent before RetryAt")
	})
}

func TestAResumedCallAnswersTheDoThatWaitsForIt(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.lose("a")
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultDelay, Delay: 10 * time.Second})
		report := make(chan idem.Report, 1)
		go func() { r, _ := w.c.Resume(context.Background(), nil); report <- r }()
		synctest.Wait()
		resp, err := w.do("a")
		require.NoError(t, err)
		r, ok := idem.ResultOf(resp)
		require.True(t, ok)
		require.True(t, r.Recalled)
		require.Equal(t, idem.Report{Done: 1}, <-report)
		require.Equal(t, 2, w.sent())
	})
}

func TestADoThatWaitsForAFailedResumeGoesOnItself(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.lose("a")
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultReset, Delay: 10 * time.Second})
		report := make(chan idem.Report, 1)
		go func() { r, _ := w.c.Resume(context.Background(), nil); report <- r }()
		synctest.Wait()
		resp, err := w.do("a")
		require.NoError(t, err)
		require.Equal(t, 201, resp.StatusCode)
		require.Equal(t, idem.Report{Unknown: 1}, <-report)
		require.Equal(t, 1, w.srv.Effects("a"))
		require.Len(t, w.srv.Keys("a"), 1)
	})
}

func TestResumeStopsWhenItsContextEnds(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.lose("a", "b", "c")
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultDelay, Delay: 20 * time.Second})
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		r, err := w.c.Resume(ctx, &idem.ResumeOptions{Concurrency: 1})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, idem.Report{Unknown: 1}, r)
		require.Equal(t, 4, w.sent(), "nothing is begun after the end")
		require.Equal(t, idem.StatePending, w.entry("a").State)
		require.NotEmpty(t, w.entry("a").LastError)

		gone, cancelNow := context.WithCancelCause(context.Background())
		cancelNow(errors.New("enough"))
		_, err = w.c.Resume(gone, nil)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 4, w.sent())
		time.Sleep(time.Minute) // the provider ends what it had begun
		require.Equal(t, idem.Report{Done: 3}, w.resume())
	})
}

func TestResumeFindsAnAnonymousRequestAfterACrash(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultHang})
		done := make(chan error, 1)
		go func() { _, err := w.c.Do(resumeReq(context.Background(), "anon")); done <- err }()
		synctest.Wait()
		w.crash()
		err := <-done
		require.Equal(t, idem.FateUnknown, idem.FateOf(nil, err))
		require.Equal(t, idem.Report{Done: 1}, w.resume())
		require.Equal(t, 1, w.srv.Effects("anon"))
		require.Len(t, w.srv.Keys("anon"), 1)
	})
}

func TestAPassOverManyEntriesRepeatsNone(t *testing.T) {
	inResumeWorld(t, idem.Options{Retry: idem.RetryPolicy{MaxAttempts: 1, NoBudget: true}}, func(t *testing.T, w *resumeWorld) {
		const n = 150 // more than a scan fetches at a time
		for i := range n {
			w.enqueue(fmt.Sprint("n", i))
		}
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultReset, Times: n / 2})
		r := w.resume()
		require.Equal(t, idem.Report{Done: n - n/2, Unknown: n / 2}, r)
		require.Equal(t, n, w.sent())
	})
}

func TestResumeOptionsOutOfRangeAreInvalid(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		for _, o := range []idem.ResumeOptions{{Concurrency: -1}, {Rate: -1}, {Rate: 1e10}} {
			_, err := w.c.Resume(context.Background(), &o)
			require.ErrorIs(t, err, idem.ErrInvalid)
		}
	})
}
