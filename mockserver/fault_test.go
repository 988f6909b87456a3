package mockserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem/mockserver"
	"github.com/stretchr/testify/require"
)

func TestAFaultBeforeTheEffectLeavesNone(t *testing.T) {
	for _, f := range []mockserver.Fault{
		{Kind: mockserver.FaultReset},
		{Kind: mockserver.FaultRestart},
		{Kind: mockserver.FaultRefuse},
	} {
		both(t, nil, func(c *client) {
			c.script(f)
			c.fail("k", order("o"))
			c.effects(0, "o")
			resp, _ := c.post(201, "k", order("o"))
			require.Empty(t, resp.Header.Get("Idempotent-Replayed"))
			c.effects(1, "o")
		})
	}
}

func TestAFaultAfterTheEffectLosesOnlyTheAnswer(t *testing.T) {
	for _, f := range []mockserver.Fault{
		{Kind: mockserver.FaultReset, After: true},
		{Kind: mockserver.FaultRestart, After: true},
		{Kind: mockserver.FaultDrop},
		{Kind: mockserver.FaultCut},
		{Kind: mockserver.FaultCut, Framing: mockserver.FramingChunked},
		{Kind: mockserver.FaultCutHead},
	} {
		t.Run(fmt.Sprint(f.Kind, f.Framing), func(t *testing.T) {
			both(t, nil, func(c *client) {
				c.script(f)
				c.fail("k", order("o"))
				c.effects(1, "o")
				resp, _ := c.post(201, "k", order("o"))
				require.Equal(t, "true", resp.Header.Get("Idempotent-Replayed"))
				c.effects(1, "o")
			})
		})
	}
}

func TestErrorsAreThoseOfNetHTTP(t *testing.T) {
	both(t, nil, func(c *client) {
		c.script(mockserver.Fault{Kind: mockserver.FaultReset},
			mockserver.Fault{Kind: mockserver.FaultDrop}, mockserver.Fault{Kind: mockserver.FaultCut})
		require.ErrorIs(t, c.fail("k", order("o")), syscall.ECONNRESET)
		require.ErrorIs(t, c.fail("k", order("o")), io.EOF)
		require.ErrorIs(t, c.fail("k", order("o")), io.ErrUnexpectedEOF)
	})
}

func TestACutBodyShowsItsHead(t *testing.T) {
	both(t, nil, func(c *client) {
		whole := len(`{"id":"o","resource":"res_1"}`)
		c.script(mockserver.Fault{Kind: mockserver.FaultCut, CutAt: 7},
			mockserver.Fault{Kind: mockserver.FaultCut, CutAt: 1, Framing: mockserver.FramingClose})
		resp, text, err := c.try(t.Context(), "k", order("o"))
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.Equal(t, 201, resp.StatusCode)
		require.Equal(t, int64(whole), resp.ContentLength)
		require.Equal(t, `{"id":"`, text)

		resp, text, err = c.try(t.Context(), "k", order("o"))
		require.NoError(t, err, "the connection's end is the body's")
		require.Equal(t, int64(-1), resp.ContentLength)
		require.Equal(t, `{`, text)
	})
}

func TestAStatusComesFromInFrontOfTheAPI(t *testing.T) {
	both(t, nil, func(c *client) {
		c.script(
			mockserver.Fault{Kind: mockserver.FaultStatus, Times: 2, RetryAfter: 1500 * time.Millisecond},
			mockserver.Fault{Kind: mockserver.FaultStatus, Status: 403, Header: http.Header{"X-Proxy": {"edge"}}, Body: `{"no":1}`},
			mockserver.Fault{},
			mockserver.Fault{Kind: mockserver.FaultStatus, Status: 504, After: true})
		for range 2 {
			resp, _ := c.post(503, "k", order("o"))
			require.Equal(t, "2", resp.Header.Get("Retry-After"))
		}
		resp, text := c.post(403, "k", order("o"))
		require.Equal(t, "edge", resp.Header.Get("X-Proxy"))
		require.Equal(t, `{"no":1}`, text)
		c.effects(0, "o")
		c.post(201, "k", order("o"))
		c.post(504, "k2", order("o2"))
		c.effects(1, "o2")
	})
}

