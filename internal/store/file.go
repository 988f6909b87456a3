package store

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem/internal/store/filelock"
	"github.com/idem-go/idem/internal/store/pagecheck"
	"github.com/idem-go/idem/keystore"
	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// The buckets, and the keys of the first one. See row.go.
var (
	bucketMeta      = []byte("meta")
	bucketRecords   = []byte("records")
	bucketNames     = []byte("names")
	bucketLanes     = []byte("lanes")
	bucketDue       = []byte("due")
	bucketRequests  = []byte("requests")
	bucketResponses = []byte("responses")

	// The first release had no bucket of what is due, and no record with a Due.
	firstBuckets = [][]byte{bucketMeta, bucketRecords, bucketNames, bucketLanes, bucketRequests, bucketResponses}
	allBuckets   = append(slices.Clip(firstBuckets), bucketDue)

	keyFormat = []byte("format")
	keyClock  = []byte("clock")
	keyHigh   = []byte("clock high")
)

// lockPause is how long to wait between two tries to lock the file.
const lockPause = 10 * time.Millisecond

// openJournal opens the journal at path, or creates it, and returns it locked
// and found to be sound.
func openJournal(path string, opts Options) (*bolt.DB, *os.File, clock, error) {
	f, err := openLocked(path, opts.LockWait)
	if err != nil {
		return nil, nil, clock{}, err
	}
	info, err := f.Stat()
	if err == nil {
		err = makeDurable(f, info.Size())
	}
	clean := err == nil && closedClean(f)
	if err == nil && !clean {
		err = pagecheck.Check(f, info.Size(), firstBuckets...)
	}
	// Whoever created the file, or put a compacted one in its place, may have
	// died before its name was durable.
	if err == nil {
		err = filelock.SyncDir(filepath.Dir(path))
	}
	if err != nil {
		f.Close()
		return nil, nil, clock{}, err
	}
	// Nobody but the holder of the lock compacts, so what is there is left over. What
	// can't be looked for stays.
	_ = removeCopies(path)
	db, err := openBolt(f, opts)
	if err != nil {
		return nil, nil, clock{}, err
	}
	c, err := readContent(db, !clean)
	if err == nil {
		err = addDue(db)
	}
	if err != nil {
		db.Close()
	}
	return db, f, c, err
}

// syncFile is what tests let fail.
var syncFile = (*os.File).Sync

// makeDurable lets what is read from now on survive a power cut. An earlier life may
// have died between writing the page that makes its last commit count and the sync of
// that, or seen the sync fail, after which the system takes the page for written. So
// both such pages are written again, as they are, and synced.
func makeDurable(f *os.File, size int64) error {
	for _, page := range pagecheck.MetaPages(f, size) {
		b := make([]byte, page.Size)
		if _, err := f.ReadAt(b, page.Offset); err != nil {
			return err
		}
		if _, err := f.WriteAt(b, page.Offset); err != nil {
			return err
		}
	}
	return syncFile(f)
}

// addDue makes the bucket that a journal of the first release lacks.
func addDue(db *bolt.DB) error {
	return guard(func() error {
		missing := false
		err := db.View(func(tx *bolt.Tx) error {
			missing = tx.Bucket(bucketDue) == nil
			return nil
		})
		if err != nil || !missing {
			return err
		}
		return db.Update(func(tx *bolt.Tx) error {
			_, err := tx.CreateBucket(bucketDue)
			return err
		})
	})
}

