package mockserver

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// arrival is one request that arrived whole.
type arrival struct {
	req   *http.Request // as a handler sees it; its body is in body
	body  []byte
	large bool   // its body is over the limit
	wire  string // the key as on the wire
	key   string // and without its quotes
	good  bool   // the key is well formed
	id    string // what the key is remembered under
	value string
	at    int // its place in the ledger
	life  *life
	fault Fault
}

// route is what CompareRoute compares.
func (a *arrival) route() string { return a.req.Method + " " + a.req.URL.RequestURI() }

// pause waits out the fault's delay; false if the server restarted meanwhile.
func (a *arrival) pause() bool { return a.life.pause(a.fault.Delay) }

// outcome is what goes back over the wire.
type outcome struct {
	way      way
	ans      *answer // of answered, cut and cutHead
	replayed bool
	fault    Fault // says how to cut
}

// way is how an outcome reaches the client.
type way uint8

const (
	answered way = iota
	reset
	dropped
	hung
	cut
	cutHead
)

// process takes one request from its arrival to what the client gets to see:
// what strikes before the API, the API itself, what strikes after.
func (s *Server) process(a *arrival) outcome {
	if out, struck := s.before(a); struck {
		return out
	}
	out := s.layer(a)
	if out.way != answered {
		return out
	}
	return s.after(a, out)
}

// before is what strikes ahead of the idempotency layer.
func (s *Server) before(a *arrival) (outcome, bool) {
	f := a.fault
	switch {
	case f.Kind == FaultForget:
		s.forget(a.id)
		return outcome{}, false
	case f.Kind == FaultLate:
		return outcome{way: reset}, !a.pause()
	case f.After:
		return outcome{}, false
	}
	out, struck := s.early(a)
	if struck && !a.pause() {
		return outcome{way: reset}, true
	}
	if struck && f.Kind == FaultRestart {
		s.Restart(f.Keep != KeepNothing)
	}
	return out, struck
}

// early is what a fault without After does in place of the API.
func (s *Server) early(a *arrival) (outcome, bool) {
	f := a.fault
	switch f.Kind {
	case FaultReset, FaultRestart:
		return outcome{way: reset}, true
	case FaultStatus:
		return outcome{ans: f.answer(http.StatusServiceUnavailable)}, true
	case FaultInFlight:
		out := s.reply(a, s.profile.InFlight, http.StatusConflict, "", true)
		f.dress(out.ans)
		return out, true
	case FaultRateLimit:
		if f.RetryAfter == 0 {
			f.RetryAfter = time.Second
		}
		out := s.reply(a, s.profile.RateLimit, http.StatusTooManyRequests, "", true)
		f.dress(out.ans)
		return out, true
	}
	return outcome{}, false
}

// after is what strikes once the API has its answer.
func (s *Server) after(a *arrival, out outcome) outcome {
	f := a.fault
	if f.After && !a.pause() {
		return outcome{way: reset}
	}
	out.fault = f
	switch f.Kind {
	case FaultDrop:
		out.way = dropped
	case FaultHang:
		out.way = hung
	case FaultCut:
		out.way = cut
	case FaultCutHead:
		out.way = cutHead
	case FaultReset:
		out.way = reset
	case FaultRestart:
		s.Restart(f.Keep != KeepNothing)
		out.way = reset
	case FaultStatus:
		return outcome{ans: f.answer(http.StatusServiceUnavailable)}
	}
	return out
}

// layer is the idempotency layer: it executes the request, or answers by what
// it knows of the key.
func (s *Server) layer(a *arrival) outcome {
	p := &s.profile
	switch {
	case !p.honours(a.req.Method):
		return s.execute(a, nil)
	case !a.good:
		return s.reply(a, p.BadKey, http.StatusBadRequest, "", false)
	case a.key == "" && p.Missing.Status != 0:
		return s.reply(a, p.Missing, 0, "", false)
	case p.Late.Status != 0 && s.tooOld(a):
		return s.reply(a, p.Late, 0, "", false)
	case a.key == "":
		return s.execute(a, nil)
	}
	return s.lookUp(a)
}

