package idem_test

import (
	"context"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
)

// What a client promises, a test each; then what Do returns, a test for each kind of
// return. A call is named "order" and is one attempt, unless a test says otherwise;
// other files have the same in every variation.

func TestAnIntentIsDurableBeforeItsFirstByteLeaves(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		var key, crashed string
		w.restart(func(o *idem.Options) {
			o.Base = idBase(func(req *http.Request) (*http.Response, error) {
				key, crashed = req.Header.Get("Idempotency-Key"), w.copyNow()
				return w.srv.Transport().RoundTrip(req)
			})
		})
		_, err := w.do("order")
		require.NoError(t, err)
		e, err := w.openCopy(crashed).Lookup(context.Background(), "order")
		require.NoError(t, err)
		require.Equal(t, idem.StatePending, e.State)
		require.Equal(t, idem.Key(key), e.Key)
	})
}

func TestAResultIsDurableBeforeDoReturnsIt(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		first, err := w.do("order")
		require.NoError(t, err)
		again, err := w.openCopy(w.copyNow()).Do(resumeReq(resumeNamed("order"), "order"))
		require.True(t, answers(t, again, err, idem.FateDone, http.StatusCreated).Recalled)
		require.Equal(t, bodyOf(t, first), bodyOf(t, again))
		require.Equal(t, 1, w.sent())
	})
}

func TestEveryAttemptOfAnIntentCarriesTheSameKeyAndBytes(t *testing.T) {
	inResumeWorld(t, idem.Options{Retry: idem.RetryPolicy{MaxAttempts: 2}}, func(t *testing.T, w *resumeWorld) {
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultReset, Times: 6})
		_, err := w.do("order") // retries
		require.Error(t, err)
		w.restart(nil)
		require.Equal(t, 1, w.resume().Unknown)
		w.crash()
		var calls sync.WaitGroup
		for range 3 { // at once
			calls.Go(func() { _, _ = w.do("order") })
		}
		calls.Wait()
		require.Greater(t, w.sent(), 6)
		require.Len(t, w.srv.Keys("order"), 1)
		require.Len(t, w.srv.Bodies("order"), 1)
		require.Equal(t, 1, w.srv.Effects("order"))
	})
}

func TestNothingIsSentByItselfOnceTheProviderMayHaveForgottenTheKey(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.lose("order")
		time.Sleep(25 * time.Hour)
		require.Equal(t, idem.Report{Unknown: 1}, w.resume())
		require.Equal(t, idem.StateAmbiguous, w.entry("order").State)
		require.Equal(t, 1, w.sent())
	})
}

// The answers that mislead most: no whole answer, one from in front of the provider, a
// refusal behind a lost answer.
func TestEveryReturnSaysWhetherItHappenedAndNeverGuesses(t *testing.T) {
	for name, script := range map[string][]mockserver.Fault{
		"nothing": {}, "refused": {denied}, "at the door": {atGate}, "refused dial": {{Kind: mockserver.FaultRefuse}},
		"lost before": {{Kind: mockserver.FaultReset}}, "lost after": {lost}, "hangs": {{Kind: mockserver.FaultHang}},
		"cut": {{Kind: mockserver.FaultCut}}, "503": {{Kind: mockserver.FaultStatus}},
		"503 after":          {{Kind: mockserver.FaultStatus, After: true}},
		"lost, then refused": {lost, denied}, "lost, then at the door": {lost, atGate},
		"lost, then refused dial": {lost, {Kind: mockserver.FaultRefuse}},
	} {
		t.Run(name, func(t *testing.T) {
			retry := idem.RetryPolicy{MaxAttempts: max(len(script), 1)}
			inResumeWorld(t, idem.Options{Retry: retry}, func(t *testing.T, w *resumeWorld) {
				w.srv.Script(script...)
				resp, err := w.do("order")
				switch idem.FateOf(resp, err) {
				case idem.FateDone:
					require.Equal(t, 1, w.srv.Effects("order"))
				case idem.FateNotDone:
					w.resume() // whatever is left to send
					require.Zero(t, w.srv.Effects("order"))
				default:
					w.resume()
					require.Equal(t, idem.FateDone, w.entry("order").Fate, "it can be found out")
				}
			})
		})
	}
}

