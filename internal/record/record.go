// Package record turns entries into bytes and back. Every piece that lies in a
// keystore stands in a frame with a version and a checksum, so that damage and
// records of a later release are told apart from data.
package record

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"net/http"
	"time"
)

// ErrDamaged means that the bytes are not what was written.
var ErrDamaged = errors.New("record: damaged")

// Head is the part of an entry that changes, as JSON so that it may grow: a
// release ignores members it doesn't know, and an absent member is zero.
type Head struct {
	Key, Scope  string
	Intent      string `json:",omitempty"`
	Account     string `json:",omitempty"`
	AccountGift bool   `json:",omitempty"` // the account came from WithAccount, not from Options

	State  uint8
	Fate   uint8  `json:",omitempty"`
	Cause  string `json:",omitempty"` // why it is Ambiguous or a refusal; see the client's causes
	Status int    `json:",omitempty"`

	KeySource   uint8     `json:",omitempty"`
	Parent      string    `json:",omitempty"` // the key of the NotDone intent that had the name before
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
	Placement uint8         `json:",omitempty"`
	Unkeyed   bool          `json:",omitempty"`
	WireKey   string        `json:",omitempty"`
	Window    time.Duration `json:",omitempty"`
	Margin    time.Duration `json:",omitempty"`
	Epoch     uint64        `json:",omitempty"` // of the clock, when FirstSent was set

	WithheldHeaders []string `json:",omitempty"`
	WithheldParams  []string `json:",omitempty"`

	Batch      string   `json:",omitempty"` // name of the batch that an item or a call belongs to
	Item       string   `json:",omitempty"` // the item's ID
	Call       string   `json:",omitempty"` // the key of the call that carries the item now
	ItemBefore bool     `json:",omitempty"` // the item was in an earlier call that may have applied it
	Codec      string   `json:",omitempty"` // of a call
	Items      []string `json:",omitempty"` // of a call: its items' keys, in the order of Encode
	Strikes    int      `json:",omitempty"` // of a call: answers that settled nothing

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

// Message is a request or an answer with its body.
type Message struct {
	Method string      `json:",omitempty"`
	URL    string      `json:",omitempty"`
	Host   string      `json:",omitempty"`
	Status int         `json:",omitempty"`
	Proto  string      `json:",omitempty"`
	Header http.Header `json:",omitempty"`
	Body   []byte      `json:"-"`
}

// EncodeHead returns the JSON of h, not framed.
func EncodeHead(h *Head) ([]byte, error) { return json.Marshal(h) }

// DecodeHead is the inverse of EncodeHead.
func DecodeHead(b []byte) (*Head, error) {
	h := new(Head)
	if err := json.Unmarshal(b, h); err != nil {
		return nil, fmt.Errorf("%w: head: %v", ErrDamaged, err)
	}
	return h, nil
}

// EncodeMessage returns m, not framed: the length of its JSON in four bytes,
// big-endian, the JSON, and the body as it is.
func EncodeMessage(m *Message) ([]byte, error) {
	meta, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	b := make([]byte, 0, 4+len(meta)+len(m.Body))
	b = binary.BigEndian.AppendUint32(b, uint32(len(meta)))
	b = append(b, meta...)
	return append(b, m.Body...), nil
}

// DecodeMessage is the inverse of EncodeMessage. The body shares b's memory.
func DecodeMessage(b []byte) (*Message, error) {
	if len(b) < 4 || uint64(binary.BigEndian.Uint32(b)) > uint64(len(b)-4) {
		return nil, fmt.Errorf("%w: message of %d bytes", ErrDamaged, len(b))
	}
	end := 4 + int(binary.BigEndian.Uint32(b))
	m := new(Message)
	if err := json.Unmarshal(b[4:end], m); err != nil {
		return nil, fmt.Errorf("%w: message: %v", ErrDamaged, err)
	}
	m.Body = b[end:]
	return m, nil
}

// The frame:
//
//	offset 0  version, 1
//	offset 1  flags, bit 0: the payload is sealed
//	offset 2  CRC-32C of the flags byte and the payload, big-endian
//	offset 6  payload
const (
	version    = 1
	flagSealed = 1
	frameSize  = 6
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(flags byte, payload []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte{flags}, castagnoli), castagnoli, payload)
}

// Frame wraps payload.
func Frame(payload []byte, sealed bool) []byte {
	var flags byte
	if sealed {
		flags = flagSealed
	}
	b := make([]byte, 0, frameSize+len(payload))
	b = append(b, version, flags)
	b = binary.BigEndian.AppendUint32(b, checksum(flags, payload))
	return append(b, payload...)
}

// Unframe is the inverse of Frame. The payload shares b's memory.
func Unframe(b []byte) (payload []byte, sealed bool, err error) {
	if len(b) < frameSize {
		return nil, false, fmt.Errorf("%w: %d bytes", ErrDamaged, len(b))
	}
	if b[0] != version {
		return nil, false, fmt.Errorf("%w: version %d, this release knows %d", ErrDamaged, b[0], version)
	}
	flags, payload := b[1], b[frameSize:]
	if binary.BigEndian.Uint32(b[2:]) != checksum(flags, payload) || flags > flagSealed {
		return nil, false, fmt.Errorf("%w: checksum", ErrDamaged)
	}
	return payload, flags == flagSealed, nil
}
