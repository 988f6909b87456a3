package idem

import (
	"github.com/idem-go/idem/internal/wire"
)

// step is what a call does after a verdict.
type step uint8

const (
	stepSettle    step = iota // the answer is final: keep it and return it
	stepReturn                // refused at the door: return the answer, withdraw the entry
	stepRetry                 // send again after a pause
	stepInFlight              // an earlier send still runs: wait, capped by Dialect.InFlightMax
	stepFollow                // 307, 308: the same request to Location, if that is the same origin
	stepAccepted              // 202: as Dialect.Accepted says
	stepFetch                 // done before: fetch the resource
	stepStop                  // can't tell: stay Pending, ask Reconcile
	stepAmbiguous             // can't tell, and a resend can't either: Ambiguous, ask Reconcile
	stepDecode                // a batch's codec reads the answer
	stepFail                  // not sent, and a retry wouldn't be: give up
)

// verdict is what one attempt taught us.
type verdict struct {
	row  rowKind // of the table
	fate Fate    // of this attempt
	door bool    // refused before processing
	then step
	why  error // the sentinel for stepStop and stepAmbiguous; nil is ErrInDoubt

	replayed bool // the answer bears the replay marker
	failing  bool // counts against the breaker
	answered bool // there was a whole answer
}

// rowKind names a row of the verdict table, or of the one for polls.
type rowKind uint8

const (
	_ rowKind = iota
	row202
	row2xx
	rowRepeat    // 307 308: the same request to another URL
	rowMoved     // 301 302
	rowElsewhere // 303
	row3xx
	rowDeleted // DELETE 410, after a lost answer
	rowAbsent  // DELETE 404, after a lost answer
	rowDoor
	rowAgain // 408 421 425
	row409
	row429
	row4xx
	rowUnsupported // 501 505
	row5xx
	rowOther

	rowNotSent
	rowRefused // not sent, and a retry wouldn't be
	rowLost
	rowCut

	rowInFlight // what a dialect's matcher found
	rowMismatch
	rowAlreadyDone
	rowNotDone

	rowPoll202 // of the table for polls
	rowPoll2xx
	rowPollElsewhere // 303: the job is done, its result is at the Location
	rowPollAgain
	rowPoll5xx
	rowPollOther
	rowPollInFlight
	rowPollNotDone
)

// rowNames are the texts in Trace and logs.
var rowNames = [...]string{
	row202: "202", row2xx: "2xx", rowRepeat: "307 308", rowMoved: "301 302", rowElsewhere: "303", row3xx: "3xx",
	rowDeleted: "DELETE 410", rowAbsent: "DELETE 404", rowDoor: "door", rowAgain: "408 421 425", row409: "409", row429: "429",
	row4xx: "4xx", rowUnsupported: "501 505", row5xx: "5xx", rowOther: "other",
	rowNotSent: "not sent", rowRefused: "not sent for good", rowLost: "lost", rowCut: "cut",
	rowInFlight: "in flight", rowMismatch: "mismatch", rowAlreadyDone: "already done", rowNotDone: "not done",
	rowPoll202: "poll 202", rowPoll2xx: "poll 2xx", rowPollElsewhere: "poll 303", rowPollAgain: "poll again",
	rowPoll5xx: "poll 5xx", rowPollOther: "poll other", rowPollInFlight: "poll: in flight", rowPollNotDone: "poll: not done",
}

func (r rowKind) String() string { return rowNames[r] }

// verdictRow is one line of the contract's verdict table. The first row that holds is
// the verdict; rows with a condition stand before those without.
type verdictRow struct {
	row      rowKind
	statuses []int  // these …
	from, to int    // … or this range
	method   string // only this method
	before   bool   // only after a lost answer
	fate     Fate
	door     bool
	then     step
}

