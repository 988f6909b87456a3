package idem_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

// payouts is a codec in the common shape: an array in, an array out.
type payouts struct{ itemKeys bool }

type payoutLine struct {
	ID     string `json:"id"`
	Key    string `json:"key,omitempty"`
	Status string `json:"status,omitempty"`
	Amount int    `json:"amount,omitempty"`
}

func (p payouts) ItemKeys() bool { return p.itemKeys }

func (p payouts) Encode(ctx context.Context, items []idem.KeyedItem) (*http.Request, error) {
	lines := make([]payoutLine, len(items))
	for i, it := range items {
		if err := json.Unmarshal(it.Body, &lines[i]); err != nil {
			return nil, err
		}
		lines[i].ID, lines[i].Key = it.ID, string(it.Key)
	}
	b, err := json.Marshal(lines)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, "POST", "http://bank.example/payouts", bytes.NewReader(b))
	if err == nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, err
}

func (p payouts) Decode(resp *http.Response, items []idem.KeyedItem) ([]idem.ItemResult, error) {
	var lines []payoutLine
	if err := json.NewDecoder(resp.Body).Decode(&lines); err != nil {
		return nil, err
	}
	out := make([]idem.ItemResult, len(lines))
	for i, l := range lines {
		out[i] = idem.ItemResult{ID: l.ID, Status: resp.StatusCode}
		switch l.Status {
		case "paid":
			out[i].Fate = idem.FateDone
		case "refused":
			out[i].Fate = idem.FateNotDone
		case "throttled":
			out[i].Fate, out[i].Retry = idem.FateNotDone, true
		}
	}
	return out, nil
}

// bank applies payouts, once for each item key, and answers as a test says.
type bank struct {
	mu    sync.Mutex
	calls [][]payoutLine
	keys  []string
	paid  map[string]int             // effects by ID
	seen  map[string]string          // item key to ID
	of    map[string]map[string]bool // ID to keys
	reply func(n int, lines []payoutLine) (status int, body any, err error)
}

func newBank(reply func(n int, lines []payoutLine) (int, any, error)) *bank {
	return &bank{paid: map[string]int{}, seen: map[string]string{}, of: map[string]map[string]bool{}, reply: reply}
}

func (b *bank) pay(lines []payoutLine) []payoutLine {
	out := make([]payoutLine, len(lines))
	for i, l := range lines {
		if b.of[l.ID] == nil {
			b.of[l.ID] = map[string]bool{}
		}
		b.of[l.ID][l.Key] = true
		if _, twice := b.seen[l.Key]; !twice {
			b.seen[l.Key] = l.ID
			b.paid[l.ID]++
		}
		out[i] = payoutLine{ID: l.ID, Status: "paid"}
	}
	return out
}

func (b *bank) RoundTrip(req *http.Request) (*http.Response, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	body, _ := io.ReadAll(req.Body)
	var lines []payoutLine
	if err := json.Unmarshal(body, &lines); err != nil {
		return nil, err
	}
	b.calls = append(b.calls, lines)
	b.keys = append(b.keys, req.Header.Get("Idempotency-Key"))
	status, answer, err := b.reply(len(b.calls), lines)
	if err != nil {
		return nil, err
	}
	raw, ok := answer.([]byte)
	if !ok {
		raw, _ = json.Marshal(answer)
	}
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(raw)), ContentLength: int64(len(raw)), Request: req,
		ProtoMajor: 1, ProtoMinor: 1,
	}, nil
}

func items(n int) iter.Seq2[idem.Item, error] { return idem.Items(rows(n)...) }

func rows(n int) (out []idem.Item) {
	for i := range n {
		out = append(out, idem.Item{ID: fmt.Sprintf("p%03d", i), Body: fmt.Appendf(nil, `{"amount":%d}`, i+1)})
	}
	return out
}

type batchBench struct {
	t      *testing.T
	path   string
	opts   *idem.Options
	client *idem.Client
}

