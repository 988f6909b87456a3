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

var verdictKeyless = idem.Dialect{Name: "keyless", Placement: idem.PlaceNone}

// Without a key, whatever may have reached the provider is not sent again.
func TestAnUnkeyedPostIsSentAtMostOnce(t *testing.T) {
	for _, v := range []struct {
		name  string
		steps []verdictStep
		fate  idem.Fate
		state string
		sends int
	}{
		{"200", []verdictStep{verdictAnswer(200, "{}")}, idem.FateDone, "settled", 1},
		{"lost", []verdictStep{verdictLost}, idem.FateUnknown, "ambiguous", 1},
		{"503", []verdictStep{verdictAnswer(503, "")}, idem.FateUnknown, "ambiguous", 1},
		{"503 that says when", []verdictStep{verdictAnswer(503, "", "Retry-After", "1")}, idem.FateUnknown, "ambiguous", 1},
		{"408", []verdictStep{verdictAnswer(408, "")}, idem.FateUnknown, "ambiguous", 1},
		{"303", []verdictStep{verdictAnswer(303, "")}, idem.FateUnknown, "ambiguous", 1},
		{"422", []verdictStep{verdictAnswer(422, "")}, idem.FateNotDone, "settled", 1},
		{"409", []verdictStep{verdictAnswer(409, "")}, idem.FateNotDone, "settled", 1},
		{"401", []verdictStep{verdictAnswer(401, "")}, idem.FateNotDone, "withdrawn", 1},
		{"refused, then 200", []verdictStep{verdictRefused, verdictRefused}, idem.FateDone, "settled", 3},
		{"refused, then lost", []verdictStep{verdictRefused, verdictLost}, idem.FateUnknown, "ambiguous", 2},
		{"cut", []verdictStep{verdictCut(200, false)}, idem.FateDone, "settled", 1},
	} {
		t.Run(v.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := &verdictBase{}
				path := t.TempDir() + "/journal.db"
				opts := &idem.Options{Base: base, Retry: verdictPatient, Dialect: verdictKeyless, Breaker: idem.BreakerPolicy{Disabled: true}}
				c, err := idem.Open(path, opts)
				require.NoError(t, err)
				base.script(v.steps...)
				resp, err := c.Do(verdictNamed("once"))
				require.Equal(t, v.fate, idem.FateOf(resp, err), "%v", err)
				require.Equal(t, v.state, verdictState(t, c, "once"))
				require.Len(t, base.sends(), v.sends)
				if v.state == "ambiguous" {
					require.ErrorIs(t, err, idem.ErrUnkeyed)
				}
				for _, s := range base.sends() {
					require.Empty(t, s.Key)
				}
				require.NoError(t, c.Close())

				// Neither a restart nor a new Do sends it again.
				c, err = idem.Open(path, opts)
				require.NoError(t, err)
				defer c.Close()
				base.script()
				_, err = c.Resume(context.Background(), nil)
				require.NoError(t, err)
				if v.state != "withdrawn" {
					_, _ = c.Do(verdictNamed("once"))
				}
				require.Empty(t, base.sends())
			})
		})
	}
}

func TestAnUnkeyedPostWhoseBytesLeftIsNotSentAgain(t *testing.T) {
	for _, step := range []verdictStep{verdictAnswer(429, "", "Retry-After", "1"), verdictAnswer(307, "", "Location", "/v2/charges")} {
		synctest.Test(t, func(t *testing.T) {
			base := &verdictBase{}
			c := verdictClient(t, base, idem.Options{Retry: verdictPatient, Dialect: verdictKeyless})
			defer c.Close()
			base.script(step)
			_, err := c.Do(verdictNamed("once"))
			require.NoError(t, err)
			require.Len(t, base.sends(), 1)
		})
	}
}

func TestPutAndDeleteAreSentAgainWhileTheirCallerWaits(t *testing.T) {
	for _, method := range []string{"PUT", "DELETE"} {
		for _, step := range []verdictStep{verdictLost, verdictAnswer(503, ""), verdictCut(200, false), verdictAnswer(408, "")} {
			synctest.Test(t, func(t *testing.T) {
				base := &verdictBase{}
				c := verdictClient(t, base, idem.Options{Retry: verdictPatient})
				defer c.Close()
				base.script(step)
				resp, err := c.Do(verdictReq(idem.WithIntent(context.Background(), "set"), method, `{"degrees":18}`))
				require.NoError(t, err)
				require.Equal(t, idem.FateDone, idem.FateOf(resp, err))
				require.Len(t, base.sends(), 2)
				require.Empty(t, base.sends()[0].Key, "outside the dialect's methods")
			})
		}
	}
}

