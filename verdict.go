package idem

import (
	"net/http"
	"net/url"
	"slices"

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
	fate Fate    // of this attempt, in the light of earlier ones
	own  Fate    // of this attempt alone
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
	rowAgain // 408 421 425 499
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
	rowThrottled
	rowInFront  // a layer before the provider answered
	rowSwitched // 101

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
	rowDeleted: "DELETE 410", rowAbsent: "DELETE 404", rowDoor: "door", rowAgain: "408 421 425 499", row409: "409", row429: "429",
	row4xx: "4xx", rowUnsupported: "501 505", row5xx: "5xx", rowOther: "other",
	rowNotSent: "not sent", rowRefused: "not sent for good", rowLost: "lost", rowCut: "cut",
	rowInFlight: "in flight", rowMismatch: "mismatch", rowAlreadyDone: "already done", rowNotDone: "not done",
	rowThrottled: "throttled", rowInFront: "in front", rowSwitched: "101",
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
	{row: rowSwitched, statuses: []int{101}, fate: FateDone, then: stepSettle},
	{row: row202, statuses: []int{202}, fate: FateDone, then: stepAccepted},
	{row: row2xx, from: 200, to: 299, fate: FateDone, then: stepSettle},
	{row: rowRepeat, statuses: []int{307, 308}, fate: FateNotDone, then: stepFollow},
	{row: rowMoved, statuses: []int{301, 302}, fate: FateUnknown, then: stepStop},
	{row: rowElsewhere, statuses: []int{303}, fate: FateUnknown, then: stepStop},
	{row: row3xx, from: 300, to: 399, fate: FateUnknown, then: stepStop},
	{row: rowDeleted, statuses: []int{410}, method: "DELETE", before: true, fate: FateDone, then: stepSettle},
	{row: rowAbsent, statuses: []int{404}, method: "DELETE", before: true, fate: FateUnknown, then: stepStop},
	{row: rowDoor, statuses: []int{401, 403, 407, 411, 413, 414, 431}, fate: FateNotDone, door: true, then: stepReturn},
	{row: rowAgain, statuses: []int{408, 421, 425, 499}, fate: FateUnknown, then: stepRetry},
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
	if r.method != "" && r.method != method {
		return false
	}
	if r.before && !before {
		return false
	}
	if r.statuses != nil {
		return slices.Contains(r.statuses, status)
	}
	return status >= r.from && status <= r.to
}

// facts are what the verdict on an attempt depends on, beside its answer.
type facts struct {
	request *wire.Request
	keyed   bool
	read    bool // GET, HEAD, OPTIONS: nothing can happen
	before  bool // an earlier attempt was Unknown, or Done with its result missing
	minted  bool // the key was minted here at random, so that nobody else can hold it

	keyFirst bool // Dialect.KeyFirst
	quiet    bool // Dialect.SettlesWithin has passed since the last attempt in doubt
	done     bool // an earlier attempt was Done
	again    bool // the request may be sent a second time: keyed, or idempotent by HTTP, or with a precondition
}

// judge reads an attempt: through the dialect's matchers first, then by the
// table, then by the hints, and last in the light of earlier attempts.
func judge(d Dialect, f facts, t tried) verdict {
	if t.answer == nil {
		return f.afterEarlier(t.instead)
	}
	in, readable := t.answer.toMatch(f.request.Method)
	v, matched := d.matched(f, in)
	if !matched {
		v = d.refine(tableVerdict(answerTable, in, f.before), f, t.answer)
	}
	v.answered = true
	v.replayed = d.replay().matches(in)
	v.failing = in.Status >= 500 && v.fate == FateUnknown && !v.replayed
	if !t.answer.success() {
		v = d.hinted(v, in, matched)
	}
	if !readable {
		v = v.unread()
	}
	return f.afterEarlier(d.asFarAsItCame(v, t))
}

// toMatch is the answer as matchers see it, its body decoded. readable is false if the
// body is in a coding that can't be read here.
func (a *answer) toMatch(method string) (in *matchInput, readable bool) {
	body, readable := wire.Decode(a.header, a.body, matchLimit)
	return &matchInput{Method: method, Status: a.status, Header: a.header, Document: wire.Document{Body: body}}, readable
}

