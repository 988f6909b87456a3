package idem_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

func TestA202MeansWhatTheDialectSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, v := range []struct {
			accepted idem.Accepted
			status   int
			sends    []string
		}{
			{idem.AcceptedFinal, 202, []string{"POST"}},
			{idem.AcceptedResend, 201, []string{"POST", "POST", "POST"}},
			{idem.AcceptedPoll, 201, []string{"POST", "GET", "GET"}},
		} {
			base := &verdictBase{}
			c := verdictClient(t, base, idem.Options{Retry: verdictPatient, Dialect: idem.Dialect{Accepted: v.accepted}})
			job := verdictAnswer(202, "{}", "Location", "/jobs/1", "Retry-After", "20")
			base.script(job, job, verdictAnswer(201, `{"id":1}`))
			began := time.Now()
			resp, err := c.Do(verdictNamed("job"))
			require.NoError(t, err)
			require.Equal(t, v.status, resp.StatusCode)
			require.Equal(t, idem.FateDone, idem.FateOf(resp, err))
			require.Equal(t, time.Duration(len(v.sends)-1)*20*time.Second, time.Since(began), "Retry-After is a hint of a 202 too")
			var sends []string
			for _, s := range base.sends() {
				sends = append(sends, s.Method)
				if s.Method == "GET" {
					require.Equal(t, "http://api.example/jobs/1", s.URL)
					require.Empty(t, s.Body)
				}
			}
			require.Equal(t, v.sends, sends)
			require.Equal(t, "settled", verdictState(t, c, "job"))
			require.NoError(t, c.Close())
		}
	})
}

// A job is polled over restarts: the request itself is not sent again.
func TestAPollSurvivesARestart(t *testing.T) {
	for _, retryAfter := range []string{"", "600"} {
		synctest.Test(t, func(t *testing.T) {
			base := &verdictBase{}
			path := t.TempDir() + "/journal.db"
			opts := &idem.Options{Base: base, Retry: idem.RetryPolicy{MaxAttempts: 2, MaxElapsed: time.Hour}, Dialect: idem.Dialect{Accepted: idem.AcceptedPoll}}
			c, err := idem.Open(path, opts)
			require.NoError(t, err)
			job := verdictAnswer(202, "{}", "Location", "/jobs/1")
			if retryAfter != "" {
				job = verdictAnswer(202, "{}", "Location", "/jobs/1", "Retry-After", retryAfter)
			}
			base.always(job)
			resp, err := c.Do(verdictNamed("job"))
			e := verdictErr(t, resp, err)
			require.Equal(t, idem.FateUnknown, e.Fate)
			require.ErrorIs(t, err, idem.ErrExhausted)
			require.Equal(t, "pending", verdictState(t, c, "job"))
			require.NoError(t, c.Close())

			c, err = idem.Open(path, opts)
			require.NoError(t, err)
			defer c.Close()
			base.always(verdictAnswer(200, `{"status":"succeeded"}`))
			report, err := c.Resume(context.Background(), nil)
			require.NoError(t, err)
			if retryAfter != "" {
				require.Equal(t, idem.Report{Skipped: 1}, report)
				require.Empty(t, base.sends())
				time.Sleep(601 * time.Second)
				report, err = c.Resume(context.Background(), nil)
				require.NoError(t, err)
			}
			require.Equal(t, idem.Report{Done: 1}, report)
			require.Len(t, base.sends(), 1)
			require.Equal(t, "GET", base.sends()[0].Method)
			require.Equal(t, "http://api.example/jobs/1", base.sends()[0].URL)
			resp, err = c.Do(verdictNamed("job"))
			require.NoError(t, err)
			require.Equal(t, 200, resp.StatusCode)
			require.Len(t, base.sends(), 1)
		})
	}
}

