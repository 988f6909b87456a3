package idem_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dialect"
)

func gzipped(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(text))
	_ = w.Close()
	return b.String()
}

// fateAfter makes one named call whose attempts meet the steps.
func fateAfter(t *testing.T, opts idem.Options, steps ...verdictStep) (fate idem.Fate, state string, sends int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		base := &verdictBase{}
		opts.Retry.MaxAttempts = max(len(steps), 1)
		c := verdictClient(t, base, opts)
		defer c.Close()
		base.script(steps...)
		resp, err := c.Do(verdictNamed("n"))
		fate, state, sends = idem.FateOf(resp, err), verdictState(t, c, "n"), len(base.sends())
	})
	return fate, state, sends
}

func TestACompressedAnswerIsReadByTheMatchers(t *testing.T) {
	d := idem.Dialect{
		KeyFirst: true,
		Mismatch: []idem.Match{{Status: 400, Path: "error.type", Value: "idempotency_error"}},
	}
	mismatch := gzipped(`{"error":{"type":"idempotency_error"}}`)
	fate, _, _ := fateAfter(t, idem.Options{Dialect: d}, verdictLost, verdictAnswer(400, mismatch, "Content-Encoding", "gzip"))
	require.Equal(t, idem.FateUnknown, fate, "the key holds another payload: a refusal of ours proves nothing")

	fate, state, _ := fateAfter(t, idem.Options{Dialect: d}, verdictAnswer(402, "\x8b\x03\x80", "Content-Encoding", "br"))
	require.Equal(t, idem.FateUnknown, fate, "what can't be read proves no refusal")
	require.Equal(t, "pending", state)
}

func TestACompressedAnswerIsHandedOverAsItCame(t *testing.T) {
	base := &verdictBase{}
	c := verdictClient(t, base, idem.Options{})
	defer c.Close()
	base.script(verdictAnswer(200, gzipped(`{"ok":true}`), "Content-Encoding", "gzip"))
	resp, err := c.Do(verdictNamed("n"))
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, gzipped(`{"ok":true}`), string(body))
}

func TestAnAnswerOfALayerInFrontIsAtTheDoor(t *testing.T) {
	for name, step := range map[string]verdictStep{
		"AWS WAF's challenge":     verdictAnswer(202, "", "X-Amzn-Waf-Action", "challenge"),
		"Cloudflare's challenge":  verdictAnswer(403, "<html>", "Cf-Mitigated", "challenge"),
		"a captive portal's page": verdictAnswer(200, "<html>log in</html>", "Content-Type", "text/html"),
	} {
		d := idem.Dialect{Success: []idem.Match{{Path: "id"}}}
		fate, state, _ := fateAfter(t, idem.Options{Dialect: d}, step)
		require.Equal(t, idem.FateNotDone, fate, name)
		require.Equal(t, "withdrawn", state, name)
		fate, state, _ = fateAfter(t, idem.Options{Dialect: d}, verdictLost, step)
		require.Equal(t, idem.FateUnknown, fate, name)
		require.Equal(t, "pending", state, name)
	}
	fate, _, _ := fateAfter(t, idem.Options{Dialect: idem.Dialect{Success: []idem.Match{{Path: "id"}}}}, verdictAnswer(200, `{"id":"ch_1"}`))
	require.Equal(t, idem.FateDone, fate)
}

func TestThrottlingAndExpiredTokensAreNeverSettled(t *testing.T) {
	for name, c := range map[string]struct {
		dialect idem.Dialect
		step    verdictStep
		sends   int
	}{
		"AWS throttles with a 400": {dialect.AWS(), verdictAnswer(400, `{"__type":"com.amazonaws.dynamodb.v20120810#ThrottlingException"}`), 2},
		"AWS's expired token":      {dialect.AWS(), verdictAnswer(400, `{"__type":"ExpiredTokenException"}`), 1},
		"in a header with a URI":   {dialect.AWS(), verdictAnswer(400, `{}`, "X-Amzn-Errortype", "ThrottlingException:http://internal.amazon.com/coral/"), 2},
		"GraphQL throttles in 200": {idem.Dialect{Throttled: []idem.Match{{Path: "errors.0.extensions.code", Value: "THROTTLED"}}},
			verdictAnswer(200, `{"errors":[{"extensions":{"code":"THROTTLED"}}]}`), 2},
		"a 403 that says when": {idem.Dialect{}, verdictAnswer(403, "", "Retry-After", "1"), 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := &verdictBase{}
				c2 := verdictClient(t, base, idem.Options{Dialect: c.dialect, Retry: idem.RetryPolicy{MaxAttempts: 2}})
				defer c2.Close()
				base.always(c.step)
				resp, err := c2.Do(verdictNamed("n"))
				require.Equal(t, idem.FateNotDone, idem.FateOf(resp, err), "%v", err)
				require.Equal(t, "withdrawn", verdictState(t, c2, "n"), "it isn't recalled under the name")
				require.Len(t, base.sends(), c.sends)
				base.script()
				resp, err = c2.Do(verdictNamed("n"))
				require.NoError(t, err)
				require.Equal(t, idem.FateDone, idem.FateOf(resp, err))
			})
		})
	}
}

