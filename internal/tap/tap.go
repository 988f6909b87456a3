// Package tap watches one HTTP attempt for a proof that nothing was sent. Who can prove
// that no byte of a request left knows that it didn't happen and may be sent again,
// where otherwise it may have been acted upon.
//
// The proof is strict: silence is none. It is a look-up, dial or handshake that reports
// its failure, or connections that count what is written to them and are closed, having
// written nothing. Only a transport of [NewTransport] has such connections; over any
// other, a connection that was handed out leaves the matter open.
package tap

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"sync"
)

// Spy watches one attempt. Set its three functions, put its Trace on the attempt's
// context, and ask it once the attempt is over.
type Spy struct {
	Cancel context.CancelCauseFunc // ends the attempt
	Late   func() error            // why nothing may leave any more, asked at each connection
	Sent   func()                  // called when the last byte was handed to the connection
	Host   string                  // where the attempt goes, "host:port"; "" is anywhere

	mu     sync.Mutex
	conns  []net.Conn
	wrote  []int64 // bytes that conns had written when they were handed out
	other  bool    // the connection that is being fetched goes elsewhere
	shaken error   // how the last TLS handshake ended without a connection handed out
}

// Trace is what watches. It sees the work of every net/http transport below, and of others
// as far as they report it.
func (s *Spy) Trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: s.get,
		GotConn: func(i httptrace.GotConnInfo) { s.got(i.Conn) },
		ConnectDone: func(_, _ string, err error) {
			if err == nil {
				s.shook(nil)
			}
		},
		TLSHandshakeDone: func(_ tls.ConnectionState, err error) { s.shook(err) },
		WroteRequest:     func(httptrace.WroteRequestInfo) { s.Sent() },
	}
}

// get notes where a connection goes. One to another host than the attempt's isn't the
// attempt's: a transport below may fetch a token under the same context.
func (s *Spy) get(hostPort string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.other = s.Host != "" && hostPort != s.Host && !s.viaProxy()
}

// viaProxy tells whether the attempt's connections bear a proxy's address: then those
// to other hosts can't be told apart, and all of them count.
func (s *Spy) viaProxy() bool {
	host, port, err := net.SplitHostPort(s.Host)
	if err != nil {
		return true
	}
	scheme := "http"
	if port == "443" {
		scheme = "https"
	}
	for _, scheme := range []string{scheme, "http", "https"} {
		req := &http.Request{URL: &url.URL{Scheme: scheme, Host: host}}
		if proxy, err := http.ProxyFromEnvironment(req); err != nil || proxy != nil {
			return true
		}
	}
	return false
}

// got notes a connection, and stops the attempt before it writes if the dial took past
// the expiry. A second connection within an attempt means that net/http sends
// again by itself, which it does for requests without a body: it is stopped before
// it writes, as far as that is possible without harm to others.
func (s *Spy) got(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.other {
		return
	}
	s.conns = append(s.conns, conn)
	s.wrote = append(s.wrote, written(conn))
	err := s.Late()
	if len(s.conns) > 1 {
		err = errors.New("idem: the transport resends by itself")
	}
	if err != nil {
		s.Cancel(err)
		if t, ok := conn.(*tls.Conn); conn != nil && !(ok && t.ConnectionState().NegotiatedProtocol == "h2") {
			conn.Close()
		}
	}
}

// shook notes how a handshake ended. A later one that succeeds undoes a failure: of
// several addresses one may answer. A failed dial says nothing for the same reason; it
// is told by the type of the attempt's error.
func (s *Spy) shook(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shaken = err
}

// Conns is how many connections the attempt was handed. More than one means that a
// transport below sent again by itself, or tried to.
func (s *Spy) Conns() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// NeverSent tells whether it is proven that no byte of the request left; err is how the
// attempt ended. It holds if each connection that was handed out is one of
// [NewTransport]'s, is closed, and wrote nothing since; and if there was none, if the
// last handshake failed, or err is of a type that only a failed look-up, dial or
// handshake has. Whatever else is unproven, and false: the request may have left.
func (s *Spy) NeverSent(err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, c := range s.conns {
		ours := counterOf(c)
		if ours == nil || !ours.closed.Load() || s.wrote[i] < 0 || ours.wrote.Load() != s.wrote[i] {
			return false
		}
	}
	return len(s.conns) > 0 || s.shaken != nil || dialFailed(err)
}

// dialFailed tells by its type that err comes from before a connection.
func dialFailed(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) && slices.Contains([]string{"dial", "proxyconnect", "socks connect"}, op.Op) {
		return true
	}
	var dns *net.DNSError
	var cert *tls.CertificateVerificationError
	var said *NotSentError
	for _, target := range []any{&dns, &cert, &said} {
		if errors.As(err, target) {
			return true
		}
	}
	return errors.Is(err, errProxyRefused)
}

// NotSentError is a transport's own word that it sent nothing.
type NotSentError struct{ Err error }

func (e *NotSentError) Error() string { return e.Err.Error() }
func (e *NotSentError) Unwrap() error { return e.Err }

// Permanent tells the failures without a sent byte that the next attempt would meet again:
// a certificate, an answer that isn't TLS, an address that is none. A name that doesn't
// resolve is not among them: resolvers fail and come back.
func Permanent(err error) bool {
	var cert *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var address *net.AddrError
	var parse *net.ParseError
	return errors.As(err, &cert) || errors.As(err, &record) || errors.As(err, &address) || errors.As(err, &parse)
}
