package idem

import (
	"strconv"
	"time"
)

// State is where an entry stands in its life.
type State uint8

// The states. An entry moves from Pending to one of the others; a proof seen
// later moves any of them to Settled, Done.
const (
	StatePending   State = 1 // may have been sent, and may be sent again
	StateAmbiguous State = 2 // nothing more is sent by itself: Reconcile, Settle or Abandon
	StateSettled   State = 3 // Done or NotDone is durable
	StateAbandoned State = 4 // a person gave it up
)

// String returns "Pending", "Ambiguous", "Settled" or "Abandoned".
func (s State) String() string {
	switch s {
	case StatePending:
		return "Pending"
	case StateAmbiguous:
		return "Ambiguous"
	case StateSettled:
		return "Settled"
	case StateAbandoned:
		return "Abandoned"
	}
	return "State(" + strconv.Itoa(int(s)) + ")"
}

// MarshalText returns String's text, so that JSON and logs have it.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText writes. Any other text is [ErrInvalid].
func (s *State) UnmarshalText(text []byte) error {
	for _, known := range []State{StatePending, StateAmbiguous, StateSettled, StateAbandoned} {
		if known.String() == string(text) {
			*s = known
			return nil
		}
	}
	return &InvalidError{"State", string(text), "must be Pending, Ambiguous, Settled or Abandoned"}
}

// open tells an entry whose end isn't known.
func (h *head) open() bool { return h.State == StatePending || h.State == StateAmbiguous }

func (h *head) settledDone() bool { return h.State == StateSettled && h.Fate == FateDone }

func (h *head) settledNotDone() bool { return h.State == StateSettled && h.Fate == FateNotDone }

// anonymous tells an entry that nobody can ask for: without a name, under a key that was
// minted here.
func (h *head) anonymous() bool { return h.Intent == "" && h.KeySource == keyMinted }

// What follows are the moves that an entry can make; its state changes nowhere else.

// settle ends an intent with a fate. What mattered only while it was open goes.
func (h *head) settle(fate Fate, cause string) {
	h.State, h.Fate, h.Cause, h.Settled = StateSettled, fate, cause, wallClock()
	h.RetryAt, h.NextTry, h.InFlightSince = time.Time{}, time.Time{}, time.Time{}
	h.Passes = 0
	h.PollURL, h.Call = "", ""
}

// strand makes an entry Ambiguous: nothing more is sent for it by itself. Cause is
// one of the journal's causes, reason is for people.
func (h *head) strand(cause, reason string) {
	h.State, h.Cause, h.Reason, h.Settled = StateAmbiguous, cause, reason, wallClock()
	h.RetryAt, h.Call, h.Reconciled = time.Time{}, "", false
}

// abandon writes down that a person gave the intent up.
func (h *head) abandon(why string) {
	h.State, h.Reason, h.Settled = StateAbandoned, why, wallClock()
	h.Call = ""
}

// adopt gives an entry that was made without an account the one it meets. Its name stays
// where it was, so that an instance that doesn't know the account yet finds it too.
func (h *head) adopt(account string, perCall bool) {
	h.Account, h.AccountPerCall, h.Adopted = account, perCall, true
}

// unsend takes the first send back: nothing that was sent so far reached processing.
func (h *head) unsend() { h.FirstSent, h.Epoch = time.Time{}, 0 }

// tombstone is what stays of a settled entry after Keep: enough to answer an old
// rerun, and nothing of its request or result.
func (h *head) tombstone(until time.Duration) *head {
	return &head{
		Key: h.Key, Scope: h.Scope, Intent: h.Intent, Account: h.Account, AccountPerCall: h.AccountPerCall, Adopted: h.Adopted,
		State: h.State, Fate: h.Fate, Cause: h.Cause, Status: h.Status, KeySource: h.KeySource,
		Method: h.Method, URL: h.URL, Fingerprint: h.Fingerprint, Created: h.Created, FirstSent: h.FirstSent,
		Settled: h.Settled, Dialect: h.Dialect, Attempts: h.Attempts,
		Queued: h.Queued, Reserved: h.Reserved, Freed: h.Freed, Batch: h.Batch, Item: h.Item,
		Trimmed: true, SweepAge: until, later: h.later,
	}
}
