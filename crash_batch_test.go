package idem_test

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
	"github.com/idem-go/idem/mockserver"
)

// crashItems are the IDs, and business values, of every batch.
var crashItems = []string{crashValue, "order-2", "order-3"}

// crashCodecs are what a child and the recovery register.
func crashCodecs(url string) map[string]idem.BatchCodec {
	return map[string]idem.BatchCodec{"json": codec.JSONArray{URL: url + "/batch", HonoursKeys: true}}
}

func crashBatch(c *idem.Client, b idem.Batch) error {
	b.Name = "run"
	b.Items = func(yield func(idem.Item, error) bool) {
		for _, id := range crashItems {
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

// crashServer is a provider for a kind of call.
func crashServer(t *testing.T, kind string) *mockserver.Server {
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
		for point := idem.PointUncommitted; point <= idem.PointSettled; point++ {
			for nth := 1; nth <= 3 && (nth < 3 || kind == "Batch of requests"); nth++ {
				ways := crashWays[turn%len(crashWays) : turn%len(crashWays)+1]
				if os.Getenv("IDEM_CRASH") == "all" {
					ways = crashWays
				}
				turn++
				for _, way := range ways {
					job := crashJob{Kind: kind, Point: point, Nth: nth, Way: way}
					t.Run(fmt.Sprintf("%s/%s %d/%s", kind, crashPoints[point], nth, way), func(t *testing.T) {
						t.Parallel()
						crashAndFindOut(t, job)
					})
				}
			}
		}
	}
}

// crashAndFindOut lets a child die, resumes, and makes the same call again. It returns
// whether the child died: one that has fewer commits than the job says survives.
func crashAndFindOut(t *testing.T, job crashJob) (died bool) {
	t.Helper()
	srv := crashServer(t, job.Kind)
	job.URL = srv.URL
	if job.Journal == "" {
		job.Journal = filepath.Join(t.TempDir(), "journal")
	}
	if slices.Contains([]string{"Resume", "Run", "Settle"}, job.Kind) {
		job.Key = crashLose(t, srv, job.Journal)
	}
	died = true
	if job.Commit > 0 || job.Call > 0 {
		died = crashMayDie(t, job)
	} else {
		crashRunChild(t, job)
	}

	opts := crashOptions()
	opts.Codecs = crashCodecs(srv.URL)
	c, err := crashOpen(job.Journal, opts)
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Resume(context.Background(), nil)
	require.NoError(t, err)
	crashFindOut(t, srv, c, job)
	return died
}

// crashFindOut checks the ledger after Resume, and again after the call is made once
// more by a caller who doesn't know.
func crashFindOut(t *testing.T, srv *mockserver.Server, c *idem.Client, job crashJob) {
	t.Helper()
	if job.Kind == "Reserve" {
		require.NoError(t, crashCalls[job.Kind](c, srv.URL))
		crashLedger(t, srv, crashValue, 0)
		return
	}
	require.Zero(t, crashPending(c), "nothing stays Pending")
	srv.Wait()
	require.LessOrEqual(t, srv.Effects(crashValue), 1, crashStory(srv, crashValue))
	switch job.Kind {
	case "Do anonymous": // made again, it is another intent
		return
	case "Settle": // whoever settled it as Done is believed
		require.NoError(t, crashCalls["Do named"](c, srv.URL))
		require.LessOrEqual(t, srv.Effects(crashValue), 1)
		return
	case "Resume", "Run", "Enqueue, Run":
		require.NoError(t, crashCalls["Do named"](c, srv.URL))
		crashLedger(t, srv, crashValue, 1)
		return
	}
	require.NoError(t, crashCalls[job.Kind](c, srv.URL))
	for _, id := range crashItems {
		switch job.Kind {
		case "Batch with a codec":
			require.Equal(t, 1, srv.Effects(id), "effects of item %s", id)
			require.Len(t, srv.ItemKeys(id), 1, "keys of item %s", id)
		case "Batch of requests":
			crashLedger(t, srv, id, 1)
		}
	}
	if job.Kind != "Batch with a codec" {
		crashLedger(t, srv, crashValue, 1)
	}
}
