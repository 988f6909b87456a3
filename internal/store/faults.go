package store

import (
	bolt "go.etcd.io/bbolt"
)

// What tests do to a journal, those of package idem included.

// FailCommits lets every later commit fail as if the disk did. With written it is on
// the disk all the same.
func (s *Journal) FailCommits(err error, written bool) {
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
func (s *Journal) SlowCommits(f func()) {
	s.ops.commit = func(tx *bolt.Tx) error {
		f()
		return tx.Commit()
	}
}

// HoldSync calls f when the next commit can be read, but isn't synced yet, as far as
// anybody knows.
func (s *Journal) HoldSync(f func()) {
	s.ops.commit = func(tx *bolt.Tx) error {
		s.ops.commit = (*bolt.Tx).Commit
		err := tx.Commit()
		f()
		return err
	}
}

// FailSyncDir lets every later sync of the directory fail.
func (s *Journal) FailSyncDir(err error) {
	s.ops.syncDir = func(string) error { return err }
}

// NoSync lets later commits return before they are durable, as the library never does:
// tests of power cuts must notice.
func (s *Journal) NoSync() { s.db.NoSync = true }

// DamageRecord flips a bit at the end of a stored record.
func (s *Journal) DamageRecord(scope, key string) error {
	return s.db.Update(func(tx *bolt.Tx) error {
		k := slotKey(slot{scope, key})
		v := cloneBytes(tx.Bucket(bucketRecords).Get(k))
		v[len(v)-1] ^= 1
		return tx.Bucket(bucketRecords).Put(k, v)
	})
}

// WriteFormat changes the journal's format version.
func (s *Journal) WriteFormat(version uint64) error {
	return s.db.Update(func(tx *bolt.Tx) error {
		return tx.Bucket(bucketMeta).Put(keyFormat, encodeFormat(keyFormat, version))
	})
}

// Transactions returns how many transactions the journal has written.
func (s *Journal) Transactions() (n int, err error) {
	err = s.db.View(func(tx *bolt.Tx) error {
		n = tx.ID()
		return nil
	})
	return n, err
}
