package network

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
)

// nameserver answers every question for an address with 127.0.0.1, when it is well.
type nameserver struct {
	conn  net.PacketConn
	state atomic.Int32 // what it does
	fails atomic.Int32 // how many questions it still fails before it is well
	asked atomic.Int32
}

// The states of a nameserver; the first two are DNS's own codes.
const (
	servFail int32 = 2
	nxDomain int32 = 3
	wellNS   int32 = 0
	silentNS int32 = -1
)

func startNameserver(t *testing.T) *nameserver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	n := &nameserver{conn: conn}
	ended := make(chan struct{})
	go func() { defer close(ended); n.serve() }()
	t.Cleanup(func() { conn.Close(); <-ended })
	return n
}

func (n *nameserver) serve() {
	buf := make([]byte, 4096)
	for {
		size, from, err := n.conn.ReadFrom(buf)
		if err != nil {
			return
		}
		n.asked.Add(1)
		state := n.state.Load()
		if n.fails.Load() > 0 && n.fails.Add(-1) == 0 {
			n.state.Store(wellNS)
		}
		if state != silentNS {
			_, _ = n.conn.WriteTo(answerTo(buf[:size], state), from)
		}
	}
}

// answerTo writes an answer: the question's header and question, and one A record.
func answerTo(question []byte, code int32) []byte {
	end := 12
	for question[end] != 0 {
		end += int(question[end]) + 1
	}
	end += 5
	a := append([]byte(nil), question[:end]...)
	binary.BigEndian.PutUint16(a[2:], 0x8180|uint16(code))
	clear(a[6:12])
	if isA := binary.BigEndian.Uint16(question[end-4:]) == 1; code != wellNS || !isA {
		return a
	}
	binary.BigEndian.PutUint16(a[6:], 1)
	return append(a, 0xC0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1)
}

// transport is one whose only way to an address is the nameserver.
func (n *nameserver) transport(t *testing.T) *http.Transport {
	t.Helper()
	dialer := &net.Dialer{Timeout: 500 * time.Millisecond, Resolver: &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", n.conn.LocalAddr().String())
	}}}
	base := &http.Transport{DialContext: dialer.DialContext}
	t.Cleanup(base.CloseIdleConnections)
	return base
}

// dnsURL is the provider under a name that only the nameserver knows.
func dnsURL(srv *provider) string {
	return "http://api.idem.test" + srv.addr[strings.LastIndexByte(srv.addr, ':'):]
}

// A name that doesn't resolve is proof that nothing was sent.
func TestADNSThatFailsIsNotDoneAndLeavesNothing(t *testing.T) {
	for name, state := range map[string]int32{"SERVFAIL": servFail, "NXDOMAIN": nxDomain, "silence": silentNS} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv, ns := newProvider(t, plainHTTP1, nil), startNameserver(t)
			ns.state.Store(state)
			opts := options(ns.transport(t))
			opts.Retry.MaxAttempts = 2
			c := openClient(t, journalPath(t), opts)
			r, err := pay(c, payment(context.Background(), dnsURL(srv), "order", 10))
			var dns *net.DNSError
			require.True(t, errors.As(err, &dns), "%v", err)
			require.Equal(t, idem.FateNotDone, r.Fate)
			require.NotZero(t, ns.asked.Load())
			for range c.Pending(context.Background()) {
				t.Fatal("something is Pending")
			}

			ns.state.Store(wellNS)
			r, err = pay(c, payment(context.Background(), dnsURL(srv), "order", 10))
			require.NoError(t, err)
			require.Equal(t, idem.FateDone, r.Fate)
			audit(t, srv.Server, "order")
		})
	}
}

// An attempt that runs out of time while the name is looked up proves nothing by itself.
func TestADNSThatIsSilentForLongerThanAnAttemptIsFoundOutLater(t *testing.T) {
	srv, ns := newProvider(t, plainHTTP1, nil), startNameserver(t)
	ns.state.Store(silentNS)
	path, opts := journalPath(t), options(ns.transport(t))
	opts.Retry.MaxAttempts, opts.Retry.AttemptTimeout = 2, 100*time.Millisecond
	c := openClient(t, path, opts)
	r, err := pay(c, payment(context.Background(), dnsURL(srv), "order", 10))
	require.Error(t, err)
	require.NotEqual(t, idem.FateDone, r.Fate)
	require.NoError(t, c.Close())

	ns.state.Store(wellNS)
	c = openClient(t, path, options(ns.transport(t)))
	r, err = pay(c, payment(context.Background(), dnsURL(srv), "order", 10))
	require.NoError(t, err)
	require.Equal(t, idem.FateDone, r.Fate)
	audit(t, srv.Server, "order")
}

func TestADNSThatComesBackIsWaitedFor(t *testing.T) {
	srv, ns := newProvider(t, plainHTTP1, nil), startNameserver(t)
	ns.fails.Store(6) // questions; each attempt asks several
	ns.state.Store(servFail)
	opts := options(ns.transport(t))
	opts.Retry.MaxAttempts = 50
	var tries int
	opts.Trace = &idem.Trace{Attempt: func(context.Context, idem.AttemptInfo) { tries++ }}
	c := openClient(t, journalPath(t), opts)
	r, err := pay(c, payment(context.Background(), dnsURL(srv), "order", 10))
	require.NoError(t, err)
	require.Greater(t, tries, 1)
	require.Equal(t, 1, r.Attempts, "the others never reached the wire")
	require.Len(t, srv.Requests(), 1)
	audit(t, srv.Server, "order")
}

// After a lost answer a failing DNS proves nothing about the request before it.
func TestADNSThatFailsAfterALostAnswerIsUnknown(t *testing.T) {
	srv, ns := newProvider(t, plainHTTP1, nil), startNameserver(t)
	base := ns.transport(t)
	base.DisableKeepAlives = true // every attempt asks
	c := openClient(t, journalPath(t), options(failing{base, ns}))
	srv.Script(mockserver.Fault{Kind: mockserver.FaultDrop})
	r, err := pay(c, payment(context.Background(), dnsURL(srv), "order", 10))
	require.Error(t, err)
	require.Equal(t, idem.FateUnknown, r.Fate)

	ns.state.Store(wellNS)
	report, err := c.Resume(context.Background(), nil)
	require.NoError(t, err)
	require.Equal(t, idem.Report{Done: 1}, report)
	audit(t, srv.Server, "order")
}

// failing lets the DNS fail after the first request.
type failing struct {
	http.RoundTripper
	ns *nameserver
}

func (f failing) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := f.RoundTripper.RoundTrip(req)
	if f.ns.state.Load() == wellNS && err != nil {
		f.ns.state.Store(servFail)
	}
	return resp, err
}
