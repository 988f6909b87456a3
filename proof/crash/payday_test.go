package crash

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/codec"
	"github.com/idem-go/idem/internal/crash"
	"github.com/idem-go/idem/mockserver"
	"github.com/idem-go/idem/proof/rig"
)

// batchKind is the kind of a child that runs a batch. With Nth 0 it runs it over and
// over, in an order of its own each time, until it is killed.
const batchKind = "batch"

func batchOptions(url string) *idem.Options {
	opts := rig.Options()
	opts.Retry.AttemptTimeout = 300 * time.Millisecond
	opts.Codecs = map[string]idem.BatchCodec{"bank": codec.JSONArray{URL: url + "/payouts", HonoursKeys: true}}
	return opts
}

func batchItems(n int) []idem.Item {
	list := make([]idem.Item, n)
	for i := range list {
		list[i] = idem.Item{ID: fmt.Sprintf("item-%02d", i), Body: fmt.Appendf(nil, `{"amount":%d}`, 100+i)}
	}
	return list
}

func batchOf(c *idem.Client, in []idem.Item, size int) iter.Seq2[idem.ItemResult, error] {
	return c.Batch(context.Background(), idem.Batch{Name: "payday", Items: idem.Items(in...), Codec: "bank", MaxItems: size, Concurrency: 1})
}

func batchLife(job task) int {
	if job.Nth > 0 {
		arm(job)
	}
	c, err := rig.Open(job.Journal, batchOptions(job.URL))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 4
	}
	for again := true; again; again = job.Nth == 0 {
		in, size := batchItems(6), 3
		if job.Nth == 0 {
			in, size = batchItems(60), 1+rand.IntN(12)
			rand.Shuffle(len(in), func(i, j int) { in[i], in[j] = in[j], in[i] })
			if rand.IntN(3) == 0 {
				_, err = c.Resume(context.Background(), nil)
			}
		}
		for _, failed := range batchOf(c, in, size) {
			err = failed
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 5
		}
	}
	return survived
}

// batchEnds recovers a batch and holds what is said against what happened.
func batchEnds(t *testing.T, srv *mockserver.Server, journal string, in []idem.Item, resume bool) (done int) {
	t.Helper()
	c, err := rig.Open(journal, batchOptions(srv.URL))
	require.NoError(t, err)
	defer c.Close()
	if resume {
		_, err := c.Resume(context.Background(), nil)
		require.NoError(t, err)
	}
	slices.Reverse(in)
	said := 0
	for r, err := range batchOf(c, in, 4) {
		if err != nil {
			require.ErrorContains(t, err, "didn't carry") // the bank mixes foreign items in
			continue
		}
		srv.Wait()
		said++
		want := 0
		if r.Fate == idem.FateDone {
			want = 1
			done++
		} else {
			require.Equal(t, idem.FateNotDone, r.Fate, "%s: %v", r.ID, r.Err)
		}
		require.Equal(t, want, srv.Effects(r.ID), "effects of %s", r.ID)
		require.Equal(t, []string{string(r.Key)}, srv.ItemKeys(r.ID))
	}
	require.Equal(t, len(in), said)
	require.Zero(t, rig.Pending(c))
	return done
}

// Each point is died at in the first call, in the one that goes on with the rest of its
// answer, and in the second.
func TestABatchThatDiesAnywherePaysEachItemOnce(t *testing.T) {
	turn := 0
	for point, times := range map[crash.Point]int{
		crash.Uncommitted: 2, crash.Committed: 2, // calls that go on are begun by the end of the one before
		crash.Sent: 3, crash.Answered: 3, crash.Settled: 3,
	} {
		for nth := 1; nth <= times; nth++ {
			way, resume := allWays[turn%len(allWays)], turn%2 == 0
			turn++
			t.Run(fmt.Sprintf("%s %d/%s/resume %v", pointNames[point], nth, way, resume), func(t *testing.T) {
				t.Parallel()
				srv := mockserver.Start(t, &mockserver.Config{Batch: &mockserver.Batch{Script: map[string][]mockserver.ItemOutcome{
					"item-01": {mockserver.ItemLose}, "item-02": {mockserver.ItemThrottle}, "item-04": {mockserver.ItemSkip},
				}}})
				job := task{Kind: batchKind, Journal: filepath.Join(t.TempDir(), "journal"), URL: srv.URL, Point: point, Nth: nth, Way: way}
				runToDeath(t, job)
				require.Equal(t, 6, batchEnds(t, srv, job.Journal, batchItems(6), resume))
			})
		}
	}
}

func TestABatchKilledAtRandomPaysEachItemOnce(t *testing.T) {
	seed := rig.Seed(t)
	random := rand.New(rand.NewPCG(seed, 1))
	srv := mockserver.Start(t, &mockserver.Config{
		Seed: seed, Rate: 0.4,
		Faults: []mockserver.Fault{
			{Kind: mockserver.FaultDrop}, {Kind: mockserver.FaultReset}, {Kind: mockserver.FaultReset, After: true}, {Kind: mockserver.FaultCut},
			{Kind: mockserver.FaultStatus, Status: 503}, {Kind: mockserver.FaultStatus, Status: 413},
			{Kind: mockserver.FaultDelay, Delay: 20 * time.Millisecond}, {Kind: mockserver.FaultDelay, Delay: 20 * time.Millisecond, After: true},
		},
		Batch: &mockserver.Batch{Seed: seed, Rate: 0.3, Shuffle: true, Foreign: 1, Outcomes: []mockserver.ItemOutcome{
			mockserver.ItemThrottle, mockserver.ItemBreak, mockserver.ItemBreakAfter, mockserver.ItemSkip, mockserver.ItemLose, mockserver.ItemTwice, mockserver.ItemContradict,
		}},
	})
	journal := filepath.Join(t.TempDir(), "journal")
	for range 10 {
		cmd := spawn(t, task{Kind: batchKind, Journal: journal, URL: srv.URL})
		require.NoError(t, cmd.Start())
		arrived := len(srv.Requests())
		require.Eventually(t, func() bool { return len(srv.Requests()) > arrived || srv.Total() == 60 }, 20*time.Second, time.Millisecond)
		time.Sleep(time.Duration(random.IntN(60_000)) * time.Microsecond)
		require.NoError(t, cmd.Process.Kill())
		require.Error(t, cmd.Wait())
	}
	t.Logf("%d requests, %d items arrived, %d effects", len(srv.Requests()), len(srv.Items()), srv.Total())
	srv.Heal()
	require.Equal(t, 60, batchEnds(t, srv, journal, batchItems(60), true))
	require.Equal(t, 60, srv.Total())
}
