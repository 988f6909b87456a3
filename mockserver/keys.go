package mockserver

import (
	"crypto/sha256"
	"encoding/json"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// entry is what the server knows of one key. The server's mutex guards it.
type entry struct {
	state stage
	route string
	body  [sha256.Size]byte
	first time.Time // when the key was first seen; the window counts from here
	taken time.Time // when the running request took it; LockFor counts from here
	ans   *answer   // the kept answer
	done  chan struct{}
	ended bool // done is closed
}

// stage is where the request that holds a key is.
type stage uint8

const (
	held    stage = iota // before its effect: a restart ends it
	working              // in the handler: it completes whatever happens
	kept                 // its answer is kept
	locked               // in flight until the window closes
)

// end wakes those who wait for the entry.
func (e *entry) end() {
	if !e.ended {
		e.ended = true
		close(e.done)
	}
}

// finding is what looking up a key came to.
type finding uint8

const (
	fresh    finding = iota // the key is the request's now: execute it
	known                   // replay the kept answer
	busy                    // another request holds it
	barred                  // it is locked until its window closes
	differs                 // it belongs to another payload
	outdated                // its window has closed
)

// claim looks the request's key up, and takes it if it is free.
func (s *Server) claim(a *arrival, now time.Time) (*entry, finding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.keys[a.id]
	switch {
	case e == nil:
	case e.state >= kept && now.Sub(e.first) >= s.profile.window():
		if s.profile.Late.Status != 0 {
			return e, outdated
		}
	case s.differs(e, a):
		if s.profile.Mismatch.Status != 0 {
			return e, differs
		}
	case e.state == kept:
		return e, known
	case e.state == locked:
		return e, barred
	case !s.outrun(e, now):
		return e, busy
	}
	taken := &entry{route: a.route(), body: sha256.Sum256(a.body), first: now, taken: now, done: make(chan struct{})}
	s.keys[a.id] = taken
	return taken, fresh
}

// resource is what the key's answer speaks of, if there is one yet.
func (s *Server) resource(e *entry) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return resourceOf(e.ans)
}

// outrun reports whether a running request has lost its hold on the key.
func (s *Server) outrun(e *entry, now time.Time) bool {
	return s.profile.LockFor > 0 && now.Sub(e.taken) >= s.profile.LockFor
}

// differs compares a request with the one that holds its key.
func (s *Server) differs(e *entry, a *arrival) bool {
	body, route := e.body != sha256.Sum256(a.body), e.route != a.route()
	switch s.profile.Compare {
	case CompareNothing:
		return false
	case CompareBody:
		return body
	case CompareRoute:
		return route
	}
	return body || route
}

// begin moves a held key on to its work; false if a restart came between.
func (s *Server) begin(a *arrival, e *entry) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.life.ended() {
		return false
	}
	if e != nil {
		e.state = working
	}
	return true
}

// settle enters what the work came to: the effect, and what remains of the key.
func (s *Server) settle(a *arrival, e *entry, w work) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.effect {
		s.ledger.count(a.key, a.value)
		s.ledger.requests[a.at].Effect = true
	}
	if e == nil {
		return
	}
	switch w.keep {
	case KeepAnswer:
		e.state, e.ans = kept, w.ans
	case KeepLock:
		e.state = locked
	default:
		s.drop(a.id, e)
	}
	e.end()
}

// release frees the key of a request that came to nothing.
func (s *Server) release(a *arrival, e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e != nil && e.state < kept {
		s.drop(a.id, e)
		e.end()
	}
}

// drop removes an entry, if it is still the key's.
func (s *Server) drop(id string, e *entry) {
	if s.keys[id] == e {
		delete(s.keys, id)
	}
}

// forget closes the window of the request's key.
func (s *Server) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.keys, id)
}

// locate reads the key from its place: as on the wire, its bare form, and
// whether it is a good one. All are empty where there is none.
func (s *Server) locate(r *http.Request, body []byte) (wire, key string, good bool) {
	values := s.profile.values(r, body)
	if len(values) == 0 {
		return "", "", true
	}
	wire, key = values[0], s.bare(values[0])
	return wire, key, len(values) == 1 && s.wellFormed(wire, key)
}

// values are all that stands at the key's place.
func (p *Profile) values(r *http.Request, body []byte) []string {
	switch p.Place {
	case PlaceQuery:
		return r.URL.Query()[p.field()]
	case PlaceForm:
		return formOf(r, body)[p.field()]
	case PlaceJSON:
		if v, ok := member(body, strings.Split(p.field(), ".")...); ok {
			return []string{v}
		}
		return nil
	}
	return r.Header.Values(p.field())
}

// bare is a key without its quotes, where the profile has quotes.
func (s *Server) bare(wire string) string {
	if n := len(wire); s.profile.Quoted && n >= 2 && wire[0] == '"' && wire[n-1] == '"' {
		return wire[1 : n-1]
	}
	return wire
}

func (s *Server) wellFormed(wire, key string) bool {
	p := &s.profile
	switch {
	case p.Quoted && wire == key:
		return false
	case key == "" || len(key) < p.MinKey || p.MaxKey > 0 && len(key) > p.MaxKey:
		return false
	}
	return s.pattern == nil || s.pattern.MatchString(key)
}

// identity is what the key is remembered under.
func (s *Server) identity(a *arrival) string {
	id := a.key
	if s.profile.ScopeRoute {
		id += "\n" + a.req.Method + " " + a.req.URL.Path
	}
	if s.profile.ScopeHeader != "" {
		id += "\n" + a.req.Header.Get(s.profile.ScopeHeader)
	}
	return id
}

// formOf parses a form-encoded body; empty if it is none.
func formOf(r *http.Request, body []byte) url.Values {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if kind != "application/x-www-form-urlencoded" {
		return nil
	}
	form, _ := url.ParseQuery(string(body))
	return form
}

// member is a string or number in a JSON object.
func member(body []byte, path ...string) (string, bool) {
	for _, name := range path {
		var object map[string]json.RawMessage
		if json.Unmarshal(body, &object) != nil {
			return "", false
		}
		body = object[name]
	}
	var text string
	if json.Unmarshal(body, &text) == nil && len(body) > 0 && body[0] == '"' {
		return text, true
	}
	var number json.Number
	if json.Unmarshal(body, &number) == nil && number != "" {
		return number.String(), true
	}
	return "", false
}
