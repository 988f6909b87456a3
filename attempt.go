package idem

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// tried is what one attempt brought back.
type tried struct {
	answer  *answer // nil: no answer, and instead says what that means
	instead verdict // verdictNotSent, verdictRefused, verdictLost
	err     error   // nil if there was an answer
	twice   bool    // two connections were handed out: somebody below resent
	stopped error   // it was called off before it was sent: expired, window closed, Authorize failed
	elapsed time.Duration
}

// cut tells an answer whose body ended too early.
func (t tried) cut() bool { return t.answer != nil && t.answer.cut != nil }

// sender says what a pass sends next, and what may still stop it.
type sender interface {
	// next is the request to send, and whether it goes to the intent's own origin,
	// which alone gets credentials.
	next() (w *wireRequest, ours bool)

	// whyStop is asked when the credentials are in place: fetching a token may have
	// taken long.
	whyStop() error

	// expired is asked when a connection is there, before the first byte.
	expired() error

	// attemptTime is how long the attempt may take.
	attemptTime() time.Duration
}

// errAttemptTimeout is the cause of an attempt's own end; it is a timeout, and
// not the caller's.
var errAttemptTimeout = fmt.Errorf("idem: attempt timed out: %w", context.DeadlineExceeded)

// attempt sends a request once. Every send goes through here: the first, a retry after
// a status or an error, the probe of a half-open breaker, a hop, a poll, a resume after
// a crash and a delivery by Run.
func (p *pass) attempt(s sender) tried {
	ctx, cancel := context.WithCancelCause(p.hookContext())
	spy := &spy{cancel: cancel, late: s.expired, sent: func() { p.client.at(pointSent) }}
	timer := time.AfterFunc(s.attemptTime(), func() { cancel(errAttemptTimeout) })
	stop := func() { timer.Stop(); cancel(nil) }
	reading := false // the answer's body outlives the attempt
	defer func() {
		if !reading {
			stop()
		}
	}()

	req, err := p.build(ctx, s)
	if err != nil {
		return tried{instead: verdictRefused, err: err, stopped: err}
	}
	if context.Cause(ctx) == errAttemptTimeout { // Authorize took it all
		return tried{instead: verdictNotSent, err: errAttemptTimeout}
	}
	// Only now: a token that Authorize fetched under this context is no attempt.
	req = req.WithContext(httptrace.WithClientTrace(ctx, spy.trace()))
	resp, err := p.client.base.RoundTrip(req)
	if err == nil && resp == nil {
		err = errors.New("idem: Options.Base returned neither response nor error")
	}
	if err != nil {
		return p.noAnswer(ctx, spy, err)
	}
	a := p.read(resp, timer, stop)
	reading = a.rest != nil
	p.client.at(pointAnswered)
	return tried{answer: a, twice: spy.count() > 1}
}

// build makes the request for one attempt: the journaled bytes under the key's
// wire form, then today's credentials, freshly authorised.
func (p *pass) build(ctx context.Context, s sender) (*http.Request, error) {
	w, ours := s.next()
	if ours {
		p.live.restore(w)
	}
	req := w.request(ctx)
	if ours {
		if err := p.authorize(req); err != nil {
			return nil, err
		}
	}
	if err := s.whyStop(); err != nil {
		return nil, err
	}
	// Without GetBody net/http can't send a body twice; see docs/adr/0004.
	req.GetBody = nil
	if req.Body == http.NoBody {
		req.Body = nil
	}
	return req, nil
}

// authorize runs the hook and then sees to it that every credential which the
// journal withheld stands on the request again.
func (p *pass) authorize(req *http.Request) error {
	if hook := p.client.opts.Authorize; hook != nil {
		host, path, before := req.URL.Host, req.URL.Path, req.Header.Clone()
		err := hook(req)
		p.noteFresh(before, req)
		if err != nil {
			return fmt.Errorf("idem: authorize: %w", p.scrub(err))
		}
		if req.URL.Host != host || req.URL.Path != path {
			return &InvalidError{"Options.Authorize", req.URL.Host, "must not send the request elsewhere"}
		}
	}
	if missing := p.live.missing(&wireRequest{URL: req.URL, Header: req.Header}); len(missing) > 0 && !p.polling {
		return fmt.Errorf("%w: %s", ErrCredentials, strings.Join(missing, ", "))
	}
	return nil
}

// noteFresh remembers what Authorize added, so that no error shows it: what the hook
// sets is a credential or a signature, whatever its name.
func (p *pass) noteFresh(before http.Header, req *http.Request) {
	_, sent := p.dialect.withhold(&wireRequest{URL: req.URL, Header: req.Header})
	p.fresh = sent.secrets()
	for name, values := range req.Header {
		if !slices.Equal(values, before[name]) {
			p.fresh = append(p.fresh, values...)
		}
	}
}

// noAnswer tells a request that provably never left from one that may have.
func (p *pass) noAnswer(ctx context.Context, s *spy, err error) tried {
	cause := context.Cause(ctx)
	t := tried{instead: verdictLost, err: p.scrub(err), twice: s.count() > 1}
	if cause == errAttemptTimeout {
		t.err = fmt.Errorf("%w: %w", errAttemptTimeout, t.err)
	}
	if s.neverSent(err) {
		t.instead, t.twice = verdictNotSent, false
		if permanent(err) {
			t.instead = verdictRefused
		}
	}
	if p.ctx.Err() != nil {
		t.instead.failing = false // the caller's end says nothing about the provider
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
