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
func (s *Journal) Read(ctx context.Context, ref keystore.Ref) (keystore.Record, error) {
	if err := s.enter(ctx); err != nil {
		return keystore.Record{}, err
	}
	defer s.gate.RUnlock()
	if err := checkRef(ref); err != nil {
		return keystore.Record{}, err
	}
	var rec keystore.Record
	err := s.view(func(tx *bolt.Tx) (err error) {
		rec, err = readRecord(tx, ref)
		return err
	})
	// After a failed commit a record that isn't there may all the same be on
	// the disk, and its intent must not be taken for a new one.
	if errors.Is(err, keystore.ErrNotFound) {
		if failed := s.failure(); failed != nil {
			return rec, failed
		}
	}
	return rec, err
}

// readRecord looks a record up.
func readRecord(tx *bolt.Tx, ref keystore.Ref) (keystore.Record, error) {
	at := slot{ref.Scope, ref.Key}
	if at.word == "" {
		at.word = boltTable{tx}.owner(slot{ref.Scope, ref.Name})
	}
	r, err := boltTable{tx}.row(at)
	if r == nil {
		return keystore.Record{}, notFound(ref)
	}
	if ref.Bodies {
		var e1, e2 error
		r.Request, e1 = readBody(tx.Bucket(bucketRequests), at, r.hasRequest)
		r.Response, e2 = readBody(tx.Bucket(bucketResponses), at, r.hasResponse)
		err = errors.Join(err, e1, e2)
	}
	return r.Record, err
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
	return func(yield func(keystore.Record, error) bool) {
		for next := lanePrefix(q.Scope, q.Lane); next != nil; {
			batch, rest, err := s.batch(ctx, q, next)
			for _, f := range batch {
				if !yield(f.Record, f.err) {
					return
				}
			}
			if err != nil {
				yield(keystore.Record{}, err)
				return
			}
			next = rest
		}
	}
}

// found is what a scan yields.
type found struct {
	keystore.Record
	err error
}

// batch fetches the records from an index key on. rest is where to go on, nil
// at the end.
func (s *Journal) batch(ctx context.Context, q keystore.Query, from []byte) (batch []found, rest []byte, err error) {
	if err := s.enter(ctx); err != nil {
		return nil, nil, err
	}
	defer s.gate.RUnlock()
	err = s.view(func(tx *bolt.Tx) error {
		batch, rest = scanLane(tx, q, from)
		return nil
	})
	// A scan that comes to its end says that there is nothing else, which
	// can't be known after a failed commit.
	if err == nil && rest == nil {
		err = s.failure()
	}
	return batch, rest, err
}

// scanLane reads a lane from an index key on.
func scanLane(tx *bolt.Tx, q keystore.Query, from []byte) (batch []found, rest []byte) {
	prefix := lanePrefix(q.Scope, q.Lane)
	c := tx.Bucket(bucketLanes).Cursor()
	for k, _ := c.Seek(from); bytes.HasPrefix(k, prefix); k, _ = c.Next() {
		if len(batch) == scanBatch {
			return batch, bytes.Clone(k)
		}
		if len(k) <= len(prefix)+orderSize {
			continue // the check of the open finds these
		}
		order, key := splitPosition(k[len(prefix):])
		if !q.Until.IsZero() && order.After(q.Until) {
			break
		}
		at := slot{q.Scope, key}
		r, err := boltTable{tx}.row(at)
		if r == nil {
			r = &row{Record: keystore.Record{Scope: q.Scope, Key: key}}
			err = recordError(at, fmt.Errorf("%w: in its lane, but not there", keystore.ErrCorrupt))
		}
		batch = append(batch, found{r.Record, err})
	}
	return batch, nil
}
