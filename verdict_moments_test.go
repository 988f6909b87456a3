package idem_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

// An answer that is there outweighs a cancel that comes with it.
func TestAnAnswerThatComesWithTheCancelIsRecorded(t *testing.T) {
	for status, fate := range map[int]idem.Fate{201: idem.FateDone, 402: idem.FateNotDone} {
		for _, op := range []string{"Do", "Transport"} {
			synctest.Test(t, func(t *testing.T) {
				base := &verdictBase{}
				c := verdictClient(t, base, idem.Options{Retry: verdictPatient})
				defer c.Close()
				ctx, cancel := context.WithCancel(idem.WithIntent(context.Background(), "answered"))
				base.script(func(req *http.Request) (*http.Response, error) {
					cancel()
					return verdictAnswer(status, `{"id":1}`)(req)
				})
				call := c.Do
				if op == "Transport" {
					call = c.Transport().RoundTrip
				}
				resp, err := call(verdictReq(ctx, "POST", `{"amount":500}`))
				require.NoError(t, err)
				require.Equal(t, status, resp.StatusCode)
				require.Equal(t, fate, idem.FateOf(resp, err))
				require.Equal(t, "settled", verdictState(t, c, "answered"))
			})
		}
	}
}

func TestACancelInAWaitLeavesWhatIsKnown(t *testing.T) {
	for _, v := range []struct {
		name  string
		step  verdictStep
		fate  idem.Fate
		state string
	}{
		{"after a lost answer", verdictLost, idem.FateUnknown, "pending"},
		{"after a refused dial", verdictRefused, idem.FateNotDone, "withdrawn"},
		{"after a rate limit", verdictAnswer(429, "{}", "Retry-After", "30"), idem.FateNotDone, "withdrawn"},
		{"after a cut body", verdictCut(201, false), idem.FateDone, "pending"},
	} {
		t.Run(v.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := &verdictBase{}
				retry := verdictPatient
				retry.BaseDelay, retry.MaxDelay = time.Minute, time.Minute
				c := verdictClient(t, base, idem.Options{Retry: retry})
				defer c.Close()
				ctx, cancel := context.WithCancel(idem.WithIntent(context.Background(), "left"))
				time.AfterFunc(time.Second, cancel)
				base.always(v.step)
				resp, err := c.Do(verdictReq(ctx, "POST", `{}`))
				require.ErrorIs(t, err, context.Canceled)
				require.Equal(t, v.fate, verdictErr(t, resp, err).Fate)
				require.Equal(t, v.state, verdictState(t, c, "left"))
				require.Len(t, base.sends(), 1)
			})
		})
	}
}

// A connection that somebody below opened a second time: one attempt was maybe two
// sends, and a refusal of the second proves nothing about the first.
func TestTwoConnectionsInOneAttemptAreUnknownUnless2xx(t *testing.T) {
	for status, want := range map[int]idem.Fate{201: idem.FateDone, 402: idem.FateUnknown, 401: idem.FateUnknown, 429: idem.FateUnknown} {
		synctest.Test(t, func(t *testing.T) {
			base := &verdictBase{}
			retry := verdictPatient
			retry.MaxAttempts = 1
			c := verdictClient(t, base, idem.Options{Retry: retry})
			defer c.Close()
			base.script(verdictTwice(verdictAnswer(status, "{}")))
			resp, err := c.Do(verdictNamed("twice"))
			require.Equal(t, want, idem.FateOf(resp, err), "%d: %v", status, err)
		})
	}
}

func TestTheFetchOfAResourceIsAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &verdictBase{}
		c := verdictClient(t, base, idem.Options{Retry: verdictPatient, Dialect: verdictDone})
		defer c.Close()
		base.script(verdictLost, verdictAnswer(409, `{"code":"done","id":"ch_1"}`), verdictAnswer(200, `{"amount":500}`))
		resp, err := c.Do(verdictNamed("fetched"))
		require.NoError(t, err)
		r, _ := idem.ResultOf(resp)
		require.Equal(t, len(base.sends()), r.Attempts)
	})
}

func TestARetryAfterInTheYear9999DoesntStrandAnEntryWithoutAWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &verdictBase{}
		c := verdictClient(t, base, idem.Options{Retry: verdictPatient, Dialect: idem.Dialect{Window: idem.Forever}})
		defer c.Close()
		base.script(verdictAnswer(503, "{}", "Retry-After", "Fri, 31 Dec 9999 23:59:59 GMT"))
		_, err := c.Do(verdictNamed("stranded"))
		require.ErrorIs(t, err, idem.ErrExhausted)
		time.Sleep(366 * 24 * time.Hour)
		base.script()
		report, err := c.Resume(context.Background(), nil)
		require.NoError(t, err)
		require.Equal(t, idem.Report{Done: 1}, report)
	})
}
