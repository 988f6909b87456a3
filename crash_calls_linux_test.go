//go:build linux && (amd64 || arm64)

package idem_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/idem-go/idem"
)

// crashUnwatched is what a child says where it can't watch its own calls.
const crashUnwatched = "system calls can't be watched here"

// crashAtCall makes this process die in place of its nth call to the system that changes
// one of the journal's files, or makes it durable.
func crashAtCall(job crashJob) error {
	dir, err := filepath.EvalSymlinks(filepath.Dir(job.Journal))
	if err != nil {
		return err
	}
	calls := 0
	err = powerTrace(dir, func(powerOp) unix.Errno {
		if calls++; calls == job.Call {
			return powerDies
		}
		return 0
	})
	if err != nil {
		fmt.Println(crashUnwatched, err)
		os.Exit(0)
	}
	return nil
}

// A process dies between any two writes and syncs of its journal: of its creation, and of
// each kind of call over one that exists.
func TestACallThatDiesAtAnyWriteOrSyncHappensOnce(t *testing.T) {
	out, err := crashSpawn(t, crashJob{Kind: "Resume", Journal: filepath.Join(t.TempDir(), "journal"), Call: 1 << 30}).CombinedOutput()
	require.NoError(t, err, "%s", out)
	if len(out) > 0 {
		t.Skipf("%s", out)
	}
	for _, kind := range append([]string{"creation"}, crashKinds...) {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			calls := crashAtEachCall(t, kind)
			t.Logf("died in place of each of %d writes and syncs", calls)
			require.NotZero(t, calls)
		})
	}
}

// crashAtEachCall returns how many calls there are.
func crashAtEachCall(t *testing.T, kind string) (calls int) {
	t.Helper()
	dir := fastDir(t) // what a dead process wrote is there all the same
	for ; ; calls++ {
		job := crashJob{Kind: kind, Way: crashKill, Call: calls + 1, Journal: filepath.Join(dir, fmt.Sprint(calls), "journal")}
		require.NoError(t, os.Mkdir(filepath.Dir(job.Journal), 0o700))
		if kind == "creation" {
			job.Kind = "Do named"
		} else {
			c, err := idem.Open(job.Journal, crashOptions())
			require.NoError(t, err)
			require.NoError(t, c.Close())
		}
		if !crashAndFindOut(t, job) {
			return calls
		}
	}
}
