//go:build linux && (amd64 || arm64)

package disk

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/mockserver"
	"github.com/idem-go/idem/proof/rig"
)

// diskTmpfs mounts a small file system in memory.
func diskTmpfs(t *testing.T, size string) string {
	t.Helper()
	mountTools(t)
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size="+size, "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("mount: %s", out)
	}
	t.Cleanup(func() { _ = exec.Command("umount", dir).Run() })
	return dir
}

// diskBallast takes all the room that is left.
func diskBallast(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	require.NoError(t, err)
	defer f.Close()
	for page := make([]byte, 4096); err == nil; {
		_, err = f.Write(page)
	}
	require.True(t, errors.Is(err, syscall.ENOSPC), "%v", err)
}

func TestCallsUnderWayEndWellOnAFullDisk(t *testing.T) {
	dir := diskTmpfs(t, "2m")
	ks := openJournal(t, filepath.Join(dir, "journal"), nil)
	ballast := filepath.Join(dir, "ballast")
	diskIsFull(t, ks,
		func(c *idem.Client) []string {
			diskBallast(t, ballast)
			return diskFill(t, c) // pages of the journal that had room
		},
		func(*idem.Client, []string) { require.NoError(t, os.Remove(ballast)) })
}

func TestAReadOnlyFileSystemIsAnErrorAndNoDamage(t *testing.T) {
	dir := diskTmpfs(t, "2m")
	path := filepath.Join(dir, "journal")
	ks := openJournal(t, path, nil)
	kept := keystore.Record{Scope: "scope", Key: "key", Lane: keystore.LaneOpen, Rev: 1}
	require.NoError(t, ks.Commit(t.Context(), keystore.Change{Op: keystore.OpCreate, Record: kept}))
	require.NoError(t, ks.Close())
	remount := func(how string) {
		out, err := exec.Command("mount", "-o", "remount,"+how, dir).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	remount("ro")
	for _, p := range []string{path, filepath.Join(dir, "new")} {
		_, err := idem.OpenKeystore(p, nil)
		require.ErrorIs(t, err, syscall.EROFS)
		require.NotErrorIs(t, err, idem.ErrCorrupt)
		require.ErrorContains(t, err, p)
	}
	remount("rw")
	list, err := openJournal(t, path, nil).Read(t.Context(), keystore.Ref{Scope: "scope", Key: "key"})
	require.NoError(t, err)
	require.True(t, list[0].Found())
}

// A disk that fails under a client that goes on: nothing is sent that can't be written
// down, and what was sent before is found out when the disk is back.
func TestADiskThatFailsUnderAClientSendsNothingMore(t *testing.T) {
	dir, again := mountImage(t, "ext4")
	srv := mockserver.New(nil)
	defer srv.Close()
	opts := rig.Options()
	opts.Base = srv.Transport()
	path := filepath.Join(dir, "journal")
	c, err := idem.Open(path, opts)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, rig.Do(c, rig.Sized("before", 10)))
	mountShutdown(t, dir)
	for range 2 {
		err := rig.Do(c, rig.Sized("after", 10))
		require.Error(t, err)
		require.NotEqual(t, idem.FateDone, idem.FateOf(nil, err))
	}
	require.Empty(t, srv.Keys("after"))
	_ = c.Close()

	again()
	c, err = idem.Open(path, opts)
	require.NoError(t, err)
	defer c.Close()
	for _, name := range []string{"before", "after"} {
		require.NoError(t, rig.Do(c, rig.Sized(name, 10)))
		rig.Ledger(t, srv, name, 1)
	}
}
