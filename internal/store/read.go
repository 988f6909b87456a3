package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/idem-go/idem/keystore"
	bolt "go.etcd.io/bbolt"
)

// Read implements [keystore.Keystore].
func (s *Journal) Read(ctx context.Context, refs ...keystore.Ref) ([]keystore.Record, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.gate.RUnlock()
	if err := checkRefs(refs); err != nil {
		return nil, err
	}
	found := make([]keystore.Record, len(refs))
	absent := false
	err := s.view(func(tx *bolt.Tx) error {
		for i, ref := range refs {
			found[i] = readRecord(tx, ref)
			absent = absent || !found[i].Found()
		}
		return nil
	})
	// After a failed commit a record that isn't there may all the same be on
	// the disk, and its intent must not be taken for a new one.
	if err == nil && absent {
		err = s.failure()
	}
	if err == nil {
		err = s.settled(ctx, found...)
	}
	if err != nil {
		return nil, err
	}
	return found, nil
}

// readRecord looks a record up.
func readRecord(tx *bolt.Tx, ref keystore.Ref) keystore.Record {
	at := slot{ref.Scope, ref.Key}
	if at.word == "" {
		at.word = boltTable{tx}.owner(slot{ref.Scope, ref.Name})
	}
	r, err := boltTable{tx}.row(at)
	if r == nil {
		return keystore.Record{}
	}
	if ref.Bodies {
		var e1, e2 error
		r.Request, e1 = readBody(tx.Bucket(bucketRequests), at, r.hasRequest)
		r.Response, e2 = readBody(tx.Bucket(bucketResponses), at, r.hasResponse)
		err = errors.Join(err, e1, e2)
	}
	r.Damage = err
	return r.Record
}

// readBody returns a copy of a body, as much of it as there is.
func readBody(b *bolt.Bucket, at slot, has bool) ([]byte, error) {
	k := slotKey(at)
	v := b.Get(k)
	if v == nil && !has {
		return nil, nil
	}
	body, err := openValue(k, v)
	if err != nil {
		return nil, recordError(at, fmt.Errorf("%w in a body", err))
	}
	return cloneBytes(body), nil
}

// boltTable shows the records of a transaction to a stage.
type boltTable struct{ tx *bolt.Tx }

func (t boltTable) row(at slot) (*row, error) {
	k := slotKey(at)
	v := t.tx.Bucket(bucketRecords).Get(k)
	if v == nil {
		return nil, nil
	}
	return decodeRow(k, v)
}

func (t boltTable) owner(name slot) string {
	v := t.tx.Bucket(bucketNames).Get(slotKey(name))
	if len(v) < sealSize {
		return ""
	}
	return string(v[sealSize:])
}

// Scan implements [keystore.Keystore].
func (s *Journal) Scan(ctx context.Context, q keystore.Query) iter.Seq2[keystore.Record, error] {
	return fetch(s.fetch).scan(ctx, q)
}

func (s *Journal) fetch(
	ctx context.Context, q keystore.Query, after *spot, n int,
) (batch []keystore.Record, last bool, err error) {
	if err := s.enter(ctx); err != nil {
		return nil, false, err
	}
	defer s.gate.RUnlock()
	err = s.view(func(tx *bolt.Tx) error {
		var list []spot
		list, last = spots(boltIndexOf(tx, q), q, after, n)
		for _, p := range list {
			batch = append(batch, indexedRecord(tx, p))
		}
		return nil
	})
	if unknown := s.settled(ctx, batch...); unknown != nil {
		return nil, false, unknown
	}
	// A scan that comes to its end says that there is nothing else, which
	// can't be known after a failed commit.
	if err == nil && last {
		err = s.failure()
	}
	return batch, last, err
}

// indexedRecord reads the record that a spot leads to.
func indexedRecord(tx *bolt.Tx, p spot) keystore.Record {
	at := p.at()
	r, err := boltTable{tx}.row(at)
	if r == nil {
		r = &row{Record: keystore.Record{Scope: at.scope, Key: at.word}}
		err = recordError(at, fmt.Errorf("%w: in its lane, but not there", keystore.ErrCorrupt))
	}
	r.Damage, r.Cursor = err, p.cursor()
	return r.Record
}

// boltIndex shows a bucket of places to a scan: those of one lane, or of lane 0 if the
// bucket has no lanes.
type boltIndex struct {
	bucket *bolt.Bucket
	lane   keystore.Lane
}

func boltIndexOf(tx *bolt.Tx, q keystore.Query) boltIndex {
	if !q.Due.IsZero() {
		return boltIndex{tx.Bucket(bucketDue), 0}
	}
	return boltIndex{tx.Bucket(bucketLanes), q.Lane}
}

func (x boltIndex) prefix(scope string) []byte {
	if x.lane == 0 {
		return scopePrefix(scope)
	}
	return lanePrefix(scope, x.lane)
}

func (x boltIndex) scopes() (scopes []string) {
	c := x.bucket.Cursor()
	for k, _ := c.First(); k != nil; {
		scope, _, err := cutWord(k)
		if err != nil {
			k, _ = c.Next() // the check of the open finds these
			continue
		}
		scopes = append(scopes, scope)
		k, _ = c.Seek(afterPrefix(scopePrefix(scope)))
	}
	return scopes
}

func (x boltIndex) walk(scope string, from []byte) func() []byte {
	prefix := x.prefix(scope)
	c := x.bucket.Cursor()
	k, _ := c.Seek(append(bytes.Clone(prefix), from...))
	return func() []byte {
		for bytes.HasPrefix(k, prefix) {
			place := bytes.Clone(k[len(prefix):])
			k, _ = c.Next()
			if len(place) > orderSize { // the check of the open finds the others
				return place
			}
		}
		return nil
	}
}
