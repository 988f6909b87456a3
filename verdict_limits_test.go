package idem_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

func TestTheBreakerOpensAndTellsWhenItProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &verdictBase{}
		retry := verdictPatient
		retry.MaxAttempts = 1
		c := verdictClient(t, base, idem.Options{Retry: retry, Breaker: idem.BreakerPolicy{MinRequests: 3, OpenFor: 30 * time.Second}})
		defer c.Close()
		base.always(verdictAnswer(503, "{}"))
		for i := range 3 {
			_, err := c.Do(verdictNamed(fmt.Sprint("down-", i)))
			require.ErrorIs(t, err, idem.ErrExhausted)
		}
		base.script()
		began := time.Now()
		resp, err := c.Do(verdictNamed("fresh"))
		e := verdictErr(t, resp, err)
		require.ErrorIs(t, err, idem.ErrCircuitOpen)
		require.Equal(t, began, time.Now(), "it waited without a deadline")
		require.Empty(t, base.sends())
		require.Equal(t, idem.FateNotDone, e.Fate)
		require.WithinDuration(t, began.Add(30*time.Second), e.RetryAt, time.Second)
		require.Equal(t, "withdrawn", verdictState(t, c, "fresh"))

		// What was sent before stays Unknown, and keeps no RetryAt of the breaker's.
		resp, err = c.Do(verdictNamed("down-0"))
		require.ErrorIs(t, err, idem.ErrCircuitOpen)
		require.Equal(t, idem.FateUnknown, verdictErr(t, resp, err).Fate)
		entry, err := c.Lookup(context.Background(), "down-0")
		require.NoError(t, err)
		require.Equal(t, idem.StatePending, entry.State)
		require.Zero(t, entry.RetryAt)

		// A deadline that allows it waits for the probe.
		ctx, cancel := context.WithTimeout(idem.WithIntent(context.Background(), "patient"), time.Minute)
		defer cancel()
		_, err = c.Do(verdictReq(ctx, "POST", `{}`))
		require.NoError(t, err)
		require.WithinDuration(t, began.Add(30*time.Second), time.Now(), time.Second)
		require.Len(t, base.sends(), 1)
		_, err = c.Do(verdictNamed("after"))
		require.NoError(t, err)
	})
}

func TestADeadlineBeforeTheProbeFailsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &verdictBase{}
		c := verdictClient(t, base, idem.Options{Retry: idem.RetryPolicy{MaxAttempts: 1}, Breaker: idem.BreakerPolicy{MinRequests: 1}})
		defer c.Close()
		base.script(verdictLost)
		_, err := c.Do(verdictNamed("lost"))
		require.Error(t, err)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		began := time.Now()
		resp, err := c.Do(verdictReq(ctx, "POST", `{}`))
		require.ErrorIs(t, err, idem.ErrCircuitOpen)
		require.Equal(t, idem.FateNotDone, verdictErr(t, resp, err).Fate)
		require.Equal(t, began, time.Now())
	})
}

// What counts against the breaker: a policy that opens at the first failure shows it.
func TestOnlyFailuresOfTheOriginCountAgainstTheBreaker(t *testing.T) {
	for _, v := range []struct {
		name  string
		step  verdictStep
		opens bool
	}{
		{"200", verdictAnswer(200, "{}"), false},
		{"400", verdictAnswer(400, "{}"), false},
		{"401", verdictAnswer(401, "{}"), false},
		{"404", verdictAnswer(404, "{}"), false},
		{"409", verdictAnswer(409, "{}"), false},
		{"429", verdictAnswer(429, "{}"), false},
		{"302", verdictAnswer(302, "{}"), false},
		{"501", verdictAnswer(501, "{}"), false},
		{"a replayed 500", verdictAnswer(500, "{}", "Idempotent-Replayed", "true"), false},
		{"500", verdictAnswer(500, "{}"), true},
		{"503", verdictAnswer(503, "{}"), true},
		{"529", verdictAnswer(529, "{}"), true},
		{"lost", verdictLost, true},
		{"refused", verdictRefused, true},
		{"cut", verdictCut(200, false), true},
		{"slow", verdictHang, true},
	} {
		t.Run(v.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := &verdictBase{}
				retry := verdictPatient
				retry.MaxAttempts = 1
				c := verdictClient(t, base, idem.Options{Retry: retry, Breaker: idem.BreakerPolicy{MinRequests: 1, FailureRate: 0.01}})
				defer c.Close()
				base.script(v.step)
				_, _ = c.Do(verdictNamed("first"))
				_, err := c.Do(verdictNamed("second"))
				require.Equal(t, v.opens, errors.Is(err, idem.ErrCircuitOpen), "%v", err)
			})
		})
	}
}

