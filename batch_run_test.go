package idem_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
)

// batchRecover runs a batch whose caller recovers, and returns what was panicked with.
func batchRecover(seq iter.Seq2[idem.ItemResult, error], body func(idem.ItemResult)) (p any) {
	defer func() { p = recover() }()
	for r := range seq {
		body(r)
	}
	return nil
}

// Whoever panics, nothing waits for ever, the caller can recover, and another run
// goes on.
func TestAPanicInABatchReachesTheLoopAndStopsNothingElse(t *testing.T) {
	boom := errors.New("boom")
	for name, change := range map[string]func(b *idem.Batch, c *batchCodec, n *int){
		"Encode": func(_ *idem.Batch, c *batchCodec, n *int) {
			c.encode = func(ctx context.Context, in []idem.KeyedItem) (*http.Request, error) {
				if *n++; *n == 2 {
					panic(boom)
				}
				return payouts{}.Encode(ctx, in)
			}
		},
		"Decode": func(_ *idem.Batch, c *batchCodec, n *int) {
			c.decode = func(resp *http.Response, in []idem.KeyedItem) ([]idem.ItemResult, error) {
				if *n++; *n == 2 {
					panic(boom)
				}
				return payouts{}.Decode(resp, in)
			}
		},
		"Request": func(b *idem.Batch, _ *batchCodec, n *int) {
			b.Codec = ""
			b.Request = func(ctx context.Context, it idem.Item) (*http.Request, error) {
				if *n++; *n == 2 {
					panic(boom)
				}
				return payouts{}.Encode(ctx, []idem.KeyedItem{{Item: it}})
			}
		},
		"Items": func(b *idem.Batch, _ *batchCodec, n *int) {
			in := b.Items
			b.Items = func(yield func(idem.Item, error) bool) {
				for it := range in {
					if *n++; *n == 9 {
						panic(boom)
					}
					if !yield(it, nil) {
						return
					}
				}
			}
		},
		"OnProgress": func(b *idem.Batch, _ *batchCodec, n *int) {
			b.OnProgress = func(done, _ int) {
				if *n++; *n > 1 && done > 2 {
					*n = -1 << 30
					panic(boom)
				}
			}
		},
		"the loop": func(*idem.Batch, *batchCodec, *int) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, bench := batchPays(t, true)
				codec, n := batchCodec{payouts: payouts{true}}, 0
				batch := idem.Batch{Name: "may", Items: items(20), Codec: "payouts", MaxItems: 4, Concurrency: 1}
				change(&batch, &codec, &n)
				bench.codec(codec)
				p := batchRecover(bench.client.Batch(context.Background(), batch), func(idem.ItemResult) {
					if name == "the loop" && n == 0 {
						n++
						panic(boom)
					}
				})
				require.NotNil(t, p)
				require.ErrorIs(t, p.(error), boom)
				synctest.Wait()
				_, err := bench.client.Resume(context.Background(), nil)
				require.NoError(t, err)
				done := 0
				for r, err := range bench.client.Batch(context.Background(), batch) {
					require.NoError(t, err)
					require.Equal(t, idem.FateDone, r.Fate)
					done++
				}
				require.Equal(t, 20, done)
				require.Empty(t, bench.pending())
				for id, times := range b.paid {
					require.Equal(t, 1, times, id)
				}
			})
		})
	}
}

func TestALoopThatEndsItsGoroutineLeavesNoWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, bench := batchPays(t, true)
		var gone sync.WaitGroup
		gone.Go(func() {
			for range bench.client.Batch(context.Background(), idem.Batch{Name: "may", Items: items(50), Codec: "payouts", MaxItems: 2}) {
				runtime.Goexit() // as a failed assertion does
			}
		})
		gone.Wait()
		got, err := bench.run(items(50), 2)
		require.NoError(t, err)
		require.Equal(t, 50, count(got, idem.FateDone))
		b.paidOnce(t)
	})
}

func TestAHookThatEndsItsGoroutineEndsTheBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, bench := batchPays(t, true)
		bench.codec(batchCodec{encode: func(context.Context, []idem.KeyedItem) (*http.Request, error) {
			runtime.Goexit()
			return nil, nil
		}})
		require.NotNil(t, batchRecover(bench.client.Batch(context.Background(), idem.Batch{Name: "may", Items: items(50), Codec: "payouts", MaxItems: 2}), func(idem.ItemResult) {}))
	})
}

