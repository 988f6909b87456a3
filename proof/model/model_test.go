package model

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/idem-go/idem"
)

// life is what the model knows of one intent: one key, from the first call to the end.
// It is told what leaves for the provider, what callers hear and what stands in the
// journal, and holds them against each other and against the provider's ledger.
type life struct {
	id      string   // who it is: a name within its account, a caller's key, or an anonymous payload
	key     idem.Key // as the provider gets it, without quotes
	wire    string   // and with
	bytes   string   // method, URL and body of its first send
	account string
	step    int // in which it was first seen

	sends   int
	first   time.Time // of the first send that the provider may have processed; zero: none
	epoch   int       // setbacks of the clock before that
	born    int       // and before its first call
	driven  bool      // a send is under way
	queued  bool      // Enqueue took it
	expires time.Time // of what Enqueue took

	heard    idem.Fate  // the highest that anybody was told
	told     int        // when
	state    idem.State // in the journal; 0: no entry
	settled  time.Time
	over     string // why nothing may be sent any more
	free     bool   // the name may stand for another intent
	base     int    // effects under this key before this life
	forgiven bool   // the provider forgot the key within its window, as it must not
	stuck    bool   // the provider keeps a failure, or the key locked: a resend can't tell
}

// model is all lives of one program.
type model struct {
	lives     []*life
	step      int
	moment    int                // how many answers were heard so far
	epoch     int                // setbacks of the clock so far
	calls     int                // at once, in this step
	effects   func(idem.Key) int // the provider's ledger
	forgotten map[string]int     // the last step in which Forget took a name
	amnesia   int                // the last step in which the provider lost all keys
	rule      string             // the first that was broken, without particulars
	broken    []string           // all that were, with them
}

func (m *model) breaks(l *life, format string, args ...any) {
	who := ""
	if m.rule == "" {
		m.rule = format
	}
	if l != nil {
		who = fmt.Sprintf("%s, key %s: ", l.id, l.key)
	}
	m.broken = append(m.broken, fmt.Sprintf("step %d: %s%s", m.step, who, fmt.Sprintf(format, args...)))
}

// of returns the newest life of a key, nil if there is none.
func (m *model) of(key idem.Key) *life {
	for i := len(m.lives) - 1; i >= 0; i-- {
		if m.lives[i].key == key {
			return m.lives[i]
		}
	}
	return nil
}

// open returns the newest life of a key, or begins one. An intent with a key of its own
// that is over and gone from the journal may have another life under it.
func (m *model) open(key idem.Key, id, account string) *life {
	l := m.of(key)
	if l == nil || l.over != "" && l.state == 0 && l.keepsKey() && (l.step < m.step || m.calls > 1) {
		l = &life{id: id, key: key, account: account, step: m.step, born: m.epoch, base: m.effects(key), forgiven: m.amnesia == m.step}
		m.lives = append(m.lives, l)
	}
	return l
}

func (l *life) effects(m *model) int { return m.effects(l.key) - l.base }

// happened tells whether n effects are as Done says: one, or the one of an earlier life
// under the same key, which the provider replays.
func (l *life) happened(n int) bool { return n == 1 || n == 0 && l.base > 0 || l.forgiven }

// send is a request on its way to the provider: the rules of the wire.
func (m *model) send(l *life, s sending) {
	now := time.Now()
	switch {
	case l.sends > 0 && l.wire != s.wire:
		m.breaks(l, "another wire form: %q after %q", s.wire, l.wire)
	case l.sends > 0 && l.bytes != s.bytes:
		m.breaks(l, "other bytes: %q after %q", s.bytes, l.bytes)
	case l.driven:
		m.breaks(l, "two drivers send at once")
	case l.over != "":
		m.breaks(l, "sent although %s", l.over)
	case l.account != s.account:
		m.breaks(l, "sent with the credential of account %q, not %q", s.account, l.account)
	case !l.first.IsZero() && !now.Before(l.first.Add(window-margin)):
		m.breaks(l, "sent %v after the first time", now.Sub(l.first))
	case !l.first.IsZero() && l.epoch != m.epoch:
		m.breaks(l, "sent although the clock was set back since the first time")
	case !s.expires.IsZero() && !now.Before(s.expires), !l.expires.IsZero() && !now.Before(l.expires):
		m.breaks(l, "sent after its expiry")
	}
	l.wire, l.bytes, l.driven = s.wire, s.bytes, true
	l.sends++
	if s.reaches && l.first.IsZero() {
		l.first, l.epoch = now, m.epoch
	}
	l.stuck = l.stuck || s.sticks
}

// hear is an answer to a caller: the rules of fate.
func (m *model) hear(l *life, h hearing) {
	otherwise := false // the error speaks of another request than the intent's own, or of none
	for _, e := range []error{idem.ErrMismatch, idem.ErrAbandoned, idem.ErrAccountChanged, idem.ErrClosed, idem.ErrConflict} {
		otherwise = otherwise || errors.Is(h.err, e)
	}
	switch n := l.effects(m); {
	case l.heard == idem.FateDone && h.fate != idem.FateDone && !otherwise && h.began > l.told: // else it was said before, and heard later
		m.breaks(l, "fate went down: %v after Done (%v)", h.fate, h.err)
	case h.fate == idem.FateDone && !l.happened(n):
		m.breaks(l, "Done, and it has %d effects", n)
	case h.fate == idem.FateNotDone && n != 0 && !l.forgiven:
		m.breaks(l, "NotDone (%v), and it has %d effects", h.err, n)
	}
	switch {
	case h.fate == idem.FateNotDone:
		l.over = "NotDone was told"
	case h.fate == idem.FateDone && h.final && l.anonymous():
		l.over, l.free = "its caller has the answer", true
	}
	if !h.remembered() && h.fate > l.heard {
		l.heard, l.told = h.fate, m.moment
	}
	m.moment++
}

