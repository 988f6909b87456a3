package mockserver

import (
	"io"
	"net/http"
	"regexp"
	"sync"
	"time"
)

// Config is what a server is made of. Nil works, and every zero field has the
// default that it states. It is never written to.
type Config struct {
	Profile Profile      // how keys are taken; zero is Standard
	Handler http.Handler // does the work, once a key; nil makes a resource: 201 with {"id": the value, "resource": a new id}
	Batch   *Batch       // does the work instead, as a batch endpoint

	// Value is the business value of a request: what may happen once. Nil takes
	// the member "id" of a JSON body, else the field "id" of a form, else the
	// last element of the path. It must not call the server.
	Value func(r *http.Request, body []byte) string

	// Faults are met in order, one a request, like those of [Server.Script].
	// With a Seed or a Rate they are drawn instead: a request for which nothing
	// is scripted meets, with probability Rate, one of them by its Weight. Rate
	// zero is then 0.5. The same Seed draws the same faults for the same
	// sequence of requests.
	Faults []Fault
	Seed   uint64
	Rate   float64

	Window  time.Duration // if set, in place of the profile's
	MaxBody int64         // largest request body, in bytes; a larger one gets 413, unrecorded; zero is 16 MiB
}

// Server is an API that takes idempotency keys. Its methods may be called from
// several goroutines at once, and by its handler, Wait and Close excepted, which
// wait for the handler.
type Server struct {
	URL string // where Start listens; of New, a name that only Transport reaches

	profile Profile
	pattern *regexp.Regexp
	handler http.Handler
	batch   *batch // nil without Config.Batch
	value   func(*http.Request, []byte) string
	maxBody int64
	listen  *listener // nil without Start

	mu        sync.Mutex // guards what follows, never held over a handler
	idle      *sync.Cond // running is zero
	running   int
	closed    bool
	life      *life
	script    script
	keys      map[string]*entry
	ledger    ledger
	resources map[string][]byte
}

// TB is what Start needs of testing.TB.
type TB interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
}

// New makes a server without listener or goroutine: an http.Handler, and a
// Transport. It panics if the profile's KeyPattern doesn't compile, a fault is
// of an unknown kind, or a batch of an unknown format or outcome.
func New(cfg *Config) *Server {
	if cfg == nil {
		cfg = &Config{}
	}
	s := &Server{
		URL:     "http://mockserver.invalid",
		profile: cfg.Profile, handler: cfg.Handler, value: cfg.Value, maxBody: cfg.MaxBody,
		life: newLife(), script: newScript(cfg),
		keys: map[string]*entry{}, ledger: newLedger(), resources: map[string][]byte{},
	}
	s.idle = sync.NewCond(&s.mu)
	s.fillDefaults(cfg)
	s.pattern = s.profile.pattern()
	return s
}

func (s *Server) fillDefaults(cfg *Config) {
	if s.profile.isZero() {
		s.profile = Standard()
	}
	if cfg.Window != 0 {
		s.profile.Window = cfg.Window
	}
	if cfg.Batch != nil {
		s.batch = newBatch(s, *cfg.Batch)
		s.handler = s.batch
	}
	if s.handler == nil {
		s.handler = http.HandlerFunc(s.create)
	}
	if s.value == nil {
		s.value = valueOf
	}
	if s.maxBody == 0 {
		s.maxBody = 16 << 20
	}
}

// Start makes a server that listens on loopback until the test ends. Whatever
// still waits then, a delay or a client, is cut off.
func Start(t TB, cfg *Config) *Server {
	t.Helper()
	s := New(cfg)
	l, err := listen(s)
	if err != nil {
		t.Fatalf("mockserver: %v", err)
		return s
	}
	s.listen, s.URL = l, l.url()
	t.Cleanup(s.Close)
	return s
}

// Script queues faults behind those that are queued already. Each request meets
// the next one as it arrives; when none is left, what [Config.Faults] draws. It
// panics on an unknown kind.
func (s *Server) Script(f ...Fault) {
	mustBeKnown(f)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script.queue = append(s.script.queue, f...)
}

// Heal ends all faults, scripted and drawn. Requests that met one already go
// through with it.
func (s *Server) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script = script{}
}