func TestTheCallersCancelDoesntCountAgainstTheBreaker(t *testing.T) {
	for _, cancels := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			base := &verdictBase{}
			c := verdictClient(t, base, idem.Options{Retry: verdictPatient, Breaker: idem.BreakerPolicy{MinRequests: 1, FailureRate: 0.01}})
			defer c.Close()
			ctx, cancel := context.WithTimeout(idem.WithIntent(context.Background(), "gone"), 5*time.Second)
			defer cancel()
			if cancels {
				time.AfterFunc(time.Second, cancel)
			}
			base.script(verdictHang)
			resp, err := c.Do(verdictReq(ctx, "POST", `{}`))
			require.Equal(t, idem.FateUnknown, verdictErr(t, resp, err).Fate)
			require.Equal(t, "pending", verdictState(t, c, "gone"))
			_, err = c.Do(verdictNamed("next"))
			require.NoError(t, err)
		})
	}
}

// A probe whose hook panics gives its slot back.
func TestAProbeGivesItsSlotBackWhateverHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &verdictBase{}
		fail := errors.New("no token")
		var authorize error
		c := verdictClient(t, base, idem.Options{
			Retry: idem.RetryPolicy{MaxAttempts: 1}, Breaker: idem.BreakerPolicy{MinRequests: 1, OpenFor: time.Second},
			Authorize: func(*http.Request) error { return authorize },
		})
		defer c.Close()
		base.script(verdictLost, func(*http.Request) (*http.Response, error) { panic("base") })
		_, err := c.Do(verdictNamed("opens"))
		require.Error(t, err)
		time.Sleep(2 * time.Second)
		require.Panics(t, func() { _, _ = c.Do(verdictNamed("panics")) })
		authorize = fail
		resp, err := c.Do(verdictNamed("unauthorized"))
		require.ErrorIs(t, err, fail)
		require.Equal(t, idem.FateNotDone, verdictErr(t, resp, err).Fate)
		require.Equal(t, "withdrawn", verdictState(t, c, "unauthorized"))
		authorize = nil
		_, err = c.Do(verdictNamed("probe"))
		require.NoError(t, err)
		require.Equal(t, "pending", verdictState(t, c, "panics"))
	})
}

func TestTheBudgetBoundsRetriesOfAnOrigin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &verdictBase{}
		retry := idem.RetryPolicy{MaxAttempts: 5000, MaxElapsed: time.Hour, BaseDelay: time.Microsecond, MaxDelay: time.Microsecond}
		c := verdictClient(t, base, idem.Options{Retry: retry})
		defer c.Close()
		base.always(verdictAnswer(503, "{}"))
		resp, err := c.Do(verdictNamed("storm"))
		e := verdictErr(t, resp, err)
		require.ErrorIs(t, err, idem.ErrBudget)
		require.Equal(t, idem.FateUnknown, e.Fate)
		require.InDelta(t, 1001, len(base.sends()), 5)
		require.Equal(t, len(base.sends()), e.Attempts)
		require.Equal(t, "pending", verdictState(t, c, "storm"))

		base.script() // first attempts take no token
		_, err = c.Do(verdictNamed("first"))
		require.NoError(t, err)
	})
}

func TestARefusalAtTheDoorThatSpentTheBudgetIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &verdictBase{}
		retry := idem.RetryPolicy{MaxAttempts: 5000, MaxElapsed: time.Hour, BaseDelay: time.Microsecond, MaxDelay: time.Microsecond}
		c := verdictClient(t, base, idem.Options{Retry: retry})
		defer c.Close()
		base.always(verdictAnswer(429, "{}"))
		resp, err := c.Do(verdictNamed("limited"))
		require.NoError(t, err)
		require.Equal(t, 429, resp.StatusCode)
		require.Equal(t, "withdrawn", verdictState(t, c, "limited"))
	})
}

