package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/idem-go/idem/internal/store/filelock"
	"github.com/idem-go/idem/keystore"
	bolt "go.etcd.io/bbolt"
)

// Options say how a journal is opened. They are checked, and their defaults filled, by
// whoever opens it.
type Options struct {
	MaxSize  int64         // how many bytes the file may grow to; 0: no limit
	LockWait time.Duration // how long to wait for a file that another process holds
}

// Journal is a keystore in one bbolt file, which one process has
// open at a time. Commits that wait while another one is under way share the
// next. After a write or sync that failed it takes no more writes until it is
// opened anew, since nobody knows then what the disk holds.
type Journal struct {
	path    string
	options Options
	claims  claims
	ops     boltOps

	// Every call is inside both, in this order, or the second alone if it doesn't
	// write. Compact stops the writers while it copies and all while it exchanges
	// the files; Close stops all.
	writes turnstile
	gate   sync.RWMutex
	closed bool     // guarded by gate
	db     *bolt.DB // guarded by gate
	file   *os.File // guarded by gate: the one that db has open

	queueMu sync.Mutex
	queue   []*member // guarded by queueMu: commits for the next transaction
	leading bool      // guarded by queueMu: somebody commits, or was told to

	stateMu    sync.Mutex
	clock      clock    // guarded by stateMu
	savedClock clock    // guarded by stateMu: as the file has it
	failed     error    // guarded by stateMu: why there are no more writes
	dead       bool     // guarded by stateMu: bbolt panicked, and may hold its locks
	pending    *pending // guarded by stateMu: on its way to the disk, or failed on it
}

var _ keystore.Keystore = (*Journal)(nil)

// boltOps is what tests let fail.
type boltOps struct {
	commit  func(*bolt.Tx) error
	syncDir func(dir string) error
}

// Open opens the journal at path, or creates it, readable for its owner alone. A journal
// that is open elsewhere is ErrLocked; a damaged file, or one that is no journal, is
// ErrCorrupt and stays as it is.
func Open(path string, options Options) (*Journal, error) {
	// A relative path would change its meaning with the working directory,
	// and a link would be replaced when the journal is compacted.
	full, err := resolve(path)
	if err != nil {
		return nil, openError(path, err)
	}

	s := &Journal{path: full, options: options, ops: boltOps{(*bolt.Tx).Commit, filelock.SyncDir}}
	s.db, s.file, s.clock, err = openJournal(full, options)
	if err != nil {
		return nil, openError(path, err)
	}
	s.savedClock = s.clock.saved()
	if err := s.compactAtOpen(); err != nil {
		return nil, openError(path, errors.Join(err, s.Close()))
	}
	return s, nil
}

// openError says what could not be opened. A lock's error does that itself.
func openError(path string, err error) error {
	if errors.Is(err, keystore.ErrLocked) {
		return err
	}
	return fmt.Errorf("idem: open journal %s: %w", path, err)
}

// Path returns the absolute path of the journal's file, with links followed.
func (s *Journal) Path() string { return s.path }

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

func (e *panicError) Error() string        { return fmt.Sprintf("%v: %v", keystore.ErrCorrupt, e.value) }
func (e *panicError) Is(target error) bool { return target == keystore.ErrCorrupt }

// enter begins a call that reads. The caller holds gate for reading if there
// was no error.
func (s *Journal) enter(ctx context.Context) error {
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
func (s *Journal) ready() error {
	if s.closed {
		return keystore.ErrClosed
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
func (s *Journal) fail(err error) error {
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
func (s *Journal) failure() error {
	s.stateMu.Lock()
	defer s.stateMu.Unlock()
	return s.failed
}

// view runs a read transaction, which fn must leave soon and empty-handed.
func (s *Journal) view(fn func(*bolt.Tx) error) error {
	err := guard(func() error { return s.db.View(fn) })
	var p *panicError
	if errors.As(err, &p) {
		return s.fail(err)
	}
	return err
}

// Claim implements [keystore.Keystore]. The right holds within this process, which is
// the only one that has the journal open.
func (s *Journal) Claim(ctx context.Context, scope, id string, wait bool) (keystore.Claim, error) {
	return s.claims.take(ctx, slot{scope, id}, wait)
}

// Clock implements [keystore.Keystore].
func (s *Journal) Clock(ctx context.Context, now time.Time, tolerance time.Duration) (keystore.Sighting, error) {
	if err := s.enter(ctx); err != nil {
		return keystore.Sighting{}, err
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
			return keystore.Sighting{}, err
		}
	}
	return seen.sighting(now), nil
}

// Close implements [keystore.Keystore]. Other processes can open the journal then.
func (s *Journal) Close() error {
	s.claims.close()
	s.saveClock()
	_ = s.writes.lock(context.Background()) // which has no end
	defer s.writes.unlock()
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
		// for them for ever. The memory map stays until the process ends, and
		// with it the file's lock, unless that is given back first.
		return errors.Join(filelock.Unlock(s.file), s.file.Close())
	}
	if s.failure() == nil {
		// Without the note the next open takes longer.
		_ = guard(func() error { return noteClean(s.file) })
	}
	return guard(s.db.Close)
}

// saveClock writes the clock, so that its age counts on in the next life. If
// that fails, only the time since the last commit is lost to it.
func (s *Journal) saveClock() {
	_ = s.Commit(context.Background())
}
