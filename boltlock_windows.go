package idem

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// lockOutlivesOpen says that bbolt can't lock a file that is locked already,
// not even by the same handle.
const lockOutlivesOpen = false

// lockedByte is the byte, far behind the end, that bbolt locks.
var lockedByte = windows.Overlapped{Offset: 1<<32 - 1, OffsetHigh: 1<<32 - 1}

// tryLock takes the lock that bbolt takes, without waiting.
func tryLock(f *os.File) (bool, error) {
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	at := lockedByte
	err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, &at)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, windows.ERROR_LOCK_VIOLATION):
		return false, nil
	}
	return false, &os.PathError{Op: "lock", Path: f.Name(), Err: err}
}

func unlock(f *os.File) error {
	at := lockedByte
	return windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, &at)
}

// syncDir does nothing: a directory can't be synced here, and NTFS journals
// its names.
func syncDir(string) error { return nil }
