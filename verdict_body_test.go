package idem_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
)

func TestABodyCutShortIsFetchedByReplay(t *testing.T) {
	for _, framing := range []mockserver.Framing{mockserver.FramingLength, mockserver.FramingChunked, mockserver.FramingClose} {
		t.Run(string(framing), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := mockserver.New(nil)
				defer srv.Close()
				c := verdictClient(t, srv.Transport(), idem.Options{Retry: verdictPatient})
				defer c.Close()
				srv.Script(mockserver.Fault{Kind: mockserver.FaultCut, Framing: framing})
				resp, err := c.Do(verdictReq(idem.WithIntent(context.Background(), "cut"), "POST", `{"id":"cut"}`))
				require.NoError(t, err)
				body, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.Contains(t, string(body), `"resource"`)
				r, _ := idem.ResultOf(resp)
				require.True(t, r.Replayed)
				require.Equal(t, 2, r.Attempts)
				require.Equal(t, 1, srv.Effects("cut"))
				require.Len(t, srv.Requests(), 2)
			})
		})
	}
}

func TestABodyCutOnEveryAttemptIsDoneAndPending(t *testing.T) {
	for _, op := range []string{"Do", "Transport"} {
		for _, chunked := range []bool{false, true} {
			t.Run(fmt.Sprint(op, chunked), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					base := &verdictBase{}
					c := verdictClient(t, base, idem.Options{Retry: verdictPatient})
					defer c.Close()
					base.always(verdictCut(201, chunked))
					call := c.Do
					if op == "Transport" {
						call = c.Transport().RoundTrip
					}
					resp, err := call(verdictNamed("cut"))
					e := verdictErr(t, resp, err)
					require.Equal(t, idem.FateDone, e.Fate)
					require.ErrorIs(t, err, io.ErrUnexpectedEOF)
					require.ErrorIs(t, err, idem.ErrExhausted)
					require.Equal(t, verdictPatient.MaxAttempts, e.Attempts)
					require.Len(t, base.sends(), verdictPatient.MaxAttempts)
					entry, err := c.Lookup(context.Background(), "cut")
					require.NoError(t, err)
					require.Equal(t, idem.StatePending, entry.State)
					require.Equal(t, idem.FateDone, entry.Fate)
					_, err = entry.Response(context.Background())
					require.ErrorIs(t, err, idem.ErrNotFound, "a partial body was kept")

					base.script()
					report, err := c.Resume(context.Background(), nil)
					require.NoError(t, err)
					require.Equal(t, idem.Report{Done: 1}, report)
					resp, err = c.Do(verdictNamed("cut"))
					require.NoError(t, err)
					require.Equal(t, 200, resp.StatusCode)
				})
			})
		}
	}
}

// Done, then: the later answer may fail to supply the result, but it changes nothing.
func TestFateNeverGoesDownFromDone(t *testing.T) {
	for _, keyFirst := range []bool{false, true} {
		for _, replayed := range []string{"", "true"} {
			for _, status := range []int{307, 401, 404, 409, 422, 429, 500, 501, 503} {
				t.Run(fmt.Sprintf("%d keyFirst=%v replayed=%s", status, keyFirst, replayed), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						base := &verdictBase{}
						retry := verdictPatient
						retry.MaxAttempts = 2
						c := verdictClient(t, base, idem.Options{Retry: retry, Dialect: idem.Dialect{KeyFirst: keyFirst}})
						defer c.Close()
						base.script(verdictCut(201, false), verdictAnswer(status, `{"error":"duplicate"}`, "Idempotent-Replayed", replayed))
						resp, err := c.Do(verdictNamed("down"))
						e := verdictErr(t, resp, err) // a refusal is no answer to what is Done
						require.Equal(t, idem.FateDone, e.Fate)
						entry, err := c.Lookup(context.Background(), "down")
						require.NoError(t, err)
						require.Equal(t, idem.FateDone, entry.Fate)
						require.NotEqual(t, idem.StateSettled, entry.State, "the refusal was kept as the result")
						require.Zero(t, entry.Status)
					})
				})
			}
		}
	}
}

