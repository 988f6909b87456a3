package mockserver_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem/mockserver"
	"github.com/stretchr/testify/require"
)

// A client that only ever repeats under the same key gets there with one
// effect, whatever goes wrong and whoever else sends the same.
func TestUnderAllFaultsOneKeyIsOneEffect(t *testing.T) {
	for seed := uint64(1); seed <= 5; seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { soak(t, seed) })
		})
	}
}

func soak(t *testing.T, seed uint64) {
	c := inMemory(t, &mockserver.Config{Seed: seed, Rate: 0.7, Faults: []mockserver.Fault{
		{Kind: mockserver.FaultDelay, Delay: 3 * time.Second},
		{Kind: mockserver.FaultDelay, Delay: 3 * time.Second, After: true},
		{Kind: mockserver.FaultLate, Delay: time.Minute},
		{Kind: mockserver.FaultRefuse},
		{Kind: mockserver.FaultReset},
		{Kind: mockserver.FaultReset, After: true},
		{Kind: mockserver.FaultDrop},
		{Kind: mockserver.FaultHang},
		{Kind: mockserver.FaultCut},
		{Kind: mockserver.FaultCut, Framing: mockserver.FramingChunked},
		{Kind: mockserver.FaultCutHead},
		{Kind: mockserver.FaultStatus, Times: 2},
		{Kind: mockserver.FaultStatus, After: true},
		{Kind: mockserver.FaultInFlight},
		{Kind: mockserver.FaultRateLimit},
		{Kind: mockserver.FaultFail},
		{Kind: mockserver.FaultRestart, Weight: 0.2},
		{Kind: mockserver.FaultRestart, After: true, Weight: 0.2},
	}})
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() { insist(t, c, fmt.Sprint("o-", i/2)) })
	}
	wg.Wait()
	c.api.Wait()
	for _, v := range c.api.Values() {
		c.effects(1, v)
	}
	require.Equal(t, 20, c.api.Total())
}

// insist repeats until it is told that it happened.
func insist(t *testing.T, c *client, value string) {
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		resp, _, err := c.try(ctx, "key-of-"+value, order(value))
		cancel()
		if err == nil && resp.StatusCode == 201 {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}
