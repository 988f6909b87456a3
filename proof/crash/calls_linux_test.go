//go:build linux && (amd64 || arm64)

package crash

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/proof/rig"
	"github.com/idem-go/idem/proof/syscalls"
)

// unwatched is what a child says where it can't watch its own calls.
const unwatched = "system calls can't be watched here"

// dieAtCall makes this process die in place of its nth call to the system that changes
// one of the journal's files, or makes it durable.
func dieAtCall(job task) error {
	dir, err := filepath.EvalSymlinks(filepath.Dir(job.Journal))
	if err != nil {
		return err
	}
	calls := 0
	err = syscalls.Watch(dir, func(syscalls.Op) unix.Errno {
		if calls++; calls == job.Call {
			return syscalls.Dies
		}
		return 0
	})
	if err != nil {
		fmt.Println(unwatched, err)
		os.Exit(0)
	}
	return nil
}

// A process dies between any two writes and syncs of its journal: of its creation, and of
// each kind of call over one that exists.
func TestACallThatDiesAtAnyWriteOrSyncHappensOnce(t *testing.T) {
	out, err := spawn(t, task{Kind: "Resume", Journal: filepath.Join(t.TempDir(), "journal"), Call: 1 << 30}).CombinedOutput()
	require.NoError(t, err, "%s", out)
	if len(out) > 0 {
		t.Skipf("%s", out)
	}
	for _, kind := range append([]string{"creation"}, kinds...) {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			calls := dieAtEachCall(t, kind)
			t.Logf("died in place of each of %d writes and syncs", calls)
			require.NotZero(t, calls)
		})
	}
}

// dieAtEachCall returns how many calls there are.
func dieAtEachCall(t *testing.T, kind string) (calls int) {
	t.Helper()
	dir := rig.FastDir(t) // what a dead process wrote is there all the same
	for ; ; calls++ {
		job := task{Kind: kind, Way: byKill, Call: calls + 1, Journal: filepath.Join(dir, fmt.Sprint(calls), "journal")}
		require.NoError(t, os.Mkdir(filepath.Dir(job.Journal), 0o700))
		if kind == "creation" {
			job.Kind = "Do named"
		} else {
			c, err := idem.Open(job.Journal, rig.Options())
			require.NoError(t, err)
			require.NoError(t, c.Close())
		}
		if !dieAndFindOut(t, job) {
			return calls
		}
	}
}
