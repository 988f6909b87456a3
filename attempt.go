package idem

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/internal/crash"
)

// tried is what one attempt brought back.
type tried struct {
	answer *answer // nil: no answer, and row says what that means
	row    verdict // rowNotSent, rowRefused, rowLost
	err    error   // nil if there was an answer
	twice  bool    // two connections were handed out: somebody below resent
	barred error   // the attempt was called off before it was sent: expired, window closed, Authorize failed
}

// errAttemptTimeout is the cause of an attempt's own end; it is a timeout, and
// not the caller's.
var errAttemptTimeout = fmt.Errorf("idem: attempt timed out: %w", context.DeadlineExceeded)

// attempt sends the journaled bytes once. Every send goes through here: the first,
// a retry after a status or an error, the probe of a half-open breaker, a hop, a
// poll, a resume after a crash and a delivery by Run.
func (d *call) attempt() tried {
	ctx, cancel := context.WithCancelCause(d.hookContext())
	spy := &spy{cancel: cancel, late: d.expired, sent: func() { crash.At(crash.Sent) }}
	timer := time.AfterFunc(d.attemptTime(), func() { cancel(errAttemptTimeout) })
	stop := func() { timer.Stop(); cancel(nil) }
	reading := false // the answer's body outlives the attempt
	defer func() {
		if !reading {
			stop()
		}
	}()

	req, err := d.build(ctx)
	if err != nil {
		return tried{row: rowRefused, err: err, barred: err}
	}
	if context.Cause(ctx) == errAttemptTimeout { // Authorize took it all
		return tried{row: rowNotSent, err: errAttemptTimeout}
	}
	// Only now: a token that Authorize fetched under this context is no attempt.
	req = req.WithContext(httptrace.WithClientTrace(ctx, spy.trace()))
	resp, err := d.client.base.RoundTrip(req)
	if err == nil && resp == nil {
		err = errors.New("idem: Options.Base returned neither response nor error")
	}
	if err != nil {
		return d.noAnswer(ctx, spy, err)
	}
	a := d.read(resp, timer, stop)
	if d.cargo != nil {
		a.closeRest() // nobody gets it
	}
	reading = a.rest != nil
	crash.At(crash.Answered)
	return tried{answer: a, twice: spy.count() > 1}
}

// attemptTime is the attempt's own limit, cut at the end of the window: a byte that
// left later could act again.
func (d *call) attemptTime() time.Duration {
	limit := d.client.opts.Retry.attemptTimeout()
	if end, ends := d.windowEnd(); ends {
		limit = min(limit, max(end.Sub(wallClock()), 0))
	}
	return limit
}

// build makes the request for one attempt: the journaled bytes under the key's
// wire form, then today's credentials, freshly authorised.
func (d *call) build(ctx context.Context) (*http.Request, error) {
	w, ours := d.next()
	if !d.plain && !d.visit && !d.head.Unkeyed {
		d.dialect.placeFirstSent(w, d.head.FirstSent)
	}
	if ours {
		d.live.restore(w)
	}
	req := w.request(ctx)
	if ours {
		if err := d.authorize(req); err != nil {
			return nil, err
		}
	}
	// Fetching a token may have taken long.
	if err := d.barred(); err != nil {
		return nil, err
	}
	// Without GetBody net/http can't send a body twice; see docs/adr/0004.
	req.GetBody = nil
	if req.Body == http.NoBody {
		req.Body = nil
	}
	return req, nil
}

// next is the request to send now, and whether it goes to the intent's own origin,
// which alone gets credentials.
func (d *call) next() (w *wireRequest, ours bool) {
	hop := *d.wire
	if d.hop == nil {
		return &hop, true
	}
	hop.URL = d.hop
	if d.visit {
		hop = wireRequest{Method: http.MethodGet, URL: d.hop, Header: http.Header{}}
		if accept := d.wire.Header.Get("Accept"); accept != "" {
			hop.Header.Set("Accept", accept)
		}
	}
	return &hop, originOf(d.hop) == originOf(d.wire.URL)
}

// authorize runs the hook and then sees to it that every credential which the
// journal withheld stands on the request again.
func (d *call) authorize(req *http.Request) error {
	if hook := d.client.opts.Authorize; hook != nil {
		host, path, before := req.URL.Host, req.URL.Path, req.Header.Clone()
		err := hook(req)
		d.noteFresh(before, req)
		if err != nil {
			return fmt.Errorf("idem: authorize: %w", d.scrub(err))
		}
		if req.URL.Host != host || req.URL.Path != path {
			return &InvalidError{"Options.Authorize", req.URL.Host, "must not send the request elsewhere"}
		}
	}
	if missing := d.live.missing(&wireRequest{URL: req.URL, Header: req.Header}); len(missing) > 0 && !d.visit {
		return fmt.Errorf("%w: %s", ErrCredentials, strings.Join(missing, ", "))
	}
	return nil
}

