package idem

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/idem-go/idem/internal/record"
)

// head is the part of an entry that changes, as JSON so that it may grow: a
// release ignores members it doesn't know, and an absent member is zero.
type head struct {
	Key            Key
	Scope          string
	Intent         string `json:",omitempty"`
	Account        string `json:",omitempty"`
	AccountPerCall bool   `json:"AccountGift,omitempty"` // the account came from WithAccount, not from Options

	State  State
	Fate   Fate   `json:",omitempty"`
	Cause  string `json:",omitempty"` // why it is Ambiguous or a refusal; see the client's causes
	Status int    `json:",omitempty"`

	KeySource   keySource `json:",omitempty"`
	Parent      Key       `json:",omitempty"` // the key of the NotDone intent that had the name before
	Method      string    `json:",omitempty"`
	URL         string    `json:",omitempty"`
	Fingerprint []byte    `json:",omitempty"`
	Created     time.Time `json:",omitzero"`
	FirstSent   time.Time `json:",omitzero"`
	RetryAt     time.Time `json:",omitzero"`
	RetryEpoch  uint64    `json:",omitempty"` // of the clock, when RetryAt was set
	Settled     time.Time `json:",omitzero"`
	Expires     time.Time `json:",omitzero"`
	Attempts    int       `json:",omitempty"`
	LastError   string    `json:",omitempty"`
	Reason      string    `json:",omitempty"`

	Dialect   string        `json:",omitempty"`
	Placement Placement     `json:",omitempty"`
	Unkeyed   bool          `json:",omitempty"`
	WireKey   string        `json:",omitempty"`
	Window    time.Duration `json:",omitempty"`
	Margin    time.Duration `json:",omitempty"`
	Epoch     uint64        `json:",omitempty"` // of the clock, when FirstSent was set

	WithheldHeaders []string `json:",omitempty"`
	WithheldParams  []string `json:",omitempty"`

	Batch      string `json:",omitempty"` // name of the batch that an item or a call belongs to
	Item       string `json:",omitempty"` // the item's ID
	Call       Key    `json:",omitempty"` // the key of the call that carries the item now
	ItemBefore bool   `json:",omitempty"` // the item was in an earlier call that may have applied it
	Codec      string `json:",omitempty"` // of a call
	Items      []Key  `json:",omitempty"` // of a call: its items' keys, in the order of Encode
	Strikes    int    `json:",omitempty"` // of a call: answers that settled nothing

	Freed         bool          `json:",omitempty"` // the name was given to a later intent, or forgotten
	Untold        bool          `json:",omitempty"` // settled, and the Settled hook has not taken it yet
	SweepAge      time.Duration `json:",omitempty"` // the store's age at which the result goes
	Queued        bool          `json:",omitempty"`
	Reserved      bool          `json:",omitempty"`
	Conditional   bool          `json:",omitempty"` // the request carries a precondition of its own
	Reconciled    bool          `json:",omitempty"` // Reconcile answered without error
	InFlightSince time.Time     `json:",omitzero"`
	PollURL       string        `json:",omitempty"`
	CutSum        []byte        `json:",omitempty"` // of a body that looked cut: the same again is whole
	Foreign       bool          `json:",omitempty"` // a caller's key was "already done" before anything was sent: whether for this payload, only the resource tells
	Trimmed       bool          `json:",omitempty"` // the result was swept
	TooLarge      bool          `json:",omitempty"` // the result's body was over MaxResult
}

// headForm is how a head is written. Its enumerations are the numbers that every
// release has written there; their texts are for people.
type headForm struct {
	*plainHead
	State     uint8
	Fate      uint8 `json:",omitempty"`
	Placement uint8 `json:",omitempty"`
}

// plainHead has the members of a head, but not its way of being written.
type plainHead head

// encode returns h as JSON.
func (h *head) encode() ([]byte, error) {
	return json.Marshal(headForm{(*plainHead)(h), uint8(h.State), uint8(h.Fate), uint8(h.Placement)})
}

// decodeHead is the inverse of encode.
func decodeHead(b []byte) (*head, error) {
	h := new(head)
	form := headForm{plainHead: (*plainHead)(h)}
	if err := json.Unmarshal(b, &form); err != nil {
		return nil, fmt.Errorf("%w: head: %v", record.ErrDamaged, err)
	}
	h.State, h.Fate, h.Placement = State(form.State), Fate(form.Fate), Placement(form.Placement)
	return h, nil
}
