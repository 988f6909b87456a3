package idem

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/idem-go/idem/internal/record"
	"github.com/idem-go/idem/internal/wire"
	"github.com/idem-go/idem/keystore"
)

// Entry is the journal's record of an intent, as it was when read. Bodies are
// read when asked for.
type Entry struct {
	Key     Key
	Intent  string // the business name, "" if it has none
	Scope   string
	Account string
	State   State
	Fate    Fate // Done also while Pending, where the result is still missing
	Status  int  // of the settling answer, 0 if there is none
	Method  string
	URL     string // without user info and credentials in the query

	Created   time.Time
	FirstSent time.Time // zero: nothing sent yet, or what was sent is proven not to count
	RetryAt   time.Time // nothing is sent by itself before; zero: nobody said
	Settled   time.Time // when it was settled, made Ambiguous or abandoned
	Expires   time.Time // nothing is sent after; zero: no limit
	NextTry   time.Time // when Run tries it again; zero: when it comes to it
	Attempts  int       // requests that may have reached the wire, as last written

	LastError string // why the last pass ended
	Reason    string // why it is Ambiguous or Abandoned, in words
	Dialect   string // name of the dialect it was made for
	Parent    Key    // the NotDone intent that had this name before
	Enqueued  bool   // Enqueue took it
	Reserved  bool   // Reserve took it: the call is made elsewhere
	Batch     string // the batch that an item or a call belongs to
	Item      string // a batch item's ID; "" for all else
	Call      Key    // the call that carries the item now
	Items     int    // how many items a batch's call carries; 0 for all else
	Trimmed   bool   // the result was swept, only the fate is kept

	entries *entries // where its bodies are; nil: nowhere
}

// Request returns the request as journaled, its key in place, without the
// credentials that were withheld. A reserved or trimmed entry has none:
// ErrNotFound.
func (e Entry) Request(ctx context.Context) (*http.Request, error) {
	rec, err := e.record(ctx)
	if err != nil {
		return nil, err
	}
	m, err := e.entries.openRequest(rec)
	if err != nil {
		return nil, err
	}
	w, err := wire.RequestOf(m)
	if err != nil {
		return nil, fmt.Errorf("idem: entry %s: %w: %v", e.Key, ErrCorrupt, err)
	}
	return w.HTTP(ctx), nil
}

// Response returns the stored answer, ErrNotFound where there is none.
func (e Entry) Response(ctx context.Context) (*http.Response, error) {
	rec, err := e.record(ctx)
	if err != nil {
		return nil, err
	}
	m, err := e.entries.openResponse(rec)
	if err != nil {
		return nil, err
	}
	return answerOf(m).response(), nil
}

func (e Entry) record(ctx context.Context) (keystore.Record, error) {
	if e.entries == nil {
		return keystore.Record{}, fmt.Errorf("idem: entry %s: %w", e.Key, ErrNotFound)
	}
	rec, err := e.entries.readRecord(ctx, keystore.Ref{Scope: e.Scope, Key: string(e.Key), Bodies: true})
	if err != nil {
		return keystore.Record{}, fmt.Errorf("idem: entry %s: %w", e.Key, err)
	}
	return rec, nil
}

// head is the part of an entry that changes, as JSON so that it may grow: an absent
// member is zero, and a release keeps the members that it doesn't know.
type head struct {
	Key            Key
	Scope          string
	Intent         string `json:",omitempty"`
	Account        string `json:",omitempty"`
	AccountPerCall bool   `json:"AccountGift,omitempty"` // the account came from WithAccount, not from Options

	Adopted bool `json:",omitempty"` // the account came after the name, which stays findable without it

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
	NextTry     time.Time `json:",omitzero"`  // by Run; holds in RetryEpoch alone
	Passes      int       `json:",omitempty"` // of Run and Resume that left it open, one after another
	DoubtAt     time.Time `json:",omitzero"`  // of the last attempt that may have been processed
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

	later []byte // JSON of the members that a later release wrote, nil if there are none
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
	b, err := json.Marshal(headForm{(*plainHead)(h), uint8(h.State), uint8(h.Fate), uint8(h.Placement)})
	if err != nil || h.later == nil {
		return b, err
	}
	return append(append(b[:len(b)-1], ','), h.later[1:]...), nil
}

// decodeHead is the inverse of encode.
func decodeHead(b []byte) (*head, error) {
	h := new(head)
	form := headForm{plainHead: (*plainHead)(h)}
	strict := json.NewDecoder(bytes.NewReader(b))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&form); err != nil || strict.InputOffset() != int64(len(b)) {
		if err := form.decodeLater(b); err != nil {
			return nil, fmt.Errorf("%w: head: %v", record.ErrDamaged, err)
		}
	}
	h.State, h.Fate, h.Placement = State(form.State), Fate(form.Fate), Placement(form.Placement)
	return h, nil
}

// decodeLater decodes a head with members of a later release, or says what is wrong.
func (f *headForm) decodeLater(b []byte) error {
	*f = headForm{plainHead: f.plainHead}
	*f.plainHead = plainHead{}
	var all map[string]json.RawMessage
	err := json.Unmarshal(b, f)
	if err == nil {
		err = json.Unmarshal(b, &all)
	}
	if err != nil {
		return err
	}
	for name := range all {
		if knownMember(name) {
			delete(all, name)
		}
	}
	if len(all) > 0 {
		f.later, err = json.Marshal(all)
	}
	return err
}

// knownMember tells a member of this release, in any case in which encoding/json takes
// it.
func knownMember(name string) bool {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[head]()) {
		member, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if member == "" {
			member = f.Name
		}
		if f.IsExported() && strings.EqualFold(member, name) {
			return true
		}
	}
	return false
}
