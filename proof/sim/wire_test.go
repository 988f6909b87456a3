package sim

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// sending is shown each request before it leaves: the rules of the wire.
func (w *world) sending(req *http.Request, raw []byte, o *opState, q *proc) *sending {
	key := req.Header.Get("Idempotency-Key")
	found, open := w.store.open(key)
	w.mu.Lock()
	defer w.mu.Unlock()
	body := orderOf(raw)
	s := &sending{o: o, proc: q, key: key, amount: body.Amount, at: time.Now()}
	s.sum = digest(req, raw)
	for _, in := range w.intents {
		if in.id == body.ID {
			s.in = in
		}
	}
	in := s.in
	if in == nil {
		w.brokenBy(nil, "a request without a body of ours: %q", raw)
		s.in = w.intents[0]
		return s
	}
	s.life = in.key(key)
	if key == "" && len(in.lives) > 0 {
		s.life = in.lives[len(in.lives)-1]
		found, open = w.store.open(s.life.key)
	}
	w.logf("%v sends %s %s under %q", o, req.Method, req.URL, key)
	if s.life == nil || !found {
		w.brokenBy(in, "sent without an entry (key %s)", key)
		s.life = &life{key: key, born: time.Now()}
		in.lives = append(in.lives, s.life)
	} else if !open && !w.robbedBefore(o) {
		w.brokenBy(in, "sent for what is settled (key %s)", key)
	}
	w.wire(req, s)
	s.life.driving = append(s.life.driving, s)
	return s
}

// digest is of all that must be the same in every attempt.
func digest(req *http.Request, raw []byte) string {
	sum := sha256.New()
	fmt.Fprintf(sum, "%s %s %q ", req.Method, req.URL, req.Header["X-Note"])
	fmt.Fprintf(sum, "%q %q ", req.Header["If-Match"], req.Header["If-None-Match"])
	sum.Write(raw)
	return string(sum.Sum(nil))
}

// wire compares a request with those before.
func (w *world) wire(req *http.Request, s *sending) {
	l, in := s.life, s.in
	if w.afterEnd(s) {
		w.brokenBy(in, "sent after Done was told (key %s)", s.key)
	}
	for _, other := range l.driving {
		if other.o != s.o && !other.proc.dead.Load() && !w.robbedBefore(other.o) {
			w.brokenBy(in, "two drivers send at once: %v and %v", other.o, s.o)
		}
	}
	got := strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer ")
	switch {
	case l.sum != "" && l.sum != s.sum:
		w.brokenBy(in, "other bytes than in the first attempt")
	case in.Account != "" && got != in.account():
		w.brokenBy(in, "sent with the credential of account %q, not %q", got, in.account())
	}
	l.sum = s.sum
}

// afterEnd tells a call that had begun before others heard Done, and sends after that.
func (w *world) afterEnd(s *sending) bool {
	in := s.in
	if in.told.IsZero() || in.Kind == "anonymous" || !s.o.began.Before(in.told) {
		return false
	}
	return w.watched(in) && !w.robbedBefore(s.o) && !in.split()
}

// late tells whether the caller wants nothing sent any more.
func (o *opState) late() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.expires.IsZero() && time.Now().After(o.expires)
}

// sent ends a request's stay with its driver.
func (w *world) sent(s *sending) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, d := range s.life.driving {
		if d == s {
			s.life.driving = append(s.life.driving[:i:i], s.life.driving[i+1:]...)
			return
		}
	}
}

func (w *world) leaves(s *sending) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.in.sends++
	s.life.flying++
	switch {
	case !s.life.first.IsZero() && time.Since(s.life.first) >= window:
		w.brokenBy(s.in, "sent %v after the first time", time.Since(s.life.first))
	case s.o.late():
		w.brokenBy(s.in, "sent after its expiry")
	}
	if s.life.firstOp == nil {
		s.life.firstOp = s.o
	}
}

func (w *world) arrives(s *sending) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.life.flying--
}

// effect is the provider's ledger.
func (w *world) effect(s *sending) {
	in := s.in
	in.effects++
	s.life.effects++
	in.amounts[s.amount%2]++
	w.logf("EFFECT of %s under %s, sent by %v", in.id, s.life.key, s.o)
	if in.effects > 1 && in.Kind != "put" && w.watched(in) && !in.split() {
		w.brokenBy(in, "%d effects", in.effects)
	}
}

func (in *intent) firstEffect() *life {
	for _, l := range in.lives {
		if l.effects > 0 {
			return l
		}
	}
	return nil
}

func (w *world) refused(s *sending) { s.in.refusals++ }

// written is a PUT that takes effect.
func (w *world) written(s *sending, over bool) {
	guarded := strings.HasPrefix(s.in.Guard, `If-Match: "`)
	if over && !guarded && s.life.firstOp != s.o {
		w.brokenBy(s.in, "a stale PUT overwrote a newer write")
	}
}
