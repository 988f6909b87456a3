package mockserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"time"
)

// Transport is a RoundTripper that reaches the server in memory, whatever the
// request's scheme, host and port. It honours the request's context, though not
// while it reads the request's body, fires the hooks of net/http/httptrace in
// the order in which net/http does over a new connection, and follows net/http
// in its answers and errors: a refused dial is a *net.OpError with Op "dial", a
// reset wraps ECONNRESET, a lost answer is io.EOF, a cut one
// io.ErrUnexpectedEOF. It sends each request once.
func (s *Server) Transport() http.RoundTripper { return &transport{s} }

type transport struct{ server *Server }

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	c := &call{server: t.server, req: req, trace: httptrace.ContextClientTrace(req.Context())}
	if c.trace == nil {
		c.trace = &httptrace.ClientTrace{}
	}
	a, err := c.send()
	if err != nil {
		return nil, err
	}
	out, err := c.await(a)
	if err != nil {
		return nil, err
	}
	return c.receive(out, a.life)
}

// call is one RoundTrip.
type call struct {
	server *Server
	req    *http.Request
	trace  *httptrace.ClientTrace
}

// send dials and writes the request. It closes the request's body.
func (c *call) send() (*arrival, error) {
	req := c.req
	if req.Body != nil {
		defer req.Body.Close()
	}
	switch {
	case req.URL == nil || req.URL.Host == "":
		return nil, errors.New("http: no Host in request URL")
	case req.Context().Err() != nil:
		return nil, context.Cause(req.Context())
	}
	fault, life := c.server.meet()
	if err := c.dial(fault.Kind == FaultRefuse); err != nil {
		return nil, err
	}
	body, large, err := c.write()
	if c.trace.WroteRequest != nil {
		c.trace.WroteRequest(httptrace.WroteRequestInfo{Err: err})
	}
	if err != nil {
		return nil, err
	}
	return &arrival{req: incoming(req, body), body: body, large: large, fault: fault, life: life}, nil
}