// unread takes back a refusal whose body can't be read: it may say "already done" or
// "in flight".
func (v verdict) unread() verdict {
	if v.fate == FateNotDone && !v.door && v.row != rowRepeat && v.row != rowMoved {
		v.fate, v.then = FateUnknown, stepStop
	}
	return v
}

// success tells a 2xx.
func (a *answer) success() bool { return a.status/100 == 2 }

// asFarAsItCame takes back what an answer cut short, or one of two, can't prove.
func (d Dialect) asFarAsItCame(v verdict, t tried) verdict {
	if t.twice && v.fate != FateDone {
		return verdictLost
	}
	if !t.cut() {
		return v
	}
	switch {
	case t.answer.success() && d.readsSuccesses():
		return verdictLost // the rest may say that it failed after all
	case t.answer.success() && v.fate == FateDone && v.then == stepSettle:
		return verdictCut
	case v.fate == FateNotDone && !v.door:
		return verdictLost // what is missing may say "already done" or "in flight"
	}
	return v
}

// readsSuccesses tells a dialect whose 2xx may say in the body that nothing was done.
func (d Dialect) readsSuccesses() bool {
	inBody := func(m Match) bool { return m.Path != "" && (m.Status == 0 || m.Status/100 == 2) }
	for _, list := range [][]Match{d.NotDone, d.InFlight, d.Throttled, d.AtDoor, d.Success} {
		if slices.ContainsFunc(list, inBody) {
			return true
		}
	}
	return false
}

// matched reads an answer by the dialect alone.
func (d Dialect) matched(f facts, in *matchInput) (verdict, bool) {
	if matchAny(d.Throttled, in) {
		return verdict{row: rowThrottled, fate: FateNotDone, door: true, then: stepRetry}, true
	}
	if f.read {
		return verdict{}, false
	}
	switch {
	case matchAny(d.AtDoor, in), matchAny(inFront, in), d.notTheProviders(in):
		return verdict{row: rowInFront, fate: FateNotDone, door: true, then: stepReturn}, true
	case matchAny(d.InFlight, in):
		return verdict{row: rowInFlight, fate: FateUnknown, then: stepInFlight}, true
	case matchAny(d.Mismatch, in):
		return f.mismatch(), true
	case matchAny(d.AlreadyDone, in):
		if v, ok := f.alreadyDone(in); ok {
			return v, true
		}
	}
	if matchAny(d.NotDone, in) {
		return verdict{row: rowNotDone, fate: FateNotDone, then: stepSettle}, true
	}
	return verdict{}, false
}

// inFront are answers of layers that stand before any provider: the challenges of AWS
// WAF (docs.aws.amazon.com/waf, "CAPTCHA and Challenge actions") and of Cloudflare
// (developers.cloudflare.com, "Detect a Challenge Page response").
var inFront = []Match{{Header: "X-Amzn-Waf-Action"}, {Header: "Cf-Mitigated", Value: "challenge"}}

// notTheProviders tells a success that doesn't look like one of the provider's.
func (d Dialect) notTheProviders(in *matchInput) bool {
	return in.Status/100 == 2 && len(d.Success) > 0 && !matchAny(d.Success, in)
}

// mismatch is the provider's word that the key holds another payload: NotDone where
// nobody else can hold the key, and beyond our knowledge otherwise.
func (f facts) mismatch() verdict {
	v := verdict{row: rowMismatch, fate: FateUnknown, then: stepStop, why: ErrMismatch}
	switch {
	case f.before:
		v.then = stepAmbiguous
	case f.minted:
		v.fate, v.then = FateNotDone, stepSettle
	}
	return v
}

// alreadyDone is the provider's word that an earlier attempt succeeded. Before a lost
// answer, a DELETE that finds nothing says only that there was nothing to delete.
func (f facts) alreadyDone(in *matchInput) (verdict, bool) {
	v := verdict{row: rowAlreadyDone, fate: FateDone, then: stepFetch}
	if !f.keyed && !f.before { // without a key nothing ties it to this request: somebody else did it
		v.fate, v.then = FateNotDone, stepSettle
		return v, true
	}
	if in.Method != http.MethodDelete {
		return v, true
	}
	if f.before {
		v.then = stepSettle
		return v, true
	}
	return v, in.Status != http.StatusNotFound && in.Status != http.StatusGone
}

