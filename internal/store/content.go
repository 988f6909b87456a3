package store

import (
	"fmt"

	"github.com/idem-go/idem/keystore"
	bolt "go.etcd.io/bbolt"
)

// readContent finds out whether this is a journal that this program can read,
// and whether every record is in the indexes and nothing else is: with a name
// missing there, its intent would be sent a second time. It returns the clock
// that earlier lives of the store have left.
func readContent(db *bolt.DB) (c clock, err error) {
	err = guard(func() error {
		return db.View(func(tx *bolt.Tx) (err error) {
			meta := tx.Bucket(bucketMeta)
			if err := checkFormat(keyFormat, meta.Get(keyFormat)); err != nil {
				return err
			}
			if c, err = decodeClock(keyClock, meta.Get(keyClock)); err != nil {
				return err
			}
			return checkIndexes(tx)
		})
	})
	return c, err
}

// checkIndexes compares records, names and lanes. A record that is damaged
// itself stays where it is and is reported when somebody asks for it.
func checkIndexes(tx *bolt.Tx) error {
	records, names, lanes := tx.Bucket(bucketRecords), tx.Bucket(bucketNames), tx.Bucket(bucketLanes)
	var total, named, damaged int
	c := records.Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		total++
		r, err := decodeRow(k, v)
		if err != nil {
			damaged++
			continue
		}
		at := slot{r.Scope, r.Name}
		if r.Name != "" {
			named++
			if key, err := openValue(slotKey(at), names.Get(slotKey(at))); err != nil || string(key) != r.Key {
				return recordError(slot{r.Scope, r.Key}, fmt.Errorf("%w: not under its name", keystore.ErrCorrupt))
			}
		}
		if lanes.Get(laneKey(&r.Record)) == nil {
			return recordError(slot{r.Scope, r.Key}, fmt.Errorf("%w: not in its lane", keystore.ErrCorrupt))
		}
	}
	n, err := checkIndex(names, records, nameTarget)
	if err == nil && (n < named || n > named+damaged) {
		err = fmt.Errorf("%w: %d names of %d records", keystore.ErrCorrupt, n, named)
	}
	if err != nil {
		return err
	}
	n, err = checkIndex(lanes, records, laneTarget)
	if err == nil && n != total {
		err = fmt.Errorf("%w: %d places for %d records", keystore.ErrCorrupt, n, total)
	}
	return err
}

// checkIndex counts the entries of an index, each of which must be sound and
// lead to a record.
func checkIndex(index, records *bolt.Bucket, target func(k, v []byte) (slot, error)) (n int, err error) {
	c := index.Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		at, err := target(k, v)
		if err != nil {
			return n, fmt.Errorf("index: %w", err)
		}
		if records.Get(slotKey(at)) == nil {
			return n, recordError(at, fmt.Errorf("%w: in an index, but not there", keystore.ErrCorrupt))
		}
		n++
	}
	return n, nil
}

// nameTarget returns the record that an entry of the names leads to.
func nameTarget(k, v []byte) (slot, error) {
	key, err := openValue(k, v)
	if err != nil {
		return slot{}, err
	}
	name, err := splitSlot(k)
	return slot{name.scope, string(key)}, err
}

// laneTarget returns the record that an entry of the lanes leads to.
func laneTarget(k, v []byte) (slot, error) {
	if _, err := openValue(k, v); err != nil {
		return slot{}, err
	}
	scope, rest, err := cutWord(k)
	if err == nil && len(rest) <= 1+orderSize {
		err = fmt.Errorf("%w: a place without a record", keystore.ErrCorrupt)
	}
	if err != nil {
		return slot{}, err
	}
	_, key := splitPosition(rest[1:])
	return slot{scope, key}, nil
}