// The answers that came back whole, CONTRACT section 5. What a row leaves open
// ("as the dialect says", "if Location keeps the path") is decided by refine.
var answerTable = []verdictRow{
	{row: row202, statuses: []int{202}, fate: FateDone, then: stepAccepted},
	{row: row2xx, from: 200, to: 299, fate: FateDone, then: stepSettle},
	{row: rowRepeat, statuses: []int{307, 308}, fate: FateNotDone, then: stepFollow},
	{row: rowMoved, statuses: []int{301, 302}, fate: FateUnknown, then: stepStop},
	{row: rowElsewhere, statuses: []int{303}, fate: FateUnknown, then: stepStop},
	{row: row3xx, from: 300, to: 399, fate: FateUnknown, then: stepStop},
	{row: rowDeleted, statuses: []int{410}, method: "DELETE", before: true, fate: FateDone, then: stepSettle},
	{row: rowAbsent, statuses: []int{404}, method: "DELETE", before: true, fate: FateUnknown, then: stepStop},
	{row: rowDoor, statuses: []int{401, 403, 407, 411, 413, 414, 431}, fate: FateNotDone, door: true, then: stepReturn},
	{row: rowAgain, statuses: []int{408, 421, 425}, fate: FateUnknown, then: stepRetry},
	{row: row409, statuses: []int{409}, fate: FateUnknown, then: stepInFlight},
	{row: row429, statuses: []int{429}, fate: FateNotDone, door: true, then: stepRetry},
	{row: row4xx, from: 400, to: 499, fate: FateNotDone, then: stepSettle},
	{row: rowUnsupported, statuses: []int{501, 505}, fate: FateNotDone, then: stepSettle},
	{row: row5xx, from: 500, to: 599, fate: FateUnknown, then: stepRetry},
	{row: rowOther, from: 0, to: 1 << 30, fate: FateUnknown, then: stepStop},
}

// What came back instead of a whole answer.
var (
	verdictNotSent = verdict{row: rowNotSent, fate: FateNotDone, door: true, then: stepRetry, failing: true}
	verdictRefused = verdict{row: rowRefused, fate: FateNotDone, door: true, then: stepFail, failing: true}
	verdictLost    = verdict{row: rowLost, fate: FateUnknown, then: stepRetry, failing: true}
	verdictCut     = verdict{row: rowCut, fate: FateDone, then: stepRetry, failing: true}
)

func (r verdictRow) holds(method string, status int, before bool) bool {
	if r.method != "" && r.method != method || r.before && !before {
		return false
	}
	for _, s := range r.statuses {
		if s == status {
			return true
		}
	}
	return status >= r.from && status <= r.to && r.to > 0
}

// facts are what the verdict on an attempt depends on, beside its answer.
type facts struct {
	request *wire.Request
	keyed   bool
	read    bool // GET, HEAD, OPTIONS: nothing can happen
	before  bool // an earlier attempt was Unknown, or Done with its result missing
	minted  bool // the key was minted here, so that nobody else can hold it

	keyFirst bool // Dialect.KeyFirst
	done     bool // an earlier attempt was Done
	again    bool // the request may be sent a second time: keyed, or idempotent by HTTP, or with a precondition
}

// judge reads an attempt: through the dialect's matchers first, then by the
// table, then by the hints, and last in the light of earlier attempts.
func judge(d Dialect, f facts, t tried) verdict {
	if t.answer == nil {
		return f.afterEarlier(t.instead)
	}
	in := &matchInput{Method: f.request.Method, Status: t.answer.status, Header: t.answer.header, Document: wire.Document{Body: t.answer.body}}
	v, matched := d.matched(f, in)
	if !matched {
		v = tableVerdict(f, in)
		v = d.refine(v, f, t.answer)
	}
	v.answered = true
	v.replayed = d.replay().matches(in)
	v.failing = t.answer.status >= 500 && v.fate == FateUnknown && !v.replayed
	if success := in.Status >= 200 && in.Status < 300; !success {
		v = d.hinted(v, f, in, matched)
	} else if t.answer.cut != nil && v.fate == FateDone && v.then == stepSettle {
		v = verdictCut
	}
	if t.answer.cut != nil && v.fate == FateNotDone && !v.door {
		v = verdictLost // no whole answer: what is missing may say "already done" or "in flight"
	}
	if t.twice && v.fate != FateDone {
		v = verdictLost
	}
	return f.afterEarlier(v)
}

