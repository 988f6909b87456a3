package crash

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/codec"
	"github.com/idem-go/idem/internal/crash"
	"github.com/idem-go/idem/mockserver"
	"github.com/idem-go/idem/proof/rig"
)

// itemIDs are the IDs, and business values, of every batch.
var itemIDs = []string{rig.Value, "order-2", "order-3"}

// codecs are what a child and the recovery register.
func codecs(url string) map[string]idem.BatchCodec {
	return map[string]idem.BatchCodec{"json": codec.JSONArray{URL: url + "/batch", HonoursKeys: true}}
}

func makeBatch(c *idem.Client, b idem.Batch) error {
	b.Name = "run"
	b.Items = func(yield func(idem.Item, error) bool) {
		for _, id := range itemIDs {
			if !yield(idem.Item{ID: id, Body: fmt.Appendf(nil, `{"id":%q,"amount":500}`, id)}, nil) {
				return
			}
		}
	}
	for r, err := range c.Batch(context.Background(), b) {
		switch {
		case err != nil:
			return err
		case r.Err != nil:
			return fmt.Errorf("item %s: %w", r.ID, r.Err)
		}
	}
	return nil
}

// newServer is a provider for a kind of call.
func newServer(t *testing.T, kind string) *mockserver.Server {
	t.Helper()
	if kind == "Batch with a codec" {
		return mockserver.Start(t, &mockserver.Config{Batch: &mockserver.Batch{}})
	}
	return mockserver.Start(t, nil)
}

// A batch of three items makes two calls with the codec and three without: it dies in
// each of them.
func TestABatchThatDiesAnywhereHappensOnce(t *testing.T) {
	turn := 0
	for _, kind := range []string{"Batch with a codec", "Batch of requests"} {
		for point := crash.Uncommitted; point <= crash.Settled; point++ {
			for nth := 1; nth <= 3 && (nth < 3 || kind == "Batch of requests"); nth++ {
				ways := allWays[turn%len(allWays) : turn%len(allWays)+1]
				if os.Getenv("IDEM_CRASH") == "all" {
					ways = allWays
				}
				turn++
				for _, way := range ways {
					job := task{Kind: kind, Point: point, Nth: nth, Way: way}
					t.Run(fmt.Sprintf("%s/%s %d/%s", kind, pointNames[point], nth, way), func(t *testing.T) {
						t.Parallel()
						dieAndFindOut(t, job)
					})
				}
			}
		}
	}
}

// dieAndFindOut lets a child die, resumes, and makes the same call again. It returns
// whether the child died: one that has fewer commits than the job says survives.
func dieAndFindOut(t *testing.T, job task) (died bool) {
	t.Helper()
	srv := newServer(t, job.Kind)
	job.URL = srv.URL
	if job.Journal == "" {
		job.Journal = filepath.Join(t.TempDir(), "journal")
	}
	if slices.Contains([]string{"Resume", "Run", "Settle"}, job.Kind) {
		job.Key = lose(t, srv, job.Journal)
	}
	died = true
	if job.Commit > 0 || job.Call > 0 {
		died = mayDie(t, job)
	} else {
		runToDeath(t, job)
	}

	opts := rig.Options()
	opts.Codecs = codecs(srv.URL)
	c, err := rig.Open(job.Journal, opts)
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Resume(context.Background(), nil)
	require.NoError(t, err)
	findOut(t, srv, c, job)
	return died
}

// findOut checks the ledger after Resume, and again after the call is made once
// more by a caller who doesn't know.
func findOut(t *testing.T, srv *mockserver.Server, c *idem.Client, job task) {
	t.Helper()
	if job.Kind == "Reserve" {
		require.NoError(t, callOf[job.Kind](c, srv.URL))
		rig.Ledger(t, srv, rig.Value, 0)
		return
	}
	require.Zero(t, rig.Pending(c), "nothing stays Pending")
	srv.Wait()
	require.LessOrEqual(t, srv.Effects(rig.Value), 1, rig.Story(srv, rig.Value))
	switch job.Kind {
	case "Do anonymous": // made again, it is another intent
		return
	case "Settle": // whoever settled it as Done is believed
		require.NoError(t, callOf["Do named"](c, srv.URL))
		require.LessOrEqual(t, srv.Effects(rig.Value), 1)
		return
	case "Resume", "Run", "Enqueue, Run":
		require.NoError(t, callOf["Do named"](c, srv.URL))
		rig.Ledger(t, srv, rig.Value, 1)
		return
	}
	require.NoError(t, callOf[job.Kind](c, srv.URL))
	for _, id := range itemIDs {
		switch job.Kind {
		case "Batch with a codec":
			require.Equal(t, 1, srv.Effects(id), "effects of item %s", id)
			require.Len(t, srv.ItemKeys(id), 1, "keys of item %s", id)
		case "Batch of requests":
			rig.Ledger(t, srv, id, 1)
		}
	}
	if job.Kind != "Batch with a codec" {
		rig.Ledger(t, srv, rig.Value, 1)
	}
}