func newBatchBench(t *testing.T, b *bank, itemKeys bool) *batchBench {
	bench := &batchBench{t: t, path: filepath.Join(t.TempDir(), "j.db"), opts: &idem.Options{
		Base: b, Codecs: map[string]idem.BatchCodec{"payouts": payouts{itemKeys}},
	}}
	bench.open()
	t.Cleanup(func() { bench.client.Close() })
	return bench
}

func (b *batchBench) open() {
	c, err := idem.Open(b.path, b.opts)
	require.NoError(b.t, err)
	b.client = c
}

func (b *batchBench) reopen() {
	require.NoError(b.t, b.client.Close())
	b.open()
}

// run collects a batch's results by ID, each of which comes once.
func (b *batchBench) run(in iter.Seq2[idem.Item, error], max int) (map[string]idem.ItemResult, error) {
	out := map[string]idem.ItemResult{}
	var failed error
	for r, err := range b.client.Batch(context.Background(), idem.Batch{Name: "may", Items: in, Codec: "payouts", MaxItems: max, Concurrency: 1}) {
		if err != nil {
			failed = err
			continue
		}
		_, twice := out[r.ID]
		require.False(b.t, twice, "item %s was said twice", r.ID)
		out[r.ID] = r
	}
	return out, failed
}

func count(results map[string]idem.ItemResult, fate idem.Fate) int {
	n := 0
	for _, r := range results {
		if r.Fate == fate {
			n++
		}
	}
	return n
}

func (b *batchBench) pending() []idem.Entry {
	var out []idem.Entry
	for e, err := range b.client.Pending(context.Background()) {
		require.NoError(b.t, err)
		out = append(out, e)
	}
	return out
}

func TestEveryItemOfABatchIsPaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *bank
		b = newBank(func(_ int, lines []payoutLine) (int, any, error) { return 200, b.pay(lines), nil })
		bench := newBatchBench(t, b, true)
		got, err := bench.run(items(25), 10)
		require.NoError(t, err)
		require.Equal(t, 25, count(got, idem.FateDone))
		require.Len(t, b.calls, 3)
		require.Empty(t, bench.pending())

		again, err := bench.run(items(25), 7)
		require.NoError(t, err)
		require.Len(t, b.calls, 3, "a second run answers from the journal")
		for id, r := range again {
			require.True(t, r.Recalled)
			require.Equal(t, got[id].Key, r.Key)
			require.NoError(t, r.Err)
		}
	})
}

func TestALostAnswerIsAnsweredByTheSameCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *bank
		b = newBank(func(n int, lines []payoutLine) (int, any, error) {
			out := b.pay(lines)
			if n == 1 {
				return 0, nil, io.ErrUnexpectedEOF
			}
			return 200, out, nil
		})
		bench := newBatchBench(t, b, false)
		got, err := bench.run(items(5), 10)
		require.NoError(t, err)
		require.Equal(t, 5, count(got, idem.FateDone))
		require.Len(t, b.calls, 2)
		require.Equal(t, b.calls[0], b.calls[1])
		require.Equal(t, b.keys[0], b.keys[1])
	})
}

