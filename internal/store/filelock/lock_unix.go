//go:build unix && !solaris && !aix

package filelock

import (
	"errors"
	"os"
	"syscall"
)

// OutlivesOpen says that bbolt, given a file that is locked already, can
// lock it again.
const OutlivesOpen = true

// Try takes the lock that bbolt takes, without waiting.
func Try(f *os.File) (bool, error) {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, syscall.EINTR):
			return false, &os.PathError{Op: "flock", Path: f.Name(), Err: err}
		}
	}
}

// Unlock gives the lock back.
func Unlock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }

// SyncDir makes the names in a directory durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	return errors.Join(err, d.Close())
}
