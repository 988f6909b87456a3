package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/idem-go/idem"
)

// intent is what is known of one thing that somebody wants once.
type intent struct {
	thing
	id       string
	scopes   map[string]bool
	loops    int
	lives    []*life
	sends    int
	effects  int
	amounts  [2]int // effects by payload
	refusals int    // answers that end the matter
	hearings []hearing
	took     bool      // Enqueue has taken it
	takes    [2]bool   // by payload
	dropped  bool      // somebody has abandoned it
	joined   bool      // somebody continues an anonymous one by its key
	told     time.Time // when Done was first told with its answer
}

// life is one entry's: from its creation to its end.
type life struct {
	key     string
	born    time.Time
	account string // under which it was created
	first   time.Time
	sum     string
	effects int
	flying  int // requests that haven't arrived
	driving []*sending
	denied  bool // the Settled hook heard NotDone
	firstOp *opState
}

// key returns the newest life under a key.
func (in *intent) key(key string) *life {
	for i := len(in.lives) - 1; i >= 0; i-- {
		if in.lives[i].key == key {
			return in.lives[i]
		}
	}
	return nil
}

// sending is a request on its way.
type sending struct {
	o      *opState
	proc   *proc
	in     *intent
	life   *life
	key    string
	sum    string
	amount int
	at     time.Time
}

// hearing is what a caller was told.
type hearing struct {
	o               *opState
	fate            idem.Fate
	err             error
	status          int
	took            bool
	began, deadline time.Time
	looked, ended   time.Time
	waited          bool // in vain, for somebody else to release the claim
	tardy           bool // the journal had nothing when it was first asked
}

// hear takes what Do returned.
func (h *hearing) hear(resp *http.Response, err error) {
	h.fate, h.err = idem.FateOf(resp, err), err
	if resp != nil {
		h.status = resp.StatusCode
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
}

// source is where a NotDone comes from.
func (h hearing) source() string {
	switch {
	case h.waited:
		return "to one who waited in vain"
	case h.o.Do == "join":
		return "to one who joined by its key"
	case h.o.in.Kind == "anonymous":
		return "in a loop"
	case h.status > 0 && (h.o.in.Kind == "put" || h.o.in.Kind == "unkeyed"):
		return fmt.Sprintf("by status %d without a key", h.status)
	case h.status > 0 && h.o.in.Token:
		return fmt.Sprintf("by status %d, with a credential in the URL", h.status)
	case h.status > 0:
		return fmt.Sprintf("by status %d", h.status)
	}
	return "without an answer"
}

func (w *world) breaks(in *intent, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.brokenBy(in, format, args...)
}

// brokenBy is breaks under the lock.
func (w *world) brokenBy(in *intent, format string, args ...any) {
	if w.rules == nil {
		w.rules = map[string]bool{}
	}
	rule := format
	if format == "%s" {
		rule = fmt.Sprint(args...)
	}
	w.rules[rule] = true
	who := ""
	if in != nil {
		who = in.id + ": "
	}
	line := who + fmt.Sprintf(format, args...)
	w.logf("BROKEN %s", line)
	w.broken = append(w.broken, line)
}

// committed is shown each change that the store takes, under the store's lock.
func (w *world) committed(o *opState, q *proc, c change) {
	if c.Op != opCreate || o.in == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	in := o.in
	account := in.Account
	if account == "" {
		account = q.account
	}
	l := &life{key: c.Record.Key, born: time.Now(), account: account}
	for _, older := range in.lives {
		_, open := w.store.find(older.key)
		if open && older.key != l.key && !w.rolledBack(older, l) && w.watched(in) {
			w.brokenBy(in, "a second key while the first one is open (%s, %s)", older.key, l.key)
		}
	}
	in.lives = append(in.lives, l)
}

// rolledBack tells a name that was made for an account, and is asked for without one.
func (w *world) rolledBack(older, newer *life) bool {
	return older != nil && older.account != "" && newer.account == ""
}

// split tells a name that became two intents: it was made for an account, and once more
// without one, after a deploy was taken back.
func (in *intent) split() bool {
	account := false
	for _, l := range in.lives {
		if account && l.account == "" {
			return true
		}
		account = account || l.account != ""
	}
	return false
}

// watched tells whether the intent is still one: an SDK's key is remembered for the
// window alone.
func (w *world) watched(in *intent) bool {
	return in.Kind != "sdk" || time.Since(w.began) < 23*time.Hour
}

// lostLease notes that an op was robbed.
func (w *world) lostLease(o *opState) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.robbed = true
}

func (w *world) robbedBefore(o *opState) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.robbed
}

