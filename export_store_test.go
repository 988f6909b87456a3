package idem

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
)

// DamageRecord flips a bit in the middle of a stored record.
func DamageRecord(t testing.TB, s *BoltKeystore, scope, key string) {
	require.NoError(t, s.db.Update(func(tx *bolt.Tx) error {
		k := slotKey(slot{scope, key})
		v := cloneBytes(tx.Bucket(bucketRecords).Get(k))
		require.NotEmpty(t, v)
		v[len(v)-1] ^= 1
		return tx.Bucket(bucketRecords).Put(k, v)
	}))
}

// Transactions returns how many transactions the journal has written.
func Transactions(t testing.TB, s *BoltKeystore) int {
	n := 0
	require.NoError(t, s.db.View(func(tx *bolt.Tx) error {
		n = tx.ID()
		return nil
	}))
	return n
}

// FailCommits lets every later commit fail as if the disk did. With written it
// is on the disk all the same.
func FailCommits(s *BoltKeystore, err error, written bool) {
	s.ops.commit = func(tx *bolt.Tx) error {
		if written {
			if err := tx.Commit(); err != nil {
				return err
			}
		}
		return err
	}
}

// SlowCommits calls f before every later commit reaches the disk.
func SlowCommits(s *BoltKeystore, f func()) {
	s.ops.commit = func(tx *bolt.Tx) error {
		f()
		return tx.Commit()
	}
}

// FailSyncDir lets every later sync of the directory fail.
func FailSyncDir(s *BoltKeystore, err error) {
	s.ops.syncDir = func(string) error { return err }
}

// WriteFormat changes the journal's format version.
func WriteFormat(t testing.TB, s *BoltKeystore, version uint64) {
	require.NoError(t, s.db.Update(func(tx *bolt.Tx) error {
		return tx.Bucket(bucketMeta).Put(keyFormat, encodeFormat(keyFormat, version))
	}))
}

// SightClock lets a new clock see several times and returns what it concludes.
func SightClock(tolerance time.Duration, times ...time.Time) (s Sighting, mark time.Time) {
	var c clock
	for _, now := range times {
		c = c.sight(now, tolerance)
	}
	return c.sighting(), c.mark
}

// EncodeRecord returns the key and the value under which the journal keeps a
// record, and the key of its place in its lane.
func EncodeRecord(r Record, hasRequest, hasResponse bool) (key, value, place []byte) {
	key = slotKey(slot{r.Scope, r.Key})
	return key, encodeRow(key, &row{r, hasRequest, hasResponse}), laneKey(&r)
}

// DecodeRecord undoes EncodeRecord.
func DecodeRecord(key, value []byte) (Record, error) {
	r, err := decodeRow(key, value)
	return r.Record, err
}
