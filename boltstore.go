package idem

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"
)

// defaultLockWait is KeystoreOptions.LockWait where it is zero.
const defaultLockWait = time.Second

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

// withDefaults returns a copy of the options with nothing left to default.
func (o *KeystoreOptions) withDefaults() (KeystoreOptions, error) {
	var c KeystoreOptions
	if o != nil {
		c = *o
	}
	switch {
	case c.MaxSize < 0:
		return c, &InvalidError{"KeystoreOptions.MaxSize", c.MaxSize, "must not be negative"}
	case c.MaxSize > 0 && int64(int(c.MaxSize)) != c.MaxSize:
		return c, &InvalidError{"KeystoreOptions.MaxSize", c.MaxSize, "must fit in this machine's memory"}
	case c.LockWait < 0:
		return c, &InvalidError{"KeystoreOptions.LockWait", c.LockWait, "must not be negative"}
	}
	if c.LockWait == 0 {
		c.LockWait = defaultLockWait
	}
	return c, nil
}

// BoltKeystore is the journal: a [Keystore] in one file, which one process has
// open at a time. Commits that wait while another one is under way share the
// next. After a write or sync that failed it takes no more writes until it is
// opened anew, since nobody knows then what the disk holds.
type BoltKeystore struct {
	path    string
	options KeystoreOptions
	claims  claims
	ops     boltOps

	// Every call holds both locks for reading, in this order, or the second
	// alone if it doesn't write. Compact stops the writers while it copies and
	// all while it exchanges the files; Close stops all.
	writes sync.RWMutex
	gate   sync.RWMutex
	closed bool     // guarded by gate
	db     *bolt.DB // guarded by gate
	file   *os.File // guarded by gate: the one that db has open

	queueMu sync.Mutex
	queue   []*member // guarded by queueMu: commits for the next transaction
	leading bool      // guarded by queueMu: somebody commits, or was told to

	stateMu    sync.Mutex
	clock      clock // guarded by stateMu
	savedClock clock // guarded by stateMu: as the file has it
	failed     error // guarded by stateMu: why there are no more writes
	dead       bool  // guarded by stateMu: bbolt panicked, and may hold its locks
}

var _ Keystore = (*BoltKeystore)(nil)

// boltOps is what tests let fail.
type boltOps struct {
	commit  func(*bolt.Tx) error
	syncDir func(dir string) error
}

// OpenKeystore opens the journal at path, or creates it, readable for its owner
// alone. Nil options are the defaults.
//
// If another process, or this one, has it open, the error is [ErrLocked] and
// names the process where the system tells. If the file is damaged or is no
// journal, it is [ErrCorrupt], and the file stays as it is. Otherwise it is the
// system's.
func OpenKeystore(path string, opts *KeystoreOptions) (*BoltKeystore, error) {
	options, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	// A relative path would change its meaning with the working directory,
	// and a link would be replaced when the journal is compacted.
	full, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("idem: open journal %s: %w", path, err)
	}
	if target, err := filepath.EvalSymlinks(full); err == nil {
		full = target
	}

	s := &BoltKeystore{path: full, options: options, ops: boltOps{(*bolt.Tx).Commit, syncDir}}
	s.db, s.file, s.clock, err = openJournal(full, options)
	if err != nil {
		return nil, openError(path, err)
	}
	s.savedClock = s.clock
	return s, nil
}

// openError says what could not be opened. A lock's error does that itself.
func openError(path string, err error) error {
	if errors.Is(err, ErrLocked) {
		return err
	}
	return fmt.Errorf("idem: open journal %s: %w", path, err)
}

// Path returns the absolute path of the journal's file, with links followed.
func (s *BoltKeystore) Path() string { return s.path }

// guard runs a function that lets bbolt read its memory map and turns a panic
// into an error: the checks of the open found nothing, but a disk may fail, or
// the file be cut short, while it is mapped.
func guard(fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = &panicError{p}
		}
	}()
	return fn()
}

// panicError is a panic that guard caught. It is ErrCorrupt.
type panicError struct{ value any }

func (e *panicError) Error() string        { return fmt.Sprintf("%v: %v", ErrCorrupt, e.value) }
func (e *panicError) Is(target error) bool { return target == ErrCorrupt }

// enter begins a call that reads. The caller holds gate for reading if there
// was no error.
func (s *BoltKeystore) enter(ctx context.Context) error {
	s.gate.RLock()
	err := s.ready()
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		s.gate.RUnlock()
	}
	return err
}

// ready tells whether bbolt can be asked.
func (s *BoltKeystore) ready() error {
	if s.closed {
		return ErrClosed
	}
	s.stateMu.Lock()
	defer s.stateMu.Unlock()
	if s.dead {
		return s.failed
	}
	return nil
}

// fail notes that there must be no more writes, and returns what to tell. The
// first failure stays the one to tell.
func (s *BoltKeystore) fail(err error) error {
	var p *panicError
	s.stateMu.Lock()
	defer s.stateMu.Unlock()
	s.dead = s.dead || errors.As(err, &p)
	if s.failed == nil {
		s.failed = fmt.Errorf("idem: journal %s takes no writes until it is opened anew: %w", s.path, err)
	}
	return s.failed
}

// failure returns why there are no more writes, or nil.
func (s *BoltKeystore) failure() error {
	s.stateMu.Lock()
	defer s.stateMu.Unlock()
	return s.failed
}

// view runs a read transaction, which fn must leave soon and empty-handed.
func (s *BoltKeystore) view(fn func(*bolt.Tx) error) error {
	err := guard(func() error { return s.db.View(fn) })
	var p *panicError
	if errors.As(err, &p) {
		return s.fail(err)
	}
	return err
}

// Claim implements [Keystore]. The right holds within this process, which is
// the only one that has the journal open.
func (s *BoltKeystore) Claim(ctx context.Context, id string, wait bool) (Claim, error) {
	return s.claims.take(ctx, id, wait)
}

// Clock implements [Keystore].
func (s *BoltKeystore) Clock(ctx context.Context, now time.Time, tolerance time.Duration) (Sighting, error) {
	if err := s.enter(ctx); err != nil {
		return Sighting{}, err
	}
	s.stateMu.Lock()
	s.clock = s.clock.sight(now, tolerance)
	seen, saved := s.clock, s.savedClock
	s.stateMu.Unlock()
	s.gate.RUnlock()

	// A setback that a crash could undo would open windows again that it has
	// closed, so nobody hears of it before it is durable.
	if seen.epoch != saved.epoch {
		if err := s.Commit(ctx); err != nil {
			return Sighting{}, err
		}
	}
	return seen.sighting(), nil
}

// Close implements [Keystore]. Other processes can open the journal then.
func (s *BoltKeystore) Close() error {
	s.claims.close()
	s.saveClock()
	s.writes.Lock()
	defer s.writes.Unlock()
	s.gate.Lock()
	defer s.gate.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	s.stateMu.Lock()
	dead := s.dead
	s.stateMu.Unlock()
	if dead {
		// bbolt may have died with its locks held, and its Close would wait
		// for them for ever. The memory map stays until the process ends.
		return s.file.Close()
	}
	return guard(s.db.Close)
}

// saveClock writes the clock, so that its age counts on in the next life. If
// that fails, only the time since the last commit is lost to it.
func (s *BoltKeystore) saveClock() {
	_ = s.Commit(context.Background())
}