func TestConflictsAndLimitsAnswerAsTheProfileDoes(t *testing.T) {
	c := inMemory(t, &mockserver.Config{Profile: mockserver.StripeV1()})
	c.script(mockserver.Fault{Kind: mockserver.FaultInFlight, Times: 2}, mockserver.Fault{Kind: mockserver.FaultRateLimit})
	for range 2 {
		resp, text := c.post(409, "k", order("o"))
		require.Contains(t, text, "idempotency_key_in_use")
		require.Equal(t, "true", resp.Header.Get("Stripe-Should-Retry"))
	}
	resp, _ := c.post(429, "k", order("o"))
	require.Equal(t, "1", resp.Header.Get("Retry-After"))
	c.post(201, "k", order("o"))
	c.effects(1, "o")
}

func TestAFailureIsKeptAsTheProfileOrTheFaultSays(t *testing.T) {
	fail := mockserver.Fault{Kind: mockserver.FaultFail}
	for name, tt := range map[string]struct {
		profile       mockserver.Profile
		keep          mockserver.Keep
		after         bool
		again, happen int
	}{
		"free":                {mockserver.Standard(), "", false, 201, 1},
		"free, yet it worked": {mockserver.Standard(), "", true, 201, 2},
		"stored":              {mockserver.StripeV1(), "", false, 500, 0},
		"stored, it worked":   {mockserver.StripeV1(), "", true, 500, 1},
		"made to be stored":   {mockserver.Standard(), mockserver.KeepAnswer, false, 500, 0},
		"made to be free":     {mockserver.StripeV1(), mockserver.KeepNothing, false, 201, 1},
		"locked":              {mockserver.Standard(), mockserver.KeepLock, false, 409, 0},
		"locked, it worked":   {mockserver.Standard(), mockserver.KeepLock, true, 409, 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := inMemory(t, &mockserver.Config{Profile: tt.profile})
			fail.Keep, fail.After = tt.keep, tt.after
			c.script(fail)
			c.post(500, "k", order("o"))
			c.post(tt.again, "k", order("o"))
			c.effects(tt.happen, "o")
		})
	}
}

func TestADelayBeforeTheEffectHoldsTheKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := inMemory(t, nil)
		c.script(mockserver.Fault{Kind: mockserver.FaultDelay, Delay: 3 * time.Second})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _, err := c.try(ctx, "k", order("o"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		c.effects(0, "o")
		c.post(409, "k", order("o"))
		time.Sleep(3 * time.Second)
		c.post(201, "k", order("o"))
		c.effects(1, "o")
	})
}

func TestADelayAfterTheEffectDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := inMemory(t, nil)
		c.script(mockserver.Fault{Kind: mockserver.FaultDelay, After: true, Delay: time.Hour})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _, err := c.try(ctx, "k", order("o"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		c.effects(1, "o")
		c.post(201, "k", order("o"))
		c.effects(1, "o")
	})
}

func TestALateRequestMeetsAClosedWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := inMemory(t, &mockserver.Config{Window: time.Hour})
		c.script(mockserver.Fault{Kind: mockserver.FaultLate, Delay: 2 * time.Hour})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _, err := c.try(ctx, "k", order("o"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		c.post(201, "k", order("o"))
		c.api.Wait()
		c.effects(2, "o")
	})
}