// noteFresh remembers what Authorize added, so that no error shows it: what the hook
// sets is a credential or a signature, whatever its name.
func (d *call) noteFresh(before http.Header, req *http.Request) {
	_, sent := d.dialect.withhold(&wireRequest{URL: req.URL, Header: req.Header})
	d.fresh = sent.secrets()
	for name, values := range req.Header {
		if !slices.Equal(values, before[name]) {
			d.fresh = append(d.fresh, values...)
		}
	}
}

// noAnswer tells a request that provably never left from one that may have.
func (d *call) noAnswer(ctx context.Context, s *spy, err error) tried {
	cause := context.Cause(ctx)
	t := tried{row: rowLost, err: d.scrub(err), twice: s.count() > 1}
	if cause == errAttemptTimeout {
		t.err = fmt.Errorf("%w: %w", errAttemptTimeout, t.err)
	}
	if s.neverSent(err) {
		t.row, t.twice = rowNotSent, false
		if permanent(err) {
			t.row = rowRefused
		}
	}
	if d.ctx.Err() != nil {
		t.row.strained = false // the caller's end says nothing about the provider
	}
	return t
}

// permanent tells failures that the next attempt would meet again. A name that
// doesn't resolve is not among them: resolvers fail and come back.
func permanent(err error) bool {
	var cert *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var address *net.AddrError
	var parse *net.ParseError
	return errors.As(err, &cert) || errors.As(err, &record) || errors.As(err, &address) || errors.As(err, &parse)
}

// read takes the answer in: whole, as far as it is to be kept, or at its head.
func (d *call) read(resp *http.Response, timer *time.Timer, stop func()) *answer {
	a := &answer{status: resp.StatusCode, header: resp.Header, live: resp, hop: d.hop}
	if resp.Body == nil {
		return a
	}
	if d.passThrough(resp) {
		timer.Stop()
		a.rest = &stream{ReadCloser: resp.Body, done: stop}
		return a
	}
	limit := d.maxResult()
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	a.body = body
	if err == nil && int64(len(body)) > limit {
		timer.Stop()
		a.rest = &stream{ReadCloser: resp.Body, done: stop}
		return a
	}
	if err == nil && resp.ContentLength > int64(len(body)) && !bodyless(d, resp) {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		err = d.cutJSON(resp, body)
	}
	if err != nil {
		a.cut = fmt.Errorf("%w: %w", io.ErrUnexpectedEOF, d.scrub(err))
	}
	resp.Body.Close()
	a.bodyless = bodyless(d, resp)
	return a
}

// maxResult is how much of an answer is read at once. A batch's call may take as much
// for each of its items, since its codec needs all of it.
func (d *call) maxResult() int64 {
	limit := d.client.opts.MaxResult
	if d.cargo == nil {
		return limit
	}
	n := int64(max(len(d.cargo.items), 1))
	return min(limit, (math.MaxInt64-1)/n) * n
}

// bodyless tells an answer whose length is that of a body which isn't sent.
func bodyless(d *call, resp *http.Response) bool {
	return d.wire.Method == http.MethodHead && !d.visit || resp.StatusCode == http.StatusNotModified
}

// passThrough tells an answer whose body is not awaited: a stream of events, and a
// read of unknown or large size.
func (d *call) passThrough(resp *http.Response) bool {
	kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	if strings.EqualFold(strings.TrimSpace(kind), "text/event-stream") {
		return resp.StatusCode < 300
	}
	return d.plain && resp.StatusCode < 300 && (resp.ContentLength < 0 || resp.ContentLength > d.client.opts.MaxResult)
}

// cutJSON recognises an HTTP/1 answer that ended with its connection, claims JSON
// and doesn't parse. The same bytes a second time are what the provider means.
func (d *call) cutJSON(resp *http.Response, body []byte) error {
	delimited := resp.ContentLength >= 0 || len(resp.TransferEncoding) > 0 || resp.ProtoMajor > 1 || resp.Uncompressed
	if delimited || d.plain || resp.StatusCode > 299 || !strings.Contains(resp.Header.Get("Content-Type"), "json") || json.Valid(body) {
		return nil
	}
	sum := sumOf(body)
	if bytes.Equal(sum, d.head.CutSum) {
		return nil
	}
	d.head.CutSum = sum
	return errors.New("the JSON is not complete")
}