func TestAnErrorTypeIsFoundByItsLastPart(t *testing.T) {
	for _, body := range []string{
		`{"__type":"com.amazonaws.ecs#IdempotentParameterMismatch"}`, `{"__type":"IdempotentParameterMismatch:http://internal/"}`,
	} {
		ctx := idem.WithKey(context.Background(), "0198c5f5-0000-4000-8000-000000000000")
		base := &verdictBase{}
		c := verdictClient(t, base, idem.Options{Dialect: dialect.AWS()})
		base.script(verdictAnswer(400, body))
		resp, err := c.Do(verdictReq(ctx, "POST", `{"amount":500}`))
		require.ErrorIs(t, err, idem.ErrMismatch, body)
		require.Equal(t, idem.FateUnknown, idem.FateOf(resp, err))
		require.NoError(t, c.Close())
	}
}

func TestEC2sMismatchIsReadFromItsXML(t *testing.T) {
	base := &verdictBase{}
	c := verdictClient(t, base, idem.Options{Dialect: dialect.EC2()})
	defer c.Close()
	base.script(verdictAnswer(400, `<?xml version="1.0"?><Response><Errors><Error><Code>IdempotentParameterMismatch</Code></Error></Errors></Response>`))
	req := verdictReq(idem.WithKey(context.Background(), idem.NewKey()), "POST", "Action=RunInstances")
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := c.Do(req)
	require.ErrorIs(t, err, idem.ErrMismatch)
	require.Equal(t, idem.FateUnknown, idem.FateOf(resp, err))
}

func TestADateIsMeasuredByTheServersOwnClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &verdictBase{}
		c := verdictClient(t, base, idem.Options{Retry: idem.RetryPolicy{MaxAttempts: 2, BaseDelay: time.Millisecond}})
		defer c.Close()
		ahead := time.Now().Add(10 * time.Minute).UTC() // the server's clock
		base.script(verdictAnswer(429, "", "Date", ahead.Format(http.TimeFormat), "Retry-After", ahead.Add(2*time.Second).Format(http.TimeFormat)))
		began := time.Now()
		_, err := c.Do(verdictNamed("n"))
		require.NoError(t, err)
		require.Less(t, time.Since(began), 4*time.Second)
	})
}

// pipeBody is the connection behind a 101.
type pipeBody struct{ net.Conn }

func TestASwitchedConnectionIsHandedOverAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &verdictBase{}
		c := verdictClient(t, base, idem.Options{Retry: idem.RetryPolicy{AttemptTimeout: time.Second}})
		defer c.Close()
		mine, theirs := net.Pipe()
		defer theirs.Close()
		base.script(func(req *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 101, Header: http.Header{"Upgrade": {"echo"}}, Body: pipeBody{mine}, Request: req}, nil
		})
		resp, err := c.Do(verdictNamed("n"))
		require.NoError(t, err)
		require.Equal(t, idem.FateDone, idem.FateOf(resp, err))
		require.Equal(t, "settled", verdictState(t, c, "n"))
		time.Sleep(time.Minute) // far past AttemptTimeout
		conn, ok := resp.Body.(io.ReadWriteCloser)
		require.True(t, ok)
		go func() { _, _ = theirs.Write([]byte("hello")) }()
		got := make([]byte, 5)
		_, err = io.ReadFull(conn, got)
		require.NoError(t, err)
		go func() { _, _ = io.ReadFull(theirs, got) }()
		_, err = conn.Write([]byte("howdy"))
		require.NoError(t, err)
		require.NoError(t, conn.Close())
	})
}

func TestAStreamLongerThanAnAttemptIsPassedThrough(t *testing.T) {
	for _, media := range []string{"application/x-ndjson", "application/jsonl; charset=utf-8", "text/event-stream"} {
		synctest.Test(t, func(t *testing.T) {
			base := &verdictBase{}
			c := verdictClient(t, base, idem.Options{Retry: idem.RetryPolicy{AttemptTimeout: time.Second}})
			defer c.Close()
			base.script(func(req *http.Request) (*http.Response, error) {
				r, w := io.Pipe()
				go func() {
					for i := range 5 {
						time.Sleep(time.Second)
						fmt.Fprintf(w, `{"n":%d}`+"\n", i)
					}
					w.Close()
				}()
				return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {media}}, Body: r, ContentLength: -1, Request: req}, nil
			})
			resp, err := c.Do(verdictNamed("n"))
			require.NoError(t, err)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.Equal(t, 5, strings.Count(string(body), "\n"))
			require.NoError(t, resp.Body.Close())
			require.Len(t, base.sends(), 1)
		})
	}
}

func TestVerdictsAreReadFromMoreThanIsKept(t *testing.T) {
	long := `{"pad":"` + strings.Repeat("x", 5000) + `","error":{"code":"in_use"}}`
	d := idem.Dialect{InFlight: []idem.Match{{Status: 400, Path: "error.code", Value: "in_use"}}}
	fate, state, sends := fateAfter(t, idem.Options{Dialect: d, MaxResult: 100}, verdictAnswer(400, long), verdictAnswer(200, "{}"))
	require.Equal(t, idem.FateDone, fate)
	require.Equal(t, "settled", state)
	require.Equal(t, 2, sends)
}