func TestAHungAnswerLastsUntilTheClientGivesUp(t *testing.T) {
	both(t, nil, func(c *client) {
		c.script(mockserver.Fault{Kind: mockserver.FaultHang})
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, _, err := c.try(ctx, "k", order("o"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		c.effects(1, "o")
	})
}

func TestAForgottenKeyExecutesAgain(t *testing.T) {
	c := inMemory(t, nil)
	c.script(mockserver.Fault{}, mockserver.Fault{Kind: mockserver.FaultForget})
	c.post(201, "k", order("o"))
	c.post(201, "k", order("o"))
	c.effects(2, "o")
}

func TestARestartKeepsOrLosesItsKeys(t *testing.T) {
	for keep, n := range map[bool]int{true: 1, false: 2} {
		c := inMemory(t, nil)
		c.post(201, "k", order("o"))
		c.api.Restart(keep)
		c.post(201, "k", order("o"))
		c.effects(n, "o")
	}
}

func TestAFaultMayLastUntilHealed(t *testing.T) {
	c := inMemory(t, nil)
	c.script(mockserver.Fault{Kind: mockserver.FaultStatus, Times: -1})
	for range 5 {
		c.post(503, "k", order("o"))
	}
	c.api.Heal()
	c.post(201, "k", order("o"))
}

func TestASeedDrawsTheSameFaults(t *testing.T) {
	draw := func(seed uint64, rate float64) (kinds []mockserver.FaultKind) {
		c := inMemory(t, &mockserver.Config{Seed: seed, Rate: rate, Faults: []mockserver.Fault{
			{Kind: mockserver.FaultDrop, Weight: 3}, {Kind: mockserver.FaultStatus, Times: 2},
		}})
		for i := range 60 {
			c.try(t.Context(), fmt.Sprint(i), order("o"))
		}
		for _, r := range c.api.Requests() {
			kinds = append(kinds, r.Fault)
		}
		return kinds
	}
	require.Equal(t, draw(7, 0), draw(7, 0))
	require.NotEqual(t, draw(7, 0), draw(8, 0))
	require.NotContains(t, draw(7, 1), mockserver.FaultNone)
	require.Contains(t, draw(7, 0), mockserver.FaultNone)
	require.Contains(t, draw(0, 0.5), mockserver.FaultDrop)
}

func TestFaultsAndProfilesAreReadFromJSON(t *testing.T) {
	var f mockserver.Fault
	require.NoError(t, json.Unmarshal([]byte(`{"kind":"status","status":429,"after":true}`), &f))
	require.Equal(t, mockserver.Fault{Kind: mockserver.FaultStatus, Status: 429, After: true}, f)
	for _, p := range mockserver.Profiles() {
		text, err := json.Marshal(p)
		require.NoError(t, err)
		var back mockserver.Profile
		require.NoError(t, json.Unmarshal(text, &back))
		require.Equal(t, p, back)
	}
}

func TestAFaultThatCantBeMeantPanics(t *testing.T) {
	require.Panics(t, func() { mockserver.New(nil).Script(mockserver.Fault{Kind: "rest"}) })
	require.Panics(t, func() { mockserver.New(nil).Script(mockserver.Fault{Kind: mockserver.FaultRefuse, After: true}) })
}

func TestARestartResetsThoseThatWait(t *testing.T) {
	waiting := mockserver.Standard()
	waiting.InFlight = mockserver.Reply{}
	synctest.Test(t, func(t *testing.T) {
		c := inMemory(t, &mockserver.Config{Profile: waiting})
		c.script(
			mockserver.Fault{Kind: mockserver.FaultDelay, Delay: time.Hour}, // holds the key
			mockserver.Fault{}, // waits for it
			mockserver.Fault{Kind: mockserver.FaultLate, Delay: time.Hour},               // is still under way
			mockserver.Fault{Kind: mockserver.FaultStatus, Delay: time.Hour},             // waits in front
			mockserver.Fault{Kind: mockserver.FaultDelay, After: true, Delay: time.Hour}, // has happened
			mockserver.Fault{Kind: mockserver.FaultHang},                                 // too
		)
		errs := make(chan error, 6)
		for _, key := range []string{"a", "a", "b", "c", "d", "e"} {
			go func() {
				_, _, err := c.try(t.Context(), key, order(key))
				errs <- err
			}()
			synctest.Wait()
		}
		c.api.Restart(true)
		for range 6 {
			require.ErrorIs(t, <-errs, syscall.ECONNRESET)
		}
		for value, n := range map[string]int{"a": 0, "b": 0, "c": 0, "d": 1, "e": 1} {
			c.effects(n, value)
			c.post(201, value, order(value))
			c.effects(1, value)
		}
	})
}

func TestWorkUnderWayOutlivesARestart(t *testing.T) {
	for keep, n := range map[bool]int{true: 1, false: 2} {
		entered, leave := make(chan bool, 2), make(chan bool)
		c := inMemory(t, &mockserver.Config{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			entered <- true
			<-leave
		})})
		lost := make(chan error)
		go func() {
			_, _, err := c.try(t.Context(), "k", order("o"))
			lost <- err
		}()
		<-entered
		c.api.Restart(keep)
		close(leave)
		require.ErrorIs(t, <-lost, syscall.ECONNRESET)
		c.post(200, "k", order("o"))
		c.effects(n, "o")
	}
}