// matched reads an answer by the dialect alone.
func (d Dialect) matched(f facts, in *matchInput) (verdict, bool) {
	switch {
	case matchAny(d.InFlight, in):
		return verdict{row: rowInFlight, fate: FateUnknown, then: stepInFlight}, true
	case matchAny(d.Mismatch, in):
		v := verdict{row: rowMismatch, fate: FateUnknown, then: stepStop, why: ErrMismatch}
		if f.before {
			v.then = stepAmbiguous
		} else if f.minted {
			v.fate, v.then = FateNotDone, stepSettle
		}
		return v, true
	case matchAny(d.AlreadyDone, in) && (f.before || !goneByDELETE(in)):
		v := verdict{row: rowAlreadyDone, fate: FateDone, then: stepFetch}
		if in.Method == "DELETE" && f.before {
			v.then = stepSettle
		}
		return v, true
	case matchAny(d.NotDone, in):
		return verdict{row: rowNotDone, fate: FateNotDone, then: stepSettle}, true
	}
	return verdict{}, false
}

// goneByDELETE tells an answer that means Done only after a lost one: before that, it
// says that there was nothing to delete.
func goneByDELETE(in *matchInput) bool {
	return in.Method == "DELETE" && (in.Status == 404 || in.Status == 410)
}

func tableVerdict(f facts, in *matchInput) verdict {
	for _, r := range answerTable {
		if r.holds(in.Method, in.Status, f.before) {
			return verdict{row: r.row, fate: r.fate, door: r.door, then: r.then}
		}
	}
	panic("idem: internal error: the verdict table has no row for everything else")
}

// refine decides what the table leaves to the answer's headers and the dialect.
func (d Dialect) refine(v verdict, f facts, a *answer) verdict {
	switch v.row {
	case row202:
		if d.Accepted == AcceptedFinal || !f.keyed && d.Accepted == AcceptedResend {
			v.then = stepSettle
		} else {
			v.fate = FateUnknown
		}
	case rowMoved:
		if wire.Moved(a.from(f.request), a.header.Get("Location")) {
			v.fate, v.then = FateNotDone, stepSettle
		}
	case rowRepeat:
		to := wire.SameOrigin(a.from(f.request), a.header.Get("Location"))
		if to == nil || f.keyed && d.Placement == PlaceQuery && to.Query().Get(d.Field) != f.request.URL.Query().Get(d.Field) {
			v.then = stepSettle
		}
	case row409:
		if !f.before && (f.minted || !f.keyed) {
			v.fate, v.then = FateNotDone, stepSettle
		} else if !f.keyed {
			v.then = stepStop
		}
	}
	return v
}

// hinted applies what the provider says about a retry.
func (d Dialect) hinted(v verdict, f facts, in *matchInput, matched bool) verdict {
	retry, said := d.shouldRetry(in)
	stored := v.replayed && !(said && retry)
	switch {
	case in.Status >= 500 && v.fate == FateUnknown && (said && !retry || stored):
		v.then, v.failing = stepAmbiguous, false
	case !said || matched:
	case retry && v.then == stepSettle && v.fate == FateNotDone:
		v.then = stepRetry
	case !retry && v.then == stepRetry && v.door:
		v.then = stepReturn
	case !retry && (v.then == stepRetry || v.then == stepInFlight):
		v.then = stepStop
	}
	return v
}

// afterEarlier looks at a verdict in the light of what was sent before, and of what
// can't be sent again.
func (f facts) afterEarlier(v verdict) verdict {
	if f.read {
		return f.ofRead(v)
	}
	final := v.then == stepSettle || v.then == stepReturn || v.then == stepFail
	if f.before && final && v.fate == FateNotDone && (v.door || !v.replayed && !f.keyFirst) {
		v.fate, v.then = FateUnknown, stepStop
	}
	if f.done && v.fate != FateDone {
		v.fate = FateDone // fate never goes down: this answer only fails to supply the result
		if final {
			v.then = stepStop
		}
	}
	if f.again {
		return v
	}
	switch {
	case v.row == rowCut, v.answered && v.then == stepFollow:
		v.then = stepSettle
	case v.answered && v.fate == FateNotDone && v.then == stepRetry:
		if v.then = stepSettle; v.door {
			v.then = stepReturn
		}
	case v.fate == FateUnknown && v.then != stepAccepted:
		v.then, v.why = stepAmbiguous, ErrUnkeyed
	}
	return v
}

// ofRead makes whatever isn't worth a retry final: a read has no effect that
// could be in doubt.
func (f facts) ofRead(v verdict) verdict {
	switch v.then {
	case stepRetry, stepFail:
	default:
		v.then = stepSettle
	}
	return v
}