func TestAFailedDialIsNoProofWhereALaterOneConnected(t *testing.T) {
	base := &verdictBase{}
	c := verdictClient(t, base, idem.Options{Retry: idem.RetryPolicy{MaxAttempts: 1}})
	defer c.Close()
	base.script(func(req *http.Request) (*http.Response, error) { // a Base that never says GotConn
		trace := httptrace.ContextClientTrace(req.Context())
		trace.ConnectDone("tcp", "[::1]:443", &net.OpError{Op: "dial", Err: io.ErrClosedPipe})
		trace.ConnectDone("tcp", "127.0.0.1:443", nil)
		return nil, io.ErrUnexpectedEOF
	})
	resp, err := c.Do(verdictNamed("n"))
	require.Equal(t, idem.FateUnknown, idem.FateOf(resp, err))
	require.Equal(t, "pending", verdictState(t, c, "n"))
}

func TestABaseCanSayThatItSentNothing(t *testing.T) {
	fate, state, _ := fateAfter(t, idem.Options{}, verdictError(idem.NotSent(io.ErrNoProgress)))
	require.Equal(t, idem.FateNotDone, fate)
	require.Equal(t, "withdrawn", state)
}

func TestAPollProvesOnlyWhatTheJobSays(t *testing.T) {
	accepted := verdictAnswer(202, "", "Location", "/jobs/1")
	d := idem.Dialect{
		Accepted: idem.AcceptedPoll,
		NotDone:  []idem.Match{{Status: 404}, {Path: "status", Value: "failed"}},
	}
	for name, c := range map[string]struct {
		poll verdictStep
		fate idem.Fate
	}{
		"the job isn't found":          {verdictAnswer(404, ""), idem.FateUnknown},
		"the job failed":               {verdictAnswer(200, `{"status":"failed"}`), idem.FateNotDone},
		"a login page at a stranger's": {verdictAnswer(303, "", "Location", "https://sso.example/login"), idem.FateUnknown},
	} {
		fate, _, _ := fateAfter(t, idem.Options{Dialect: d}, accepted, c.poll)
		require.Equal(t, c.fate, fate, name)
	}
	fate, _, _ := fateAfter(t, idem.Options{Dialect: d}, accepted, verdictAnswer(303, "", "Location", "/charges/1"), verdictAnswer(200, `{"status":"failed"}`))
	require.Equal(t, idem.FateDone, fate, "fate never goes down")
}

func TestARedirectIsComparedWithTheURLThatWasSent(t *testing.T) {
	base := &verdictBase{}
	c := verdictClient(t, base, idem.Options{Retry: idem.RetryPolicy{MaxAttempts: 1}})
	defer c.Close()
	req := verdictNamed("n")
	req.URL.RawQuery = "token=s3cr3t"
	base.script(verdictAnswer(302, "", "Location", "https://login.example/v1/charges"))
	resp, err := c.Do(req)
	require.Equal(t, idem.FateUnknown, idem.FateOf(resp, err), "the token is gone from its query: not the same request elsewhere")
}

func TestWithoutAKeyAlreadyDoneMeansSomebodyElseDidIt(t *testing.T) {
	d := idem.Dialect{Placement: idem.PlaceNone, AlreadyDone: []idem.Match{{Status: 412}}}
	fate, _, _ := fateAfter(t, idem.Options{Dialect: d}, verdictAnswer(412, ""))
	require.Equal(t, idem.FateNotDone, fate)
}

func TestARefusalLongAfterTheLastDoubtIsProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &verdictBase{}
		c := verdictClient(t, base, idem.Options{Dialect: idem.Dialect{SettlesWithin: time.Minute}, Retry: idem.RetryPolicy{MaxAttempts: 1}})
		defer c.Close()
		base.script(verdictLost, verdictAnswer(402, "{}"), verdictAnswer(402, "{}"))
		_, err := c.Do(verdictNamed("n"))
		require.Error(t, err)
		time.Sleep(30 * time.Second)
		resp, err := c.Do(verdictNamed("n"))
		require.Equal(t, idem.FateUnknown, idem.FateOf(resp, err), "the first may still be at work")
		time.Sleep(31 * time.Second)
		resp, err = c.Do(verdictNamed("n"))
		require.NoError(t, err)
		require.Equal(t, idem.FateNotDone, idem.FateOf(resp, err))
	})
}

func TestTrailersAreRecalledWithTheirAnswer(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		_, _ = io.WriteString(w, "{}")
		w.Header().Set("X-Sum", "42")
	}))
	defer srv.Close()
	c, err := idem.Open(t.TempDir()+"/journal", nil)
	require.NoError(t, err)
	defer c.Close()
	for range 2 {
		resp, err := c.Do(verdictTo(srv.URL, "n", "{}"))
		require.NoError(t, err)
		_, err = io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, http.Header{"X-Sum": {"42"}}, resp.Trailer)
	}
}
