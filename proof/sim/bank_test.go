package sim

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"time"
)

// bank is the provider. It keeps a key for a day, and a ledger for ever.
type bank struct {
	w     *world
	kept  map[string]*stored // by key; guarded by world.mu
	jobs  map[string]*job    // by intent; guarded by world.mu
	docs  map[string]int     // versions of what PUT writes; guarded by world.mu
	theft map[string]bool    // docs that somebody else wrote last; guarded by world.mu
}

func newBank(w *world) *bank {
	b := &bank{w: w, kept: map[string]*stored{}, jobs: map[string]*job{}}
	b.docs, b.theft = map[string]int{}, map[string]bool{}
	return b
}

// stored is what the provider remembers of a key.
type stored struct {
	busy bool
	sum  string
	at   time.Time
	ans  reply
}

// job is what a 202 has begun.
type job struct {
	ends time.Time
	good bool
}

// reply is an answer of the provider.
type reply struct {
	status int
	header map[string]string
	body   string
}

const window = 24 * time.Hour

// port is a process's way to the provider: its Options.Base.
type port struct {
	w    *world
	proc *proc
}

// order is the body of a request.
type order struct {
	ID     string `json:"id"`
	Amount int    `json:"amount"`
}

// RoundTrip sends a request through whatever weather is drawn for it.
func (p *port) RoundTrip(req *http.Request) (*http.Response, error) {
	w, o := p.w, opOf(req.Context())
	var raw []byte
	if req.Body != nil {
		raw, _ = io.ReadAll(req.Body)
		req.Body.Close()
	}
	if p.proc.dead.Load() {
		return nil, errDead
	}
	if req.Method == http.MethodGet {
		return p.visit(req, o)
	}
	fault := w.fault(o)
	s := w.sending(req, raw, o, p.proc)
	defer w.sent(s)
	trace := httptrace.ContextClientTrace(req.Context())
	if trace == nil {
		trace = &httptrace.ClientTrace{}
	}
	if err := p.dial(req.Context(), trace, fault, o); err != nil {
		w.logf("%v %s: %s, %v", o, s.key, fault, err)
		return nil, err
	}
	if p.proc.dead.Load() {
		return nil, errDead
	}
	return p.send(req, trace, s, fault)
}

// send lets a request go its way, whatever becomes of its caller.
func (p *port) send(req *http.Request, trace *httptrace.ClientTrace, s *sending, fault string) (*http.Response, error) {
	w, answers := p.w, make(chan reply, 1)
	w.leaves(s)
	way := w.between(s.o, time.Millisecond, 2*time.Second)
	if fault == "late" {
		way = w.between(s.o, 10*time.Second, time.Minute)
	}
	back := w.between(s.o, time.Millisecond, time.Second)
	go func() {
		time.Sleep(way)
		r := w.bank.meet(req, s, fault)
		w.arrives(s)
		answers <- r
	}()
	if trace.WroteRequest != nil {
		trace.WroteRequest(httptrace.WroteRequestInfo{})
	}
	select {
	case r := <-answers:
		time.Sleep(back)
		return p.answer(req, r, fault)
	case <-req.Context().Done():
		return nil, context.Cause(req.Context())
	case <-p.proc.gone:
		return nil, errDead
	}
}

