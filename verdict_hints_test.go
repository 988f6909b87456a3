package idem_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

// Every form says "in half a minute", at a time when the backoff says a second.
func TestAHintIsReadInEveryForm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(26 * 365 * 24 * time.Hour) // a bubble begins in 2000, when an epoch was still below 1e9
		base := &verdictBase{}
		c := verdictClient(t, base, idem.Options{Retry: verdictPatient})
		defer c.Close()
		for i, h := range []func(at time.Time) [2]string{
			func(time.Time) [2]string { return [2]string{"Retry-After", "30"} },
			func(time.Time) [2]string { return [2]string{"Retry-After", " 30 "} },
			func(at time.Time) [2]string { return [2]string{"Retry-After", at.UTC().Format(http.TimeFormat)} },
			func(at time.Time) [2]string {
				return [2]string{"Retry-After", at.UTC().Format("Monday, 02-Jan-06 15:04:05 GMT")}
			},
			func(at time.Time) [2]string { return [2]string{"Retry-After", at.UTC().Format(time.ANSIC)} },
			func(time.Time) [2]string { return [2]string{"Retry-After-Ms", "30000"} },
			func(time.Time) [2]string { return [2]string{"X-Ms-Retry-After-Ms", "30000"} },
			func(time.Time) [2]string { return [2]string{"RateLimit-Reset", "30"} },
			func(at time.Time) [2]string { return [2]string{"X-RateLimit-Reset", fmt.Sprint(at.Unix())} },
			func(at time.Time) [2]string { return [2]string{"X-Rate-Limit-Reset", fmt.Sprint(at.UnixMilli())} },
		} {
			for _, status := range []int{429, 503} {
				// Dates have whole seconds.
				time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
				began := time.Now()
				header := h(began.Add(30 * time.Second))
				base.script(verdictAnswer(status, "{}", header[0], header[1]))
				resp, err := c.Do(verdictNamed(fmt.Sprintf("form-%d-%d", i, status)))
				require.NoError(t, err, "%v", header)
				require.Equal(t, 200, resp.StatusCode)
				require.Equal(t, 30*time.Second, time.Since(began), "%d %v", status, header)
			}
		}
	})
}

func TestAHintIsNeverShorterThanTheBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &verdictBase{}
		retry := verdictPatient
		retry.BaseDelay, retry.MaxDelay = 10*time.Second, 10*time.Second
		c := verdictClient(t, base, idem.Options{Retry: retry})
		defer c.Close()
		for i, v := range []string{"0", "1", "-5", "soon", "", "0.001", "Thu, 01 Jan 1970 00:00:00 GMT", "NaN", "-9223372036854775809"} {
			began := time.Now()
			base.script(verdictAnswer(429, "{}", "Retry-After", v))
			_, err := c.Do(verdictNamed(fmt.Sprint("short-", i)))
			require.NoError(t, err)
			require.GreaterOrEqual(t, time.Since(began), 5*time.Second, "%q", v) // jitter takes at most half
			require.LessOrEqual(t, time.Since(began), 10*time.Second, "%q", v)
		}
	})
}

func TestAHintOverTheCapStopsAtOnceWithRetryAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &verdictBase{}
		c := verdictClient(t, base, idem.Options{Retry: verdictPatient})
		defer c.Close()
		for i, v := range []string{"61", "3600", "99999999999999999999", "9223372036854775807", "Fri, 31 Dec 9999 23:59:59 GMT", "1e99"} {
			name := fmt.Sprint("far-", i)
			began := time.Now()
			base.script(verdictAnswer(503, "{}", "Retry-After", v))
			resp, err := c.Do(verdictNamed(name))
			if v == "1e99" { // no number of HTTP's: no hint
				require.NoError(t, err)
				continue
			}
			e := verdictErr(t, resp, err)
			require.ErrorIs(t, err, idem.ErrExhausted)
			require.Equal(t, began, time.Now(), v)
			require.Len(t, base.sends(), 1)
			require.Equal(t, idem.FateUnknown, e.Fate)
			require.True(t, e.RetryAt.After(began.Add(time.Minute)), "%s: %v", v, e.RetryAt)
			entry, err := c.Lookup(context.Background(), name)
			require.NoError(t, err)
			require.False(t, entry.RetryAt.IsZero())
			require.False(t, entry.RetryAt.After(began.Add(24*time.Hour)), "stored past the window: %v", entry.RetryAt)
		}
	})
}

