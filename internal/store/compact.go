package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/idem-go/idem/internal/store/pagecheck"
	"github.com/idem-go/idem/keystore"
	bolt "go.etcd.io/bbolt"
)

// compactStep is how many bytes Compact copies in one transaction.
const compactStep = 16 << 20

// compactPrefix begins the names of the files that Compact writes.
func compactPrefix(path string) string { return filepath.Base(path) + ".compact-" }

// keyCopy says in the bucket meta of a copy that isn't complete whose copy it is.
var keyCopy = []byte("copy of")

// claimCopy writes that.
func claimCopy(tx *bolt.Tx, path string) error {
	meta, err := tx.CreateBucket(bucketMeta)
	if err != nil {
		return err
	}
	return meta.Put(keyCopy, sealValue(keyCopy, []byte(filepath.Base(path))))
}

// removeCopies removes what a Compact that died has left. A file is only taken for that
// if it says so itself.
func removeCopies(path string) error {
	dir := filepath.Dir(path)
	list, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range list {
		name := filepath.Join(dir, entry.Name())
		if strings.HasPrefix(entry.Name(), compactPrefix(path)) && isCopyOf(name, path) {
			os.Remove(name)
		}
	}
	return nil
}

// isCopyOf tells whether a file is an incomplete copy of the journal at path.
func isCopyOf(name, path string) (is bool) {
	info, err := os.Lstat(name)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	if pagecheck.Check(f, info.Size(), bucketMeta) != nil {
		f.Close()
		return false
	}
	db, err := openBolt(f, Options{})
	if err != nil {
		return false
	}
	defer db.Close()
	err = guard(func() error {
		return db.View(func(tx *bolt.Tx) error {
			of, err := openValue(keyCopy, tx.Bucket(bucketMeta).Get(keyCopy))
			is = err == nil && string(of) == filepath.Base(path)
			return nil
		})
	})
	return is && err == nil
}

// Compact gives the space back that removed records leave, with which every
// commit takes longer: the file itself never shrinks while it is open, it only
// gets reused. An open does it by itself where more than half of the file, and 16 MiB,
// are free and it takes less than a second. It needs as much room beside the journal
// as the new file takes; without it the error is [ErrFull] and nothing changed. The
// new file has the owner and the mode of the old one. Commits wait until it is done,
// as long as their contexts allow; all calls wait while it exchanges the files.
//
// Windows can't exchange a file that is open; there it returns
// errors.ErrUnsupported.
func (s *Journal) Compact(ctx context.Context) error {
	if runtime.GOOS == "windows" {
		return fmt.Errorf("idem: compact journal: %w", errors.ErrUnsupported)
	}
	if err := s.writes.lock(ctx); err != nil {
		return err
	}
	defer s.writes.unlock()
	if err := s.failure(); err != nil {
		return err
	}
	db, file, err := s.copyJournal(ctx)
	if err != nil {
		if file != nil {
			os.Remove(file.Name())
		}
		return s.compactError(err)
	}
	return s.exchange(db, file)
}

// When an open compacts by itself: bbolt writes its list of free pages with every
// commit, 8 bytes for each.
const (
	manyFree    = 16 << 20 // bytes, a list of 32 kB
	compactTime = time.Second
)

// countFree lets bbolt count its free pages, which it does at the end of a transaction
// that may write.
func (s *Journal) countFree() error {
	return guard(func() error {
		tx, err := s.db.Begin(true)
		if err != nil {
			return err
		}
		return tx.Rollback()
	})
}

// compactAtOpen makes a file small that is more than half free, if that takes little time. The
// error is one after which the journal is of no use.
func (s *Journal) compactAtOpen() error {
	if err := s.countFree(); err != nil {
		return err
	}
	stats, page := s.db.Stats(), int64(s.db.Info().PageSize)
	info, err := s.file.Stat()
	if err != nil {
		return err
	}
	free := int64(stats.FreePageN) * page
	if free < manyFree || free < info.Size()-free || runtime.GOOS == "windows" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), compactTime)
	defer cancel()
	_ = s.Compact(ctx) // without it the journal is as good as it was
	return s.failure()
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
	like, err := s.file.Stat()
	if err != nil {
		return nil, nil, err
	}
	f, err = os.CreateTemp(filepath.Dir(s.path), compactPrefix(s.path)+"*")
	if err != nil {
		return nil, nil, err
	}
	if err := likeOwner(f, like); err != nil {
		return nil, f, errors.Join(err, f.Close())
	}
	// bbolt locks it here, so that it is locked before the path names it.
	if db, err = openBolt(f, s.options); err != nil {
		return nil, f, err
	}
	err = db.Update(func(tx *bolt.Tx) error { return claimCopy(tx, s.path) })
	if err != nil {
		return nil, f, errors.Join(err, db.Close())
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
		err = db.Update(func(tx *bolt.Tx) error { return tx.Bucket(bucketMeta).Delete(keyCopy) })
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return nil, f, errors.Join(err, db.Close())
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
		err = os.Rename(file.Name(), s.path)
	}
	if err != nil {
		os.Remove(file.Name())
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
