package mockserver

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
)

// Headers by which a handler says more than its status does. They are taken off
// its answer.
const (
	// EffectHeader, "yes" or "no", says whether the run was an effect.
	EffectHeader = "Mock-Effect"
	// KeepHeader is the [Keep] of this answer: "nothing" for parameters that
	// were refused before anything began, say.
	KeepHeader = "Mock-Keep"
)

// answer is a whole HTTP answer.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func newAnswer(status int, h http.Header, body []byte) *answer {
	if h == nil {
		h = http.Header{}
	}
	return &answer{status: status, header: h, body: body}
}

// clone shares the body, which nobody writes to.
func (a *answer) clone() *answer { return newAnswer(a.status, a.header.Clone(), a.body) }

// bodyless reports whether such an answer goes without body and length.
func (a *answer) bodyless() bool {
	return a.status == http.StatusNoContent || a.status == http.StatusNotModified
}

// resourceOf is what {id} stands for.
func resourceOf(a *answer) string {
	if a == nil {
		return ""
	}
	if id, ok := member(a.body, "resource"); ok {
		return id
	}
	id, _ := member(a.body, "id")
	return id
}

// work is what a run came to.
type work struct {
	ans    *answer
	effect bool
	keep   Keep
}

// work does the request, or fails as the fault says.
func (s *Server) work(a *arrival) work {
	f := a.fault
	var w work
	if f.Kind != FaultFail || f.After {
		w = s.run(a)
	}
	if f.Kind == FaultFail {
		w.ans = f.answer(http.StatusInternalServerError)
		w.keep = first(f.Keep, s.profile.keep(w.ans.status))
	}
	return w
}

// run runs the handler once. The client's context is not the handler's: the
// work goes on when the client has gone.
func (s *Server) run(a *arrival) work {
	r := a.req.WithContext(context.WithoutCancel(a.req.Context()))
	r.Header = a.req.Header.Clone()
	r.Body = io.NopCloser(bytes.NewReader(a.body))
	rec := &recorder{header: http.Header{}}
	s.handler.ServeHTTP(rec, r)
	ans := rec.answer()
	said := ans.header.Get(EffectHeader)
	w := work{
		ans:    ans,
		effect: said == "yes" || said != "no" && ans.status/100 == 2 && !safe(r.Method),
		keep:   first(Keep(ans.header.Get(KeepHeader)), s.profile.keep(ans.status)),
	}
	ans.header.Del(EffectHeader)
	ans.header.Del(KeepHeader)
	return w
}

// recorder is the ResponseWriter that handlers write to.
type recorder struct {
	header http.Header
	sent   http.Header // header as it stood at WriteHeader
	status int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 && status >= 200 {
		r.status, r.sent = status, r.header.Clone()
	}
}

func (r *recorder) Write(p []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	return r.body.Write(p)
}

func (r *recorder) answer() *answer {
	r.WriteHeader(http.StatusOK)
	if r.body.Len() > 0 && r.sent.Get("Content-Type") == "" {
		r.sent.Set("Content-Type", http.DetectContentType(r.body.Bytes()))
	}
	return newAnswer(r.status, r.sent, r.body.Bytes())
}

// valueOf is the default of Config.Value.
func valueOf(r *http.Request, body []byte) string {
	if id, ok := member(body, "id"); ok {
		return id
	}
	if id := formOf(r, body).Get("id"); id != "" {
		return id
	}
	return path.Base(r.URL.Path)
}

// create is the default handler. It makes a resource of every request, and
// shows those that it made.
func (s *Server) create(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if safe(r.Method) {
		s.show(w, r)
		return
	}
	body, _ := io.ReadAll(r.Body)
	value := s.value(r, body)
	s.mu.Lock()
	id := "res_" + strconv.Itoa(len(s.resources)+1)
	made, _ := json.Marshal(map[string]string{"id": value, "resource": id})
	s.resources[id] = made
	s.mu.Unlock()
	w.Header().Set("Location", strings.TrimSuffix(r.URL.Path, "/")+"/"+id)
	w.WriteHeader(http.StatusCreated)
	w.Write(made)
}

func (s *Server) show(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	made, ok := s.resources[path.Base(r.URL.Path)]
	s.mu.Unlock()
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, `{"error":"not_found"}`)
		return
	}
	w.Write(made)
}