// stream is a body that outlives its attempt; its end is the attempt's.
type stream struct {
	io.ReadCloser
	done func()
}

func (s *stream) Close() error {
	err := s.ReadCloser.Close()
	s.done()
	return err
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if err != nil {
		s.done()
	}
	return n, err
}

// spy watches one attempt through httptrace, for a proof that nothing was sent. A
// hook that stays silent proves nothing: proof is a dial or handshake that reports
// its failure, or connections of ours that are closed and have written nothing.
type spy struct {
	cancel context.CancelCauseFunc
	late   func() error // why nothing may leave any more
	sent   func()       // called when the last byte was handed to the connection

	mu     sync.Mutex
	conns  []net.Conn
	wrote  []int64 // bytes that conns had written when they were handed out
	failed bool    // a dial or a handshake reported an error
}

func (s *spy) trace() *httptrace.ClientTrace {
	fail := func(err error) {
		if err != nil {
			s.mu.Lock()
			s.failed = true
			s.mu.Unlock()
		}
	}
	return &httptrace.ClientTrace{
		GotConn:          func(i httptrace.GotConnInfo) { s.got(i.Conn) },
		DNSDone:          func(i httptrace.DNSDoneInfo) { fail(i.Err) },
		ConnectDone:      func(_, _ string, err error) { fail(err) },
		TLSHandshakeDone: func(_ tls.ConnectionState, err error) { fail(err) },
		WroteRequest:     func(httptrace.WroteRequestInfo) { s.sent() },
	}
}

// got notes a connection, and stops the attempt before it writes if the dial took past
// the expiry. A second connection within an attempt means that net/http sends
// again by itself, which it does for requests without a body: it is stopped before
// it writes, as far as that is possible without harm to others.
func (s *spy) got(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = append(s.conns, conn)
	s.wrote = append(s.wrote, written(conn))
	err := s.late()
	if len(s.conns) > 1 {
		err = errors.New("idem: the transport resends by itself")
	}
	if err != nil {
		s.cancel(err)
		if t, ok := conn.(*tls.Conn); conn != nil && !(ok && t.ConnectionState().NegotiatedProtocol == "h2") {
			conn.Close()
		}
	}
}

func (s *spy) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// neverSent is the proof that no byte of the request left.
func (s *spy) neverSent(err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, c := range s.conns {
		ours := counterOf(c)
		if ours == nil || !ours.closed.Load() || s.wrote[i] < 0 || ours.wrote.Load() != s.wrote[i] {
			return false
		}
	}
	return len(s.conns) > 0 || s.failed || dialFailed(err)
}

// dialFailed tells by its type that err comes from before a connection.
func dialFailed(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect" || op.Op == "socks connect") {
		return true
	}
	var dns *net.DNSError
	var cert *tls.CertificateVerificationError
	return errors.As(err, &dns) || errors.As(err, &cert) || errors.Is(err, errProxyRefused)
}

// countedConn counts what is written to a connection.
type countedConn struct {
	net.Conn
	wrote  atomic.Int64 // counted before the write, so that a byte never precedes its count
	closed atomic.Bool
}

func (c *countedConn) Write(p []byte) (int, error) {
	c.wrote.Add(int64(len(p)))
	return c.Conn.Write(p)
}

func (c *countedConn) Close() error {
	err := c.Conn.Close()
	c.closed.Store(true)
	return err
}

func counterOf(c net.Conn) *countedConn {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	ours, _ := c.(*countedConn)
	return ours
}

func written(c net.Conn) int64 {
	if ours := counterOf(c); ours != nil {
		return ours.wrote.Load()
	}
	return -1
}

// errProxyRefused is the proof that a proxy didn't connect us.
var errProxyRefused = errors.New("idem: the proxy refused the connection")

const (
	dialTimeout      = 10 * time.Second
	handshakeTimeout = 10 * time.Second
)

// newBase is the transport of a client that was given none: http.DefaultTransport
// over counted connections, its proxy's refusals typed.
func newBase() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}
	t.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &countedConn{Conn: conn}, nil
	}
	t.TLSHandshakeTimeout = handshakeTimeout
	t.MaxIdleConnsPerHost = 64
	t.OnProxyConnectResponse = func(_ context.Context, _ *url.URL, _ *http.Request, resp *http.Response) error {
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%w: %s", errProxyRefused, resp.Status)
		}
		return nil
	}
	return t
}
