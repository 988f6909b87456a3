// Package wire is a server between a client under test and what it calls, which
// records every request that arrives and loses answers on demand.
package wire

import (
	"bytes"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"testing"
)

// Request is one request as it arrived.
type Request struct {
	Method, URL string
	Header      http.Header
	Body        []byte
	Chunked     bool // sent without a length
	Status      int  // what the server behind answered, also where the answer was lost
	Lost        bool
}

// Proxy is a listener in front of a handler.
type Proxy struct {
	URL string

	mu       sync.Mutex
	requests []Request
	lose     int
}

// Start listens on loopback until the test ends.
func Start(t testing.TB, next http.Handler) *Proxy {
	p := &Proxy{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.serve(w, r, next) }))
	t.Cleanup(srv.Close)
	p.URL = srv.URL
	return p
}

// To hands requests on to a server elsewhere, each over a connection of its own, so
// that net/http has no stale one for which it would send a request twice.
func To(t testing.TB, target string) http.Handler {
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	return &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(u) },
		Transport: &http.Transport{DisableKeepAlives: true},
		ErrorLog:  log.New(io.Discard, "", 0), // it tells of every client that goes away
	}
}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client went away
	}
	seen := Request{
		Method: r.Method, URL: r.URL.String(), Header: r.Header.Clone(), Body: body,
		Chunked: slices.Contains(r.TransferEncoding, "chunked"),
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength, r.TransferEncoding = int64(len(body)), nil
	answer := httptest.NewRecorder()
	next.ServeHTTP(answer, r)

	p.mu.Lock()
	seen.Status, seen.Lost = answer.Code, p.lose > 0
	p.lose = max(p.lose-1, 0)
	p.requests = append(p.requests, seen)
	p.mu.Unlock()
	if seen.Lost {
		panic(http.ErrAbortHandler) // the connection closes without an answer
	}
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.Code)
	w.Write(answer.Body.Bytes())
}

// Lose lets the next n requests take effect and closes their connections without an
// answer.
func (p *Proxy) Lose(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose = n
}

// Requests are those that arrived, in the order of their answers.
func (p *Proxy) Requests() []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.requests)
}

// Distinct lists the different values, in order of arrival, of what get reads.
func (p *Proxy) Distinct(get func(Request) string) []string {
	var out []string
	for _, r := range p.Requests() {
		if v := get(r); !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// Header reads a request header.
func Header(name string) func(Request) string {
	return func(r Request) string { return r.Header.Get(name) }
}

// Body reads the whole body.
func Body(r Request) string { return string(r.Body) }