func TestMaxElapsedEndsACallBeforeAWaitThatWouldOutlastIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &verdictBase{}
		c := verdictClient(t, base, idem.Options{Retry: idem.RetryPolicy{MaxAttempts: 100, MaxElapsed: 10 * time.Second, BaseDelay: 3 * time.Second, MaxDelay: 3 * time.Second}})
		defer c.Close()
		base.always(verdictAnswer(503, "{}"))
		began := time.Now()
		_, err := c.Do(verdictNamed("slow"))
		require.ErrorIs(t, err, idem.ErrExhausted)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.LessOrEqual(t, time.Since(began), 10*time.Second)
		require.Greater(t, len(base.sends()), 2)
		require.Equal(t, "pending", verdictState(t, c, "slow"))
	})
}

// The attempt's timeout ends an attempt, which is retried; the caller's deadline
// ends the call.
func TestTheAttemptsTimeoutAndTheCallersDeadlineAreDifferentThings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &verdictBase{}
		retry := verdictPatient
		retry.AttemptTimeout = 5 * time.Second
		c := verdictClient(t, base, idem.Options{Retry: retry})
		defer c.Close()
		began := time.Now()
		base.script(verdictHang)
		resp, err := c.Do(verdictNamed("slow once"))
		require.NoError(t, err)
		r, _ := idem.ResultOf(resp)
		require.Equal(t, 2, r.Attempts)
		require.GreaterOrEqual(t, time.Since(began), 5*time.Second)

		base.always(verdictHang)
		resp, err = c.Do(verdictNamed("slow always"))
		e := verdictErr(t, resp, err)
		require.ErrorIs(t, err, idem.ErrExhausted)
		require.True(t, e.Timeout())
		require.Equal(t, verdictPatient.MaxAttempts, e.Attempts)

		began = time.Now()
		base.always(verdictHang)
		ctx, cancel := context.WithTimeout(idem.WithIntent(context.Background(), "hasty"), 3*time.Second)
		defer cancel()
		resp, err = c.Do(verdictReq(ctx, "POST", `{}`))
		e = verdictErr(t, resp, err)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, idem.ErrExhausted)
		require.Equal(t, 1, e.Attempts)
		require.Equal(t, 3*time.Second, time.Since(began))
		require.Equal(t, idem.FateUnknown, e.Fate)
	})
}

func TestNoWaitOutlastsTheCallersDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &verdictBase{}
		retry := verdictPatient
		retry.BaseDelay, retry.MaxDelay = time.Minute, time.Minute
		c := verdictClient(t, base, idem.Options{Retry: retry})
		defer c.Close()
		ctx, cancel := context.WithTimeout(idem.WithIntent(context.Background(), "hasty"), 10*time.Second)
		defer cancel()
		began := time.Now()
		base.script(verdictLost)
		resp, err := c.Do(verdictReq(ctx, "POST", `{}`))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, idem.FateUnknown, verdictErr(t, resp, err).Fate)
		require.Equal(t, began, time.Now())
	})
}

func TestAnAttemptOfAShortWindowEndsWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &verdictBase{}
		retry := idem.RetryPolicy{MaxAttempts: 100, AttemptTimeout: time.Hour, MaxElapsed: 24 * time.Hour}
		c := verdictClient(t, base, idem.Options{Retry: retry, Dialect: idem.Dialect{Window: 10 * time.Minute, Margin: time.Minute}})
		defer c.Close()
		began := time.Now()
		base.always(verdictHang)
		resp, err := c.Do(verdictNamed("late"))
		require.Equal(t, idem.FateUnknown, verdictErr(t, resp, err).Fate)
		require.Equal(t, 9*time.Minute, time.Since(began), "an attempt outlasted the window")
		base.script()
		_, err = c.Do(verdictNamed("late"))
		require.ErrorIs(t, err, idem.ErrWindowClosed)
		require.Empty(t, base.sends())
		require.Equal(t, "ambiguous", verdictState(t, c, "late"))
	})
}

func TestACauseOfTheCancelIsFoundBesideTheCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &verdictBase{}
		c := verdictClient(t, base, idem.Options{Retry: verdictPatient})
		defer c.Close()
		shutdown := errors.New("shutting down")
		for _, step := range []verdictStep{verdictHang, verdictLost} {
			ctx, cancel := context.WithCancelCause(context.Background())
			time.AfterFunc(100*time.Millisecond, func() { cancel(shutdown) })
			base.always(step)
			_, err := c.Do(verdictReq(idem.WithIntent(ctx, fmt.Sprint(time.Now())), "POST", `{}`))
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, shutdown)
		}
	})
}
