package store

import (
	"cmp"
	"fmt"

	"github.com/idem-go/idem/keystore"
	bolt "go.etcd.io/bbolt"
)

// readContent finds out whether this is a journal that this program can read,
// and, if asked to compare, whether every record is in the indexes and nothing else is: with a name
// missing there, its intent would be sent a second time. It returns the clock
// that earlier lives of the store have left.
func readContent(db *bolt.DB, compare bool) (c clock, err error) {
	err = guard(func() error {
		return db.View(func(tx *bolt.Tx) (err error) {
			meta := tx.Bucket(bucketMeta)
			if err := checkFormat(keyFormat, meta.Get(keyFormat)); err != nil {
				return err
			}
			if c, err = decodeClock(keyClock, meta.Get(keyClock)); err == nil {
				c, err = decodeHigh(c, keyHigh, meta.Get(keyHigh))
			}
			if err != nil {
				return err
			}
			if !compare {
				return nil
			}
			return checkIndexes(tx)
		})
	})
	return c, err
}

// tally counts what a journal's indexes must agree on.
type tally struct{ total, named, timed, damaged int }

// checkIndexes compares records, names, lanes and what is due. A record that is
// damaged itself stays where it is and is reported when somebody asks for it.
func checkIndexes(tx *bolt.Tx) error {
	var t tally
	records := tx.Bucket(bucketRecords)
	c := records.Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		if err := t.record(tx, k, v); err != nil {
			return err
		}
	}
	for _, x := range []struct {
		what        string
		bucket      []byte
		target      func(k, v []byte) (slot, error)
		least, most int
	}{
		{"names", bucketNames, nameTarget, t.named, t.named + t.damaged},
		{"places", bucketLanes, laneTarget, t.total, t.total},
		{"due places", bucketDue, dueTarget, t.timed, t.timed + t.damaged},
	} {
		n, err := checkIndex(tx.Bucket(x.bucket), records, x.target)
		if err == nil && (n < x.least || n > x.most) {
			err = fmt.Errorf("%w: %d %s for %d records", keystore.ErrCorrupt, n, x.what, x.least)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// record counts one record, and finds it in the indexes.
func (t *tally) record(tx *bolt.Tx, k, v []byte) error {
	t.total++
	r, err := decodeRow(k, v)
	if err != nil {
		t.damaged++
		return nil
	}
	at := slot{r.Scope, r.Key}
	if r.Name != "" {
		t.named++
		name := slotKey(slot{r.Scope, r.Name})
		if key, err := openValue(name, tx.Bucket(bucketNames).Get(name)); err != nil || string(key) != r.Key {
			return recordError(at, fmt.Errorf("%w: not under its name", keystore.ErrCorrupt))
		}
	}
	if tx.Bucket(bucketLanes).Get(laneKey(&r.Record)) == nil {
		return recordError(at, fmt.Errorf("%w: not in its lane", keystore.ErrCorrupt))
	}
	if _, ok := indexed(&r.Record); ok {
		t.timed++
		if due := tx.Bucket(bucketDue); due == nil || due.Get(duePlace(&r.Record)) == nil {
			return recordError(at, fmt.Errorf("%w: not among what is due", keystore.ErrCorrupt))
		}
	}
	return nil
}

// checkIndex counts the entries of an index, each of which must be sound and
// lead to a record.
func checkIndex(index, records *bolt.Bucket, target func(k, v []byte) (slot, error)) (n int, err error) {
	if index == nil { // what is due, in a journal of the first release
		return 0, nil
	}
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
	if err != nil || len(rest) == 0 {
		return slot{}, cmp.Or(err, errNoPlace)
	}
	return placeTarget(scope, rest[1:])
}

// dueTarget returns the record that an entry of what is due leads to.
func dueTarget(k, v []byte) (slot, error) {
	if _, err := openValue(k, v); err != nil {
		return slot{}, err
	}
	scope, place, err := cutWord(k)
	if err != nil {
		return slot{}, err
	}
	return placeTarget(scope, place)
}

var errNoPlace = fmt.Errorf("%w: a place without a record", keystore.ErrCorrupt)

func placeTarget(scope string, place []byte) (slot, error) {
	if len(place) <= orderSize {
		return slot{}, errNoPlace
	}
	return spot{scope, place}.at(), nil
}
