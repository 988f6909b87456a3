package idem_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
)

const (
	crashPayments = 40
	crashKills    = 15
)

func crashPayment(i int) (name, value, body string) {
	name = fmt.Sprintf("invoice-%d", i)
	return name, name, fmt.Sprintf(`{"id":%q,"amount":%d}`, name, 100+i)
}

// crashSeed is IDEM_SEED, or new; it is printed, so that a failure can be repeated
// as far as a kill can.
func crashSeed(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("IDEM_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("IDEM_SEED=%d", seed)
	return seed
}

// crashWork is a worker that pays all payments over and over, in an order of its
// own each time, a few at once, until each is Done. It never stops of itself: it is
// killed.
func crashWork(job crashJob) int {
	opts := crashOptions()
	opts.Retry.MaxAttempts = 3
	opts.Retry.AttemptTimeout = 200 * time.Millisecond
	c, err := crashOpen(job.Journal, opts)
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
					name, _, body := crashPayment(i)
					ctx := idem.WithIntent(context.Background(), name)
					_ = crashDo(c, crashRequest(ctx, job.URL, body)) // the next life, or round, finds out
				}
			})
		}
		for _, i := range rand.Perm(crashPayments) {
			work <- i
		}
		close(work)
		workers.Wait()
	}
}

func TestAWorkerKilledAtRandomPaysEachInvoiceOnce(t *testing.T) {
	seed := crashSeed(t)
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
	for life := range crashKills {
		cmd := crashSpawn(t, crashJob{Kind: crashWorker, Journal: journal, URL: srv.URL, Nth: life})
		require.NoError(t, cmd.Start())
		if random.IntN(4) > 0 { // the others may die while they still open the journal
			crashAwaitRequest(t, srv)
		}
		time.Sleep(time.Duration(random.IntN(100_000)) * time.Microsecond)
		require.NoError(t, cmd.Process.Kill())
		require.Error(t, cmd.Wait())
	}
	t.Logf("%d requests, %d effects", len(srv.Requests()), srv.Total())

	srv.Heal()
	c, err := crashOpen(journal, crashOptions())
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Resume(context.Background(), nil)
	require.NoError(t, err)
	require.Zero(t, crashPending(c), "nothing stays Pending")
	for i := range crashPayments {
		name, value, body := crashPayment(i)
		require.NoError(t, crashDo(c, crashRequest(idem.WithIntent(context.Background(), name), srv.URL, body)))
		crashLedger(t, srv, value, 1)
	}
	require.Equal(t, crashPayments, srv.Total())
	require.Zero(t, crashPending(c))
}

// crashAwaitRequest waits for the first request of a new life, if there is anything
// left to send.
func crashAwaitRequest(t *testing.T, srv *mockserver.Server) {
	t.Helper()
	arrived := len(srv.Requests())
	require.Eventually(t, func() bool {
		return len(srv.Requests()) > arrived || srv.Total() == crashPayments
	}, 20*time.Second, time.Millisecond, "the worker sent nothing")
}