// journaled is what stands in the journal after a step; e is nil where nothing does.
func (m *model) journaled(l *life, e *idem.Entry) {
	was := l.state
	if l.state = 0; e != nil {
		l.state = e.State
	}
	if told := e == nil && l.heard != idem.FateUnknown; m.forgotten[l.id] == m.step && (told || e != nil && e.State > idem.StateAmbiguous) {
		l.over, l.free = "it was forgotten", true
	}
	n := l.effects(m)
	switch {
	case n > 1 && !l.forgiven:
		m.breaks(l, "%d effects", n)
	case e == nil && l.sdk() && l.heard == idem.FateDone: // those are kept for the window alone
		l.over = "it was Done"
	case e == nil && l.over == "" && (l.sends > 0 || l.queued):
		m.breaks(l, "lost: nobody was told its end, and the journal doesn't have it")
	case e == nil && l.anonymous() && was == idem.StateSettled && m.age(l) >= keep:
		l.free = true
	case e == nil && l.heard == idem.FateDone && !l.free:
		m.breaks(l, "Done was forgotten")
	case e == nil:
		l.free = l.free || l.over == "NotDone was told"
	case l.heard == idem.FateDone && e.Fate != idem.FateDone:
		m.breaks(l, "fate went down in the journal: %v", e.Fate)
	case e.State == idem.StateSettled && e.Fate == idem.FateDone && !l.happened(n):
		m.breaks(l, "settled as Done, and it has %d effects", n)
	case e.State == idem.StateSettled && e.Fate == idem.FateNotDone && n != 0 && !l.forgiven:
		m.breaks(l, "settled as NotDone, and it has %d effects", n)
	case e.State == idem.StatePending && !l.first.IsZero() && (e.FirstSent.IsZero() || e.FirstSent.After(l.first)):
		m.breaks(l, "first sent at %v, says the journal; it was at %v", e.FirstSent, l.first)
	case e.State == idem.StatePending && was > idem.StatePending:
		m.breaks(l, "Pending again")
	}
	if e == nil || e.State == idem.StatePending {
		return
	}
	if l.over == "" {
		l.over = "the journal had it as " + e.State.String()
	}
	if e.State == idem.StateSettled {
		l.settled = e.Settled
		l.heard = max(l.heard, e.Fate)
	}
	l.free = l.free || l.anonymous() && (e.State == idem.StateAbandoned || e.State == idem.StateSettled && e.Fate == idem.FateNotDone)
}

// oneKey is the rule that an intent has one key: no life begins while an earlier one
// under the same name, or with the same anonymous payload, may still have an effect.
func (m *model) oneKey() {
	for i, newer := range m.lives {
		for _, older := range m.lives[:i] {
			changed := older.over != "" && older.heard == idem.FateNotDone && older.bytes != newer.bytes
			atOnce := newer.anonymous() && (older.step == newer.step || older.queued) // nobody was left in doubt
			switch {
			case newer.step != m.step || older.id != newer.id || older.key == newer.key || older.free || atOnce:
			case changed:
				older.free = true
			default:
				m.breaks(newer, "a second key; the first one, %s, is not over", older.key)
			}
		}
	}
}

// age is for how long the journal has had a result: a clock that was ahead counts as a day.
func (m *model) age(l *life) time.Duration {
	return time.Since(l.settled) + time.Duration(m.epoch-l.born)*24*time.Hour
}

func (l *life) anonymous() bool { return strings.HasPrefix(l.id, "anonymous ") }

// keepsKey tells intents whose key isn't minted: a caller's, and a batch item's, which
// is derived from its name.
func (l *life) keepsKey() bool { return l.id == string(l.key) || strings.Contains(l.id, "/item-") }

func (l *life) sdk() bool { return strings.HasPrefix(string(l.key), "sdk-") }

// forgive lowers what is asked of a provider that has forgotten its keys.
func (m *model) forgive(only idem.Key) {
	if only == "" {
		m.amnesia = m.step // also of what is about to be sent
	}
	for _, l := range m.lives {
		l.forgiven = l.forgiven || only == "" || l.key == only
	}
}

// sure tells whether a resume with a healthy provider must settle the life.
func (l *life) sure(m *model, now time.Time) bool {
	return l.state == idem.StatePending && l.over == "" && l.base == 0 && l.born == m.epoch && !l.stuck && !l.forgiven &&
		(l.first.IsZero() || now.Before(l.first.Add(window-margin)))
}

// remembered tells a fate that the process knows though the journal could not take it:
// a crash forgets it, and the provider is asked again.
func (h hearing) remembered() bool {
	for _, e := range []error{idem.ErrInDoubt, context.DeadlineExceeded, context.Canceled} {
		if h.fate == idem.FateDone && errors.Is(h.err, e) {
			return true
		}
	}
	return errors.Is(h.err, idem.ErrClosed)
}