// openLocked opens the file at path and locks it. The path may come to name
// another file while it waits: one process creates the journal, or compacts
// it, as another opens it. Only the file that the path names in the end will
// do, or there would be two journals.
func openLocked(path string, wait time.Duration) (*os.File, error) {
	end := time.Now().Add(wait)
	for {
		f, err := openFile(path)
		if err != nil {
			return nil, err
		}
		if err := waitLock(f, path, end); err != nil {
			f.Close()
			return nil, err
		}
		mine, err := f.Stat()
		if err != nil {
			f.Close()
			return nil, err
		}
		named, err := os.Stat(path)
		same := err == nil && os.SameFile(mine, named)
		if same && names(mine) > 1 {
			// Whoever makes a journal gives it a second name for a moment, and may
			// have died before it took the first away.
			removeTemps(path, mine)
			if mine, err = f.Stat(); err == nil && names(mine) > 1 {
				err = fmt.Errorf("%s has %d names (hard links), and Compact would make two journals of it",
					path, names(mine))
			}
		}
		if same && err == nil {
			return f, nil
		}
		f.Close()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if !time.Now().Before(end) {
			return nil, fmt.Errorf("%w: %s is being replaced by another process", keystore.ErrLocked, path)
		}
	}
}

// tempName returns how the name of a journal that is being made begins and ends.
func tempName(path string) (prefix, suffix string) { return "." + filepath.Base(path) + ".", ".new" }

// removeTemps takes away the names under which a journal was made.
func removeTemps(path string, journal os.FileInfo) {
	prefix, suffix := tempName(path)
	list, _ := os.ReadDir(filepath.Dir(path)) // what can't be listed stays
	for _, entry := range list {
		if !strings.HasPrefix(entry.Name(), prefix) || !strings.HasSuffix(entry.Name(), suffix) {
			continue
		}
		if info, err := entry.Info(); err == nil && os.SameFile(info, journal) {
			os.Remove(filepath.Join(filepath.Dir(path), entry.Name()))
		}
	}
}

// openFile opens the file at path, which it creates if there is none.
func openFile(path string) (*os.File, error) {
	// A second try is enough unless somebody removes what we create.
	for range 10 {
		info, err := os.Stat(path)
		if err == nil && !info.Mode().IsRegular() {
			return nil, &fs.PathError{Op: "open", Path: path, Err: errors.New("not a regular file")}
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
		if err := createJournal(path); err != nil {
			return nil, err
		}
	}
	return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
}

// waitLock locks the file by the given time, or returns ErrLocked.
func waitLock(f *os.File, path string, end time.Time) error {
	for {
		ok, err := filelock.Try(f)
		if ok || err != nil {
			return err
		}
		left := time.Until(end)
		if left <= 0 {
			return lockedError(path, filelock.Holder(f))
		}
		time.Sleep(min(left, lockPause))
	}
}

// lockedError says who holds the journal.
func lockedError(path string, pid int) error {
	switch pid {
	case 0:
		return fmt.Errorf("%w: %s is held by another process, which this system doesn't name", keystore.ErrLocked, path)
	case os.Getpid():
		return fmt.Errorf("%w: %s is already open in this process, %d", keystore.ErrLocked, path, pid)
	}
	return fmt.Errorf("%w: %s is held by process %d", keystore.ErrLocked, path, pid)
}

// createJournal puts a complete, empty journal at path unless there is a file.
// A link, unlike a rename, never replaces one that another process has made,
// and perhaps locked, in the meantime.
func createJournal(path string) error {
	prefix, suffix := tempName(path)
	f, err := os.CreateTemp(filepath.Dir(path), prefix+"*"+suffix)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the directory %s doesn't exist: %w", filepath.Dir(path), fs.ErrNotExist)
	}
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	temp := f.Name()
	db, err := openBolt(f, Options{})
	if err != nil {
		return err
	}
	if err := errors.Join(db.Update(initJournal), db.Close()); err != nil {
		return err
	}
	err = linkFile(temp, path)
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrPermission) {
		err = renameAlone(temp, path)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return filelock.SyncDir(filepath.Dir(path))
}

// linkFile is what tests let fail.
var linkFile = os.Link

// renameAlone puts a file in place where the file system has no hard links. The
// directory's lock keeps out whoever does the same.
func renameAlone(temp, path string) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close() // and with it the lock
	for ok := false; !ok; {
		if ok, err = filelock.Try(dir); err != nil {
			return err
		}
		if !ok {
			time.Sleep(lockPause)
		}
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return cmp.Or(err, fs.ErrExist)
	}
	return os.Rename(temp, path)
}

