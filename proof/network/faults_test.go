package network

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
	"github.com/idem-go/idem/proof/rig"
)

// faultCase is one fault over real sockets, with the default Base.
type faultCase struct {
	name     string
	faults   []mockserver.Fault
	keep5xx  mockserver.Keep
	fate     idem.Fate
	is       error // nil: Do gives an answer
	status   int   // of that answer; 0 is 201
	requests int   // that arrive
	attempts int   // that the client counts; 0 is as many as arrive
	effects  int
	pending  int
	timeout  time.Duration // of an attempt; 0 is so long that no load exceeds it
}

var faultCases = []faultCase{
	{name: "none", fate: idem.FateDone, requests: 1, effects: 1},
	{name: "a delay within the attempt's time", faults: []mockserver.Fault{{Kind: mockserver.FaultDelay, Delay: 50 * time.Millisecond}}, fate: idem.FateDone, requests: 1, effects: 1},
	{name: "hang", faults: []mockserver.Fault{{Kind: mockserver.FaultHang}}, timeout: time.Second, fate: idem.FateDone, requests: 2, effects: 1},
	{name: "refuse", faults: []mockserver.Fault{{Kind: mockserver.FaultRefuse}}, fate: idem.FateDone, requests: 1, attempts: 2, effects: 1},
	{name: "reset before the effect", faults: []mockserver.Fault{{Kind: mockserver.FaultReset}}, fate: idem.FateDone, requests: 2, effects: 1},
	{name: "reset after the effect", faults: []mockserver.Fault{{Kind: mockserver.FaultReset, After: true}}, fate: idem.FateDone, requests: 2, effects: 1},
	{name: "drop", faults: []mockserver.Fault{{Kind: mockserver.FaultDrop}}, fate: idem.FateDone, requests: 2, effects: 1},
	{name: "drop, always", faults: []mockserver.Fault{{Kind: mockserver.FaultDrop, Times: -1}}, fate: idem.FateUnknown, is: idem.ErrExhausted, requests: 5, effects: 1, pending: 1},
	{name: "cut by length", faults: []mockserver.Fault{{Kind: mockserver.FaultCut}}, fate: idem.FateDone, requests: 2, effects: 1},
	{name: "cut within a chunk", faults: []mockserver.Fault{{Kind: mockserver.FaultCut, Framing: mockserver.FramingChunked}}, fate: idem.FateDone, requests: 2, effects: 1},
	{name: "cut with the connection", faults: []mockserver.Fault{{Kind: mockserver.FaultCut, Framing: mockserver.FramingClose}}, fate: idem.FateDone, requests: 2, effects: 1},
	{name: "cut, always", faults: []mockserver.Fault{{Kind: mockserver.FaultCut, Times: -1}}, fate: idem.FateDone, is: io.ErrUnexpectedEOF, requests: 5, effects: 1, pending: 1},
	{name: "cut within the head", faults: []mockserver.Fault{{Kind: mockserver.FaultCutHead}}, fate: idem.FateDone, requests: 2, effects: 1},
	{name: "503 in front", faults: []mockserver.Fault{{Kind: mockserver.FaultStatus}}, fate: idem.FateDone, requests: 2, effects: 1},
	{name: "502 after the effect", faults: []mockserver.Fault{{Kind: mockserver.FaultStatus, Status: 502, After: true}}, fate: idem.FateDone, requests: 2, effects: 1},
	{name: "402", faults: []mockserver.Fault{{Kind: mockserver.FaultStatus, Status: 402}}, fate: idem.FateNotDone, status: 402, requests: 1},
	{name: "401", faults: []mockserver.Fault{{Kind: mockserver.FaultStatus, Status: 401}}, fate: idem.FateNotDone, status: 401, requests: 1},
	{name: "401 after a lost answer", faults: []mockserver.Fault{{Kind: mockserver.FaultDrop}, {Kind: mockserver.FaultStatus, Status: 401}}, fate: idem.FateUnknown, is: idem.ErrInDoubt, requests: 2, effects: 1, pending: 1},
	{name: "307 within the origin", faults: []mockserver.Fault{{Kind: mockserver.FaultStatus, Status: 307, Header: http.Header{"Location": {"/v1/payments"}}}}, fate: idem.FateDone, requests: 2, effects: 1},
	{name: "303 to a page", faults: []mockserver.Fault{{Kind: mockserver.FaultStatus, Status: 303, Header: http.Header{"Location": {"/login"}}}}, fate: idem.FateUnknown, is: idem.ErrInDoubt, requests: 1, pending: 1},
	{name: "in flight after a lost answer", faults: []mockserver.Fault{{Kind: mockserver.FaultDrop}, {Kind: mockserver.FaultInFlight}}, fate: idem.FateDone, requests: 3, effects: 1},
	{name: "rate limit", faults: []mockserver.Fault{{Kind: mockserver.FaultRateLimit}}, fate: idem.FateDone, requests: 2, effects: 1},
	{name: "500 that leaves the key free", faults: []mockserver.Fault{{Kind: mockserver.FaultFail}}, fate: idem.FateDone, requests: 2, effects: 1},
	{name: "500 that is kept", keep5xx: mockserver.KeepAnswer, faults: []mockserver.Fault{{Kind: mockserver.FaultFail}}, fate: idem.FateUnknown, is: idem.ErrInDoubt, requests: 2, pending: 1},
	{name: "forget", faults: []mockserver.Fault{{Kind: mockserver.FaultForget}}, fate: idem.FateDone, requests: 1, effects: 1},
	{name: "restart before the effect", faults: []mockserver.Fault{{Kind: mockserver.FaultRestart}}, fate: idem.FateDone, requests: 2, effects: 1},
	{name: "restart after the effect", faults: []mockserver.Fault{{Kind: mockserver.FaultRestart, After: true}}, fate: idem.FateDone, requests: 2, effects: 1},
}

