package idem

import (
	"context"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/idem-go/idem/internal/record"
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

	client *Client
}

// Request returns the request as journaled, its key in place, without the
// credentials that were withheld. A reserved or trimmed entry has none:
// ErrNotFound.
func (e Entry) Request(ctx context.Context) (*http.Request, error) {
	m, err := e.message(ctx, false)
	if err != nil {
		return nil, err
	}
	w, err := wireOf(m)
	if err != nil {
		return nil, fmt.Errorf("idem: entry %s: %w: %v", e.Key, ErrCorrupt, err)
	}
	return w.request(ctx), nil
}

// Response returns the stored answer, ErrNotFound where there is none.
func (e Entry) Response(ctx context.Context) (*http.Response, error) {
	m, err := e.message(ctx, true)
	if err != nil {
		return nil, err
	}
	return answerOf(m).response(), nil
}

func (e Entry) message(ctx context.Context, response bool) (*record.Message, error) {
	if e.client == nil {
		return nil, fmt.Errorf("idem: entry %s: %w", e.Key, ErrNotFound)
	}
	rec, err := e.client.ks.Read(ctx, Ref{Scope: e.Scope, Key: string(e.Key), Bodies: true})
	if err != nil {
		return nil, fmt.Errorf("idem: entry %s: %w", e.Key, err)
	}
	part, b := partRequest, rec.Request
	if response {
		part, b = partResponse, rec.Response
	}
	return e.client.codec.openMessage(rec, part, b)
}

// entryOf shows h to the caller.
func (c *Client) entryOf(h *head) Entry {
	return Entry{
		Key: h.Key, Intent: h.Intent, Scope: h.Scope, Account: h.Account,
		State: h.State, Fate: h.Fate, Status: h.Status, Method: h.Method, URL: h.URL,
		Created: h.Created, FirstSent: h.FirstSent, RetryAt: h.RetryAt, Settled: h.Settled, Expires: h.Expires,
		Attempts: h.Attempts, LastError: h.LastError, Reason: h.Reason, Dialect: h.Dialect,
		Parent: h.Parent, Enqueued: h.Queued, Reserved: h.Reserved, Trimmed: h.Trimmed,
		Batch: h.Batch, Item: h.Item, Call: h.Call, Items: len(h.Items),
		client: c,
	}
}

// The parts of a record, as named in what Seal authenticates.
const (
	partHead     = "head"
	partRequest  = "request"
	partResponse = "response"
)

// codec turns heads and messages into a record's bytes: JSON, sealed if the
// options say so, framed.
type codec struct {
	seal   cipher.AEAD   // nil: in the clear
	unseal []cipher.AEAD // tried after seal
}

// aad binds a sealed part to its place, so that one entry's bytes can't be put
// into another's record.
func aad(scope, key, part string) []byte {
	return []byte(strconv.Itoa(len(scope)) + ":" + scope + key + "\x00" + part)
}

func (c codec) close(scope, key, part string, plain []byte) []byte {
	if c.seal == nil {
		return record.Frame(plain, false)
	}
	nonce := make([]byte, c.seal.NonceSize(), c.seal.NonceSize()+len(plain)+c.seal.Overhead())
	rand.Read(nonce) // never fails since Go 1.24
	return record.Frame(c.seal.Seal(nonce, nonce, plain, aad(scope, key, part)), true)
}

func (c codec) open(scope, key, part string, framed []byte) ([]byte, error) {
	payload, sealed, err := record.Unframe(framed)
	if err != nil {
		return nil, fmt.Errorf("idem: entry %s: %w: %v", key, ErrCorrupt, err)
	}
	if !sealed {
		return payload, nil
	}
	for _, a := range append([]cipher.AEAD{c.seal}, c.unseal...) {
		if a == nil || len(payload) < a.NonceSize() {
			continue
		}
		n := a.NonceSize()
		if plain, err := a.Open(nil, payload[:n], payload[n:], aad(scope, key, part)); err == nil {
			return plain, nil
		}
	}
	return nil, fmt.Errorf("idem: entry %s: %w", key, ErrSealed)
}

func (c codec) closeHead(h *head) ([]byte, error) {
	b, err := h.encode()
	if err != nil {
		return nil, err
	}
	return c.close(h.Scope, string(h.Key), partHead, b), nil
}

func (c codec) openHead(rec Record) (*head, error) {
	b, err := c.open(rec.Scope, rec.Key, partHead, rec.Head)
	if err != nil {
		return nil, err
	}
	h, err := decodeHead(b)
	if err == nil && (string(h.Key) != rec.Key || h.Scope != rec.Scope || h.State < StatePending || h.State > StateAbandoned) {
		err = errors.New("the head belongs to another record")
	}
	if err != nil {
		return nil, fmt.Errorf("idem: entry %s: %w: %v", rec.Key, ErrCorrupt, err)
	}
	return h, nil
}

func (c codec) closeMessage(scope, key, part string, m *record.Message) ([]byte, error) {
	b, err := record.EncodeMessage(m)
	if err != nil {
		return nil, err
	}
	return c.close(scope, key, part, b), nil
}

func (c codec) openMessage(rec Record, part string, framed []byte) (*record.Message, error) {
	if len(framed) == 0 {
		return nil, fmt.Errorf("idem: entry %s: no %s kept: %w", rec.Key, part, ErrNotFound)
	}
	b, err := c.open(rec.Scope, rec.Key, part, framed)
	if err != nil {
		return nil, err
	}
	m, err := record.DecodeMessage(b)
	if err != nil {
		return nil, fmt.Errorf("idem: entry %s: %w: %v", rec.Key, ErrCorrupt, err)
	}
	return m, nil
}

// storeName is the name under which the keystore indexes an intent. The length in
// front keeps two pairs of account and name from meeting.
func storeName(account, intent string) string {
	if intent == "" {
		return ""
	}
	return strconv.Itoa(len(account)) + ":" + account + intent
}