// Restart is the end of one process and the start of the next. Requests that
// still wait for their effect are reset and leave no trace; one in its handler
// completes, but its client is reset. With keepKeys the keys and answers outlive
// the process, locked keys too; without, all is forgotten and may happen again.
// The ledger, the script and the handler's own state stay.
func (s *Server) Restart(keepKeys bool) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	close(s.life.over)
	s.life = newLife()
	for id, e := range s.keys {
		if !keepKeys || e.state == held {
			delete(s.keys, id)
			e.end()
		}
	}
	s.mu.Unlock()
	if s.listen != nil {
		s.listen.closeIdle()
	}
}

// Wait returns when no request is being handled, those included whose clients
// have gone.
func (s *Server) Wait() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.running > 0 {
		s.idle.Wait()
	}
}

// Close refuses new requests, resets those that wait for something, and returns
// when the rest is done. It may be called again.
func (s *Server) Close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.life.over)
	}
	s.mu.Unlock()
	if s.listen != nil {
		s.listen.close()
	}
	s.Wait()
}

// ServeHTTP answers a request, over the listener of Start or any other. The
// server sees a request only when its head was read, so FaultRefuse closes the
// connection instead, unanswered and unrecorded; the client can't know that
// nothing was done. A ResponseWriter that can't be hijacked (HTTP/2) aborts
// where others reset or cut.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fault, life := s.meet()
	if fault.Kind == FaultRefuse {
		sever(w, true)
		return
	}
	body, large, err := s.read(r.Body)
	if err != nil {
		sever(w, true)
		return
	}
	deliver(w, r, s.serve(&arrival{req: r, body: body, large: large, fault: fault, life: life}), life)
}

// meet draws the fault of a request that is about to arrive.
func (s *Server) meet() (Fault, *life) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return Fault{Kind: FaultRefuse}, s.life
	}
	return s.script.next(), s.life
}

// read reads a body up to the limit, and reports whether there was more.
func (s *Server) read(r io.Reader) (body []byte, large bool, err error) {
	if r == nil {
		return nil, false, nil
	}
	body, err = io.ReadAll(io.LimitReader(r, s.maxBody+1))
	return body, int64(len(body)) > s.maxBody, err
}

// serve enters a request in the ledger, processes it, and enters what became of
// it. A body over the limit is refused unseen; a closed server resets.
func (s *Server) serve(a *arrival) (out outcome) {
	if a.large {
		return outcome{ans: newAnswer(http.StatusRequestEntityTooLarge, nil, nil)}
	}
	a.wire, a.key, a.good = s.locate(a.req, a.body)
	a.value = s.value(a.req, a.body)
	a.id = s.identity(a)
	if !s.enter(a) {
		return outcome{way: reset}
	}
	defer func() { s.leave(a, out) }()
	if out = s.process(a); a.life.ended() {
		out = outcome{way: reset}
	}
	return out
}

func (s *Server) enter(a *arrival) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.running++
	a.at = s.ledger.arrive(Request{
		Method: a.req.Method, URL: absolute(a.req), Header: a.req.Header.Clone(), Body: a.body,
		Key: a.wire, Value: a.value, Time: time.Now(), Fault: a.fault.Kind,
	})
	return true
}

func (s *Server) leave(a *arrival, out outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := &s.ledger.requests[a.at]; out.ans != nil && (out.way == answered || out.way == cut) {
		r.Status, r.Replayed = out.ans.status, out.replayed
	}
	if s.running--; s.running == 0 {
		s.idle.Broadcast()
	}
}

// absolute is the URL that the client asked for.
func absolute(r *http.Request) string {
	if r.URL.IsAbs() {
		return r.URL.String()
	}
	scheme := "http://"
	if r.TLS != nil {
		scheme = "https://"
	}
	return scheme + r.Host + r.URL.RequestURI()
}

// life is one process's life; a restart begins another.
type life struct{ over chan struct{} }

func newLife() *life { return &life{over: make(chan struct{})} }

func (l *life) ended() bool {
	select {
	case <-l.over:
		return true
	default:
		return false
	}
}

// pause waits; false if life ended first.
func (l *life) pause(d time.Duration) bool {
	if d <= 0 {
		return !l.ended()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return !l.ended()
	case <-l.over:
		return false
	}
}
