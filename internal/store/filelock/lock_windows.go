package filelock

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// OutlivesOpen says that bbolt can't lock a file that is locked already,
// not even by the same handle.
const OutlivesOpen = false

// lockedByte is the byte, far behind the end, that bbolt locks.
var lockedByte = windows.Overlapped{Offset: 1<<32 - 1, OffsetHigh: 1<<32 - 1}

// Try takes the lock that bbolt takes, without waiting.
func Try(f *os.File) (bool, error) {
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

// Unlock gives the lock back.
func Unlock(f *os.File) error {
	at := lockedByte
	return windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, &at)
}

// SyncDir does nothing: a directory can't be synced here, and NTFS journals
// its names.
func SyncDir(string) error { return nil }
