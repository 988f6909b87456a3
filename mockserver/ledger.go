package mockserver

import (
	"net/http"
	"slices"
	"time"
)

// Request is one request that arrived, and what became of it.
type Request struct {
	Method   string
	URL      string // absolute
	Header   http.Header
	Body     []byte
	Key      string    // as on the wire, with its quotes; "" if there was none; the first of several
	Value    string    // its business value
	Time     time.Time // when it had been read
	Fault    FaultKind // what it met
	Status   int       // what was answered; zero is nothing, or not yet
	Replayed bool      // the answer stands for an earlier request
	Effect   bool      // it took effect
}

// ledger is the oracle: what arrived, and what happened. The server's mutex
// guards it.
type ledger struct {
	requests []Request
	byValue  map[string]int
	byKey    map[string]int
	total    int
}

func newLedger() ledger {
	return ledger{byValue: map[string]int{}, byKey: map[string]int{}}
}

// arrive enters a request and returns its place.
func (l *ledger) arrive(r Request) int {
	l.requests = append(l.requests, r)
	return len(l.requests) - 1
}

// count enters one effect.
func (l *ledger) count(key, value string) {
	l.total++
	l.byValue[value]++
	if key != "" {
		l.byKey[key]++
	}
}

// Effects is how often the business value took effect. A value that no request
// had is taken for a key. See [Config.Value] for what the value of a request is.
func (s *Server) Effects(value string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n, ok := s.ledger.byValue[value]; ok || s.seen(value) {
		return n
	}
	return s.ledger.byKey[s.bare(value)]
}

// seen reports whether a request had this value.
func (s *Server) seen(value string) bool {
	return slices.ContainsFunc(s.ledger.requests, func(r Request) bool { return r.Value == value })
}

// EffectsOfKey is how often requests with this key, quoted or not, took effect.
func (s *Server) EffectsOfKey(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger.byKey[s.bare(key)]
}

// Total is the number of all effects.
func (s *Server) Total() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger.total
}

// Apply counts an effect of value under key, unless that key had one already,
// and reports whether it did. It is for handlers that do several things in one
// request, each with a key of its own; such a handler sets [EffectHeader] to
// "no" for the request as a whole. An empty key always counts.
func (s *Server) Apply(key, value string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if key != "" && s.ledger.byKey[key] > 0 {
		return false
	}
	s.ledger.count(key, value)
	return true
}

// Requests are all requests that arrived, in the order of their arrival.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := slices.Clone(s.ledger.requests)
	for i := range list {
		list[i].Header = list[i].Header.Clone()
		list[i].Body = slices.Clone(list[i].Body)
	}
	return list
}

// Values are the distinct business values of the requests that arrived, in the
// order of their first arrival. Like Keys and Bodies it leaves out GET, HEAD,
// OPTIONS and TRACE.
func (s *Server) Values() []string {
	return s.distinct(func(r *Request) (string, bool) { return r.Value, true })
}

// Keys are the distinct keys, as on the wire, under which a business value
// arrived. A client that keeps its word has one; "" stands for requests without
// a key.
func (s *Server) Keys(value string) []string {
	return s.distinct(func(r *Request) (string, bool) { return r.Key, r.Value == value })
}

// Bodies are the distinct bodies with which a business value arrived.
func (s *Server) Bodies(value string) []string {
	return s.distinct(func(r *Request) (string, bool) { return string(r.Body), r.Value == value })
}

// distinct collects what pick says of the requests that could have an effect.
func (s *Server) distinct(pick func(*Request) (string, bool)) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []string
	known := map[string]bool{}
	for i := range s.ledger.requests {
		r := &s.ledger.requests[i]
		if v, ok := pick(r); ok && !safe(r.Method) && !known[v] {
			known[v] = true
			list = append(list, v)
		}
	}
	return list
}

// safe reports whether a method has no effect.
func safe(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}
