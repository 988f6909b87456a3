package idem

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/idem-go/idem/internal/wire"
)

// startsPoll tells a 202 or a finished job that is to be asked for.
func (d *call) startsPoll(v verdict) bool {
	if v.then != stepAccepted || d.dialect.Accepted != AcceptedPoll {
		return false
	}
	return !d.polling || v.row == rowPollElsewhere
}

// startPoll turns a 202 with a Location into a job to ask for, over restarts.
func (d *call) startPoll() error {
	to, err := d.answer.from(d.wire).Parse(d.answer.header.Get("Location"))
	if err != nil || d.answer.header.Get("Location") == "" {
		return d.enough(fmt.Errorf("%w: 202 without a Location to poll", ErrInDoubt))
	}
	kept, _ := d.dialect.withhold(&wire.Request{URL: to})
	if err := d.save(func(h *head) { h.PollURL = kept.URL.String() }, nil); err != nil {
		return err
	}
	return d.pollAt(to.String())
}

func (d *call) pollAt(location string) error {
	to, err := url.Parse(location)
	if err != nil {
		return fmt.Errorf("idem: entry %s: %w: poll URL: %v", d.head.Key, ErrCorrupt, err)
	}
	d.hop, d.polling = to, true
	return nil
}

// The answers to a poll: they speak of the job, not of the poll.
var pollTable = []verdictRow{
	{row: rowPoll202, statuses: []int{202}, fate: FateUnknown, then: stepAccepted},
	{row: rowPoll2xx, from: 200, to: 299, fate: FateDone, then: stepSettle},
	{row: rowPollElsewhere, statuses: []int{303}, fate: FateDone, then: stepAccepted},
	{row: rowPollAgain, statuses: []int{408, 425, 429}, fate: FateUnknown, then: stepRetry},
	{row: rowPoll5xx, from: 500, to: 599, fate: FateUnknown, then: stepRetry},
	{row: rowPollOther, from: 0, to: 1 << 30, fate: FateUnknown, then: stepStop},
}

// judgePoll reads the answer to a poll, by the dialect's matchers first.
func (d *call) judgePoll(t tried) verdict {
	if t.answer == nil {
		return verdictLost
	}
	in, _ := t.answer.toMatch(http.MethodGet)
	v := tableVerdict(pollTable, in, true)
	v.failing = in.Status >= 500
	switch {
	case matchPoll(d.dialect.InFlight, in):
		return verdict{row: rowPollInFlight, fate: FateUnknown, then: stepAccepted}
	case matchPoll(d.dialect.NotDone, in):
		v = verdict{row: rowPollNotDone, fate: FateNotDone, then: stepSettle}
	case t.cut():
		return verdictLost
	case v.row == rowPoll2xx && d.dialect.notTheProviders(in), v.row == rowPollElsewhere && !d.leadsHome(t.answer):
		v = verdict{row: rowPollOther, fate: FateUnknown, then: stepStop}
	}
	if d.head.Fate == FateDone && v.fate == FateNotDone { // fate never goes down
		v.fate, v.then = FateDone, stepStop
	}
	return v
}

// leadsHome tells a job's redirect to its result from one to a login page elsewhere.
func (d *call) leadsHome(a *answer) bool {
	to := wire.SameOrigin(a.from(d.wire), a.header.Get("Location"))
	return to != nil && wire.Origin(to) == wire.Origin(d.wire.URL)
}

// fetch gets the resource that an AlreadyDone answer speaks of. over is false if
// the call should go on and try again.
func (d *call) fetch() (o outcome, over bool) {
	conflict := d.answer
	in, _ := conflict.toMatch("")
	ours, err := d.madeByUs()
	if err != nil {
		return d.unsaved(d.outcome(nil), err), true
	}
	to := d.dialect.Resource.locate(conflict.from(d.wire), in)
	if to == nil {
		if !ours {
			return d.stop(verdict{why: fmt.Errorf("%w: done before, and nothing tells whether for this payload", ErrMismatch)}), true
		}
		return d.settleWith(FateDone, conflict, causeDone), true
	}
	t := d.fetchFrom(to)
	if t.answer == nil || t.cut() || !t.answer.success() {
		t.answer.closeRest()
		failed := fmt.Errorf("idem: fetch of the resource: status %d", statusOf(t.answer))
		d.before.attempt, d.lastErr = true, errors.Join(t.err, failed)
		if ours {
			d.head.Fate = FateDone
		}
		return outcome{}, false
	}
	same, compared := wire.SameScalars(d.wire.Body, t.answer.body)
	if known := compared || ours; !same || !known {
		return d.ambiguous(fmt.Errorf("%w: the resource at the provider is another", ErrMismatch), causeOf(ErrMismatch)), true
	}
	d.answer.closeRest()
	d.answer = t.answer
	return d.settleWith(FateDone, t.answer, ""), true
}

// fetchFrom makes the one request for a resource.
func (d *call) fetchFrom(to *url.URL) tried {
	d.hop, d.polling = to, true
	t := d.attempt(d)
	d.hop, d.polling = nil, false
	if t.stopped == nil {
		d.head.Attempts++
	}
	return t
}

// madeByUs tells whether what is already done was done by this intent. Under a caller's
// key, with nothing sent before, somebody else may have done it; that is written down,
// for once something was sent only this tells that nothing was compared.
func (d *call) madeByUs() (bool, error) {
	ours := !d.head.Foreign && (d.before.attempt || d.head.KeySource == keyMinted)
	if ours == !d.head.Foreign {
		return ours, nil
	}
	return ours, d.save(func(h *head) { h.Foreign = !ours }, nil)
}
