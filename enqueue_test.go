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

func TestWhatIsEnqueuedSurvivesACrash(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		key := w.enqueue("a")
		e := w.entry("a")
		require.Equal(t, key, e.Key)
		require.True(t, e.Enqueued)
		require.True(t, e.FirstSent.IsZero(), "nothing was sent")
		w.crash()
		time.Sleep(48 * time.Hour) // no window runs before the first send
		require.Equal(t, idem.Report{Done: 1}, w.resume())
		require.Equal(t, []string{string(key)}, w.srv.Keys("a"))
	})
}

func TestAnAnonymousQueuedIntentIsFoundByItsKey(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		key, err := w.c.Enqueue(resumeReq(context.Background(), "anon"))
		require.NoError(t, err)
		require.NotEmpty(t, key)
		w.resume()
		for range 29 {
			time.Sleep(24 * time.Hour)
			w.resume()
		}
		e, err := w.c.LookupKey(context.Background(), key)
		require.NoError(t, err)
		require.Equal(t, idem.FateDone, e.Fate)
		resp, err := w.c.Do(resumeReq(idem.WithKey(context.Background(), key), "anon"))
		require.NoError(t, err)
		require.Equal(t, 201, resp.StatusCode)
		require.Equal(t, 1, w.sent())
	})
}

func TestTwoEqualAnonymousRequestsAreTwoQueuedIntents(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		one, err := w.c.Enqueue(resumeReq(context.Background(), "x"))
		require.NoError(t, err)
		two, err := w.c.Enqueue(resumeReq(context.Background(), "x"))
		require.NoError(t, err)
		require.NotEqual(t, one, two)
		require.Equal(t, idem.Report{Done: 2}, w.resume())
	})
}

func TestEnqueueRefusesARequestEqualToOneInDoubt(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultReset})
		_, err := w.c.Do(resumeReq(context.Background(), "x"))
		key := resumeError(t, err).Key
		got, err := w.c.Enqueue(resumeReq(context.Background(), "x"))
		require.ErrorIs(t, err, idem.ErrInDoubt)
		require.Equal(t, key, resumeError(t, err).Key)
		require.Equal(t, key, got)
	})
}

func TestEnqueueJoinsAPendingName(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.lose("a")
		key := w.entry("a").Key
		require.Equal(t, key, w.enqueue("a"))
		require.Equal(t, key, w.enqueue("a"))
		require.True(t, w.entry("a").Enqueued)
		require.Equal(t, idem.Report{Done: 1}, w.resume())
	})
}

func TestEnqueueOfAnotherPayloadIsAMismatch(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		key := w.enqueue("a")
		_, err := w.c.Enqueue(resumeReq(resumeNamed("a"), "other"))
		require.ErrorIs(t, err, idem.ErrMismatch)
		e := resumeError(t, err)
		require.Equal(t, idem.FateUnknown, e.Fate)
		require.Equal(t, key, e.Key)
		require.Contains(t, err.Error(), "POST http://api.example/v1/payments")
	})
}

func TestEnqueueOfASettledNameReturnsItsFate(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		_, err := w.do("done")
		require.NoError(t, err)
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultFail, Status: 422})
		_, err = w.do("refused")
		require.NoError(t, err)
		for name, fate := range map[string]idem.Fate{"done": idem.FateDone, "refused": idem.FateNotDone} {
			key, err := w.c.Enqueue(resumeReq(resumeNamed(name), name))
			require.ErrorIs(t, err, idem.ErrSettled)
			require.Equal(t, fate, resumeError(t, err).Fate)
			require.Equal(t, w.entry(name).Key, key)
		}
		require.Equal(t, 2, w.sent())
		require.Equal(t, idem.Report{}, w.resume())

		old := w.entry("refused").Key
		key, err := w.c.Enqueue(resumeReq(resumeNamed("refused"), "mended"))
		require.NoError(t, err, "a changed payload may follow a NotDone")
		require.NotEqual(t, old, key)
		require.Equal(t, old, w.entry("refused").Parent)
		require.Equal(t, idem.Report{Done: 1}, w.resume())
	})
}

func TestEnqueueOfAnAbandonedOrAmbiguousNameSaysSo(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.lose("abandoned", "late")
		require.NoError(t, w.c.Abandon(context.Background(), w.entry("abandoned").Key, "why not"))
		time.Sleep(25 * time.Hour)
		w.resume()
		for name, want := range map[string]error{"abandoned": idem.ErrAbandoned, "late": idem.ErrWindowClosed} {
			key, err := w.c.Enqueue(resumeReq(resumeNamed(name), name))
			require.ErrorIs(t, err, want)
			require.Equal(t, idem.FateUnknown, resumeError(t, err).Fate)
			require.Equal(t, w.entry(name).Key, key)
		}
		require.Equal(t, 2, w.sent())
	})
}

func TestEnqueueWithCredentialsNeedsAuthorize(t *testing.T) {
	request := func() *http.Request {
		req := resumeReq(resumeNamed("a"), "a")
		req.Header.Set("Authorization", "Bearer secret")
		return req
	}
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		_, err := w.c.Enqueue(request())
		require.ErrorIs(t, err, idem.ErrCredentials)
		require.Equal(t, idem.FateNotDone, resumeError(t, err).Fate)
		require.NotContains(t, err.Error(), "secret")
		_, err = w.c.Lookup(context.Background(), "a")
		require.ErrorIs(t, err, idem.ErrNotFound)

		w.restart(func(o *idem.Options) {
			o.Authorize = func(r *http.Request) error { r.Header.Set("Authorization", "Bearer fresh"); return nil }
		})
		_, err = w.c.Enqueue(request())
		require.NoError(t, err)
		require.Equal(t, idem.Report{Done: 1}, w.resume())
		require.Equal(t, "Bearer fresh", w.srv.Requests()[0].Header.Get("Authorization"))
	})
}

