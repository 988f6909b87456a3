package idem

import (
	"context"
	"fmt"
	"net/http"
	"time"

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
	rec, err := e.entries.ks.Read(ctx, keystore.Ref{Scope: e.Scope, Key: string(e.Key), Bodies: true})
	if err != nil {
		return keystore.Record{}, fmt.Errorf("idem: entry %s: %w", e.Key, err)
	}
	return rec, nil
}
