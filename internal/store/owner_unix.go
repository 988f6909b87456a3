//go:build unix

package store

import (
	"os"
	"syscall"
)

// likeOwner gives a new file the owner and the mode of another.
func likeOwner(f *os.File, of os.FileInfo) error {
	if want, ok := of.Sys().(*syscall.Stat_t); ok {
		info, err := f.Stat()
		if err != nil {
			return err
		}
		have, ok := info.Sys().(*syscall.Stat_t)
		if !ok || have.Uid != want.Uid || have.Gid != want.Gid {
			if err := f.Chown(int(want.Uid), int(want.Gid)); err != nil {
				return err
			}
		}
	}
	return f.Chmod(of.Mode().Perm()) // after Chown, which may take bits away
}

// names returns how many names a file has, 0 if that can't be told.
func names(info os.FileInfo) uint64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(s.Nlink)
	}
	return 0
}