func TestADoNeverWithdrawsWhatEnqueueTook(t *testing.T) {
	faults := map[string]mockserver.Fault{
		"refused dial": {Kind: mockserver.FaultRefuse},
		"401":          {Kind: mockserver.FaultStatus, Status: 401},
		"403":          {Kind: mockserver.FaultStatus, Status: 403},
		"429":          {Kind: mockserver.FaultRateLimit},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
				key := w.enqueue("a")
				w.srv.Script(fault)
				resp, err := w.do("a")
				require.Nil(t, resp, "a *Error, also for a refusal at the door")
				require.Equal(t, idem.FateUnknown, resumeError(t, err).Fate)
				e := w.entry("a")
				require.Equal(t, key, e.Key)
				require.Equal(t, idem.StatePending, e.State)
				require.NotEmpty(t, e.LastError)
				require.True(t, e.FirstSent.IsZero(), "nothing reached processing")
				time.Sleep(time.Hour)
				require.Equal(t, idem.Report{Done: 1}, w.resume())
				require.Equal(t, 1, w.srv.Effects("a"))
				require.Len(t, w.srv.Keys("a"), 1)
			})
		})
	}
}

func TestEnqueueJoinsADoThatWouldWithdraw(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultStatus, Status: 403, Delay: 10 * time.Second})
		ended := make(chan error, 1)
		go func() { _, err := w.do("a"); ended <- err }()
		synctest.Wait()
		key := w.enqueue("a")
		err := <-ended
		require.Equal(t, idem.FateUnknown, idem.FateOf(nil, err))
		require.Equal(t, key, w.entry("a").Key)
		require.Equal(t, idem.Report{Done: 1}, w.resume())
	})
}

// WithExpiry binds the call that has it, not the queue that it joins.
func TestADoWhoseTimeIsOverLeavesTheQueuedIntent(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.enqueue("a")
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultRefuse})
		ctx := idem.WithExpiry(resumeNamed("a"), time.Now().Add(time.Millisecond))
		time.Sleep(time.Second)
		_, err := w.c.Do(resumeReq(ctx, "a"))
		require.ErrorIs(t, err, idem.ErrExpired)
		require.Equal(t, idem.FateUnknown, resumeError(t, err).Fate)
		require.Equal(t, idem.StatePending, w.entry("a").State)
		w.srv.Heal()
		require.Equal(t, idem.Report{Done: 1}, w.resume())
	})
}

func TestAQueuedIntentThatExpiresUnsentIsNotDone(t *testing.T) {
	var told resumeLog
	hook := func(_ context.Context, e idem.Entry) error { told.add(e.Intent + " " + e.Fate.String()); return nil }
	inResumeWorld(t, idem.Options{Settled: hook}, func(t *testing.T, w *resumeWorld) {
		ctx := idem.WithExpiry(resumeNamed("a"), time.Now().Add(time.Hour))
		_, err := w.c.Enqueue(resumeReq(ctx, "a"))
		require.NoError(t, err)
		w.crash()
		time.Sleep(2 * time.Hour)
		require.Equal(t, idem.Report{NotDone: 1}, w.resume())
		require.Zero(t, w.sent())
		require.Equal(t, []string{"a " + idem.FateNotDone.String()}, told.all())
		_, err = w.do("a")
		require.ErrorIs(t, err, idem.ErrExpired)
		require.Equal(t, idem.FateNotDone, resumeError(t, err).Fate)
		require.Zero(t, w.sent())
	})
}

func TestAQueuedIntentThatExpiresAfterALostSendIsUnknown(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		ctx := idem.WithExpiry(resumeNamed("a"), time.Now().Add(time.Hour))
		_, err := w.c.Enqueue(resumeReq(ctx, "a"))
		require.NoError(t, err)
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultDrop})
		w.resume()
		time.Sleep(2 * time.Hour)
		_, heard := w.eachError(idem.Report{Unknown: 1})
		require.ErrorIs(t, heard, idem.ErrExpired)
		require.Equal(t, 1, w.sent())
		require.Equal(t, idem.StateAmbiguous, w.entry("a").State)
	})
}

func TestEnqueueTakesOnlyIntents(t *testing.T) {
	skip := func(r *http.Request) bool { return r.Header.Get("X-Upload") != "" }
	inResumeWorld(t, idem.Options{Skip: skip}, func(t *testing.T, w *resumeWorld) {
		get, err := http.NewRequest("GET", "http://api.example/v1", nil)
		require.NoError(t, err)
		upload := resumeReq(context.Background(), "x")
		upload.Header.Set("X-Upload", "1")
		for _, req := range []*http.Request{get, upload, nil} {
			_, err := w.c.Enqueue(req)
			require.ErrorIs(t, err, idem.ErrInvalid)
			require.Equal(t, idem.FateNotDone, resumeError(t, err).Fate)
		}
		require.Zero(t, w.sent())
	})
}