// resolve returns the absolute path of a journal, with links followed: a relative one
// would change its meaning with the working directory, and a link would be replaced when
// the journal is compacted. A link to what doesn't exist yet is where it will be made.
func resolve(path string) (string, error) {
	if path == "" {
		return "", invalid("path", "must not be empty")
	}
	full, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	for range 40 { // as many as the system follows
		if target, err := filepath.EvalSymlinks(full); err == nil {
			return target, nil
		}
		target, err := os.Readlink(full)
		if err != nil {
			dir, err := filepath.EvalSymlinks(filepath.Dir(full))
			if err != nil {
				return full, nil // the open says what is wrong
			}
			return filepath.Join(dir, filepath.Base(full)), nil
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(full), target)
		}
		full = target
	}
	return full, nil
}

// initJournal makes the buckets and what stands in them from the first day, so
// that later its absence is known for damage.
func initJournal(tx *bolt.Tx) error {
	for _, name := range allBuckets {
		if _, err := tx.CreateBucket(name); err != nil {
			return err
		}
	}
	meta := tx.Bucket(bucketMeta)
	if err := meta.Put(keyFormat, encodeFormat(keyFormat, formatVersion)); err != nil {
		return err
	}
	return meta.Put(keyClock, encodeClock(keyClock, clock{}))
}

// openBolt lets bbolt take over a file that is open, and closes it on error.
func openBolt(f *os.File, opts Options) (db *bolt.DB, err error) {
	if !filelock.OutlivesOpen {
		// An opener that slips in here is done by the time bbolt gets the
		// lock, or it isn't and bbolt gives up.
		if err := filelock.Unlock(f); err != nil {
			f.Close()
			return nil, err
		}
	}
	err = guard(func() (err error) {
		db, err = bolt.Open(f.Name(), 0o600, &bolt.Options{
			OpenFile:     func(string, int, os.FileMode) (*os.File, error) { return f, nil },
			Timeout:      time.Millisecond, // one try
			FreelistType: freelistType,
			MaxSize:      int(opts.MaxSize),
		})
		return err
	})
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, lockedError(f.Name(), filelock.Holder(f))
	case err != nil:
		f.Close()
		return nil, err
	}
	if opts.MaxSize > 0 {
		// bbolt adds this much to a file that grows, and refuses to grow where
		// that goes beyond the limit: with its 16 MiB much would be lost.
		db.AllocSize = int(min(max(opts.MaxSize/64, minGrowth), int64(db.AllocSize)))
	}
	return db, nil
}

// How bbolt keeps its list of free pages was measured (50,000 records of 1.3 kB
// in 139 MB; median of 800 lone commits, taking turns, on ext4):
//
//	                   2,700 pages free     31,600 free, 45,000 removed
//	                   commit   open        commit   open
//	array              0.82 ms  0.2 ms      0.94 ms  1.9 ms
//	hashmap            1.45 ms  0.8 ms      1.92 ms  2.9 ms
//	array, not synced  0.73 ms   34 ms      0.57 ms  8.5 ms
//
// A journal of a million records in 1 GiB, of which 90 % are removed here and there
// (median, worst of 200; ext4 on another disk):
//
//	                   none removed        90 % removed, 230,000 pages free
//	array              0.41 ms   0.7 ms    2.1 ms   10.6 ms
//	hashmap            0.53 ms   1.7 ms    3.3 ms    8.7 ms
//	compacted at open                      0.36 ms   1.1 ms, the open takes 0.8 s
//
// Without a synced list bbolt finds the free pages again after each commit that
// fails, a full disk's for one, in a goroutine whose panic nobody can recover.
// That is not worth what it saves, and Compact makes the list short.
const freelistType = bolt.FreelistArrayType

// minGrowth is the least that a file with a limit grows by, in bytes.
const minGrowth = 64 << 10
