package idem_test

import (
	"context"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

// batchLost leaves a batch of n items Pending, its call lost after its effects; up
// then lets the bank answer.
func batchLost(t *testing.T, n int, itemKeys bool) (b *bank, bench *batchBench, up func()) {
	down := true
	b = newBank(func(_ int, lines []payoutLine) (int, any, error) {
		out := b.pay(lines)
		if down {
			return 0, nil, io.ErrUnexpectedEOF
		}
		return 200, out, nil
	})
	bench = newBatchBench(t, b, itemKeys)
	bench.with(func(o *idem.Options) { o.Retry.MaxAttempts = 1 })
	got, err := bench.run(items(n), 10)
	require.NoError(t, err)
	require.Equal(t, n, count(got, idem.FateUnknown))
	return b, bench, func() { down = false }
}

func (b *batchBench) item(id string) idem.Entry {
	b.t.Helper()
	e, err := b.client.Lookup(context.Background(), idem.ItemName("may", id))
	require.NoError(b.t, err)
	return e
}

func TestAForgottenItemIsANewOne(t *testing.T) {
	for _, codec := range []string{"payouts", ""} {
		for _, abandon := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				b, bench := batchPays(t, true)
				if abandon {
					b, bench, _ = batchLost(t, 1, true)
				}
				run := func() idem.ItemResult {
					var last idem.ItemResult
					for r, err := range bench.client.Batch(context.Background(), idem.Batch{Name: "may", Items: items(1), Codec: codec,
						Request: func(ctx context.Context, it idem.Item) (*http.Request, error) {
							return payouts{}.Encode(ctx, []idem.KeyedItem{{Item: it}})
						}}) {
						require.NoError(t, err)
						last = r
					}
					return last
				}
				if abandon {
					e := bench.item("p000")
					require.NoError(t, bench.client.Abandon(context.Background(), e.Call, "by hand"))
				}
				keys := map[idem.Key]bool{}
				if !abandon {
					keys[run().Key] = true
				} else {
					keys[bench.item("p000").Key] = true
				}
				for range 3 {
					require.NoError(t, bench.client.Forget(context.Background(), idem.ItemName("may", "p000")))
					bench.with(func(o *idem.Options) {
						o.Base = batchBase(func(req *http.Request) (*http.Response, error) {
							resp, _ := b.RoundTrip(req)
							if resp == nil {
								resp = &http.Response{StatusCode: 200, Body: io.NopCloser(http.NoBody)}
							}
							return resp, nil
						})
					})
					r := run()
					require.Equal(t, idem.FateDone, r.Fate, "%v", r.Err)
					require.False(t, r.Recalled)
					require.False(t, keys[r.Key], "a new intent has a new key")
					keys[r.Key] = true
					require.Equal(t, r.Key, run().Key)
				}
			})
		}
	}
}

func TestAChangedItemFollowsARefusedOneUnderANewKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *bank
		b = newBank(func(_ int, lines []payoutLine) (int, any, error) {
			if lines[0].Amount == 1 {
				return 200, []payoutLine{{ID: lines[0].ID, Status: "refused"}}, nil
			}
			return 200, b.pay(lines), nil
		})
		bench := newBatchBench(t, b, true)
		first, err := bench.run(items(1), 1)
		require.NoError(t, err)
		again, err := bench.run(items(1), 1)
		require.NoError(t, err)
		require.True(t, again["p000"].Recalled)
		mended := idem.Items(idem.Item{ID: "p000", Body: []byte(`{"amount":2}`)})
		second, err := bench.run(mended, 1)
		require.NoError(t, err)
		require.Equal(t, idem.FateDone, second["p000"].Fate)
		require.NotEqual(t, first["p000"].Key, second["p000"].Key)
		third, err := bench.run(items(1), 1)
		require.NoError(t, err)
		require.ErrorIs(t, third["p000"].Err, idem.ErrMismatch, "what is done can't change")
		require.Equal(t, idem.FateDone, third["p000"].Fate)
		require.Len(t, b.calls, 2)
	})
}

func TestNamesOfBatchesAndItemsDoNotCollide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, bench := batchPays(t, true)
		keys := map[idem.Key]string{}
		run := func(ctx context.Context, name, id string) {
			for r, err := range bench.client.Batch(ctx, idem.Batch{Name: name, Items: idem.Items([]idem.Item{{ID: id, Body: []byte("{}")}}...), Codec: "payouts"}) {
				require.NoError(t, err)
				require.Equal(t, idem.FateDone, r.Fate)
				require.False(t, r.Recalled, "%s %s", name, id)
				require.Empty(t, keys[r.Key])
				keys[r.Key] = name + id
			}
		}
		ctx := context.Background()
		run(ctx, "a/b", "c")
		run(ctx, "a", "b/c")
		run(ctx, "a", "b")
		run(ctx, "1:a", "b")
		run(ctx, "may", "rent")
		run(idem.WithAccount(ctx, "acme"), "june", "rent") // last month's results are not this month's
		run(idem.WithAccount(ctx, "zeta"), "june", "rent")
		run(ctx, "june", "rent")
		require.Len(t, b.calls, 8)
		require.Len(t, slices.Collect(maps.Keys(keys)), 8)
	})
}

