package sim

import (
	"context"
	"errors"
	"fmt"

	"github.com/idem-go/idem"
)

// journal holds an intent's entries against the ledger, when all is quiet.
func (w *world) journal(q *proc, in *intent) {
	told := false
	for _, h := range in.hearings {
		alone := ended(h.err) || errors.Is(h.err, idem.ErrInDoubt) // what the journal could not take
		told = told || h.fate == idem.FateDone && !alone && !in.split()
	}
	for _, l := range in.lives {
		if in.key(l.key) != l {
			continue
		}
		for _, c := range q.clients {
			e, err := c.LookupKey(context.Background(), idem.Key(l.key))
			switch {
			case err == nil:
				w.entry(in, l, e, told)
			case !errors.Is(err, errNotFound):
				w.breaks(in, "can't be looked up: %v", err)
			}
		}
	}
}

func (w *world) entry(in *intent, l *life, e idem.Entry, told bool) {
	switch settled := e.State == idem.StateSettled; {
	case settled && e.Fate == idem.FateDone && in.effects == 0:
		w.breaks(in, "settled as Done, and nothing happened")
	case settled && e.Fate == idem.FateNotDone && l.effects > 0:
		w.breaks(in, "%s", fmt.Sprintf("settled as NotDone by status %d, and it happened", e.Status))
	case told && l.effects > 0 && e.Fate != idem.FateDone && w.watched(in):
		w.breaks(in, "fate went down in the journal: %v after Done", e.Fate)
	}
}

// atEnd are the rules that need the whole story.
func (w *world) atEnd(in *intent) {
	for _, h := range in.hearings {
		if h.fate == idem.FateNotDone && w.refuted(in, h) {
			w.breaks(in, "%s", "NotDone "+h.source()+", and it happened")
			break
		}
	}
	for _, l := range in.lives {
		if l.denied && l.effects > 0 {
			w.breaks(in, "the hook heard NotDone, and it happened")
		}
	}
	w.queueEnd(in)
}

// refuted tells whether something that was there when the journal was asked had an effect,
// then or later.
func (w *world) refuted(in *intent, h hearing) bool {
	if !w.watched(in) || w.asksWithout(in, h) {
		return false
	}
	if h.o.Do == "join" && h.tardy { // what was anonymous had gone with its end
		return false
	}
	for _, l := range in.lives {
		if l.effects > 0 && l.born.Before(h.looked) {
			return true
		}
	}
	return false
}

// queueEnd holds the queue to what it took.
func (w *world) queueEnd(in *intent) {
	for amount, took := range in.takes {
		if took && in.refusals == 0 && in.amounts[1-amount] > 0 && in.amounts[amount] == 0 {
			w.breaks(in, "taken by the queue, and another payload was delivered")
		}
	}
	excused := in.effects > 0 || in.refusals > 0 || in.dropped
	for _, l := range in.lives {
		_, open := w.store.open(l.key)
		excused = excused || open
	}
	if in.took && !excused {
		w.breaks(in, "taken by the queue, and lost")
	}
}