func faultOptions() *idem.Options {
	opts := rig.Options()
	opts.Retry.MaxAttempts = 5
	opts.Dialect.InFlightDelay = time.Millisecond
	return opts
}

// Each case runs over a fresh connection and over one that was used before, over
// which net/http would send again by itself.
func TestFaultsOverRealSocketsEndInTheTruth(t *testing.T) {
	for _, tc := range faultCases {
		for _, used := range []bool{false, true} {
			name := tc.name + ", fresh connection"
			if used {
				name = tc.name + ", used connection"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				runFault(t, tc, used)
			})
		}
	}
}

func runFault(t *testing.T, tc faultCase, used bool) {
	profile := mockserver.Standard()
	profile.Keep5xx = tc.keep5xx
	srv := mockserver.Start(t, &mockserver.Config{Profile: profile})
	opts := faultOptions()
	opts.Retry.AttemptTimeout = tc.timeout
	c, err := idem.Open(t.TempDir()+"/journal", opts)
	require.NoError(t, err)
	defer c.Close()
	if used {
		require.NoError(t, rig.Do(c, rig.Request(context.Background(), srv.URL, `{"id":"first"}`)))
	}
	before := len(srv.Requests())
	srv.Script(tc.faults...)

	var result idem.Result
	ctx := idem.WithResult(idem.WithIntent(context.Background(), rig.Name), &result)
	resp, err := c.Do(rig.Request(ctx, srv.URL, rig.Body))
	story := rig.Story(srv, rig.Value)
	require.Equal(t, tc.fate, idem.FateOf(resp, err), "%v%s", err, story)
	require.Equal(t, tc.fate, result.Fate)
	if tc.is != nil {
		require.ErrorIs(t, err, tc.is)
	} else {
		require.NoError(t, err)
		want := tc.status
		if want == 0 {
			want = http.StatusCreated
		}
		require.Equal(t, want, resp.StatusCode)
	}
	attempts := tc.attempts
	if attempts == 0 {
		attempts = tc.requests
	}
	require.Len(t, srv.Requests(), before+tc.requests, "requests%s", story)
	require.Equal(t, attempts, result.Attempts, "attempts%s", story)
	require.Equal(t, tc.pending, rig.Pending(c))
	srv.Heal()
	rig.Ledger(t, srv, rig.Value, tc.effects)
}

// The request of a timed out attempt may arrive after that of the next one.
func TestALateTwinHasNoSecondEffect(t *testing.T) {
	for _, kind := range []mockserver.FaultKind{mockserver.FaultLate, mockserver.FaultDelay} {
		t.Run(string(kind), func(t *testing.T) {
			srv := mockserver.Start(t, &mockserver.Config{Faults: []mockserver.Fault{{Kind: kind, Delay: 600 * time.Millisecond}}})
			opts := faultOptions()
			opts.Retry.AttemptTimeout, opts.Retry.MaxAttempts = 100*time.Millisecond, 100
			c, err := idem.Open(t.TempDir()+"/journal", opts)
			require.NoError(t, err)
			defer c.Close()
			require.NoError(t, rig.Do(c, rig.Request(idem.WithIntent(context.Background(), rig.Name), srv.URL, rig.Body)))
			rig.Ledger(t, srv, rig.Value, 1)
		})
	}
}

func TestNothingListeningIsNotDone(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	url := "http://" + l.Addr().String()
	require.NoError(t, l.Close())
	c, err := idem.Open(t.TempDir()+"/journal", faultOptions())
	require.NoError(t, err)
	defer c.Close()
	for name, target := range map[string]string{
		"a closed port": url, "a name that doesn't resolve": "http://name.invalid", "TLS to a plain server": "https://" + plainAddr(t),
	} {
		_, err = c.Do(rig.Request(idem.WithIntent(context.Background(), rig.Name), target, rig.Body))
		require.Error(t, err, name)
		require.Equal(t, idem.FateNotDone, idem.FateOf(nil, err), "%s: %v", name, err)
		_, err = c.Lookup(context.Background(), rig.Name)
		require.ErrorIs(t, err, idem.ErrNotFound, "%s: withdrawn", name)
	}
}