func TestKeysOfItemsDifferByScopeAndStayTheSameForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, bench := batchPays(t, true)
		key := func(scope string) idem.Key {
			bench.with(func(o *idem.Options) { o.Scope = scope })
			got, err := bench.run(items(1), 1)
			require.NoError(t, err)
			return got["p000"].Key
		}
		require.Equal(t, idem.Key("4c0e4392-60ef-5802-9b55-bb997a844a38"), key("acme"), "derived keys never change: a journal may be lost, the provider remembers")
		require.NotEqual(t, key("acme"), key("other"))
	})
}

func TestPeopleAndABatchsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, bench, up := batchLost(t, 3, true)
		ctx := context.Background()
		c := bench.client
		e := bench.item("p000")
		call, err := c.LookupKey(ctx, e.Call)
		require.NoError(t, err)
		require.Equal(t, 3, call.Items)
		require.Equal(t, "may", call.Batch)

		require.ErrorIs(t, c.Settle(ctx, call.Key, idem.Finding{Fate: idem.FateDone}), idem.ErrInvalid, "a call has no fate of its own")
		require.ErrorIs(t, c.Settle(ctx, e.Key, idem.Finding{Fate: idem.FateNotDone}), idem.ErrConflict, "its call may be sent again")
		require.ErrorIs(t, c.Abandon(ctx, e.Key, "no"), idem.ErrConflict)
		require.NoError(t, c.Settle(ctx, e.Key, idem.Finding{Fate: idem.FateDone, Status: 200, Body: []byte("seen")}))
		require.NoError(t, c.Forget(ctx, idem.ItemName("may", "p000")), "a settled item may be forgotten, though its call is open")

		req, err := call.Request(ctx)
		require.NoError(t, err)
		_, err = c.Do(req.WithContext(idem.WithKey(ctx, call.Key)))
		require.ErrorIs(t, err, idem.ErrConflict, "a call is not an intent of its own")
		stored := idem.WithStoredPayload(idem.WithIntent(ctx, idem.ItemName("may", "p001")))
		req, err = call.Request(ctx)
		require.NoError(t, err)
		_, err = c.Do(req.WithContext(stored))
		require.ErrorIs(t, err, idem.ErrConflict)
		require.Len(t, b.calls, 1)

		up()
		report, err := c.Resume(ctx, nil)
		require.NoError(t, err)
		require.Equal(t, idem.Report{Done: 2}, report)
		b.paidOnce(t)
	})
}

func TestAnAbandonedCallGivesUpItsItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, bench, up := batchLost(t, 3, true)
		require.NoError(t, bench.client.Abandon(context.Background(), bench.item("p000").Call, "wrong file"))
		up()
		report, err := bench.client.Resume(context.Background(), nil)
		require.NoError(t, err)
		require.Zero(t, report)
		got, err := bench.run(items(3), 10)
		require.NoError(t, err)
		for _, r := range got {
			require.ErrorIs(t, r.Err, idem.ErrAbandoned)
			require.Equal(t, idem.FateUnknown, r.Fate)
		}
		require.NoError(t, bench.client.Settle(context.Background(), got["p001"].Key, idem.Finding{Fate: idem.FateDone}))
		got, err = bench.run(items(3), 10)
		require.NoError(t, err)
		require.Equal(t, idem.FateDone, got["p001"].Fate)
		require.NoError(t, got["p001"].Err)
		require.Len(t, b.calls, 1)
	})
}

func TestThePastOfACallsWindowLeavesItsItemsToReconcile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, bench, up := batchLost(t, 2, true)
		up()
		time.Sleep(25 * time.Hour)
		got, err := bench.run(items(2), 10)
		require.NoError(t, err)
		for _, r := range got {
			require.ErrorIs(t, r.Err, idem.ErrWindowClosed)
			require.Equal(t, idem.FateUnknown, r.Fate)
		}
		require.Len(t, b.calls, 1)
		var asked []string
		bench.with(func(o *idem.Options) {
			o.Reconcile = func(_ context.Context, e idem.Entry) (idem.Finding, error) {
				asked = append(asked, e.Item)
				return idem.Finding{Fate: idem.FateDone, Status: 200, Body: []byte("found")}, nil
			}
		})
		got, err = bench.run(items(1), 10)
		require.NoError(t, err)
		require.Equal(t, "found", string(got["p000"].Body))
		report, err := bench.client.Resume(context.Background(), nil)
		require.NoError(t, err)
		require.Equal(t, idem.Report{Done: 1}, report)
		require.Equal(t, []string{"p000", "p001"}, asked)
	})
}