// The answers to a poll speak of the job.
func TestAPollTellsTheFateOfTheJob(t *testing.T) {
	dialect := idem.Dialect{
		Accepted: idem.AcceptedPoll,
		InFlight: []idem.Match{{Path: "status", Value: "running"}},
		NotDone:  []idem.Match{{Path: "status", Value: "failed"}},
	}
	for _, v := range []struct {
		name  string
		polls []verdictStep
		fate  idem.Fate
		state string
		sends int
	}{
		{"still running, then succeeded", []verdictStep{verdictAnswer(200, `{"status":"running"}`), verdictAnswer(200, `{"status":"ok"}`)}, idem.FateDone, "settled", 3},
		{"failed", []verdictStep{verdictAnswer(200, `{"status":"failed"}`)}, idem.FateNotDone, "settled", 2},
		{"lost, then succeeded", []verdictStep{verdictLost, verdictRefused, verdictAnswer(200, `{}`)}, idem.FateDone, "settled", 4},
		{"limited, then succeeded", []verdictStep{verdictAnswer(429, ""), verdictAnswer(503, ""), verdictAnswer(200, `{}`)}, idem.FateDone, "settled", 4},
		{"cut, then whole", []verdictStep{verdictCut(200, false), verdictAnswer(200, `{}`)}, idem.FateDone, "settled", 3},
		{"gone", []verdictStep{verdictAnswer(404, "")}, idem.FateUnknown, "pending", 2},
		{"to the login page", []verdictStep{verdictAnswer(302, "", "Location", "/login")}, idem.FateUnknown, "pending", 2},
		{"unauthorized", []verdictStep{verdictAnswer(401, "")}, idem.FateUnknown, "pending", 2},
	} {
		t.Run(v.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := &verdictBase{}
				c := verdictClient(t, base, idem.Options{Retry: verdictPatient, Dialect: dialect})
				defer c.Close()
				base.script(append([]verdictStep{verdictAnswer(202, "", "Location", "/jobs/1")}, v.polls...)...)
				resp, err := c.Do(verdictNamed("job"))
				require.Equal(t, v.fate, idem.FateOf(resp, err), "%v", err)
				require.Equal(t, v.state, verdictState(t, c, "job"))
				require.Len(t, base.sends(), v.sends)
				for _, s := range base.sends()[1:] {
					require.Equal(t, "GET", s.Method)
				}
			})
		})
	}
}

func TestA202WithoutALocationIsInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &verdictBase{}
		c := verdictClient(t, base, idem.Options{Retry: verdictPatient, Dialect: idem.Dialect{Accepted: idem.AcceptedPoll}})
		defer c.Close()
		base.script(verdictAnswer(202, "{}"))
		resp, err := c.Do(verdictNamed("job"))
		require.ErrorIs(t, err, idem.ErrInDoubt)
		require.Equal(t, idem.FateUnknown, verdictErr(t, resp, err).Fate)
		require.Equal(t, "pending", verdictState(t, c, "job"))
	})
}

// In flight is believed up to the dialect's cap, counted over restarts; then only
// a look-up can tell.
func TestInFlightForLongerThanTheCapIsAmbiguousOverRestarts(t *testing.T) {
	for _, ahead := range []time.Duration{9 * time.Minute, 11 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			base := &verdictBase{}
			path := t.TempDir() + "/journal.db"
			opts := &idem.Options{Base: base, Retry: idem.RetryPolicy{MaxAttempts: 2}, Dialect: idem.Dialect{InFlightMax: 10 * time.Minute}}
			c, err := idem.Open(path, opts)
			require.NoError(t, err)
			base.script(verdictLost, verdictAnswer(409, "{}"))
			_, err = c.Do(verdictNamed("held"))
			require.ErrorIs(t, err, idem.ErrExhausted)
			require.Equal(t, "pending", verdictState(t, c, "held"))
			key := base.sends()[0].Key
			require.NoError(t, c.Close())

			time.Sleep(ahead)
			asked := 0
			opts.Reconcile = func(context.Context, idem.Entry) (idem.Finding, error) {
				asked++
				return idem.Finding{}, nil
			}
			c, err = idem.Open(path, opts)
			require.NoError(t, err)
			defer c.Close()
			base.always(verdictAnswer(409, "{}"))
			report, err := c.Resume(context.Background(), nil)
			require.NoError(t, err)
			require.Equal(t, idem.Report{Unknown: 1}, report)
			for _, s := range base.sends() {
				require.Equal(t, key, s.Key, "a new key by itself")
			}
			sends := len(base.sends())
			_, err = c.Do(verdictNamed("held"))
			if ahead < 10*time.Minute {
				require.Equal(t, "pending", verdictState(t, c, "held"))
				return
			}
			require.ErrorIs(t, err, idem.ErrInDoubt)
			require.Equal(t, "ambiguous", verdictState(t, c, "held"))
			require.Len(t, base.sends(), sends, "sent although Ambiguous")
			require.Equal(t, 1, asked, "asked again after it answered")
		})
	}
}