// A newer write may have passed since: only a precondition of its own makes a late
// resend harmless.
func TestAStalePutIsSentLaterOnlyUnderItsPrecondition(t *testing.T) {
	for _, p := range []struct {
		precondition, value string
		guards              bool
	}{
		{"", "", false}, {"If-Match", `"v1"`, true}, {"If-None-Match", "*", true},
		{"If-Match", "*", false}, {"If-None-Match", `"old"`, false}, {"If-Unmodified-Since", "Mon, 01 Jun 2026 12:00:00 GMT", false},
	} {
		synctest.Test(t, func(t *testing.T) {
			base := &verdictBase{}
			retry := verdictPatient
			retry.MaxAttempts = 2
			c := verdictClient(t, base, idem.Options{Retry: retry})
			defer c.Close()
			base.always(verdictLost)
			req := verdictReq(idem.WithIntent(context.Background(), "set"), "PUT", `{"degrees":18}`)
			if p.precondition != "" {
				req.Header.Set(p.precondition, p.value)
			}
			_, err := c.Do(req)
			require.Error(t, err)
			require.Len(t, base.sends(), 2)
			want := "pending"
			if !p.guards {
				want = "ambiguous"
			}
			require.Equal(t, want, verdictState(t, c, "set"))
			base.script()
			_, err = c.Resume(context.Background(), nil)
			require.NoError(t, err)
			require.Equal(t, p.guards, len(base.sends()) == 1)
			if !p.guards {
				req.Body, _ = req.GetBody()
				_, err = c.Do(req)
				require.ErrorIs(t, err, idem.ErrUnkeyed)
				require.Empty(t, base.sends())
			}
		})
	}
}

// Nobody waits for what Run carries: a queued PUT whose answer was lost may meet a
// newer write before its resend.
func TestAQueuedPutIsNotSentAgainByRunAfterALostAnswer(t *testing.T) {
	for _, step := range []verdictStep{verdictLost, verdictAnswer(503, "", "Retry-After", "30")} {
		synctest.Test(t, func(t *testing.T) {
			base := &verdictBase{}
			c := verdictClient(t, base, idem.Options{Retry: verdictPatient})
			defer c.Close()
			base.script(step)
			_, err := c.Enqueue(verdictReq(idem.WithIntent(context.Background(), "set"), "PUT", `{"degrees":18}`))
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error)
			go func() { done <- c.Run(ctx) }()
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			cancel()
			require.NoError(t, <-done)
			require.Len(t, base.sends(), 1)
			require.Equal(t, "ambiguous", verdictState(t, c, "set"))
		})
	}
}

func TestADeleteThatFindsNothingAfterALostAnswer(t *testing.T) {
	gone := []idem.Match{{Method: "DELETE", Status: 404, Path: "code", Value: "no_such_charge"}}
	for _, v := range []struct {
		name   string
		keyed  bool
		done   []idem.Match
		before bool
		status int
		fate   idem.Fate
		state  string
	}{
		{"410", false, nil, true, 410, idem.FateDone, "settled"},
		{"404", false, nil, true, 404, idem.FateUnknown, "pending"},
		{"404 that the dialect knows", false, gone, true, 404, idem.FateDone, "settled"},
		{"keyed 410", true, nil, true, 410, idem.FateDone, "settled"},
		{"keyed 404", true, nil, true, 404, idem.FateUnknown, "pending"},
		{"keyed 404 that the dialect knows", true, gone, true, 404, idem.FateDone, "settled"},
		{"nothing before, 410", false, nil, false, 410, idem.FateNotDone, "settled"},
		{"nothing before, 404", false, nil, false, 404, idem.FateNotDone, "settled"},
	} {
		t.Run(v.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := &verdictBase{}
				dialect := idem.Dialect{AlreadyDone: v.done}
				if v.keyed {
					dialect.Methods = []string{"POST", "DELETE"}
				}
				c := verdictClient(t, base, idem.Options{Retry: verdictPatient, Dialect: dialect})
				defer c.Close()
				steps := []verdictStep{verdictAnswer(v.status, `{"code":"no_such_charge"}`)}
				if v.before {
					steps = append([]verdictStep{verdictLost}, steps...)
				}
				for op, call := range map[string]func(*http.Request) (*http.Response, error){"Do": c.Do, "Transport": c.Transport().RoundTrip} {
					base.script(steps...)
					resp, err := call(verdictReq(idem.WithIntent(context.Background(), op), "DELETE", ""))
					require.Equal(t, v.fate, idem.FateOf(resp, err), "%s: %v", op, err)
					if v.fate == idem.FateUnknown && !v.keyed {
						require.NotEqual(t, "settled", verdictState(t, c, op))
					} else {
						require.Equal(t, v.state, verdictState(t, c, op))
					}
					require.Len(t, base.sends(), len(steps))
					if err != nil {
						verdictErr(t, resp, err)
					}
				}
			})
		})
	}
}

func TestARequestOutsideTheDialectsPathsIsUnkeyed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &verdictBase{}
		c := verdictClient(t, base, idem.Options{Retry: verdictPatient, Dialect: idem.Dialect{Paths: []string{"/v2/**"}}})
		defer c.Close()
		base.script(verdictLost)
		_, err := c.Do(verdictNamed("outside"))
		require.ErrorIs(t, err, idem.ErrUnkeyed)
		require.Len(t, base.sends(), 1)
		require.Empty(t, base.sends()[0].Key)
	})
}