func TestABatchThatIsCanceledOrClosedInTheMiddleGoesOnInTheNextRun(t *testing.T) {
	for name, stop := range map[string]func(*batchBench, context.CancelFunc){
		"canceled": func(_ *batchBench, cancel context.CancelFunc) { cancel() },
		"closed":   func(b *batchBench, _ context.CancelFunc) { go b.client.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, bench := batchPays(t, true)
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				inner := bench.opts.Base
				bench.with(func(o *idem.Options) {
					o.Base = batchBase(func(req *http.Request) (*http.Response, error) {
						resp, err := inner.RoundTrip(req)
						if len(b.calls) == 3 {
							stop(bench, cancel)
							<-req.Context().Done()
							return nil, req.Context().Err()
						}
						return resp, err
					})
				})
				var failed error
				told := map[string]bool{}
				for r, err := range bench.client.Batch(ctx, idem.Batch{Name: "may", Items: items(100), Codec: "payouts", MaxItems: 10, Concurrency: 1}) {
					if failed = err; err == nil {
						require.False(t, told[r.ID])
						told[r.ID] = true
						require.False(t, r.Fate == idem.FateNotDone && b.paid[r.ID] > 0, "%s was paid", r.ID)
					}
				}
				want := context.Canceled
				if name == "closed" {
					want = idem.ErrClosed
				}
				require.ErrorIs(t, failed, want)
				bench.with(func(o *idem.Options) { o.Base = inner })
				got, err := bench.run(items(100), 10)
				require.NoError(t, err)
				require.Equal(t, 100, count(got, idem.FateDone))
				b.paidOnce(t)
			})
		})
	}
}

func TestTwoRunsAtOnceSendEachItemOnce(t *testing.T) {
	for _, itemKeys := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var b *bank
			b = newBank(func(n int, lines []payoutLine) (int, any, error) {
				if out := b.pay(lines); n%3 > 0 {
					return 200, out, nil
				}
				return 0, nil, io.ErrUnexpectedEOF
			})
			bench := newBatchBench(t, b, itemKeys)
			bench.with(func(o *idem.Options) {
				o.Retry.NoBudget = true
				o.Breaker.Disabled = true
			})
			var runs sync.WaitGroup
			in := rows(97)
			for i, size := range []int{10, 7, 1} {
				own := slices.Clone(in)
				if i > 0 {
					slices.Reverse(own)
				}
				runs.Go(func() {
					seen := map[string]int{}
					for r, err := range bench.client.Batch(context.Background(), idem.Batch{Name: "may", Items: idem.Items(own...), Codec: "payouts", MaxItems: size, Concurrency: 2}) {
						if err != nil || r.Fate != idem.FateDone {
							t.Errorf("%+v, %v", r, err)
						}
						seen[r.ID]++
					}
					if len(seen) != 97 {
						t.Errorf("%d items were said", len(seen))
					}
				})
			}
			runs.Wait()
			require.Len(t, b.paid, 97)
			b.paidOnce(t)
			require.Empty(t, bench.pending())
		})
	}
}

// A run that waited for another's call sends what the other one took back.
func TestARunSendsWhatAnotherOneWithdrew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, bench := batchPays(t, true)
		ctx, cancel := context.WithCancel(context.Background())
		inner, arrived := bench.opts.Base, make(chan struct{})
		n := 0
		bench.with(func(o *idem.Options) {
			o.Base = batchBase(func(req *http.Request) (*http.Response, error) {
				if n++; n == 1 {
					close(arrived)
					<-req.Context().Done()
					return &http.Response{StatusCode: 401, Body: http.NoBody}, nil
				}
				return inner.RoundTrip(req)
			})
		})
		var first sync.WaitGroup
		first.Go(func() {
			for r := range bench.client.Batch(ctx, idem.Batch{Name: "may", Items: items(3), Codec: "payouts"}) {
				if r.Fate == idem.FateDone {
					t.Error("the first run was canceled")
				}
			}
		})
		<-arrived
		var second map[string]idem.ItemResult
		var waits sync.WaitGroup
		waits.Go(func() { second, _ = bench.run(items(3), 10) })
		synctest.Wait()
		cancel()
		first.Wait()
		waits.Wait()
		require.Equal(t, 3, count(second, idem.FateDone), "%v", second)
		b.paidOnce(t)
	})
}

// failingKeystore fails its commits after some.
type failingKeystore struct {
	idem.Keystore
	left atomic.Int64
	err  error
}

func (k *failingKeystore) Commit(ctx context.Context, changes ...keystore.Change) error {
	if k.left.Add(-1) < 0 {
		return k.err
	}
	return k.Keystore.Commit(ctx, changes...)
}