// tooOld judges the request's own word on when it was first sent.
func (s *Server) tooOld(a *arrival) bool {
	if s.profile.FirstSent == "" {
		return false
	}
	sent, err := http.ParseTime(a.req.Header.Get(s.profile.FirstSent))
	return err == nil && time.Since(sent) >= s.profile.window()
}

// lookUp acts on what is known of the key, after waiting for it if need be.
func (s *Server) lookUp(a *arrival) outcome {
	p := &s.profile
	for {
		e, found := s.claim(a, time.Now())
		switch found {
		case fresh:
			return s.execute(a, e)
		case known:
			return s.replay(a, e)
		case differs:
			return s.reply(a, p.Mismatch, 0, s.resource(e), false)
		case outdated:
			return s.reply(a, p.Late, 0, s.resource(e), false)
		}
		if p.InFlight.Status != 0 || found == barred {
			return s.reply(a, p.InFlight, http.StatusConflict, "", true)
		}
		if !s.await(a, e) {
			return outcome{way: reset}
		}
	}
}

// await waits until a running request has ended or lost its key; false if the
// server restarted meanwhile.
func (s *Server) await(a *arrival, e *entry) bool {
	var lost <-chan time.Time
	if s.profile.LockFor > 0 {
		t := time.NewTimer(time.Until(e.taken.Add(s.profile.LockFor)))
		defer t.Stop()
		lost = t.C
	}
	select {
	case <-e.done:
	case <-lost:
	case <-a.life.over:
		return false
	}
	return true
}

// execute lets the handler do the request under a key that it holds, or none.
func (s *Server) execute(a *arrival, e *entry) (out outcome) {
	defer func() {
		s.release(a, e)
		if v := recover(); v == http.ErrAbortHandler {
			out = outcome{way: reset}
		} else if v != nil {
			panic(v)
		}
	}()
	if !a.fault.After && a.fault.Kind != FaultLate && !a.pause() || !s.begin(a, e) {
		return outcome{way: reset}
	}
	w := s.work(a)
	s.settle(a, e, w)
	return outcome{ans: s.mark(a, w.ans.clone(), w.keep == KeepNothing && w.ans.status >= 500)}
}

// replay answers by what is kept of an earlier request.
func (s *Server) replay(a *arrival, e *entry) outcome {
	if !a.fault.After && a.fault.Kind != FaultLate && !a.pause() {
		return outcome{way: reset}
	}
	p := &s.profile
	out := outcome{ans: s.mark(a, e.ans.clone(), false)}
	if p.Done.Status != 0 && e.ans.status < 300 {
		out = s.reply(a, p.Done, 0, resourceOf(e.ans), false)
		if p.Done.Body == "" {
			out.ans.body = e.ans.body
			out.ans.header.Set("Content-Type", e.ans.header.Get("Content-Type"))
		}
	}
	if p.ReplayHeader != "" {
		out.ans.header.Set(p.ReplayHeader, p.ReplayValue)
	}
	out.replayed = true
	return out
}

// reply is an answer of the profile's own.
func (s *Server) reply(a *arrival, r Reply, def int, resource string, retry bool) outcome {
	fill := strings.NewReplacer("{key}", a.key, "{path}", a.req.URL.Path, "{body}", string(a.body), "{id}", resource)
	return outcome{ans: s.mark(a, r.answer(Reply{Status: def}, fill), retry)}
}

// mark adds the headers that the profile has on every answer.
func (s *Server) mark(a *arrival, ans *answer, retry bool) *answer {
	p := &s.profile
	for name, values := range p.Header {
		if name = http.CanonicalHeaderKey(name); ans.header[name] == nil {
			ans.header[name] = slices.Clone(values)
		}
	}
	if p.EchoKey != "" && a.wire != "" {
		ans.header.Set(p.EchoKey, a.wire)
	}
	if p.ShouldRetry != "" && ans.status >= 400 {
		ans.header.Set(p.ShouldRetry, strconv.FormatBool(retry))
	}
	return ans
}
