package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
	"github.com/idem-go/idem/proof/rig"
)

const (
	invoices = 40
	kills    = 15
)

func invoice(i int) (name, value, body string) {
	name = fmt.Sprintf("invoice-%d", i)
	return name, name, fmt.Sprintf(`{"id":%q,"amount":%d}`, name, 100+i)
}

// workerLife is a worker that pays all payments over and over, in an order of its
// own each time, a few at once, until each is Done. It never stops of itself: it is
// killed.
func workerLife(job task) int {
	opts := rig.Options()
	opts.Retry.MaxAttempts = 3
	opts.Retry.AttemptTimeout = 200 * time.Millisecond
	c, err := rig.Open(job.Journal, opts)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 4
	}
	if job.Nth%2 == 0 { // every other life begins with what the last one left
		_, _ = c.Resume(context.Background(), nil)
	}
	for {
		work := make(chan int)
		var workers sync.WaitGroup
		for range 2 {
			workers.Go(func() {
				for i := range work {
					name, _, body := invoice(i)
					ctx := idem.WithIntent(context.Background(), name)
					_ = rig.Do(c, rig.Request(ctx, job.URL, body)) // the next life, or round, finds out
				}
			})
		}
		for _, i := range rand.Perm(invoices) {
			work <- i
		}
		close(work)
		workers.Wait()
	}
}

func TestAWorkerKilledAtRandomPaysEachInvoiceOnce(t *testing.T) {
	seed := rig.Seed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	srv := mockserver.Start(t, &mockserver.Config{
		Seed: seed, Rate: 0.7,
		Faults: []mockserver.Fault{
			{Kind: mockserver.FaultDrop, Weight: 2},
			{Kind: mockserver.FaultReset, Weight: 2},
			{Kind: mockserver.FaultReset, After: true, Weight: 2},
			{Kind: mockserver.FaultCut},
			{Kind: mockserver.FaultHang},
			{Kind: mockserver.FaultStatus, Status: 503, Weight: 2},
			{Kind: mockserver.FaultStatus, Status: 503, After: true},
			{Kind: mockserver.FaultStatus, Status: 429},
			{Kind: mockserver.FaultDelay, Delay: 60 * time.Millisecond},
			{Kind: mockserver.FaultDelay, Delay: 60 * time.Millisecond, After: true},
			{Kind: mockserver.FaultLate, Delay: 300 * time.Millisecond},
		},
	})
	journal := filepath.Join(t.TempDir(), "journal")
	for life := range kills {
		cmd := spawn(t, task{Kind: workerKind, Journal: journal, URL: srv.URL, Nth: life})
		require.NoError(t, cmd.Start())
		if random.IntN(4) > 0 { // the others may die while they still open the journal
			awaitRequest(t, srv)
		}
		time.Sleep(time.Duration(random.IntN(100_000)) * time.Microsecond)
		require.NoError(t, cmd.Process.Kill())
		require.Error(t, cmd.Wait())
	}
	t.Logf("%d requests, %d effects", len(srv.Requests()), srv.Total())

	srv.Heal()
	c, err := rig.Open(journal, rig.Options())
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Resume(context.Background(), nil)
	require.NoError(t, err)
	require.Zero(t, rig.Pending(c), "nothing stays Pending")
	for i := range invoices {
		name, value, body := invoice(i)
		require.NoError(t, rig.Do(c, rig.Request(idem.WithIntent(context.Background(), name), srv.URL, body)))
		rig.Ledger(t, srv, value, 1)
	}
	require.Equal(t, invoices, srv.Total())
	require.Zero(t, rig.Pending(c))
}

// awaitRequest waits for the first request of a new life, if there is anything
// left to send.
func awaitRequest(t *testing.T, srv *mockserver.Server) {
	t.Helper()
	arrived := len(srv.Requests())
	require.Eventually(t, func() bool {
		return len(srv.Requests()) > arrived || srv.Total() == invoices
	}, 20*time.Second, time.Millisecond, "the worker sent nothing")
}
