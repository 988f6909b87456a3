package idem

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/idem-go/idem/internal/record"
	"github.com/idem-go/idem/keystore"
)

// entries are a client's view of its keystore: the records of its scope, opened.
type entries struct {
	ks    Keystore
	scope string
	seal  record.Sealer
}

// held is an entry as it stands in the journal.
type held struct {
	rec  keystore.Record
	head *head
}

// read returns the first entry that one of the refs leads to. It asks the journal
// whatever the caller's context says: an answer that is there outweighs a cancel.
func (s *entries) read(ctx context.Context, refs ...keystore.Ref) (held, error) {
	for i := range refs {
		refs[i].Scope = s.scope
	}
	rec, err := s.readRecord(context.WithoutCancel(ctx), refs...)
	if err != nil {
		return held{rec: rec}, err
	}
	h, err := s.openHead(rec)
	return held{rec, h}, err
}

// readRecord returns the first record that one of the refs leads to, as much as can be
// read of it with ErrCorrupt, or ErrNotFound.
func (s *entries) readRecord(ctx context.Context, refs ...keystore.Ref) (keystore.Record, error) {
	found, err := s.ks.Read(ctx, refs...)
	if err != nil {
		return keystore.Record{}, err
	}
	for _, rec := range found {
		if rec.Found() {
			return rec, rec.Damage
		}
	}
	return keystore.Record{}, ErrNotFound
}

// byKey reads an entry without its bodies.
func (s *entries) byKey(ctx context.Context, key Key) (held, error) {
	return s.read(ctx, keystore.Ref{Key: string(key)})
}

// whole reads an entry with its bodies.
func (s *entries) whole(ctx context.Context, key Key) (held, error) {
	return s.read(ctx, keystore.Ref{Key: string(key), Bodies: true})
}

// find looks a name up within its account, then among entries without one, and then
// the key.
func (s *entries) find(in *intent) (held, error) {
	var refs []keystore.Ref
	if in.name != "" {
		refs = append(refs, keystore.Ref{Name: storeName(in.account, in.name)})
		if in.account != "" {
			refs = append(refs, keystore.Ref{Name: storeName("", in.name)})
		}
	}
	if in.key != "" {
		refs = append(refs, keystore.Ref{Key: string(in.key)})
	}
	if len(refs) == 0 { // a request that stands for itself: the journal need not be asked
		return held{}, ErrNotFound
	}
	f, err := s.read(in.ctx, refs...)
	if err == nil && in.account != "" && f.head.Adopted && f.head.ofAnother(in.account) {
		if in.key == "" {
			return held{}, ErrNotFound
		}
		return s.byKey(in.ctx, in.key)
	}
	return f, err
}

// nameIsFree is ErrConflict where the account has an intent of that name already.
func (s *entries) nameIsFree(ctx context.Context, account, name string) error {
	if name == "" {
		return nil
	}
	_, err := s.read(ctx, keystore.Ref{Name: storeName(account, name)})
	switch {
	case errors.Is(err, ErrNotFound):
		return nil
	case err != nil:
		return &storeError{err}
	}
	return fmt.Errorf("%w: another entry has the name", ErrConflict)
}

// ofAnother tells an entry that an account other than this one has adopted.
func (h *head) ofAnother(account string) bool { return h.Account != "" && h.Account != account }

// storeName is the name under which the keystore has the entry.
func (h *head) storeName() string {
	if h.Adopted {
		return storeName("", h.Intent)
	}
	return storeName(h.Account, h.Intent)
}

// scan walks a lane of the scope, as far as until if that is set.
func (s *entries) scan(ctx context.Context, lane keystore.Lane, until time.Time) iter.Seq2[keystore.Record, error] {
	return s.ks.Scan(ctx, keystore.Query{Scope: s.scope, Lane: lane, Until: until})
}

// commit writes down changes whatever the caller's context says.
func (s *entries) commit(ctx context.Context, changes ...keystore.Change) error {
	return s.ks.Commit(context.WithoutCancel(ctx), changes...)
}

// record is the record of h, without bodies.
func (s *entries) record(h *head, rev uint64) (keystore.Record, error) {
	rec := keystore.Record{Scope: h.Scope, Key: string(h.Key), Lane: keystore.LaneOpen, Order: h.Created, Rev: rev}
	b, err := h.encode()
	if err != nil {
		return rec, err
	}
	rec.Head = s.seal.Close(h.Scope, rec.Key, partHead, b)
	if !h.Freed {
		rec.Name = h.storeName()
	}
	switch h.State {
	case StateSettled:
		rec.Lane, rec.Order = keystore.LaneSettled, ageTime(h.SweepAge)
		if h.Untold {
			rec.Lane, rec.Order = keystore.LaneUntold, h.Created
		}
	case StateAbandoned:
		rec.Lane = keystore.LaneAbandoned
	}
	return rec, nil
}

// ageTime puts an age of the store on the axis by which settled records are ordered.
func ageTime(age time.Duration) time.Time { return time.Unix(0, 0).UTC().Add(age) }