func TestTheRestOfAPartialAnswerGoesOnUnderItsFirstKeys(t *testing.T) {
	for _, itemKeys := range []bool{true, false} {
		t.Run(fmt.Sprintf("item keys %v", itemKeys), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var b *bank
				b = newBank(func(n int, lines []payoutLine) (int, any, error) {
					if n > 1 {
						return 200, b.pay(lines), nil
					}
					out := b.pay(lines[:6]) // 4 and 5 are applied and left out of the answer
					out = append(out[:4], payoutLine{ID: "p006", Status: "throttled"}, payoutLine{ID: "foreign", Status: "paid"},
						payoutLine{ID: "p007", Status: "refused"}, payoutLine{ID: "p008", Status: "paid"}, payoutLine{ID: "p008", Status: "refused"})
					slices.Reverse(out)
					return 207, out, nil
				})
				bench := newBatchBench(t, b, itemKeys)
				got, err := bench.run(items(9), 20)
				require.ErrorContains(t, err, `"foreign"`)
				require.Len(t, got, 9)
				require.Equal(t, idem.FateNotDone, got["p007"].Fate)
				require.Len(t, b.calls, 2)
				require.NotEqual(t, b.keys[0], b.keys[1], "a new call has a key of its own")
				for id, n := range b.paid {
					require.Equal(t, 1, n, id)
					require.Len(t, b.of[id], 1, id)
				}
				if itemKeys {
					require.Equal(t, 8, count(got, idem.FateDone))
					require.Empty(t, bench.pending())
					return
				}
				require.Equal(t, 5, count(got, idem.FateDone)) // 0–3 and the throttled one
				require.Equal(t, 3, count(got, idem.FateUnknown))
				require.ErrorIs(t, got["p004"].Err, idem.ErrInDoubt)
				for _, e := range bench.pending() {
					require.Equal(t, idem.StateAmbiguous, e.State)
				}
			})
		})
	}
}

func TestResumeReadsACallsAnswerWithoutTheProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *bank
		down := true
		b = newBank(func(n int, lines []payoutLine) (int, any, error) {
			out := b.pay(lines)
			if down {
				return 0, nil, io.ErrUnexpectedEOF
			}
			return 200, out, nil
		})
		bench := newBatchBench(t, b, true)
		got, err := bench.run(items(4), 10)
		require.NoError(t, err)
		require.Equal(t, 4, count(got, idem.FateUnknown))
		require.Len(t, bench.pending(), 5, "a call and its items")

		codecs := bench.opts.Codecs
		bench.opts.Codecs = nil
		bench.reopen()
		report, err := bench.client.Resume(context.Background(), nil)
		require.NoError(t, err)
		require.Equal(t, idem.Report{Unknown: 1}, report)
		require.Len(t, bench.pending(), 5, "an unknown codec keeps everything")

		down = false
		bench.opts.Codecs = codecs
		bench.reopen()
		report, err = bench.client.Resume(context.Background(), nil)
		require.NoError(t, err)
		require.Equal(t, idem.Report{Done: 4}, report)
		require.Empty(t, bench.pending())
		again, err := bench.run(items(4), 10)
		require.NoError(t, err)
		for id, r := range again {
			require.True(t, r.Recalled)
			require.Equal(t, got[id].Key, r.Key)
		}
		for _, n := range b.paid {
			require.Equal(t, 1, n)
		}
	})
}

func TestARunContinuesTheCallsOfAnEarlierOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *bank
		down := true
		b = newBank(func(n int, lines []payoutLine) (int, any, error) {
			out := b.pay(lines)
			if down {
				return 503, nil, nil
			}
			return 200, out, nil
		})
		bench := newBatchBench(t, b, true)
		_, err := bench.run(items(4), 10)
		require.NoError(t, err)
		down = false
		calls := len(b.calls)
		got, err := bench.run(items(6), 10)
		require.NoError(t, err)
		require.Equal(t, 6, count(got, idem.FateDone))
		require.Len(t, b.calls, calls+2)
		require.Equal(t, b.calls[0], b.calls[calls])
		for _, n := range b.paid {
			require.Equal(t, 1, n)
		}
	})
}

func TestACallThatIsTooLargeIsSplit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *bank
		b = newBank(func(n int, lines []payoutLine) (int, any, error) {
			if len(lines) > 2 {
				return 413, nil, nil
			}
			return 200, b.pay(lines), nil
		})
		bench := newBatchBench(t, b, false)
		got, err := bench.run(items(9), 20)
		require.NoError(t, err)
		require.Equal(t, 9, count(got, idem.FateDone))
		require.Empty(t, bench.pending())
	})
}