// dial tells the trace what a transport would.
func (p *port) dial(ctx context.Context, trace *httptrace.ClientTrace, fault string, o *opState) error {
	time.Sleep(p.w.between(o, time.Microsecond, 10*time.Millisecond))
	if fault == "slow dial" {
		select {
		case <-time.After(p.w.between(o, time.Second, 2*time.Minute)):
		case <-ctx.Done():
		}
	}
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	if (fault == "refuse" || fault == "other address") && trace.ConnectDone != nil {
		trace.ConnectDone("tcp", "192.0.2.1:443", refused)
	}
	if fault == "refuse" {
		return refused
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if trace.ConnectDone != nil {
		trace.ConnectDone("tcp", "192.0.2.2:443", nil)
	}
	if trace.TLSHandshakeDone != nil {
		trace.TLSHandshakeDone(tls.ConnectionState{}, nil)
	}
	if trace.GotConn != nil && !p.w.prog.Silent {
		trace.GotConn(httptrace.GotConnInfo{})
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// answer is what comes back of a reply.
func (p *port) answer(req *http.Request, r reply, fault string) (*http.Response, error) {
	switch {
	case p.proc.dead.Load():
		return nil, errDead
	case req.Context().Err() != nil:
		return nil, context.Cause(req.Context())
	case fault == "lost", fault == "reset", fault == "other address", fault == "late":
		return nil, io.ErrUnexpectedEOF
	}
	if status, ok := strings.CutPrefix(fault, "behind "); ok {
		r = front(status)
	}
	if fault == "drops query" && req.URL.RawQuery != "" {
		r = reply{status: 301, header: map[string]string{"Location": "https://new.example" + req.URL.Path}}
	}
	resp := &http.Response{
		StatusCode: r.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: int64(len(r.body)),
	}
	for k, v := range r.header {
		if v != "" {
			resp.Header.Set(k, v)
		}
	}
	if fault == "cut" {
		r.body = r.body[:len(r.body)/2]
	}
	resp.Body = io.NopCloser(bytes.NewReader([]byte(r.body)))
	return resp, nil
}

// front is an answer of something in front of the provider.
func front(status string) reply {
	n, _ := strconv.Atoi(status)
	return reply{status: n, body: `{"error":"front"}`}
}

// meet is the provider's side of a request that arrived.
func (b *bank) meet(req *http.Request, s *sending, fault string) reply {
	kind, status, _ := strings.Cut(fault, " ")
	switch kind {
	case "reset":
		return reply{}
	case "front", "door":
		r := front(status)
		if status == "403" || status == "413" {
			b.w.turnedAway(s)
		}
		if status == "429" && b.w.odds(s.o, 0.5) {
			r.header = map[string]string{"Retry-After": strconv.Itoa(1 + int(b.w.odd(s.o)%40))}
		}
		return r
	case "wait":
		r := front(status)
		r.header = map[string]string{"Retry-After": "7"}
		return r
	case "moved":
		b.w.turnedAway(s)
		return reply{status: 301, header: map[string]string{"Location": "https://new.example" + req.URL.RequestURI()}}
	case "redirect":
		return reply{status: 301, header: map[string]string{"Location": "https://other.example/start"}}
	}
	if s.key == "" {
		return b.plain(req, s)
	}
	if r, over := b.look(s); over {
		return r
	}
	time.Sleep(b.w.between(s.o, time.Millisecond, 500*time.Millisecond))
	r := b.judge(s)
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	k := b.kept[s.key]
	k.busy, k.ans = false, r
	return r
}

// turnedAway is a refusal for good by what stands in front.
func (w *world) turnedAway(s *sending) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused(s)
}

// look finds what is known of a key; else the key is busy.
func (b *bank) look(s *sending) (reply, bool) {
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	if !b.w.prog.KeyFirst && b.w.odds(s.o, b.w.prog.Declines/4) {
		b.w.refused(s)
		return b.pad(reply{status: 402, body: `{"error":"declined"}`}), true // judged before the key is looked up
	}
	k := b.kept[s.key]
	switch {
	case k == nil, !k.busy && time.Since(k.at) > window:
		s.life.first = time.Now()
		b.kept[s.key] = &stored{busy: true, sum: s.sum, at: time.Now()}
		return reply{}, false
	case k.sum != s.sum:
		return b.pad(reply{status: 422, body: `{"code":"mismatch"}`}), true
	case k.busy:
		return b.pad(reply{status: 409, body: `{"code":"in_flight"}`}), true
	}
	r := k.ans
	r.header = map[string]string{"Idempotent-Replayed": "true", "Location": r.header["Location"]}
	return r, true
}

// judge is what the provider makes of a request that it hasn't seen.
func (b *bank) judge(s *sending) reply {
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	switch {
	case b.w.odds(s.o, b.w.prog.Declines):
		b.w.refused(s)
		if b.w.prog.Failed200 {
			return b.pad(reply{status: 200, body: `{"status":"failed"}`})
		}
		return b.pad(reply{status: 402, body: `{"error":"declined"}`})
	case b.w.odds(s.o, b.w.prog.Accepts):
		j := &job{ends: time.Now().Add(b.w.between(s.o, time.Second, time.Minute)), good: !b.w.odds(s.o, 0.3)}
		b.jobs[s.in.id] = j
		time.AfterFunc(time.Until(j.ends), func() { b.finish(s, j) })
		return running("/jobs/"+s.in.id, "")
	}
	b.w.effect(s)
	return b.pad(reply{status: 201, body: fmt.Sprintf(`{"id":%q,"status":"done"}`, s.in.id)})
}

func (b *bank) finish(s *sending, j *job) {
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	if j.good {
		b.w.effect(s)
	} else {
		b.w.refused(s)
	}
}

// pad makes an answer longer than what is kept of it.
func (b *bank) pad(r reply) reply {
	if b.w.prog.Padded {
		r.body = `{"pad":"` + strings.Repeat("x", 400) + `",` + r.body[1:]
	}
	return r
}

// plain is the part of the provider that takes no keys.
func (b *bank) plain(req *http.Request, s *sending) reply {
	time.Sleep(b.w.between(s.o, time.Millisecond, 500*time.Millisecond))
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	id := s.in.id
	switch version := strconv.Quote("v" + strconv.Itoa(b.docs[id])); {
	case s.in.Exists:
		b.w.refused(s)
		return reply{status: 409, header: map[string]string{"X-State": "exists"}, body: `{}`}
	case req.Method == http.MethodPost:
	case req.Header.Get("If-Match") == version, req.Header.Get("If-Match") == "*", req.Header.Get("If-Match") == "":
		b.w.written(s, b.theft[id])
		b.docs[id]++
		b.theft[id] = false
	default:
		b.w.refused(s)
		return reply{status: 412, body: `{}`}
	}
	b.w.effect(s)
	return reply{status: 200, body: `{"status":"done"}`}
}

// visit answers a poll, or a fetch of what a job made.
func (p *port) visit(req *http.Request, o *opState) (*http.Response, error) {
	w := p.w
	fault := w.fault(o)
	time.Sleep(w.between(o, time.Millisecond, time.Second))
	if p.proc.dead.Load() {
		return nil, errDead
	}
	if req.Context().Err() != nil {
		return nil, context.Cause(req.Context())
	}
	if fault == "lost" || fault == "reset" {
		return nil, io.ErrUnexpectedEOF
	}
	r := w.bank.job(req, fault, o)
	w.logf("%v GET %s: %s %d %s", o, req.URL, fault, r.status, r.body)
	return p.answer(req, r, "")
}

func (b *bank) job(req *http.Request, fault string, o *opState) reply {
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	_, id, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, "/"), "/")
	j := b.jobs[id]
	made := strings.HasPrefix(req.URL.Path, "/v1/")
	switch {
	case req.URL.Host != "api.example":
		return reply{status: 200, body: `{"page":"login"}`}
	case fault == "poll login":
		return reply{status: 303, header: map[string]string{"Location": "https://login.example/"}}
	case fault == "poll 404":
		return reply{status: 404, body: `{"error":"no such thing yet"}`}
	case fault == "poll 503":
		return front("503")
	case made:
		return reply{status: 200, body: `{"status":"done"}`}
	case j == nil:
		return reply{status: 404, body: `{}`}
	case time.Now().Before(j.ends):
		return running(req.URL.Path, "5")
	case !j.good:
		return reply{status: 200, body: `{"status":"failed"}`}
	case b.w.odds(o, 0.5):
		return reply{status: 303, header: map[string]string{"Location": "/v1/charges/" + id}}
	}
	return reply{status: 200, body: `{"status":"done"}`}
}

func running(at, wait string) reply {
	return reply{
		status: 202, header: map[string]string{"Location": at, "Retry-After": wait}, body: `{"status":"running"}`,
	}
}

// orderOf reads a request's body.
func orderOf(raw []byte) (o order) {
	_ = json.Unmarshal(raw, &o)
	return o
}
