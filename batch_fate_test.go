package idem_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

// modelBatch runs a batch of n items against replies, one a call, the last for ever,
// and expects that no item is told otherwise than it is.
func modelBatch(t *testing.T, n int, change func(*idem.Options), replies ...func(b *bank, lines []payoutLine) (int, any)) (map[string]idem.ItemResult, *bank) {
	t.Helper()
	var b *bank
	b = newBank(func(i int, lines []payoutLine) (int, any, error) {
		status, answer := replies[min(i, len(replies))-1](b, lines)
		return status, answer, nil
	})
	bench := newBatchBench(t, b, true)
	require.NoError(t, bench.client.Close())
	if change != nil {
		change(bench.opts)
	}
	bench.open()
	got, err := bench.run(items(n), 10)
	require.NoError(t, err)
	for id, r := range got {
		require.LessOrEqual(t, b.paid[id], 1, id)
		require.False(t, r.Fate == idem.FateDone && b.paid[id] == 0, "%s is Done and wasn't paid", id)
		require.False(t, r.Fate == idem.FateNotDone && b.paid[id] == 1, "%s is NotDone and was paid: %v", id, r.Err)
	}
	return got, b
}

// modelBroken pays and says of each item that something broke.
func modelBroken(b *bank, lines []payoutLine) (int, any) {
	out := b.pay(lines)
	for i := range out {
		out[i].Status = "broken"
	}
	return 200, out
}

func modelKeyFirst(o *idem.Options) { o.Dialect = idem.Dialect{KeyFirst: true} }

func TestA200ThatLeavesTheOnlyItemOpenIsNotDone(t *testing.T) {
	for name, answer := range map[string]any{
		"missing": []payoutLine{},
		"broken":  []payoutLine{{ID: "p000", Status: "broken"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got, _ := modelBatch(t, 1, nil, func(*bank, []payoutLine) (int, any) { return 200, answer })
				require.Equal(t, idem.FateUnknown, got["p000"].Fate)
			})
		})
	}
}

func TestAThrottledItemSaysNothingOfAnEarlierCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got, _ := modelBatch(t, 2, modelKeyFirst,
			func(b *bank, lines []payoutLine) (int, any) {
				_, answer := modelBroken(b, lines[:1]) // paid
				return 200, append(answer.([]payoutLine), b.pay(lines[1:])...)
			},
			func(_ *bank, lines []payoutLine) (int, any) {
				return 200, []payoutLine{{ID: lines[0].ID, Status: "throttled"}}
			})
		require.Equal(t, idem.FateUnknown, got["p000"].Fate)
	})
}

func TestARefusedCallSettlesNoItemOfAnEarlierCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got, _ := modelBatch(t, 3, modelKeyFirst,
			func(b *bank, lines []payoutLine) (int, any) {
				_, answer := modelBroken(b, lines[:2])
				return 200, append(answer.([]payoutLine), b.pay(lines[2:])...)
			},
			func(*bank, []payoutLine) (int, any) { return 402, map[string]string{"error": "no funds"} })
		require.Equal(t, idem.FateUnknown, got["p000"].Fate)
	})
}

// modelCut cuts every answer short, which its length tells.
type modelCut struct{ *bank }

func (c modelCut) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := c.bank.RoundTrip(req)
	if err == nil {
		resp.ContentLength++
	}
	return resp, err
}

func TestACallsAnswerCutShortIsDoneForNoItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got, _ := modelBatch(t, 2, func(o *idem.Options) { o.Base = modelCut{o.Base.(*bank)} },
			func(b *bank, lines []payoutLine) (int, any) {
				return 200, append(b.pay(lines[:1]), payoutLine{ID: lines[1].ID, Status: "refused"})
			})
		require.Equal(t, idem.FateUnknown, got["p000"].Fate)
		require.Equal(t, idem.FateUnknown, got["p001"].Fate)
	})
}

func TestAKeyInTheContextOfResumeIsNotACalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *bank
		down := true
		b = newBank(func(_ int, lines []payoutLine) (int, any, error) {
			out := b.pay(lines)
			if down {
				return 0, nil, fmt.Errorf("the answer is lost")
			}
			if len(lines) > 1 {
				out = out[:1] // the rest goes into another call
			}
			return 200, out, nil
		})
		bench := newBatchBench(t, b, true)
		_, err := bench.run(items(3), 10)
		require.NoError(t, err)
		down = false
		bench.reopen()
		key := idem.DeriveKey("orders", "1")
		report, err := bench.client.Resume(idem.WithKey(context.Background(), key), nil)
		require.NoError(t, err)
		require.Equal(t, 3, report.Done)
		require.NotContains(t, b.keys, string(key))
	})
}