// create is the change that makes an entry, with its request if it has one.
func (s *entries) create(h *head, request *record.Message) (keystore.Change, error) {
	rec, err := s.record(h, keystore.NewRev())
	if err == nil && request != nil {
		rec.Request, err = s.sealMessage(rec, partRequest, request)
	}
	return keystore.Change{Op: keystore.OpCreate, Record: rec}, err
}

// replace is the change that puts h in place of what has revision rev. A nil answer
// leaves the stored one.
func (s *entries) replace(h *head, rev uint64, a *answer) (keystore.Change, error) {
	rec, err := s.record(h, rev)
	if err == nil && a != nil {
		rec.Response, err = s.sealMessage(rec, partResponse, a.message())
	}
	return keystore.Change{Op: keystore.OpReplace, Record: rec}, err
}

// free is the change by which an entry gives its name to a later intent.
func (s *entries) free(f held) (keystore.Change, error) {
	h := *f.head
	h.Freed = true
	return s.replace(&h, f.rec.Rev, nil)
}

// remove is the change that takes an entry away.
func (s *entries) remove(h *head, rev uint64) keystore.Change {
	return keystore.Change{Op: keystore.OpRemove, Record: keystore.Record{Scope: h.Scope, Key: string(h.Key), Rev: rev}}
}

// entry shows h to the caller.
func (s *entries) entry(h *head) Entry {
	return Entry{
		Key: h.Key, Intent: h.Intent, Scope: h.Scope, Account: h.Account,
		State: h.State, Fate: h.Fate, Status: h.Status, Method: h.Method, URL: h.URL,
		Created: h.Created, FirstSent: h.FirstSent, RetryAt: h.RetryAt, NextTry: h.NextTry, Settled: h.Settled, Expires: h.Expires,
		Attempts: h.Attempts, LastError: h.LastError, Reason: h.Reason, Dialect: h.Dialect,
		Parent: h.Parent, Enqueued: h.Queued, Reserved: h.Reserved, Trimmed: h.Trimmed,
		Batch: h.Batch, Item: h.Item, Call: h.Call, Items: len(h.Items),
		entries: s,
	}
}

// storeName is the name under which the keystore indexes an intent. The length in
// front keeps two pairs of account and name from meeting.
func storeName(account, intent string) string {
	if intent == "" {
		return ""
	}
	return strconv.Itoa(len(account)) + ":" + account + intent
}

// The parts of a record, as named in what Seal authenticates.
const (
	partHead     = "head"
	partRequest  = "request"
	partResponse = "response"
)

// open returns what a part of a record holds. Its error names the entry.
func (s *entries) open(rec keystore.Record, part string, framed []byte) ([]byte, error) {
	b, err := s.seal.Open(rec.Scope, rec.Key, part, framed)
	switch {
	case errors.Is(err, record.ErrSealed):
		return nil, fmt.Errorf("idem: entry %s: %w", rec.Key, ErrSealed)
	case err != nil:
		return nil, fmt.Errorf("idem: entry %s: %w: %v", rec.Key, ErrCorrupt, err)
	}
	return b, nil
}

func (s *entries) openHead(rec keystore.Record) (*head, error) {
	b, err := s.open(rec, partHead, rec.Head)
	if err != nil {
		return nil, err
	}
	h, err := decodeHead(b)
	if err == nil && !h.isOf(rec) {
		err = errors.New("the head belongs to another record")
	}
	if err != nil {
		return nil, fmt.Errorf("idem: entry %s: %w: %v", rec.Key, ErrCorrupt, err)
	}
	return h, nil
}

// isOf tells whether a head can be the record's.
func (h *head) isOf(rec keystore.Record) bool {
	return string(h.Key) == rec.Key && h.Scope == rec.Scope && h.State >= StatePending && h.State <= StateAbandoned
}

// sealMessage returns the bytes of a request or an answer, for the place in rec that
// part names.
func (s *entries) sealMessage(rec keystore.Record, part string, m *record.Message) ([]byte, error) {
	b, err := record.EncodeMessage(m)
	if err != nil {
		return nil, err
	}
	return s.seal.Close(rec.Scope, rec.Key, part, b), nil
}

func (s *entries) openRequest(rec keystore.Record) (*record.Message, error) {
	return s.openMessage(rec, partRequest, rec.Request)
}

func (s *entries) openResponse(rec keystore.Record) (*record.Message, error) {
	return s.openMessage(rec, partResponse, rec.Response)
}

func (s *entries) openMessage(rec keystore.Record, part string, framed []byte) (*record.Message, error) {
	if len(framed) == 0 {
		return nil, fmt.Errorf("idem: entry %s: no %s kept: %w", rec.Key, part, ErrNotFound)
	}
	b, err := s.open(rec, part, framed)
	if err != nil {
		return nil, err
	}
	m, err := record.DecodeMessage(b)
	if err != nil {
		return nil, fmt.Errorf("idem: entry %s: %w: %v", rec.Key, ErrCorrupt, err)
	}
	return m, nil
}
