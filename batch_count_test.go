package idem_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
)

// countingKeystore notes what each transaction changes.
type countingKeystore struct {
	idem.Keystore
	commits [][]keystore.Op
	keys    []int // entries of each commit
}

func (k *countingKeystore) Commit(ctx context.Context, changes ...keystore.Change) error {
	var ops []keystore.Op
	for _, c := range changes {
		ops = append(ops, c.Op)
	}
	k.commits = append(k.commits, ops)
	k.keys = append(k.keys, len(changes))
	return k.Keystore.Commit(ctx, changes...)
}

func TestOneTransactionBeginsACallAndOneEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *bank
		ks := &countingKeystore{Keystore: idem.NewMemoryKeystore()}
		b = newBank(func(n int, lines []payoutLine) (int, any, error) {
			require.Equal(t, []int{1, 2, 4}[n-1], len(ks.commits), "a call is journaled before its first byte")
			if out := b.pay(lines); n == 1 {
				return 200, out[:4], nil
			}
			return 200, b.pay(lines), nil
		})
		c, err := idem.New(ks, &idem.Options{Base: b, Codecs: map[string]idem.BatchCodec{"payouts": payouts{true}}})
		require.NoError(t, err)
		defer c.Close()
		for _, err := range c.Batch(context.Background(), idem.Batch{Name: "may", Items: items(20), Codec: "payouts", MaxItems: 10, Concurrency: 1}) {
			require.NoError(t, err)
		}
		// Call 1 and its ten items; its end, four results and the next call for six; that
		// one's end; call 3 and its end.
		require.Equal(t, []int{11, 12, 7, 11, 11}, ks.keys)
		require.Len(t, b.calls, 3)
	})
}

// manyItems are n items that say how many were read.
func manyItems(n int, read *atomic.Int64) iter.Seq2[idem.Item, error] {
	return func(yield func(idem.Item, error) bool) {
		for i := range n {
			read.Add(1)
			if !yield(idem.Item{ID: "payout-" + strconv.Itoa(i), Body: fmt.Appendf(nil, `{"amount":%d,"note":"rent of the month, flat %d"}`, i, i)}, nil) {
				return
			}
		}
	}
}

// payAny pays what comes and remembers nothing.
var payAny = batchBase(func(req *http.Request) (*http.Response, error) {
	var lines []payoutLine
	if err := json.NewDecoder(req.Body).Decode(&lines); err != nil {
		return nil, err
	}
	for i, l := range lines {
		lines[i] = payoutLine{ID: l.ID, Status: "paid"}
	}
	body, err := json.Marshal(lines)
	return &http.Response{StatusCode: 200, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body))}, err
})

func TestTheFirstCallLeavesBeforeTheInputIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var read, first atomic.Int64
		_, bench := batchPays(t, true)
		bench.with(func(o *idem.Options) {
			o.Base = batchBase(func(req *http.Request) (*http.Response, error) {
				first.CompareAndSwap(0, read.Load())
				return payAny(req)
			})
		})
		for _, err := range bench.client.Batch(context.Background(), idem.Batch{Name: "may", Items: manyItems(500, &read), Codec: "payouts", MaxItems: 10}) {
			require.NoError(t, err)
		}
		require.LessOrEqual(t, first.Load(), int64(100))
		require.EqualValues(t, 500, read.Load())
	})
}

// With IDEM_BATCH_ITEMS=100000 a batch of that size has to fit as well.
func TestABatchOfAnySizeFitsIntoMemory(t *testing.T) {
	n, limit := 10_000, uint64(60<<20)
	if s := os.Getenv("IDEM_BATCH_ITEMS"); s != "" {
		var err error
		n, err = strconv.Atoi(s)
		require.NoError(t, err)
		limit = 200 << 20
	}
	c, err := idem.Open(filepath.Join(t.TempDir(), "j.db"), &idem.Options{Base: payAny, Codecs: map[string]idem.BatchCodec{"payouts": payouts{true}}})
	require.NoError(t, err)
	defer c.Close()
	runtime.GC()
	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)
	var read atomic.Int64
	var heap uint64
	done := 0
	for r, err := range c.Batch(context.Background(), idem.Batch{Name: "may", Items: manyItems(n, &read), Codec: "payouts", MaxItems: 1000}) {
		require.NoError(t, err)
		require.Equal(t, idem.FateDone, r.Fate)
		if done++; done%1000 == 0 {
			runtime.ReadMemStats(&now)
			heap = max(heap, now.HeapAlloc)
			require.LessOrEqual(t, read.Load()-int64(done), int64(10_000), "no more is read than can be sent")
		}
	}
	require.Equal(t, n, done)
	t.Logf("%d items: heap up to %d MiB, %d MiB from the system", n, heap>>20, now.Sys>>20)
	require.Less(t, heap-min(heap, before.HeapAlloc), limit)
}

// BenchmarkBatch tells how many items a second a batch journals, sends and settles.
func BenchmarkBatch(b *testing.B) {
	for _, size := range []int{1, 50, 1000} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			c, err := idem.Open(filepath.Join(b.TempDir(), "j.db"), &idem.Options{Base: payAny, Codecs: map[string]idem.BatchCodec{"payouts": payouts{true}}})
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			var read atomic.Int64
			b.ResetTimer()
			for r, err := range c.Batch(context.Background(), idem.Batch{Name: "may", Items: manyItems(b.N, &read), Codec: "payouts", MaxItems: size}) {
				if err != nil || r.Fate != idem.FateDone {
					b.Fatal(r, err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "items/s")
		})
	}
}
