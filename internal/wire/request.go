package wire

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/idem-go/idem/internal/record"
)

// Request is a request in the parts that are journaled and sent.
type Request struct {
	Method string
	URL    *url.URL
	Host   string // overrides the URL's host if not empty
	Header http.Header
	Close  bool // asks to close the connection after the answer
	Body   []byte
}

// RequestOf rebuilds a request from the journal.
func RequestOf(m *record.Message) (*Request, error) {
	u, err := url.Parse(m.URL)
	if err != nil {
		return nil, err
	}
	h := m.Header
	if h == nil {
		h = http.Header{}
	}
	if m.RawQuery != nil {
		u.RawQuery = string(m.RawQuery)
	}
	return &Request{Method: m.Method, URL: u, Host: m.Host, Header: h, Close: m.Close, Body: m.Body}, nil
}

// Idempotent tells a method that may be repeated by HTTP's own rules and changes
// something (RFC 9110 §9.2.2).
func (w *Request) Idempotent() bool {
	return w.Method == http.MethodPut || w.Method == http.MethodDelete
}

// Message is the request as the journal keeps it.
func (w *Request) Message() *record.Message {
	m := &record.Message{Method: w.Method, URL: w.URL.String(), Host: w.Host, Header: w.Header, Close: w.Close, Body: w.Body}
	// A query that its own text would cut, or that isn't UTF-8, stands beside it.
	if strings.Contains(w.URL.RawQuery, "#") || !utf8.ValidString(w.URL.RawQuery) {
		u := *w.URL
		u.RawQuery, m.RawQuery = "", []byte(w.URL.RawQuery)
		m.URL = u.String()
	}
	return m
}

// HTTP builds a new request over the same bytes. GetBody is there for signers;
// an attempt takes it away before the request goes down.
func (w *Request) HTTP(ctx context.Context) *http.Request {
	u := *w.URL
	r := (&http.Request{
		Method: w.Method, URL: &u, Host: w.Host, Header: w.Header.Clone(),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Close: w.Close,
	}).WithContext(ctx)
	if r.Header == nil {
		r.Header = http.Header{}
	}
	w.Refill(r)
	return r
}

// Refill puts the request's bytes into r, whatever a hook has done to its body.
func (w *Request) Refill(r *http.Request) {
	r.Body, r.ContentLength, r.TransferEncoding, r.Trailer = http.NoBody, 0, nil, nil
	r.GetBody = func() (io.ReadCloser, error) { return http.NoBody, nil }
	if len(w.Body) > 0 {
		r.ContentLength = int64(len(w.Body))
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(w.Body)), nil }
		r.Body, _ = r.GetBody()
	}
}

// NewBody returns a body that holds b and then gives err, io.EOF if nil.
func NewBody(b []byte, err error) io.ReadCloser {
	if err == nil {
		return io.NopCloser(bytes.NewReader(b))
	}
	return io.NopCloser(io.MultiReader(bytes.NewReader(b), failingReader{err}))
}

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

// Origin returns scheme://host:port in lower case, without the port that the
// scheme has by default, or "" for no URL.
func Origin(u *url.URL) string {
	if u == nil {
		return ""
	}
	scheme, host, port := strings.ToLower(u.Scheme), strings.ToLower(u.Hostname()), u.Port()
	switch {
	case port != "" && !(scheme == "http" && port == "80") && !(scheme == "https" && port == "443"):
		host = net.JoinHostPort(host, port)
	case strings.Contains(host, ":"): // an IPv6 address
		host = "[" + host + "]"
	}
	return scheme + "://" + host
}

// HostPort is where net/http connects for a URL: with the port that the scheme has by
// default.
func HostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[strings.ToLower(u.Scheme)]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// IsToken tells whether s can be a header name or a method (RFC 9110 §5.6.2).
func IsToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		alnum := r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		return !alnum && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}

// From copies a request in parts, without what a transport fills in itself.
func From(req *http.Request, body []byte) *Request {
	u := *req.URL
	u.Fragment, u.RawFragment = "", ""
	h := req.Header.Clone()
	if h == nil {
		h = http.Header{}
	}
	h.Del("Content-Length")
	method := req.Method
	if method == "" {
		method = http.MethodGet
	}
	w := &Request{Method: method, URL: &u, Header: h, Close: req.Close, Body: body}
	if req.Host != "" && req.Host != u.Host {
		w.Host = req.Host
	}
	return w
}

// WithBody returns req over a body that was read.
func WithBody(req *http.Request, body []byte) *http.Request {
	r := req.Clone(req.Context())
	r.ContentLength = int64(len(body))
	r.GetBody = nil
	r.Body = http.NoBody
	if len(body) > 0 {
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	return r
}