func TestAJournalThatFailsEndsTheBatchAndSaysNotDoneOfNothing(t *testing.T) {
	for _, when := range []string{"begin", "answer"} {
		t.Run(when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var b *bank
				io := errors.New("input/output error")
				ks := &failingKeystore{Keystore: idem.NewMemoryKeystore(), err: io}
				ks.left.Store(2) // call 1
				if when == "answer" {
					ks.left.Store(3)
				}
				b = newBank(func(_ int, lines []payoutLine) (int, any, error) { return 200, b.pay(lines), nil })
				c, err := idem.New(ks, &idem.Options{Base: b, Codecs: map[string]idem.BatchCodec{"payouts": payouts{true}}})
				require.NoError(t, err)
				defer c.Close()
				var failed error
				n, read := 0, 0
				in := func(yield func(idem.Item, error) bool) {
					for it := range items(1000) {
						if read++; !yield(it, nil) {
							return
						}
					}
				}
				for r, err := range c.Batch(context.Background(), idem.Batch{Name: "may", Items: in, Codec: "payouts", MaxItems: 10, Concurrency: 1}) {
					if failed = err; err == nil {
						n++
						require.False(t, r.Fate == idem.FateNotDone && (b.paid[r.ID] > 0 || !errors.Is(r.Err, context.Canceled)), "%s: %v", r.ID, r.Err)
					}
				}
				require.ErrorIs(t, failed, io)
				require.Less(t, read, 100, "the input isn't read on: %d calls, %d results", len(b.calls), n)
				require.Less(t, n, 100)
				if when == "answer" {
					_, err = c.Resume(context.Background(), nil)
					require.ErrorIs(t, err, io)
				}
				ks.left.Store(1 << 30)
				_, err = c.Resume(context.Background(), nil)
				require.NoError(t, err)
				b.paidOnce(t)
			})
		})
	}
}

func TestWhatRefusedAnEarlierRunsCallIsSaidOfItsItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(func(n int, lines []payoutLine) (int, any, error) { return 401, nil, nil })
		bench := newBatchBench(t, b, true)
		ctx, cancel := context.WithCancel(context.Background())
		bench.with(func(o *idem.Options) {
			o.Base = batchBase(func(*http.Request) (*http.Response, error) { cancel(); return nil, errors.New("lost") })
			o.Breaker.Disabled = true
		})
		for range bench.client.Batch(ctx, idem.Batch{Name: "may", Items: items(3), Codec: "payouts"}) {
		}
		bench.with(func(o *idem.Options) { o.Base = b })
		got, err := bench.run(items(3), 10)
		require.NoError(t, err)
		require.Equal(t, 3, count(got, idem.FateUnknown))
		for _, r := range got {
			require.ErrorContains(t, r.Err, "401")
			require.NotEmpty(t, r.Key)
		}
	})
}

func TestAnOpenBreakerRefusesABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(func(int, []payoutLine) (int, any, error) { return 503, nil, nil })
		bench := newBatchBench(t, b, true)
		got, err := bench.run(items(300), 1)
		require.NoError(t, err)
		open := 0
		for _, r := range got {
			if errors.Is(r.Err, idem.ErrCircuitOpen) {
				open++
				if r.Fate == idem.FateNotDone {
					_, err := bench.client.Lookup(context.Background(), idem.ItemName("may", r.ID))
					require.ErrorIs(t, err, idem.ErrNotFound)
				}
			}
		}
		require.Greater(t, open, 200)
		require.Less(t, len(b.calls), 100)
	})
}

func TestABatchTellsItsProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, bench := batchPays(t, true)
		var last [2]int
		for _, err := range bench.client.Batch(context.Background(), idem.Batch{Name: "may", Items: items(23), Codec: "payouts", MaxItems: 5, OnProgress: func(done, total int) {
			require.GreaterOrEqual(t, done, last[0])
			require.GreaterOrEqual(t, total, last[1])
			require.LessOrEqual(t, done, total)
			last = [2]int{done, total}
		}}) {
			require.NoError(t, err)
		}
		require.Equal(t, [2]int{23, 23}, last)
	})
}

func TestABatchThatCannotBeginSaysWhy(t *testing.T) {
	_, bench := batchPays(t, true)
	ok := idem.Batch{Name: "may", Items: items(1), Codec: "payouts"}
	for field, change := range map[string]func(*idem.Batch){
		"Batch.Name":        func(b *idem.Batch) { b.Name = "" },
		"Batch.Items":       func(b *idem.Batch) { b.Items = nil },
		"Batch.Codec":       func(b *idem.Batch) { b.Codec = "other" },
		"Batch.Request":     func(b *idem.Batch) { b.Codec = "" },
		"Batch.MaxItems":    func(b *idem.Batch) { b.MaxItems = -1 },
		"Batch.Concurrency": func(b *idem.Batch) { b.Concurrency = -1 },
		"Item.ID": func(b *idem.Batch) {
			b.Items = idem.Items(idem.Item{ID: fmt.Sprintf("%0256d", 1)})
		},
	} {
		b := ok
		change(&b)
		n := 0
		for _, err := range bench.client.Batch(context.Background(), b) {
			n++
			var invalid *idem.InvalidError
			require.ErrorAs(t, err, &invalid)
			require.Equal(t, field, invalid.Field)
		}
		require.Equal(t, 1, n, field)
	}
}
