package idem

import (
	"context"
	"iter"
	"time"

	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/keystore"
)

// Keystore is where entries live: a [BoltKeystore], a [MemoryKeystore], or a store of
// somebody else's that passes package storetest.
type Keystore = keystore.Keystore

// KeystoreTx is a keystore within a database transaction of the caller's own.
type KeystoreTx = keystore.KeystoreTx

// KeystoreOptions tune [OpenKeystore]. The zero value is fine.
type KeystoreOptions struct {
	// MaxSize is how many bytes the journal's file may grow to; zero means no
	// limit. In its last quarter new records are refused with [ErrFull], so that
	// there is room for the results of those that exist.
	MaxSize int64

	// LockWait is how long to wait for a journal that another process holds;
	// zero means one second.
	LockWait time.Duration
}

func (o *KeystoreOptions) withDefaults() (store.Options, error) {
	var c store.Options
	if o != nil {
		c = store.Options{MaxSize: o.MaxSize, LockWait: o.LockWait}
	}
	switch {
	case c.MaxSize < 0:
		return c, &InvalidError{"KeystoreOptions.MaxSize", c.MaxSize, "must not be negative"}
	case int64(int(c.MaxSize)) != c.MaxSize:
		return c, &InvalidError{"KeystoreOptions.MaxSize", c.MaxSize, "must fit in this machine's memory"}
	case c.LockWait < 0:
		return c, &InvalidError{"KeystoreOptions.LockWait", c.LockWait, "must not be negative"}
	}
	c.LockWait = orDefault(c.LockWait, time.Second)
	return c, nil
}

// BoltKeystore is the journal: a [Keystore] in one file, which one process has
// open at a time. Commits that wait while another one is under way share the
// next. After a write or sync that failed it takes no more writes until it is
// opened anew, since nobody knows then what the disk holds.
type BoltKeystore struct{ journal *store.Journal }

// OpenKeystore opens the journal at path, or creates it, readable for its owner
// alone. Nil options are the defaults.
//
// If another process, or this one, has it open, the error is [ErrLocked] and
// names the process where the system tells. If the file is damaged or is no
// journal, it is [ErrCorrupt], and the file stays as it is. An empty path is
// [ErrInvalid]. A file with more than one name (hard link) is refused; symbolic links
// are followed, also to where the journal is to be made. Otherwise the error is the
// system's.
//
// After a clean close an open reads the file once, from end to end; after a crash it
// compares every record with its indexes, which takes some seconds for a million.
func OpenKeystore(path string, opts *KeystoreOptions) (*BoltKeystore, error) {
	options, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	journal, err := store.Open(path, options)
	if err != nil {
		return nil, err
	}
	return &BoltKeystore{journal}, nil
}

// Path returns the absolute path of the journal's file, with links followed.
func (s *BoltKeystore) Path() string { return s.journal.Path() }

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
func (s *BoltKeystore) Compact(ctx context.Context) error { return s.journal.Compact(ctx) }

// Commit implements [Keystore]. Without changes it writes down the clock.
func (s *BoltKeystore) Commit(ctx context.Context, changes ...keystore.Change) error {
	return s.journal.Commit(ctx, changes...)
}

// Read implements [Keystore].
func (s *BoltKeystore) Read(ctx context.Context, refs ...keystore.Ref) ([]keystore.Record, error) {
	return s.journal.Read(ctx, refs...)
}

// Scan implements [Keystore].
func (s *BoltKeystore) Scan(ctx context.Context, q keystore.Query) iter.Seq2[keystore.Record, error] {
	return s.journal.Scan(ctx, q)
}

// Claim implements [Keystore]. The right holds within this process, which is the only
// one that has the journal open.
func (s *BoltKeystore) Claim(ctx context.Context, scope, id string, wait bool) (keystore.Claim, error) {
	return s.journal.Claim(ctx, scope, id, wait)
}

// Clock implements [Keystore].
func (s *BoltKeystore) Clock(ctx context.Context, now time.Time, tolerance time.Duration) (keystore.Sighting, error) {
	return s.journal.Clock(ctx, now, tolerance)
}

// Close implements [Keystore]. Other processes can open the journal then.
func (s *BoltKeystore) Close() error { return s.journal.Close() }

// MemoryKeystore is a [Keystore] that forgets everything with the process. It
// is for tests, and for programs that want the retries but no memory of them.
type MemoryKeystore struct{ memory *store.Memory }

// NewMemoryKeystore returns an empty keystore.
func NewMemoryKeystore() *MemoryKeystore { return &MemoryKeystore{store.NewMemory()} }

// Commit implements [Keystore].
func (m *MemoryKeystore) Commit(ctx context.Context, changes ...keystore.Change) error {
	return m.memory.Commit(ctx, changes...)
}

// Read implements [Keystore].
func (m *MemoryKeystore) Read(ctx context.Context, refs ...keystore.Ref) ([]keystore.Record, error) {
	return m.memory.Read(ctx, refs...)
}

// Scan implements [Keystore].
func (m *MemoryKeystore) Scan(ctx context.Context, q keystore.Query) iter.Seq2[keystore.Record, error] {
	return m.memory.Scan(ctx, q)
}

// Claim implements [Keystore].
func (m *MemoryKeystore) Claim(ctx context.Context, scope, id string, wait bool) (keystore.Claim, error) {
	return m.memory.Claim(ctx, scope, id, wait)
}

// Clock implements [Keystore].
func (m *MemoryKeystore) Clock(ctx context.Context, now time.Time, tolerance time.Duration) (keystore.Sighting, error) {
	return m.memory.Clock(ctx, now, tolerance)
}

// Close implements [Keystore]. What the store held is gone.
func (m *MemoryKeystore) Close() error { return m.memory.Close() }