func TestJSONThatDoesntParseIsCutOnce(t *testing.T) {
	const half = `{"id":"ch_1","am`
	for _, v := range []struct {
		name  string
		steps []verdictStep
		body  string
		sends int
	}{
		{"then whole", []verdictStep{verdictOpen(201, half), verdictOpen(201, `{"id":"ch_1"}`)}, `{"id":"ch_1"}`, 2},
		{"twice the same", []verdictStep{verdictOpen(201, half), verdictOpen(201, half)}, half, 2},
		{"twice, then whole", []verdictStep{verdictOpen(201, half), verdictOpen(201, half[:9]), verdictOpen(201, `{}`)}, `{}`, 3},
		{"with a length it is what was meant", []verdictStep{verdictAnswer(201, half)}, half, 1},
	} {
		t.Run(v.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := &verdictBase{}
				c := verdictClient(t, base, idem.Options{Retry: verdictPatient})
				defer c.Close()
				base.script(v.steps...)
				resp, err := c.Do(verdictNamed("json"))
				require.NoError(t, err)
				body, _ := io.ReadAll(resp.Body)
				require.Equal(t, v.body, string(body))
				require.Len(t, base.sends(), v.sends)
				require.Equal(t, "settled", verdictState(t, c, "json"))
			})
		})
	}
}

func TestJSONThatDidntParseIsRememberedOverARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &verdictBase{}
		path := t.TempDir() + "/journal.db"
		opts := &idem.Options{Base: base, Retry: idem.RetryPolicy{MaxAttempts: 1}}
		c, err := idem.Open(path, opts)
		require.NoError(t, err)
		base.always(verdictOpen(201, `{"id":`))
		_, err = c.Do(verdictNamed("json"))
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.Equal(t, "pending", verdictState(t, c, "json"))
		require.NoError(t, c.Close())
		c, err = idem.Open(path, opts)
		require.NoError(t, err)
		defer c.Close()
		resp, err := c.Do(verdictNamed("json"))
		require.NoError(t, err)
		require.Equal(t, 201, resp.StatusCode)
	})
}

// A refusal whose body is cut can't be read by the dialect: what it would have
// said may be "already done" or "in flight".
func TestARefusalCutShortIsNoWholeAnswer(t *testing.T) {
	for _, dialect := range []idem.Dialect{
		{AlreadyDone: []idem.Match{{Status: 422, Path: "code", Value: "704"}}},
		{InFlight: []idem.Match{{Status: 422, Path: "code", Value: "in_progress"}}},
		{},
	} {
		synctest.Test(t, func(t *testing.T) {
			base := &verdictBase{}
			c := verdictClient(t, base, idem.Options{Retry: verdictPatient, Dialect: dialect})
			defer c.Close()
			ctx := idem.WithKey(context.Background(), idem.NewKey())
			base.script(verdictCut(422, false))
			resp, err := c.Do(verdictReq(ctx, "POST", `{}`))
			require.NoError(t, err)
			require.Len(t, base.sends(), 2)
			require.Equal(t, 200, resp.StatusCode)
		})
	}
}

func TestACancelWhileTheBodyComesIsDoneAndNoFailureOfTheProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &verdictBase{}
		c := verdictClient(t, base, idem.Options{Retry: verdictPatient, Breaker: idem.BreakerPolicy{MinRequests: 1, FailureRate: 0.1}})
		defer c.Close()
		base.script(func(req *http.Request) (*http.Response, error) {
			resp, _ := verdictAnswer(201, `{"id":1}`)(req)
			resp.Body = io.NopCloser(verdictSlow{req.Context()})
			return resp, nil
		})
		ctx, cancel := context.WithCancel(idem.WithIntent(context.Background(), "left"))
		defer cancel()
		go func() { synctest.Wait(); cancel() }()
		resp, err := c.Do(verdictReq(ctx, "POST", `{}`))
		require.Equal(t, idem.FateDone, verdictErr(t, resp, err).Fate)
		require.ErrorIs(t, err, context.Canceled)
		_, err = c.Do(verdictNamed("next"))
		require.NoError(t, err, "the caller's cancel opened the breaker")
	})
}

// verdictSlow gives nothing until its attempt ends.
type verdictSlow struct{ ctx context.Context }

func (s verdictSlow) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, context.Cause(s.ctx)
}