// plainAddr is the address of a server that speaks no TLS.
func plainAddr(t *testing.T) string {
	srv := mockserver.Start(t, nil)
	return strings.TrimPrefix(srv.URL, "http://")
}

// A request without a body is one that net/http would send again by itself, keyed or
// not; whatever arrives is counted, and nothing is sent after doubt is final.
func TestARequestWithoutBodyIsNotResentBehindOurBack(t *testing.T) {
	for _, fault := range []mockserver.Fault{
		{Kind: mockserver.FaultRefuse}, {Kind: mockserver.FaultReset}, {Kind: mockserver.FaultReset, After: true}, {Kind: mockserver.FaultDrop},
	} {
		for _, attempts := range []int{1, 5} {
			srv := mockserver.Start(t, nil)
			opts := faultOptions()
			opts.Retry.MaxAttempts = attempts
			c, err := idem.Open(t.TempDir()+"/journal", opts)
			require.NoError(t, err)
			require.NoError(t, rig.Do(c, rig.Request(context.Background(), srv.URL, `{"id":"first"}`)))
			before := len(srv.Requests())
			srv.Script(fault)
			var result idem.Result
			req := rig.Request(idem.WithResult(idem.WithIntent(context.Background(), rig.Name), &result), srv.URL, "")
			req.Body, req.ContentLength, req.GetBody = nil, 0, nil
			_, err = c.Do(req)
			arrived := len(srv.Requests()) - before
			if attempts == 1 {
				require.Equal(t, idem.FateUnknown, idem.FateOf(nil, err), "%s: %v", fault.Kind, err)
				require.LessOrEqual(t, arrived, 1, fault.Kind)
			} else {
				require.NoError(t, err)
			}
			require.LessOrEqual(t, arrived, result.Attempts, "%s", fault.Kind)
			srv.Wait()
			require.LessOrEqual(t, srv.Effects("payments"), 1)
			require.Len(t, srv.Keys("payments"), min(arrived, 1))
			require.NoError(t, c.Close())
		}
	}
}

func TestFaultsOverHTTP2HaveOneEffect(t *testing.T) {
	for _, body := range []string{rig.Body, ""} {
		srv := mockserver.New(nil)
		l := httptest.NewUnstartedServer(srv)
		l.EnableHTTP2 = true
		l.StartTLS()
		base := l.Client().Transport.(*http.Transport).Clone()
		opts := faultOptions()
		opts.Base = base
		c, err := idem.Open(t.TempDir()+"/journal", opts)
		require.NoError(t, err)
		srv.Script(
			mockserver.Fault{Kind: mockserver.FaultReset}, mockserver.Fault{Kind: mockserver.FaultDrop},
			mockserver.Fault{Kind: mockserver.FaultCut}, mockserver.Fault{Kind: mockserver.FaultStatus},
		)
		var result idem.Result
		req := rig.Request(idem.WithResult(idem.WithIntent(context.Background(), rig.Name), &result), l.URL, body)
		resp, err := c.Do(req)
		require.NoError(t, err)
		require.Equal(t, 2, resp.ProtoMajor)
		require.Len(t, srv.Requests(), result.Attempts)
		require.Equal(t, 1, srv.Total())
		value := srv.Values()[0]
		rig.Ledger(t, srv, value, 1)
		require.NoError(t, c.Close())
		base.CloseIdleConnections()
		l.Close()
		srv.Close()
	}
}

// A caller's cancel while the provider works is Unknown, and found out later.
func TestACancelOverRealSocketsIsUnknownAndFoundOutLater(t *testing.T) {
	srv := mockserver.Start(t, &mockserver.Config{Faults: []mockserver.Fault{{Kind: mockserver.FaultHang}}})
	c, err := idem.Open(t.TempDir()+"/journal", faultOptions())
	require.NoError(t, err)
	defer c.Close()
	reason := errors.New("the user left")
	ctx, cancel := context.WithCancelCause(context.Background())
	go func() {
		for srv.Effects(rig.Value) == 0 {
			time.Sleep(time.Millisecond)
		}
		cancel(reason)
	}()
	_, err = c.Do(rig.Request(idem.WithIntent(ctx, rig.Name), srv.URL, rig.Body))
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, reason)
	require.Equal(t, idem.FateUnknown, idem.FateOf(nil, err))
	report, err := c.Resume(context.Background(), nil)
	require.NoError(t, err)
	require.Equal(t, idem.Report{Done: 1}, report)
	rig.Ledger(t, srv, rig.Value, 1)
}
