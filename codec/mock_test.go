package codec_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/codec"
	"github.com/idem-go/idem/mockserver"
	"github.com/stretchr/testify/require"
)

// anything is what may become of an item.
var anything = []mockserver.ItemOutcome{
	mockserver.ItemRefuse, mockserver.ItemThrottle, mockserver.ItemBreak, mockserver.ItemBreakAfter,
	mockserver.ItemSkip, mockserver.ItemLose, mockserver.ItemTwice,
}

// What a codec says of the provider's answers is true, whatever becomes of the
// items: sending again what isn't settled makes everything happen once.
func TestEveryItemHappensOnceOrIsRefused(t *testing.T) {
	const ledger = "https://ledger.example.com/v2/main/_bulk"
	for name, c := range map[string]struct {
		codec idem.BatchCodec
		mock  mockserver.Batch
	}{
		"json":            {codec.JSONArray{URL: url, HonoursKeys: true}, mockserver.Batch{Status: 207, StopAtFailure: true}},
		"json in objects": {codec.JSONArray{URL: url, Array: "items", Results: "results"}, mockserver.Batch{Status: 400}},
		"ndjson":          {codec.NDJSON{URL: url}, mockserver.Batch{Format: mockserver.BatchNDJSON}},
		"sqs":             {codec.SQS{QueueURL: queue + ".fifo", FIFO: true}, mockserver.Batch{Format: mockserver.BatchSQS}},
		"graph":           {codec.Graph{Path: "/me/events", Key: "body.transactionId"}, mockserver.Batch{Format: mockserver.BatchGraph}},
		"formance":        {codec.FormanceBulk{URL: ledger, Action: "X"}, mockserver.Batch{Format: mockserver.BatchFormance}},
		"formance continued": {codec.FormanceBulk{URL: ledger, Action: "X", ContinueOnFailure: true},
			mockserver.Batch{Format: mockserver.BatchFormance}},
		"formance atomic": {codec.FormanceBulk{URL: ledger, Action: "X", Atomic: true}, mockserver.Batch{Format: mockserver.BatchFormance}},
	} {
		for seed := range uint64(20) {
			t.Run(fmt.Sprint(name, " seed ", seed), func(t *testing.T) {
				mock := c.mock
				mock.Seed, mock.Outcomes, mock.Shuffle, mock.Foreign = seed, anything, true, 1
				mock.Value = func(it mockserver.BatchItem) string { return it.Key }
				api := mockserver.New(&mockserver.Config{Batch: &mock})
				t.Cleanup(api.Close)
				drive(t, api, c.codec, items("a", "b b", "ü", "D", "e", "f", "g"))
			})
		}
	}
}

// drive sends what isn't settled until everything is, and compares what the codec
// says with what happened.
func drive(t *testing.T, api *mockserver.Server, c idem.BatchCodec, open []idem.KeyedItem) {
	t.Helper()
	for call := 0; len(open) > 0; call++ {
		require.Less(t, call, 200, "still open: %v", open)
		before := map[idem.Key]int{}
		for _, it := range open {
			before[it.Key] = api.Effects(string(it.Key))
		}
		settled := map[idem.Key]bool{}
		for _, r := range send(t, api, c, open) {
			if r.Key == "" {
				require.Equal(t, "foreign-1", r.ID)
				continue
			}
			effects := api.Effects(string(r.Key))
			switch {
			case r.Fate == idem.FateDone:
				require.Equal(t, 1, effects, "%s is said to be done", r.ID)
				settled[r.Key] = true
			case r.Fate == idem.FateNotDone && r.Retry:
				require.Equal(t, before[r.Key], effects, "%s is said not to have happened in this call", r.ID)
			case r.Fate == idem.FateNotDone:
				require.Zero(t, effects, "%s is said to be refused", r.ID)
				settled[r.Key] = true
			}
		}
		open = slices.DeleteFunc(open, func(it idem.KeyedItem) bool { return settled[it.Key] })
	}
}

func send(t *testing.T, api *mockserver.Server, c idem.BatchCodec, list []idem.KeyedItem) []idem.ItemResult {
	t.Helper()
	req, err := c.Encode(context.Background(), list)
	require.NoError(t, err)
	resp, err := (&http.Client{Transport: api.Transport()}).Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	results, err := c.Decode(resp, list)
	require.NoError(t, err)
	return results
}