// Nothing before: a rate limit is a refusal at the door, which is shown as it is.
func TestARateLimitBeyondPatienceIsReturnedWithRetryAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &verdictBase{}
		c := verdictClient(t, base, idem.Options{Retry: verdictPatient})
		defer c.Close()
		base.script(verdictAnswer(429, "{}", "Retry-After", "3600"))
		resp, err := c.Do(verdictNamed("limited"))
		require.NoError(t, err)
		require.Equal(t, 429, resp.StatusCode)
		r, _ := idem.ResultOf(resp)
		require.Equal(t, idem.FateNotDone, r.Fate)
		require.Equal(t, time.Now().Add(time.Hour).Round(0).Unix(), r.RetryAt.Unix())
		require.Equal(t, "withdrawn", verdictState(t, c, "limited"))
	})
}

func TestAHintBeyondTheCallersDeadlineStopsAtOnce(t *testing.T) {
	for _, status := range []int{429, 503} {
		synctest.Test(t, func(t *testing.T) {
			base := &verdictBase{}
			c := verdictClient(t, base, idem.Options{Retry: verdictPatient})
			defer c.Close()
			ctx, cancel := context.WithTimeout(idem.WithIntent(context.Background(), "hasty"), 10*time.Second)
			defer cancel()
			began := time.Now()
			base.script(verdictAnswer(status, "{}", "Retry-After", "30"))
			resp, err := c.Do(verdictReq(ctx, "POST", `{}`))
			require.Equal(t, began, time.Now())
			want := began.Add(30 * time.Second).Unix()
			if status == 429 {
				require.NoError(t, err)
				r, _ := idem.ResultOf(resp)
				require.Equal(t, want, r.RetryAt.Unix())
				return
			}
			e := verdictErr(t, resp, err)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.True(t, e.Timeout())
			require.Equal(t, idem.FateUnknown, e.Fate)
			require.Equal(t, want, e.RetryAt.Unix())
			entry, err := c.Lookup(context.Background(), "hasty")
			require.NoError(t, err)
			require.Equal(t, want, entry.RetryAt.Unix())
		})
	}
}

func TestAPlainBackoffSetsNoRetryAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &verdictBase{}
		retry := verdictPatient
		retry.MaxAttempts = 2
		c := verdictClient(t, base, idem.Options{Retry: retry})
		defer c.Close()
		base.always(verdictAnswer(503, "{}"))
		resp, err := c.Do(verdictNamed("plain"))
		require.Zero(t, verdictErr(t, resp, err).RetryAt)
		require.ErrorIs(t, err, idem.ErrExhausted)
		entry, err := c.Lookup(context.Background(), "plain")
		require.NoError(t, err)
		require.Zero(t, entry.RetryAt)
	})
}

// verdictWaiting leaves name Pending with a RetryAt that lies ahead.
func verdictWaiting(t *testing.T, c *idem.Client, base *verdictBase, name string, ahead time.Duration) time.Time {
	t.Helper()
	base.script(verdictAnswer(503, "{}", "Retry-After", fmt.Sprint(int(ahead/time.Second))))
	_, err := c.Do(verdictNamed(name))
	require.ErrorIs(t, err, idem.ErrExhausted)
	e, err := c.Lookup(context.Background(), name)
	require.NoError(t, err)
	require.Equal(t, time.Now().Add(ahead).Unix(), e.RetryAt.Unix())
	return e.RetryAt
}

func TestTheNextDoKeepsAStoredRetryAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &verdictBase{}
		c := verdictClient(t, base, idem.Options{Retry: verdictPatient})
		defer c.Close()
		due := verdictWaiting(t, c, base, "later", 10*time.Minute)

		base.script()
		resp, err := c.Do(verdictNamed("later")) // waits at most MaxRetryAfter, so not at all
		e := verdictErr(t, resp, err)
		require.Empty(t, base.sends())
		require.Equal(t, due.Unix(), e.RetryAt.Unix())
		entry, err := c.Lookup(context.Background(), "later")
		require.NoError(t, err)
		require.Equal(t, due.Unix(), entry.RetryAt.Unix(), "the refusal to wait lost the time")

		time.Sleep(time.Until(due) - 20*time.Second)
		_, err = c.Do(verdictNamed("later"))
		require.NoError(t, err)
		require.Len(t, base.sends(), 1)
		require.False(t, time.Now().Before(due), "sent before its time")
	})
}

func TestACancelWhileWaitingForAStoredRetryAtKeepsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &verdictBase{}
		c := verdictClient(t, base, idem.Options{Retry: verdictPatient})
		defer c.Close()
		due := verdictWaiting(t, c, base, "later", 10*time.Minute)
		time.Sleep(time.Until(due) - 30*time.Second)
		base.script()
		ctx, cancel := context.WithCancel(idem.WithIntent(context.Background(), "later"))
		time.AfterFunc(5*time.Second, cancel)
		resp, err := c.Do(verdictReq(ctx, "POST", `{"amount":500}`))
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, due.Unix(), verdictErr(t, resp, err).RetryAt.Unix())
		entry, err := c.Lookup(context.Background(), "later")
		require.NoError(t, err)
		require.Equal(t, due.Unix(), entry.RetryAt.Unix(), "the cancel lost what the provider asked for")
		report, err := c.Resume(context.Background(), nil)
		require.NoError(t, err)
		require.Equal(t, idem.Report{Skipped: 1}, report)
		require.Empty(t, base.sends())
	})
}