func TestAnInFlightAnswerWaitsAsLongAsTheDialectSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &verdictBase{}
		c := verdictClient(t, base, idem.Options{Retry: verdictPatient, Dialect: idem.Dialect{InFlightDelay: 7 * time.Second}})
		defer c.Close()
		base.script(verdictLost, verdictAnswer(409, ""), verdictAnswer(409, "", "Retry-After", "9"))
		began := time.Now()
		_, err := c.Do(verdictNamed("held"))
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(began), 16*time.Second)
		require.LessOrEqual(t, time.Since(began), 18*time.Second)
	})
}

// A silent 409: nobody else can hold a key that was just minted, but somebody may
// hold one that the caller brought.
func TestAConflictIsInFlightUnlessTheKeyIsFresh(t *testing.T) {
	for _, own := range []string{"minted", "caller", "sdk"} {
		synctest.Test(t, func(t *testing.T) {
			base := &verdictBase{}
			c := verdictClient(t, base, idem.Options{Retry: verdictPatient})
			defer c.Close()
			base.script(verdictAnswer(409, `{}`))
			req := verdictNamed("conflict")
			switch own {
			case "caller":
				req = req.WithContext(idem.WithKey(req.Context(), idem.NewKey()))
			case "sdk":
				req.Header.Set("idempotency-key", string(idem.NewKey()))
			}
			resp, err := c.Do(req)
			require.NoError(t, err)
			if own == "minted" {
				require.Equal(t, 409, resp.StatusCode)
				require.Len(t, base.sends(), 1)
				return
			}
			require.Equal(t, 200, resp.StatusCode)
			require.Len(t, base.sends(), 2, own)
			verdictSame(t, base.sends())
		})
	}
}

func TestAStoredFailureAsksReconcile(t *testing.T) {
	for fate, state := range map[idem.Fate]string{idem.FateDone: "settled", idem.FateNotDone: "settled", idem.FateUnknown: "ambiguous"} {
		synctest.Test(t, func(t *testing.T) {
			base := &verdictBase{}
			c := verdictClient(t, base, idem.Options{Retry: verdictPatient, Reconcile: func(context.Context, idem.Entry) (idem.Finding, error) {
				if fate == idem.FateDone {
					return idem.Finding{Fate: fate, Status: 201, Body: []byte(`{"id":1}`)}, nil
				}
				return idem.Finding{Fate: fate}, nil
			}})
			defer c.Close()
			base.script(verdictLost, verdictAnswer(500, "{}", "Idempotent-Replayed", "true"))
			resp, err := c.Do(verdictNamed("stored"))
			require.Len(t, base.sends(), 2, fmt.Sprint(fate))
			require.Equal(t, fate, idem.FateOf(resp, err))
			require.Equal(t, state, verdictState(t, c, "stored"))
			require.Equal(t, fate == idem.FateDone, err == nil)
		})
	}
}