// dial fires what goes with a new connection.
func (c *call) dial(refuse bool) error {
	t, addr := c.trace, hostPort(c.req.URL)
	if t.GetConn != nil {
		t.GetConn(addr)
	}
	if t.ConnectStart != nil {
		t.ConnectStart("tcp", addr)
	}
	var err error
	if refuse {
		err = &net.OpError{Op: "dial", Net: "tcp", Addr: memAddr(addr),
			Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	if t.ConnectDone != nil {
		t.ConnectDone("tcp", addr, err)
	}
	if err != nil {
		return err
	}
	c.handshake()
	if t.GotConn != nil {
		t.GotConn(httptrace.GotConnInfo{Conn: memConn{addr}})
	}
	return nil
}

// handshake fires what goes with TLS.
func (c *call) handshake() {
	if c.req.URL.Scheme != "https" {
		return
	}
	if c.trace.TLSHandshakeStart != nil {
		c.trace.TLSHandshakeStart()
	}
	if c.trace.TLSHandshakeDone != nil {
		c.trace.TLSHandshakeDone(tls.ConnectionState{HandshakeComplete: true, ServerName: c.req.URL.Hostname()}, nil)
	}
}

// write hands head and body over. A context that ends meanwhile closes the
// body, which frees the reader of a pipe.
func (c *call) write() (body []byte, large bool, err error) {
	req := c.req
	for name, values := range req.Header {
		if c.trace.WroteHeaderField != nil && len(values) > 0 {
			c.trace.WroteHeaderField(http.CanonicalHeaderKey(name), slices.Clone(values))
		}
	}
	if c.trace.WroteHeaders != nil {
		c.trace.WroteHeaders()
	}
	if req.Body == nil || req.Body == http.NoBody {
		return nil, false, nil
	}
	stop := context.AfterFunc(req.Context(), func() { req.Body.Close() })
	defer stop()
	body, large, err = c.server.read(req.Body)
	switch {
	case req.Context().Err() != nil:
		err = context.Cause(req.Context())
	case err == nil && !large && req.ContentLength > 0 && req.ContentLength != int64(len(body)):
		err = fmt.Errorf("http: ContentLength=%d with Body length %d", req.ContentLength, len(body))
	}
	return body, large, err
}

// await lets the server work until it is done or the client gives up. The work
// goes on in the second case.
func (c *call) await(a *arrival) (outcome, error) {
	ctx := c.req.Context()
	if ctx.Done() == nil {
		return c.server.serve(a), nil
	}
	done := make(chan outcome, 1)
	go func() {
		out := outcome{way: reset} // of a handler that ends its goroutine
		defer func() { done <- out }()
		out = c.server.serve(a)
	}()
	select {
	case out := <-done:
		if ctx.Err() == nil {
			return out, nil
		}
	case <-ctx.Done():
	}
	return outcome{}, context.Cause(ctx)
}

// receive turns an outcome into what net/http would have made of it.
func (c *call) receive(out outcome, l *life) (*http.Response, error) {
	switch out.way {
	case reset:
		return nil, opError("read", syscall.ECONNRESET)
	case dropped:
		return nil, io.EOF
	case hung:
		select {
		case <-c.req.Context().Done():
			return nil, context.Cause(c.req.Context())
		case <-l.over:
			return nil, opError("read", syscall.ECONNRESET)
		}
	}
	if c.trace.GotFirstResponseByte != nil {
		c.trace.GotFirstResponseByte()
	}
	if out.way == cutHead {
		return nil, io.ErrUnexpectedEOF
	}
	return c.response(out), nil
}

// response frames an answer, whole or cut.
func (c *call) response(out outcome) *http.Response {
	a := out.ans
	resp := &http.Response{
		Status:     fmt.Sprintf("%d %s", a.status, http.StatusText(a.status)),
		StatusCode: a.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.header.Clone(), Request: c.req, ContentLength: int64(len(a.body)),
	}
	if resp.Header.Get("Date") == "" {
		resp.Header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	}
	resp.Header.Del("Transfer-Encoding")
	resp.Header.Del("Content-Length")
	body := &memBody{ctx: c.req.Context(), rest: a.body, end: io.EOF}
	switch {
	case out.way == cut:
		c.cut(resp, body, out)
	case a.bodyless():
		body.rest, resp.ContentLength = nil, 0
	}
	if resp.ContentLength >= 0 && !a.bodyless() {
		resp.Header.Set("Content-Length", fmt.Sprint(resp.ContentLength))
	}
	if c.req.Method == http.MethodHead {
		body.rest, body.end = nil, io.EOF
	}
	if resp.Body = body; len(body.rest) == 0 && body.end == io.EOF {
		resp.Body = http.NoBody
	}
	return resp
}

// cut shortens the body, and frames it so that the client notices, or not.
func (c *call) cut(resp *http.Response, body *memBody, out outcome) {
	body.rest, body.end = out.ans.body[:out.cutAt()], io.ErrUnexpectedEOF
	resp.ContentLength = int64(out.length())
	switch out.fault.Framing {
	case FramingChunked:
		resp.ContentLength, resp.TransferEncoding = -1, []string{"chunked"}
	case FramingClose:
		resp.ContentLength, resp.Close, body.end = -1, true, io.EOF
	}
}

// memBody is a response body that ends with the request's context, as a body
// from the network does.
type memBody struct {
	ctx    context.Context
	rest   []byte
	end    error
	closed atomic.Bool
}

// Read implements io.Reader.
func (b *memBody) Read(p []byte) (int, error) {
	switch {
	case b.closed.Load():
		return 0, errors.New("http: read on closed response body")
	case b.ctx.Err() != nil:
		return 0, context.Cause(b.ctx)
	case len(b.rest) == 0:
		return 0, b.end
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// Close implements io.Closer.
func (b *memBody) Close() error {
	b.closed.Store(true)
	return nil
}

// incoming is the request as a server sees it: canonical header names, no
// headers without a value, none of the client's context.
func incoming(req *http.Request, body []byte) *http.Request {
	u := &url.URL{Path: req.URL.Path, RawPath: req.URL.RawPath, RawQuery: req.URL.RawQuery}
	if u.Path == "" {
		u.Path = "/"
	}
	r := &http.Request{
		Method: req.Method, URL: u, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
		Host: req.Host, RemoteAddr: "192.0.2.1:1234", RequestURI: u.RequestURI(),
	}
	if r.Method == "" {
		r.Method = http.MethodGet
	}
	if r.Host == "" {
		r.Host = req.URL.Host
	}
	if req.URL.Scheme == "https" {
		r.TLS = &tls.ConnectionState{HandshakeComplete: true, ServerName: req.URL.Hostname()}
	}
	for name, values := range req.Header {
		if len(values) > 0 {
			name = textproto.CanonicalMIMEHeaderKey(name)
			r.Header[name] = append(r.Header[name], values...)
		}
	}
	return r.WithContext(context.Background())
}

// hostPort is what net/http would dial.
func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[bool]string{true: "443", false: "80"}[u.Scheme == "https"]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

func opError(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Err: os.NewSyscallError(op, err)}
}

// memAddr is an address that only the mock knows.
type memAddr string

func (a memAddr) Network() string { return "tcp" }
func (a memAddr) String() string  { return string(a) }

// memConn is the connection that GotConn shows. It carries nothing.
type memConn struct{ addr string }

func (c memConn) Read([]byte) (int, error)         { return 0, io.EOF }
func (c memConn) Write(p []byte) (int, error)      { return len(p), nil }
func (c memConn) Close() error                     { return nil }
func (c memConn) LocalAddr() net.Addr              { return memAddr("127.0.0.1:0") }
func (c memConn) RemoteAddr() net.Addr             { return memAddr(c.addr) }
func (c memConn) SetDeadline(time.Time) error      { return nil }
func (c memConn) SetReadDeadline(time.Time) error  { return nil }
func (c memConn) SetWriteDeadline(time.Time) error { return nil }