func TestFateNeverGoesDown(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		_, err := w.do("order")
		require.NoError(t, err)
		err = w.c.Settle(context.Background(), w.entry("order").Key, idem.Finding{Fate: idem.FateNotDone})
		require.Error(t, err)
		require.Equal(t, idem.FateDone, w.entry("order").Fate)

		w.srv.Script(lost, denied)
		for range 2 {
			resp, err := w.do("unclear")
			require.Equal(t, idem.FateUnknown, idem.FateOf(resp, err), "a refusal proves nothing of what was sent before")
		}
	})
}

func TestDoReturnsTheAnswerOfWhatIsDone(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		resp, err := w.do("order")
		r := answers(t, resp, err, idem.FateDone, http.StatusCreated)
		require.Equal(t, 1, r.Attempts)
		require.Contains(t, bodyOf(t, resp), `"id":"order"`)
		require.Equal(t, idem.StateSettled, w.entry("order").State)
	})
}

func TestDoReturnsARefusalWhichSettlesTheName(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.srv.Script(denied)
		resp, err := w.do("order")
		answers(t, resp, err, idem.FateNotDone, 402)
		require.Equal(t, idem.StateSettled, w.entry("order").State)
	})
}

func TestDoReturnsARefusalAtTheDoorAndFreesTheName(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.srv.Script(atGate)
		resp, err := w.do("order")
		answers(t, resp, err, idem.FateNotDone, 401)
		_, err = w.c.Lookup(context.Background(), "order")
		require.ErrorIs(t, err, idem.ErrNotFound)
		resp, err = w.do("order")
		answers(t, resp, err, idem.FateDone, http.StatusCreated)
	})
}

func TestALostAnswerIsUnknownUntilTheNextDo(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.srv.Script(lost)
		resp, err := w.do("order")
		fails(t, resp, err, idem.FateUnknown, io.EOF)
		require.Equal(t, idem.StatePending, w.entry("order").State)
		resp, err = w.do("order")
		require.True(t, answers(t, resp, err, idem.FateDone, http.StatusCreated).Replayed)
		require.Equal(t, 1, w.srv.Effects("order"))
	})
}

func TestASettledNameIsRecalledWithoutNetwork(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		first, err := w.do("order")
		require.NoError(t, err)
		w.crash()
		again, err := w.do("order")
		require.True(t, answers(t, again, err, idem.FateDone, http.StatusCreated).Recalled)
		require.Equal(t, bodyOf(t, first), bodyOf(t, again))
		require.Equal(t, 1, w.sent())
	})
}

func TestAResultPastKeepIsRecalledTrimmed(t *testing.T) {
	inResumeWorld(t, idem.Options{Keep: 48 * time.Hour}, func(t *testing.T, w *resumeWorld) {
		_, err := w.do("order")
		require.NoError(t, err)
		w.days(3)
		resp, err := w.do("order")
		require.True(t, answers(t, resp, err, idem.FateDone, http.StatusCreated).Trimmed)
		_, err = io.ReadAll(resp.Body)
		require.Error(t, err, "an empty body would look like an answer")
	})
}

func TestAnotherPayloadUnderANameIsAMismatch(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		_, err := w.do("order")
		require.NoError(t, err)
		resp, err := w.c.Do(resumeReq(resumeNamed("order"), "other"))
		fails(t, resp, err, idem.FateDone, idem.ErrMismatch)
		require.Empty(t, w.srv.Keys("other"))
	})
}

func TestAnAnonymousRequestEqualToOneLeftUnknownIsInDoubt(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.srv.Script(lost)
		resp, err := w.c.Do(resumeReq(context.Background(), "order"))
		left := fails(t, resp, err, idem.FateUnknown, io.EOF)
		resp, err = w.c.Do(resumeReq(context.Background(), "order"))
		require.Equal(t, left.Key, fails(t, resp, err, idem.FateUnknown, idem.ErrInDoubt).Key)
		require.Equal(t, 1, w.sent())
		resp, err = w.c.Do(resumeReq(idem.WithKey(context.Background(), left.Key), "order"))
		answers(t, resp, err, idem.FateDone, http.StatusCreated)
	})
}