func TestResumeSkipsAndRunWaitsForAStoredRetryAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &verdictBase{}
		path := t.TempDir() + "/journal.db"
		opts := &idem.Options{Base: base, Retry: verdictPatient}
		c, err := idem.Open(path, opts)
		require.NoError(t, err)
		due := verdictWaiting(t, c, base, "later", 10*time.Minute)
		require.NoError(t, c.Close())

		c, err = idem.Open(path, opts)
		require.NoError(t, err)
		defer c.Close()
		base.script()
		report, err := c.Resume(context.Background(), nil)
		require.NoError(t, err)
		require.Equal(t, idem.Report{Skipped: 1}, report)
		require.Empty(t, base.sends())

		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		time.Sleep(time.Until(due) - time.Second)
		synctest.Wait()
		require.Empty(t, base.sends(), "Run didn't keep the time")
		time.Sleep(3 * time.Second)
		synctest.Wait()
		require.Len(t, base.sends(), 1)
		cancel()
		require.NoError(t, <-done)
		require.Equal(t, "settled", verdictState(t, c, "later"))
	})
}

// The dialect's own header is the strongest hint, also over its absence elsewhere.
func TestTheShouldRetryHeaderIsTheStrongestHint(t *testing.T) {
	const header = "Stripe-Should-Retry"
	for _, v := range []struct {
		status int
		hint   string
		want   verdictCell
	}{
		{400, "", refused}, {400, "false", refused}, {400, "true", followed},
		{409, "", refused}, {409, "false", refused}, {409, "true", followed},
		{429, "", atDoorAgain}, {429, "false", atDoor}, {429, "true", atDoorAgain},
		{500, "", inDoubtAgain}, {500, "false", beyondResend}, {500, "true", inDoubtAgain},
		{500, "perhaps", inDoubtAgain}, {408, "false", inDoubt},
	} {
		t.Run(fmt.Sprintf("%d %s", v.status, v.hint), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := &verdictBase{}
				dialect := idem.Dialect{Name: "hinting", ShouldRetry: header}
				answer := verdictAnswer(v.status, "{}")
				if v.hint != "" {
					answer = verdictAnswer(v.status, "{}", header, v.hint)
				}
				retry := verdictPatient
				retry.MaxAttempts = 1
				c := verdictClient(t, base, idem.Options{Retry: retry, Dialect: dialect})
				base.script(answer)
				resp, err := c.Do(verdictNamed("hinted"))
				require.Equal(t, v.want.fate, idem.FateOf(resp, err))
				require.Equal(t, v.want.state, verdictState(t, c, "hinted"))
				require.NoError(t, c.Close())

				c = verdictClient(t, base, idem.Options{Retry: verdictPatient, Dialect: dialect})
				defer c.Close()
				base.script(answer)
				_, _ = c.Do(verdictNamed("hinted"))
				require.Equal(t, v.want.again, len(base.sends()) > 1)
			})
		})
	}
}

func TestAReplayedFailureThatSaysRetryIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &verdictBase{}
		c := verdictClient(t, base, idem.Options{Retry: verdictPatient, Dialect: idem.Dialect{ShouldRetry: "X-Should-Retry"}})
		defer c.Close()
		base.script(verdictAnswer(500, "{}", "Idempotent-Replayed", "true", "X-Should-Retry", "true"))
		_, err := c.Do(verdictNamed("again"))
		require.NoError(t, err)
		require.Len(t, base.sends(), 2)
	})
}

func TestSilenceIsAStopOnlyInAnswersOfTheDialectsShape(t *testing.T) {
	dialect := idem.Dialect{ShouldRetry: "Transient-Error", SilentStop: true, Shape: idem.Match{Path: "errorCode"}}
	for body, want := range map[string]string{`{"errorCode":"905"}`: "ambiguous", `<html>Bad gateway</html>`: "settled"} {
		synctest.Test(t, func(t *testing.T) {
			base := &verdictBase{}
			c := verdictClient(t, base, idem.Options{Retry: verdictPatient, Dialect: dialect})
			defer c.Close()
			base.script(verdictAnswer(500, body))
			_, _ = c.Do(verdictNamed("silent"))
			require.Equal(t, want, verdictState(t, c, "silent"))
		})
	}
}
