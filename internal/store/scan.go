package store

import (
	"bytes"
	"cmp"
	"context"
	"iter"
	"time"

	"github.com/idem-go/idem/keystore"
)

// scanBatch is how many records a scan fetches at a time.
const scanBatch = 64

// index is what a scan walks: the places of the records of one lane, or of those that
// are due, in each scope. A place is a position; see row.go.
type index interface {
	// scopes returns the scopes that may have places.
	scopes() []string

	// walk returns a function that returns a scope's places from one on, and then nil.
	walk(scope string, from []byte) func() []byte
}

// spot is a place of a scope.
type spot struct {
	scope string
	place []byte
}

// compare orders spots as scans yield them: places first, which begin with the time.
func (s spot) compare(other spot) int {
	return cmp.Or(bytes.Compare(s.place, other.place), cmp.Compare(s.scope, other.scope))
}

// cursor is the spot in the form that callers keep.
func (s spot) cursor() keystore.Cursor {
	return keystore.Cursor(append(scopePrefix(s.scope), s.place...))
}

// at is where the record stands that the spot leads to.
func (s spot) at() slot {
	_, key := splitPosition(s.place)
	return slot{s.scope, key}
}

// spotOf undoes cursor. The empty cursor is nil, before every spot.
func spotOf(c keystore.Cursor) (*spot, error) {
	if c == "" {
		return nil, nil
	}
	scope, place, err := cutWord([]byte(c))
	if err != nil || len(place) < orderSize {
		return nil, invalid("Query.After", "is no cursor of this store")
	}
	return &spot{scope, place}, nil
}

// spots returns at most n spots behind one, in their order; last tells that there are
// no more.
func spots(x index, q keystore.Query, after *spot, n int) (list []spot, last bool) {
	walks := startWalks(x, q, after)
	for len(list) < n {
		var first *walking
		for i := range walks {
			w := &walks[i]
			if w.place != nil && (first == nil || w.spot.compare(first.spot) < 0) {
				first = w
			}
		}
		if first == nil || beyond(q, first.place) {
			return list, true
		}
		list = append(list, first.spot)
		first.place = first.next()
	}
	return list, false
}

// walking is a scope on its way through an index, at its next spot.
type walking struct {
	spot
	next func() []byte
}

// startWalks brings every scope that the query asks for behind a spot.
func startWalks(x index, q keystore.Query, after *spot) []walking {
	scopes := []string{q.Scope}
	if q.AllScopes {
		scopes = x.scopes()
	}
	walks := make([]walking, len(scopes))
	for i, scope := range scopes {
		var from []byte
		if after != nil {
			from = after.place
		}
		w := walking{spot{scope: scope}, x.walk(scope, from)}
		w.place = w.next()
		if after != nil && w.place != nil && w.spot.compare(*after) <= 0 {
			w.place = w.next()
		}
		walks[i] = w
	}
	return walks
}

// beyond tells a place that lies behind the query's limit in time.
func beyond(q keystore.Query, place []byte) bool {
	until := q.Until
	if !q.Due.IsZero() {
		until = q.Due
	}
	return !until.IsZero() && readTime(place).After(until)
}

// checkQuery refuses what no store could answer.
func checkQuery(q keystore.Query) error {
	switch {
	case q.Lane == 0:
		return invalid("Query.Lane", "must be set")
	case q.Limit < 0:
		return invalid("Query.Limit", "must not be negative")
	case !q.Due.IsZero() && q.Lane != keystore.LaneOpen:
		return invalid("Query.Due", "goes with LaneOpen alone")
	}
	_, err := spotOf(q.After)
	return err
}

// fetch returns at most n of a query's records, behind a spot, in one short look at the
// store; last tells that there are no more.
type fetch func(
	ctx context.Context, q keystore.Query, after *spot, n int,
) (batch []keystore.Record, last bool, err error)

// scan is [keystore.Keystore.Scan] over batches.
func (f fetch) scan(ctx context.Context, q keystore.Query) iter.Seq2[keystore.Record, error] {
	return func(yield func(keystore.Record, error) bool) {
		if err := checkQuery(q); err != nil {
			yield(keystore.Record{}, err)
			return
		}
		after, _ := spotOf(q.After) // checked
		for left := q.Limit; ; left -= scanBatch {
			n := scanBatch
			if q.Limit > 0 {
				n = min(n, left)
			}
			batch, last, err := f(ctx, q, after, n)
			for _, r := range batch {
				if !yield(r, r.Damage) {
					return
				}
			}
			if err != nil {
				yield(keystore.Record{}, err)
				return
			}
			if last || n == left {
				return
			}
			after, _ = spotOf(batch[n-1].Cursor) // our own
		}
	}
}

// indexed is the time by which a record stands in the index of what is due, if it does.
func indexed(r *keystore.Record) (due time.Time, ok bool) {
	return r.Due, r.Lane == keystore.LaneOpen && !r.Due.IsZero()
}

// afterPrefix is the first key behind all that begin with a scope's prefix. Its length
// never ends in a byte of ones, so there is one.
func afterPrefix(prefix []byte) []byte {
	b := bytes.Clone(prefix)
	for i := len(b) - 1; ; i-- {
		if b[i]++; b[i] != 0 {
			return b[:i+1]
		}
	}
}