func TestAnOpenCircuitSendsNothingAndSaysWhenToComeBack(t *testing.T) {
	breaker := idem.BreakerPolicy{MinRequests: 2, OpenFor: time.Minute}
	inResumeWorld(t, idem.Options{Breaker: breaker}, func(t *testing.T, w *resumeWorld) {
		w.srv.Script(down)
		for _, name := range []string{"a", "b"} {
			resp, err := w.do(name)
			fails(t, resp, err, idem.FateUnknown, idem.ErrExhausted)
		}
		resp, err := w.do("order")
		e := fails(t, resp, err, idem.FateNotDone, idem.ErrCircuitOpen)
		require.WithinDuration(t, time.Now().Add(time.Minute), e.RetryAt, time.Second)
		require.Empty(t, w.srv.Keys("order"))
	})
}

func TestPastTheWindowDoSendsNothing(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.lose("order")
		time.Sleep(25 * time.Hour)
		resp, err := w.do("order")
		fails(t, resp, err, idem.FateUnknown, idem.ErrWindowClosed)
		require.Equal(t, 1, w.sent())
	})
}

func TestPastItsExpiryDoSendsNothing(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		resp, err := w.c.Do(resumeReq(idem.WithExpiry(resumeNamed("order"), time.Now().Add(-time.Second)), "order"))
		fails(t, resp, err, idem.FateNotDone, idem.ErrExpired)
		require.Zero(t, w.sent())
	})
}

func TestAttemptsThatRunOutAreUnknownWithTheLastAnswer(t *testing.T) {
	inResumeWorld(t, idem.Options{Retry: idem.RetryPolicy{MaxAttempts: 3}}, func(t *testing.T, w *resumeWorld) {
		w.srv.Script(down)
		resp, err := w.do("order")
		e := fails(t, resp, err, idem.FateUnknown, idem.ErrExhausted)
		require.Equal(t, 3, e.Attempts)
		require.Equal(t, 503, e.Response.StatusCode)
	})
}

func TestASpentBudgetEndsTheRetries(t *testing.T) {
	retry := idem.RetryPolicy{MaxAttempts: 5000, BaseDelay: time.Microsecond, MaxDelay: time.Microsecond}
	inResumeWorld(t, idem.Options{Retry: retry}, func(t *testing.T, w *resumeWorld) {
		w.srv.Script(down)
		resp, err := w.do("order")
		fails(t, resp, err, idem.FateUnknown, idem.ErrBudget)
		require.Less(t, w.sent(), 5000)
	})
}

func TestWithoutAKeyALostAnswerIsTheLastAttempt(t *testing.T) {
	keyless, retry := idem.Dialect{Name: "keyless", Placement: idem.PlaceNone}, idem.RetryPolicy{MaxAttempts: 5}
	inResumeWorld(t, idem.Options{Dialect: keyless, Retry: retry}, func(t *testing.T, w *resumeWorld) {
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultReset})
		resp, err := w.do("order")
		fails(t, resp, err, idem.FateUnknown, idem.ErrUnkeyed)
		require.Equal(t, idem.StateAmbiguous, w.entry("order").State)
		require.Equal(t, 1, w.sent())
	})
}

func TestABodyThatIsTooLargeToJournalIsNotSent(t *testing.T) {
	inResumeWorld(t, idem.Options{MaxBody: 8}, func(t *testing.T, w *resumeWorld) {
		resp, err := w.do("order")
		fails(t, resp, err, idem.FateNotDone, idem.ErrBodyTooLarge)
		require.Zero(t, w.sent())
	})
}

func TestAnAbandonedNameIsNotSentAgain(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.lose("order")
		require.NoError(t, w.c.Abandon(context.Background(), w.entry("order").Key, "paid by hand"))
		resp, err := w.do("order")
		fails(t, resp, err, idem.FateUnknown, idem.ErrAbandoned)
		require.Equal(t, 1, w.sent())
	})
}