func TestAWeekendOfRefusedDialsUsesNoWindowUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, bench := batchPays(t, true)
		refused := &http.Response{StatusCode: 429, Body: http.NoBody}
		bench.with(func(o *idem.Options) {
			o.Base = batchBase(func(*http.Request) (*http.Response, error) { return refused, nil })
		})
		ctx, cancel := context.WithCancel(context.Background())
		var left sync.WaitGroup
		left.Go(func() { // closed in the middle: Pending, with nothing before
			for range bench.client.Batch(ctx, idem.Batch{Name: "may", Items: items(2), Codec: "payouts"}) {
			}
		})
		time.Sleep(100 * time.Millisecond)
		require.NoError(t, bench.client.Close())
		left.Wait()
		cancel()
		bench.open()
		require.Len(t, bench.pending(), 3)
		for range 3 {
			_, err := bench.client.Resume(context.Background(), nil)
			require.NoError(t, err)
			time.Sleep(20 * time.Hour)
		}
		first := true
		bench.with(func(o *idem.Options) {
			o.Base = batchBase(func(req *http.Request) (*http.Response, error) {
				resp, err := b.RoundTrip(req)
				if first {
					first = false
					resp.Body, resp.ContentLength = io.NopCloser(http.NoBody), -1
					resp.Body = io.NopCloser(strings.NewReader(`[{"id":"p000","status":"paid"}]`))
				}
				return resp, err
			})
		})
		report, err := bench.client.Resume(context.Background(), nil)
		require.NoError(t, err)
		require.Equal(t, idem.Report{Done: 2}, report, "p001 goes on in a call of its own, on the first day of its window")
		b.paidOnce(t)
	})
}

func TestRunAndResumeTellOfEachItem(t *testing.T) {
	for _, op := range []string{"Resume", "Run"} {
		synctest.Test(t, func(t *testing.T) {
			_, bench, up := batchLost(t, 4, true)
			up()
			var mu sync.Mutex
			var told, each []string
			note := func(list *[]string, id string) {
				mu.Lock()
				defer mu.Unlock()
				*list = append(*list, id)
			}
			refuse := 2
			bench.with(func(o *idem.Options) {
				o.Settled = func(_ context.Context, e idem.Entry) error {
					mu.Lock()
					refuse--
					again := refuse >= 0
					mu.Unlock()
					if again {
						return io.ErrClosedPipe
					}
					note(&told, e.Item)
					return nil
				}
				o.Resume.Each = func(e idem.Entry, _ error) { note(&each, e.Item) }
			})
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
			defer cancel()
			if op == "Run" {
				require.NoError(t, bench.client.Run(ctx))
			} else {
				report, err := bench.client.Resume(ctx, nil)
				require.NoError(t, err)
				require.Equal(t, idem.Report{Done: 4}, report)
				_, err = bench.client.Resume(ctx, nil) // tells again what wasn't taken
				require.NoError(t, err)
			}
			slices.Sort(told)
			slices.Sort(each)
			require.Equal(t, []string{"p000", "p001", "p002", "p003"}, told)
			require.Equal(t, told, each)
		})
	}
}

func TestAnExpiredCallThatWasNeverProcessedIsNotDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, bench := batchPays(t, true)
		bench.with(func(o *idem.Options) {
			o.Base = batchBase(func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: 429, Body: http.NoBody}, nil
			})
		})
		ctx := idem.WithExpiry(context.Background(), time.Now().Add(time.Hour))
		var left sync.WaitGroup
		left.Go(func() {
			for range bench.client.Batch(ctx, idem.Batch{Name: "may", Items: items(2), Codec: "payouts"}) {
			}
		})
		time.Sleep(100 * time.Millisecond)
		require.NoError(t, bench.client.Close())
		left.Wait()
		var told []string
		bench.opts.Base = b
		bench.opts.Settled = func(_ context.Context, e idem.Entry) error {
			require.Equal(t, idem.FateNotDone, e.Fate)
			told = append(told, e.Item)
			return nil
		}
		bench.open()
		time.Sleep(2 * time.Hour)
		report, err := bench.client.Resume(context.Background(), nil)
		require.NoError(t, err)
		require.Equal(t, idem.Report{NotDone: 2}, report)
		require.ElementsMatch(t, []string{"p000", "p001"}, told)
		require.Empty(t, b.calls)
		got, err := bench.run(items(2), 10)
		require.NoError(t, err)
		for _, r := range got {
			require.ErrorIs(t, r.Err, idem.ErrExpired)
			require.Equal(t, idem.FateNotDone, r.Fate)
		}
	})
}

func TestACallIsMadeForTheAccountOfItsBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, bench, up := batchLost(t, 1, true)
		var accounts []string
		bench.with(func(o *idem.Options) {
			o.Authorize = func(req *http.Request) error {
				account, _ := idem.AccountFrom(req.Context())
				accounts = append(accounts, account)
				return nil
			}
			o.Retry.MaxAttempts = 1
		})
		for _, account := range []string{"acme", "zeta"} {
			ctx := idem.WithAccount(context.Background(), account)
			for range bench.client.Batch(ctx, idem.Batch{Name: "june", Items: items(1), Codec: "payouts"}) {
			}
		}
		up()
		_, err := bench.client.Resume(context.Background(), &idem.ResumeOptions{Concurrency: 1})
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"acme", "zeta", "", "acme", "zeta"}, accounts)
		require.Len(t, b.seen, 3)
	})
}
