package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/idem-go/idem/keystore"
	bolt "go.etcd.io/bbolt"
)

// compactStep is how many bytes Compact copies in one transaction.
const compactStep = 16 << 20

// compactPath is where Compact writes the new file.
func compactPath(path string) string { return path + ".compact" }

// Compact gives the space back that removed records leave: the file itself
// never shrinks, it only gets reused. It needs as much room beside the journal
// as the new file takes; without it the error is [ErrFull] and nothing changed.
// Commits wait until it is done; all calls wait while it exchanges the files.
//
// Windows can't exchange a file that is open; there it returns
// errors.ErrUnsupported.
func (s *Journal) Compact(ctx context.Context) error {
	if runtime.GOOS == "windows" {
		return fmt.Errorf("idem: compact journal: %w", errors.ErrUnsupported)
	}
	s.writes.Lock()
	defer s.writes.Unlock()
	if err := s.failure(); err != nil {
		return err
	}
	db, file, err := s.copyJournal(ctx)
	if err != nil {
		os.Remove(compactPath(s.path))
		return s.compactError(err)
	}
	return s.exchange(db, file)
}

// compactError tells the lack of room from other failures, none of which has
// touched the journal.
func (s *Journal) compactError(err error) error {
	switch {
	case errors.Is(err, keystore.ErrClosed) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return err
	case noRoom(err):
		return fmt.Errorf("%w: compact %s: %v", keystore.ErrFull, s.path, err)
	}
	return fmt.Errorf("idem: compact journal %s: %w", s.path, err)
}

// copyJournal writes all that is live to a new file, and returns that synced
// and locked.
func (s *Journal) copyJournal(ctx context.Context) (db *bolt.DB, f *os.File, err error) {
	if err := s.enter(ctx); err != nil {
		return nil, nil, err
	}
	defer s.gate.RUnlock()
	f, err = os.OpenFile(compactPath(s.path), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, nil, err
	}
	// bbolt locks it here, so that it is locked before the path names it.
	if db, err = openBolt(f, s.options); err != nil {
		return nil, nil, err
	}
	err = s.view(func(tx *bolt.Tx) error {
		for _, name := range allBuckets {
			if err := copyBucket(ctx, db, name, tx.Bucket(name)); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return db, f, nil
}

// copyBucket copies one bucket in several transactions, as each holds what it
// copies in memory.
func copyBucket(ctx context.Context, to *bolt.DB, name []byte, from *bolt.Bucket) error {
	c := from.Cursor()
	for k, v := c.First(); ; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err := to.Update(func(tx *bolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists(name)
			if err != nil {
				return err
			}
			b.FillPercent = 1 // the keys come in order
			for size := 0; k != nil && size < compactStep; k, v = c.Next() {
				if err := b.Put(k, v); err != nil {
					return err
				}
				size += len(k) + len(v)
			}
			return nil
		})
		if err != nil || k == nil {
			return err
		}
	}
}

// exchange puts the new file in the old one's place. Both are locked, so that
// at no moment another process can lock the file that the path names.
func (s *Journal) exchange(db *bolt.DB, file *os.File) error {
	s.gate.Lock()
	defer s.gate.Unlock()
	err := s.ready()
	if err == nil {
		err = os.Rename(compactPath(s.path), s.path)
	}
	if err != nil {
		os.Remove(compactPath(s.path))
		return errors.Join(s.compactError(err), db.Close())
	}
	old := s.db
	s.db, s.file = db, file
	if err := s.ops.syncDir(filepath.Dir(s.path)); err != nil {
		// After a power cut the path may name the old file, without what
		// would be written from now on.
		err = s.fail(err)
		return errors.Join(err, old.Close())
	}
	return old.Close()
}