func TestWhatWasSettledWithoutAnAnswerIsAnErrorWithItsFate(t *testing.T) {
	for _, fate := range []idem.Fate{idem.FateDone, idem.FateNotDone} {
		inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
			w.lose("order")
			require.NoError(t, w.c.Settle(context.Background(), w.entry("order").Key, idem.Finding{Fate: fate}))
			resp, err := w.do("order")
			fails(t, resp, err, fate, idem.ErrSettled)
			require.Equal(t, 1, w.sent())
		})
	}
}

func TestAResendWithoutTheCredentialsOfTheFirstIsNotSent(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.srv.Script(lost)
		req := resumeReq(resumeNamed("order"), "order")
		req.Header.Set("Authorization", "Bearer secret")
		_, err := w.c.Do(req)
		require.Error(t, err)
		resp, err := w.do("order")
		fails(t, resp, err, idem.FateUnknown, idem.ErrCredentials)
		require.Equal(t, 1, w.sent())
	})
}

func TestAKeyOfAnotherAccountIsNotRecalled(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		keyed := idem.WithKey(context.Background(), "order-key")
		_, err := w.c.Do(resumeReq(idem.WithAccount(keyed, "north"), "order"))
		require.NoError(t, err)
		resp, err := w.c.Do(resumeReq(idem.WithAccount(keyed, "south"), "order"))
		fails(t, resp, err, idem.FateUnknown, idem.ErrAccountChanged)
		require.Equal(t, 1, w.sent())
	})
}

func TestAClosedClientCantSayMoreThanUnknownOfAName(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		require.NoError(t, w.c.Close())
		resp, err := w.do("order")
		fails(t, resp, err, idem.FateUnknown, idem.ErrClosed)
		resp, err = w.c.Do(resumeReq(context.Background(), "fresh"))
		fails(t, resp, err, idem.FateNotDone, idem.ErrClosed)
		require.Zero(t, w.sent())
	})
}

func TestAJournalThatFailsStopsTheCallBeforeItIsSent(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		require.NoError(t, w.ks.Close())
		resp, err := w.do("order")
		require.Equal(t, idem.FateUnknown, idem.FateOf(resp, err), "the name may hold something")
		require.Error(t, err)
		require.Zero(t, w.sent())
	})
}

func TestInvalidInputIsToldByItsField(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		resp, err := w.c.Do(resumeReq(idem.WithKey(context.Background(), "a\nb"), "order"))
		fails(t, resp, err, idem.FateNotDone, idem.ErrInvalid)
		var invalid *idem.InvalidError
		require.ErrorAs(t, err, &invalid)
		require.Equal(t, "Key", invalid.Field)
		require.Zero(t, w.sent())
	})
}

func TestAStreamOfEventsIsDoneAtItsHead(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		events := http.Header{"Content-Type": {"text/event-stream"}}
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultStatus, Status: 200, Header: events, Body: "data: 1\n\n"})
		resp, err := w.do("order")
		answers(t, resp, err, idem.FateDone, 200)
		require.Equal(t, idem.StateSettled, w.entry("order").State, "though nobody has read it")
		require.Equal(t, "data: 1\n\n", bodyOf(t, resp))
	})
}

func TestARedirectIsFollowedOnlyUnderTheSameKeyAtTheSameOrigin(t *testing.T) {
	for _, r := range []struct {
		status   int
		location string
		requests int
		fate     idem.Fate
	}{
		{307, "/v2/payments", 2, idem.FateDone},
		{308, "https://elsewhere.example/v1/payments", 1, idem.FateNotDone},
		{302, "https://elsewhere.example/v1/payments", 1, idem.FateNotDone}, // moved
		{302, "/login", 1, idem.FateUnknown},
		{303, "/v1/payments/1", 1, idem.FateUnknown},
	} {
		inResumeWorld(t, idem.Options{Retry: idem.RetryPolicy{MaxAttempts: 2}}, func(t *testing.T, w *resumeWorld) {
			to := http.Header{"Location": {r.location}}
			w.srv.Script(mockserver.Fault{Kind: mockserver.FaultStatus, Status: r.status, Header: to})
			resp, err := w.do("order")
			require.Equal(t, r.fate, idem.FateOf(resp, err), "%d %s: %v", r.status, r.location, err)
			require.Equal(t, r.requests, w.sent())
			require.Len(t, w.srv.Keys("order"), 1)
		})
	}
}
