package crash

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
)

// kinds are the kinds of call that die at every write of the journal.
var kinds = []string{
	"Do named", "Do anonymous", "Do with key", "Transport with an SDK's key", "Enqueue, Run", "Resume", "Run", "Settle", "Reserve",
	"Batch with a codec", "Batch of requests",
}

// deadlyKeystore is a journal that kills the process at a commit.
type deadlyKeystore struct {
	idem.Keystore
	job   task
	count int // of one goroutine's commits; several at once count as they come
	turn  chan struct{}
}

func (k *deadlyKeystore) Commit(ctx context.Context, changes ...keystore.Change) error {
	k.turn <- struct{}{}
	defer func() { <-k.turn }()
	k.count++
	here := k.count == k.job.Commit
	if here && !k.job.After {
		die(k.job.Way)
	}
	err := k.Keystore.Commit(ctx, changes...)
	if here && err == nil {
		die(k.job.Way)
	}
	return err
}

// dieAtCommit opens a client over such a journal.
func dieAtCommit(job task, opts *idem.Options) (*idem.Client, error) {
	ks, err := idem.OpenKeystore(job.Journal, nil)
	if err != nil {
		return nil, err
	}
	return idem.New(&deadlyKeystore{Keystore: ks, job: job, turn: make(chan struct{}, 1)}, opts)
}

// mayDie lets a child run to its death or its end.
func mayDie(t *testing.T, job task) (died bool) {
	t.Helper()
	out, err := spawn(t, job).CombinedOutput()
	require.NotContains(t, string(out), "DATA RACE")
	var exit *exec.ExitError
	if err == nil || !errors.As(err, &exit) {
		require.NoError(t, err, "%s", out)
		return false
	}
	require.NotContains(t, []int{3, 4}, exit.ExitCode(), "the child failed: %s", out)
	return true
}

// Between two points there may be several commits, and a call may have more of them than
// anybody thinks: each kind of call dies at its first, its second, and so on until it
// survives.
func TestACallThatDiesAtAnyCommitHappensOnce(t *testing.T) {
	for _, kind := range kinds {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, durable %v", kind, after), func(t *testing.T) {
				t.Parallel()
				commits := 0
				for {
					way := allWays[commits%len(allWays)]
					job := task{Kind: kind, Commit: commits + 1, After: after, Way: way, Journal: filepath.Join(t.TempDir(), "journal")}
					if !dieAndFindOut(t, job) {
						break
					}
					commits++
				}
				require.NotZero(t, commits)
				t.Logf("died at each of %d commits", commits)
			})
		}
	}
}
