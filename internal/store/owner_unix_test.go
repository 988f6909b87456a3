//go:build unix

package store_test

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A person who compacts a service's journal must not take it away from the service.
func TestCompactKeepsTheFilesOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	path := journalPath(t)
	ks := openJournal(t, path, nil)
	require.NoError(t, os.Chown(path, 1234, 1235))
	require.NoError(t, os.Chmod(path, 0o640))
	require.NoError(t, ks.Compact(t.Context()))
	info, err := os.Stat(path)
	require.NoError(t, err)
	s := info.Sys().(*syscall.Stat_t)
	require.Equal(t, []uint32{1234, 1235}, []uint32{s.Uid, s.Gid})
	require.Equal(t, os.FileMode(0o640), info.Mode())
}