// slack is what the journal may take of a caller's time beyond its deadline.
func (w *world) slack() time.Duration {
	d := 16*w.prog.Latency + time.Second
	if w.prog.Slow > 0 {
		d *= 100
	}
	return d
}

// heard is what a caller was told: the rules of fate that can be judged at once.
func (w *world) heard(h hearing) {
	o := h.o
	if o.proc.dead.Load() {
		return
	}
	h.ended = time.Now()
	o.mu.Lock()
	h.looked, h.waited, h.tardy = o.last, o.waited, o.tardy
	o.mu.Unlock()
	durable := w.durable(o.in)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.logf("%v hears %v, status %d, %v", o, h.fate, h.status, h.err)
	in := o.in
	if !h.deadline.IsZero() && h.ended.After(h.deadline.Add(w.slack())) {
		w.brokenBy(in, "%v ended %v after its deadline", o, h.ended.Sub(h.deadline))
	}
	switch o.Do {
	case "resume", "run":
		w.passed(h)
		return
	case "abandon":
		in.dropped = in.dropped || h.err == nil || ended(h.err) // it may have been written all the same
		return
	case "enqueue":
		in.took = in.took || h.took && o.Expiry == 0
		in.takes[o.Amount] = in.takes[o.Amount] || h.took
	}
	if h.fate == idem.FateDone {
		w.done(h, durable)
	} else {
		w.down(h)
	}
	in.hearings = append(in.hearings, h)
}

// passed is the end of a Resume or Run: only the journal and the caller may end it.
func (w *world) passed(h hearing) {
	canceled := errors.Is(h.err, context.DeadlineExceeded) || errors.Is(h.err, context.Canceled)
	if h.err != nil && !ended(h.err) && !canceled {
		w.brokenBy(nil, "%v failed: %v", h.o.Do, h.err)
	}
}

// durable tells whether no entry of the intent that had an effect is open.
func (w *world) durable(in *intent) bool {
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range in.lives {
		if _, open := w.store.find(l.key); open && l.effects > 0 && !in.split() {
			return false
		}
	}
	return true
}

// done is a caller that hears Done.
func (w *world) done(h hearing, durable bool) {
	in := h.o.in
	answered := h.err == nil && h.status < 300 // else the result may be missing
	if answered && in.told.IsZero() {
		in.told = h.ended
	}
	switch {
	case in.effects == 0:
		w.brokenBy(in, "Done, and nothing happened (%v)", h.err)
	case !errors.Is(h.err, idem.ErrMismatch) && in.amounts[h.o.Amount] == 0:
		w.brokenBy(in, "Done, and another payload happened (%v)", h.err)
	case answered && !durable:
		w.brokenBy(in, "Done, and the journal doesn't have it")
	}
}

// down is a caller that hears something else than others have heard before it asked.
func (w *world) down(h hearing) {
	in := h.o.in
	if w.excused(h) || in.split() {
		return
	}
	for _, was := range in.hearings {
		if was.fate != idem.FateDone || !was.ended.Before(h.began) {
			continue
		}
		// Where the journal could not take it, the process alone remembers.
		bound := !ended(was.err) || in.Kind == "anonymous" && errors.Is(h.err, idem.ErrInDoubt)
		if bound {
			w.brokenBy(in, "fate went down: %v after Done (%v)", h.fate, h.err)
			return
		}
	}
}

// excused tells answers that speak of something else, or that could not be had.
func (w *world) excused(h hearing) bool {
	for _, e := range []error{idem.ErrMismatch, idem.ErrAccountChanged, idem.ErrAbandoned} {
		if errors.Is(h.err, e) {
			return true
		}
	}
	switch {
	case h.o.Do == "failover" && h.waited: // for its turn, before it could ask anybody
		return true
	case h.o.Do == "join": // what Do has of an anonymous intent goes with its end
		return true
	}
	return h.took || ended(h.err) || !w.watched(h.o.in) || w.asksWithout(h.o.in, h)
}

// asksWithout tells a call without an account for what was made under one.
func (w *world) asksWithout(in *intent, h hearing) bool {
	l := in.firstEffect()
	return l != nil && l.account != "" && in.Account == "" && h.o.proc.account == ""
}

// toldHook is what the Settled hook hears.
func (w *world) toldHook(q *proc, e idem.Entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if q.dead.Load() {
		return
	}
	for _, in := range w.intents {
		if l := in.key(string(e.Key)); l != nil {
			l.denied = l.denied || e.Fate == idem.FateNotDone
			if e.Fate == idem.FateDone && in.effects == 0 {
				w.brokenBy(in, "the hook heard Done, and nothing happened")
			}
		}
	}
}