func tableVerdict(table []verdictRow, in *matchInput, before bool) verdict {
	for _, r := range table {
		if r.holds(in.Method, in.Status, before) {
			return verdict{row: r.row, fate: r.fate, door: r.door, then: r.then}
		}
	}
	panic("idem: internal error: a verdict table has no row for everything else")
}

// refine decides what the table leaves to the answer's headers and the dialect.
func (d Dialect) refine(v verdict, f facts, a *answer) verdict {
	location := a.header.Get("Location")
	switch v.row {
	case row202:
		if d.finalAt202(f) {
			v.then = stepSettle
		} else {
			v.fate = FateUnknown
		}
	case rowMoved:
		if wire.Moved(a.from(f.request), location) {
			v.fate, v.then = FateNotDone, stepSettle
		}
	case rowRepeat:
		to := wire.SameOrigin(a.from(f.request), location)
		if to == nil || d.losesKey(f, to) {
			v.then = stepSettle
		}
	case rowDoor:
		if a.status == http.StatusForbidden && wire.AsksToWait(a.header) {
			v.row, v.then = row429, stepRetry
		}
	case row409:
		return f.conflict(v)
	}
	return v
}

// finalAt202 tells whether a 202 is all that will come.
func (d Dialect) finalAt202(f facts) bool {
	return d.Accepted == AcceptedFinal || d.Accepted == AcceptedResend && !f.keyed
}

// losesKey tells whether a redirect's URL carries another key in its query than ours.
func (d Dialect) losesKey(f facts, to *url.URL) bool {
	if !f.keyed || d.Placement != PlaceQuery {
		return false
	}
	return to.Query().Get(d.Field) != f.request.URL.Query().Get(d.Field)
}

// conflict reads a 409 of a dialect that says nothing of it: with nothing before and a
// key that nobody else can hold it is a refusal, else an earlier send may be in flight.
func (f facts) conflict(v verdict) verdict {
	alone := f.minted || !f.keyed
	switch {
	case alone && !f.before:
		v.fate, v.then = FateNotDone, stepSettle
	case !f.keyed:
		v.then = stepStop
	}
	return v
}

// hinted applies what the provider says about a retry.
func (d Dialect) hinted(v verdict, in *matchInput, matched bool) verdict {
	retry, said := d.shouldRetry(in)
	if v.fate == FateUnknown && in.Status >= 500 {
		stop := said && !retry
		stored := v.replayed && !retry
		if stop || stored {
			v.then, v.failing = stepAmbiguous, false
			return v
		}
	}
	switch {
	case !said, matched:
		return v
	case retry:
		if v.then == stepSettle && v.fate == FateNotDone {
			v.then = stepRetry
		}
	case v.then == stepRetry && v.door:
		v.then = stepReturn
	case v.then == stepRetry, v.then == stepInFlight:
		v.then = stepStop
	}
	return v
}

// final tells a verdict after which nothing more is sent.
func (v verdict) final() bool {
	return v.then == stepSettle || v.then == stepReturn || v.then == stepFail
}

// afterEarlier looks at a verdict in the light of what was sent before, and of what
// can't be sent again.
func (f facts) afterEarlier(v verdict) verdict {
	v.own = v.fate
	if f.read {
		return f.ofRead(v)
	}
	if f.before && v.final() && v.fate == FateNotDone && !f.proves(v) {
		v.fate, v.then = FateUnknown, stepStop
	}
	if f.done && v.fate != FateDone {
		if v.final() {
			v.then = stepStop
		}
		v.fate = FateDone // fate never goes down: this answer only fails to supply the result
	}
	if f.again {
		return v
	}
	return v.once()
}

// proves tells whether a refusal says that no earlier attempt took effect: a stored
// answer does, and one of a provider that looks the key up first; never one at the door.
func (f facts) proves(v verdict) bool {
	switch {
	case v.door:
		return false
	case v.replayed, f.quiet:
		return true
	}
	return f.keyFirst && v.row != rowMoved && v.row != rowRepeat // a redirect is no key look-up
}

// once is the verdict on a request that can't be sent again.
func (v verdict) once() verdict {
	switch {
	case v.row == rowCut, v.answered && v.then == stepFollow:
		v.then = stepSettle
	case v.answered && v.fate == FateNotDone && v.then == stepRetry:
		v.then = stepSettle
		if v.door {
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
	if v.then != stepRetry && v.then != stepFail {
		v.then = stepSettle
	}
	return v
}