func TestAnAnswerThatSettlesNothingIsHalvedUntilItIsOneItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *bank
		b = newBank(func(n int, lines []payoutLine) (int, any, error) {
			for _, l := range lines {
				if l.ID == "p003" {
					return 400, []byte(`{"error":"one of them is bad"}`), nil
				}
			}
			return 200, b.pay(lines), nil
		})
		bench := newBatchBench(t, b, false)
		got, err := bench.run(items(8), 20)
		require.NoError(t, err)
		require.Equal(t, 7, count(got, idem.FateDone))
		require.Equal(t, idem.FateNotDone, got["p003"].Fate)
		require.Equal(t, 400, got["p003"].Status)
		require.Empty(t, bench.pending())
	})
}

func TestARefusalAtTheDoorWithdrawsCallAndItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(func(int, []payoutLine) (int, any, error) { return 401, nil, nil })
		bench := newBatchBench(t, b, false)
		got, err := bench.run(items(3), 20)
		require.NoError(t, err)
		require.Equal(t, 3, count(got, idem.FateNotDone))
		require.Empty(t, bench.pending())
		_, err = bench.client.Lookup(context.Background(), idem.ItemName("may", "p000"))
		require.ErrorIs(t, err, idem.ErrNotFound)
	})
}

func TestTheSameIDTwiceIsOneItemOrAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *bank
		b = newBank(func(_ int, lines []payoutLine) (int, any, error) { return 200, b.pay(lines), nil })
		bench := newBatchBench(t, b, true)
		a := idem.Item{ID: "a", Body: []byte(`{"amount":1}`)}
		got, err := bench.run(idem.Items(a, a), 10)
		require.NoError(t, err)
		require.Len(t, got, 1)

		other := idem.Item{ID: "b", Body: []byte(`{"amount":1}`)}
		changed := idem.Item{ID: "b", Body: []byte(`{"amount":2}`)}
		got, err = bench.run(idem.Items(other, changed), 10)
		require.ErrorIs(t, err, idem.ErrMismatch)
		require.Empty(t, got)
		require.Len(t, b.calls, 1, "nothing of it was sent")
	})
}

func TestLeavingTheLoopLeavesTheRestPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *bank
		b = newBank(func(_ int, lines []payoutLine) (int, any, error) { return 200, b.pay(lines), nil })
		bench := newBatchBench(t, b, true)
		for range bench.client.Batch(context.Background(), idem.Batch{Name: "may", Items: items(1000), Codec: "payouts", MaxItems: 10}) {
			break
		}
		_, err := bench.client.Resume(context.Background(), nil)
		require.NoError(t, err)
		got, err := bench.run(items(1000), 10)
		require.NoError(t, err)
		require.Equal(t, 1000, count(got, idem.FateDone))
		for id, n := range b.paid {
			require.Equal(t, 1, n, id)
		}
	})
}

func TestWithoutACodecEachItemIsARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *bank
		b = newBank(func(n int, lines []payoutLine) (int, any, error) {
			if n == 2 {
				return 402, nil, nil
			}
			return 201, b.pay(lines), nil
		})
		bench := newBatchBench(t, b, true)
		run := func() (out []idem.ItemResult) {
			for r, err := range bench.client.Batch(context.Background(), idem.Batch{Name: "june", Items: items(3), Concurrency: 1,
				Request: func(ctx context.Context, it idem.Item) (*http.Request, error) {
					return payouts{}.Encode(ctx, []idem.KeyedItem{{Item: it}})
				}}) {
				require.NoError(t, err)
				out = append(out, r)
			}
			return out
		}
		first := run()
		require.Len(t, first, 3)
		require.Len(t, b.calls, 3)
		second := run()
		require.Len(t, b.calls, 3)
		for i := range second {
			require.True(t, second[i].Recalled)
			require.Equal(t, first[i].Key, second[i].Key)
			require.Equal(t, first[i].Fate, second[i].Fate)
		}
		require.Error(t, second[1].Err)
		require.NoError(t, second[0].Err)
	})
}
