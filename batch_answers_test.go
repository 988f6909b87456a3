package idem_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
)

// batchBase is a bank behind something that changes requests' answers.
type batchBase func(*http.Request) (*http.Response, error)

func (f batchBase) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// batchCodec is the payouts codec with functions in place of its methods.
type batchCodec struct {
	payouts
	encode func(context.Context, []idem.KeyedItem) (*http.Request, error)
	decode func(*http.Response, []idem.KeyedItem) ([]idem.ItemResult, error)
}

func (c batchCodec) Encode(ctx context.Context, items []idem.KeyedItem) (*http.Request, error) {
	if c.encode != nil {
		return c.encode(ctx, items)
	}
	return c.payouts.Encode(ctx, items)
}

func (c batchCodec) Decode(resp *http.Response, items []idem.KeyedItem) ([]idem.ItemResult, error) {
	if c.decode != nil {
		return c.decode(resp, items)
	}
	return c.payouts.Decode(resp, items)
}

// with reopens the bench with other options.
func (b *batchBench) with(change func(o *idem.Options)) *batchBench {
	require.NoError(b.t, b.client.Close())
	change(b.opts)
	b.open()
	return b
}

func (b *batchBench) codec(c idem.BatchCodec) *batchBench {
	return b.with(func(o *idem.Options) { o.Codecs = map[string]idem.BatchCodec{"payouts": c} })
}

// paidOnce checks that no item took effect twice, or under two keys.
func (b *bank) paidOnce(t *testing.T) {
	t.Helper()
	for id, n := range b.paid {
		require.Equal(t, 1, n, id)
		require.Len(t, b.of[id], 1, id)
	}
}

// itemKeysSeen are the keys of all items that came.
func (b *bank) itemKeysSeen() (keys []string) {
	for _, lines := range b.calls {
		for _, l := range lines {
			keys = append(keys, l.Key)
		}
	}
	return keys
}

func batchPays(t *testing.T, itemKeys bool) (*bank, *batchBench) {
	var b *bank
	b = newBank(func(_ int, lines []payoutLine) (int, any, error) { return 200, b.pay(lines), nil })
	return b, newBatchBench(t, b, itemKeys)
}

func TestACutAnswerSaysNothingOfItsItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, bench := batchPays(t, true)
		cut := true
		bench.with(func(o *idem.Options) {
			o.Base = batchBase(func(req *http.Request) (*http.Response, error) {
				resp, err := b.RoundTrip(req)
				if cut {
					resp.ContentLength += 10
				}
				return resp, err
			})
		})
		got, err := bench.run(items(3), 10)
		require.NoError(t, err)
		require.Equal(t, 3, count(got, idem.FateUnknown), "a 200 may list failures: %v", got)
		cut = false
		got, err = bench.run(items(3), 10)
		require.NoError(t, err)
		require.Equal(t, 3, count(got, idem.FateDone))
		require.False(t, got["p000"].Recalled, "settled by this run")
		b.paidOnce(t)
	})
}

// What an answer says of its only item is not outweighed by the call's 200.
func TestAnItemAloneIsNotDoneByTheCallsStatus(t *testing.T) {
	for name, answer := range map[string]any{
		"broken": []payoutLine{{ID: "p000", Status: "broken"}}, "missing": []payoutLine{},
		"twice": []payoutLine{{ID: "p000", Status: "paid"}, {ID: "p000", Status: "refused"}},
	} {
		for _, itemKeys := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, item keys %v", name, itemKeys), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBank(func(int, []payoutLine) (int, any, error) { return 200, answer, nil })
					bench := newBatchBench(t, b, itemKeys)
					got, err := bench.run(items(1), 1)
					require.NoError(t, err)
					require.Equal(t, idem.FateUnknown, got["p000"].Fate)
					require.Equal(t, 6, len(b.calls), "MaxAttempts times")
					calls := slices.Compact(slices.Clone(b.keys))
					require.Equal(t, itemKeys, len(calls) == 6, "the same call would get the same answer")
					require.Len(t, slices.Compact(b.itemKeysSeen()), 1, "under one key")
					for _, e := range bench.pending() {
						require.Equal(t, !itemKeys, e.State == idem.StateAmbiguous)
					}
				})
			})
		}
	}
}

func TestAnUnreadableAnswerIsTheItemsOwnOnlyWhereItIsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(func(int, []payoutLine) (int, any, error) { return 200, []byte(`{"ok":true}`), nil })
		bench := newBatchBench(t, b, true)
		got, err := bench.run(items(2), 2)
		require.NoError(t, err)
		require.Equal(t, 2, count(got, idem.FateDone))
		require.Equal(t, 18, len(b.calls), "MaxAttempts for both, then for each")
		require.Equal(t, `{"ok":true}`, string(got["p000"].Body))
	})
}

func TestARefusalAfterALostAnswerIsNoProof(t *testing.T) {
	for _, replayed := range []bool{false, true} {
		t.Run(fmt.Sprintf("replayed %v", replayed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBank(func(n int, lines []payoutLine) (int, any, error) {
					if n == 1 {
						return 0, nil, io.ErrUnexpectedEOF
					}
					return 200, []payoutLine{{ID: lines[0].ID, Status: "refused"}}, nil
				})
				bench := newBatchBench(t, b, true)
				bench.with(func(o *idem.Options) {
					o.Base = batchBase(func(req *http.Request) (*http.Response, error) {
						resp, err := b.RoundTrip(req)
						if err == nil && replayed {
							resp.Header.Set("Idempotent-Replayed", "true")
						}
						return resp, err
					})
				})
				got, err := bench.run(items(1), 1)
				require.NoError(t, err)
				require.Equal(t, replayed, got["p000"].Fate == idem.FateNotDone)
				require.NotEqual(t, idem.FateDone, got["p000"].Fate)
				require.Len(t, b.calls, 2, "the same refusal again would prove no more")
			})
		})
	}
}

// A replay marker speaks of the call that bears it; the item may have been applied in
// the one before.
func TestAReplayedCallProvesNothingOfAnItemsEarlierCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *bank
		b = newBank(func(n int, lines []payoutLine) (int, any, error) {
			if n == 1 {
				return 200, b.pay(lines)[:1], nil // p001 is applied and left out
			}
			return 200, []payoutLine{{ID: "p001", Status: "refused"}}, nil
		})
		bench := newBatchBench(t, b, true)
		bench.with(func(o *idem.Options) {
			o.Base = batchBase(func(req *http.Request) (*http.Response, error) {
				resp, err := b.RoundTrip(req)
				resp.Header.Set("Idempotent-Replayed", "true")
				return resp, err
			})
		})
		got, err := bench.run(items(2), 2)
		require.NoError(t, err)
		require.Equal(t, idem.FateDone, got["p000"].Fate)
		require.Equal(t, idem.FateUnknown, got["p001"].Fate)
	})
}

// Whatever refuses the next call says nothing of what the earlier one did.
func TestACallsRefusalSettlesOnlyItemsWithNothingBefore(t *testing.T) {
	for _, status := range []int{401, 402, 403, 404, 413, 429, 501} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var b *bank
				b = newBank(func(n int, lines []payoutLine) (int, any, error) {
					if n == 1 {
						return 200, append(b.pay(lines[:2])[:1], payoutLine{ID: "p002", Status: "throttled"}), nil
					}
					return status, nil, nil
				})
				bench := newBatchBench(t, b, true)
				got, err := bench.run(items(3), 3)
				require.NoError(t, err)
				require.Equal(t, idem.FateDone, got["p000"].Fate)
				require.Equal(t, idem.FateUnknown, got["p001"].Fate, "it was applied, and left out of the answer")
				_, err = bench.client.Resume(context.Background(), nil)
				require.NoError(t, err)
				e, err := bench.client.Lookup(context.Background(), idem.ItemName("may", "p001"))
				require.NoError(t, err)
				require.NotEqual(t, idem.FateNotDone, e.Fate)
				require.Less(t, len(b.calls), 40)
				b.paidOnce(t)
			})
		})
	}
}

func TestABatchInWhichEachCallStopsAtARefusalComesToItsEnd(t *testing.T) {
	for _, itemKeys := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var b *bank
			b = newBank(func(_ int, lines []payoutLine) (int, any, error) {
				for i, l := range lines {
					if l.Amount%3 == 0 {
						out := append(b.pay(lines[:i]), payoutLine{ID: l.ID, Status: "refused"})
						for _, behind := range lines[i+1:] {
							out = append(out, payoutLine{ID: behind.ID, Status: "throttled"})
						}
						return 400, out, nil
					}
				}
				return 200, b.pay(lines), nil
			})
			bench := newBatchBench(t, b, itemKeys)
			got, err := bench.run(items(60), 60)
			require.NoError(t, err)
			require.Equal(t, 40, count(got, idem.FateDone))
			require.Equal(t, 20, count(got, idem.FateNotDone))
			require.Equal(t, 20, len(b.calls), "one for each refusal")
			require.Empty(t, bench.pending())
			b.paidOnce(t)
		})
	}
}

func TestAnItemsRetryHintHoldsAlsoOverARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *bank
		var at []time.Time
		b = newBank(func(n int, lines []payoutLine) (int, any, error) {
			at = append(at, time.Now())
			out := b.pay(lines[:len(lines)-1])
			if n < 3 {
				return 200, append(out, payoutLine{ID: lines[len(lines)-1].ID, Status: "throttled"}), nil
			}
			return 200, b.pay(lines), nil
		})
		bench := newBatchBench(t, b, true)
		bench.codec(batchCodec{payouts: payouts{true}, decode: func(resp *http.Response, in []idem.KeyedItem) ([]idem.ItemResult, error) {
			out, err := payouts{}.Decode(resp, in)
			for i := range out {
				if out[i].Retry {
					out[i].RetryAfter = 20 * time.Second
				}
			}
			return out, err
		}})
		journaled := false
		bench.with(func(o *idem.Options) {
			o.Trace = &idem.Trace{Waiting: func(_ context.Context, key idem.Key, d time.Duration) {
				e, err := bench.client.LookupKey(context.Background(), key)
				journaled = err == nil && d >= 20*time.Second && time.Until(e.RetryAt) >= 20*time.Second
			}}
		})
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		fates := map[string]idem.Fate{}
		for r, err := range bench.client.Batch(ctx, idem.Batch{Name: "may", Items: items(3), Codec: "payouts"}) {
			if err == nil {
				fates[r.ID] = r.Fate
			}
		}
		require.Equal(t, map[string]idem.Fate{"p000": idem.FateDone, "p001": idem.FateDone, "p002": idem.FateNotDone}, fates,
			"the hint is later than the deadline, and nothing of p002 was processed")
		got, err := bench.run(items(3), 10)
		require.NoError(t, err)
		require.Equal(t, 3, count(got, idem.FateDone))
		require.GreaterOrEqual(t, at[2].Sub(at[1]), 20*time.Second)
		require.True(t, journaled, "a crash during the wait doesn't shorten it")
		b.paidOnce(t)
	})
}

func TestACodecMaySortWhatItIsGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, bench := batchPays(t, true)
		reversed := batchCodec{payouts: payouts{true}, encode: func(ctx context.Context, in []idem.KeyedItem) (*http.Request, error) {
			slices.Reverse(in)
			return payouts{}.Encode(ctx, in)
		}}
		got, err := bench.codec(reversed).run(items(5), 10)
		require.NoError(t, err)
		for id, r := range got {
			require.Contains(t, b.of[id], string(r.Key))
			e, err := bench.client.Lookup(context.Background(), idem.ItemName("may", id))
			require.NoError(t, err)
			require.Equal(t, id, e.Item)
			require.Equal(t, r.Key, e.Key)
		}
	})
}

func TestAnItemThatCannotBeWrittenHoldsNoneOfTheOthersUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, bench := batchPays(t, true)
		in := rows(20)
		in[7].Body = []byte("{")
		got, err := bench.run(idem.Items(in...), 20)
		require.NoError(t, err)
		require.Equal(t, 19, count(got, idem.FateDone))
		require.Equal(t, idem.FateNotDone, got["p007"].Fate)
		require.Error(t, got["p007"].Err)
		require.Empty(t, bench.pending())
		b.paidOnce(t)
	})
}

// A codec that fails on the rest of a call doesn't undo what its answer settled.
func TestWhatIsSettledStaysSoIfNoFurtherCallCanBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *bank
		b = newBank(func(_ int, lines []payoutLine) (int, any, error) {
			return 200, append(b.pay(lines[:2])[:1], payoutLine{ID: "p002", Status: "throttled"}), nil
		})
		bench := newBatchBench(t, b, true)
		bench.codec(batchCodec{payouts: payouts{true}, encode: func(ctx context.Context, in []idem.KeyedItem) (*http.Request, error) {
			if len(in) < 3 {
				return nil, errors.New("no")
			}
			return payouts{}.Encode(ctx, in)
		}})
		got, err := bench.run(items(3), 3)
		require.NoError(t, err)
		require.Equal(t, idem.FateDone, got["p000"].Fate)
		require.Equal(t, idem.FateUnknown, got["p001"].Fate)
		require.Equal(t, idem.FateNotDone, got["p002"].Fate)
		left := bench.pending()
		require.Len(t, left, 1)
		require.Equal(t, idem.StateAmbiguous, left[0].State)
		require.Equal(t, "p001", left[0].Item)
	})
}

func TestWhatACodecReadIsRecalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(func(int, []payoutLine) (int, any, error) { return 207, []payoutLine{}, nil })
		bench := newBatchBench(t, b, true)
		bench.codec(batchCodec{decode: func(*http.Response, []idem.KeyedItem) ([]idem.ItemResult, error) {
			return []idem.ItemResult{
				{ID: "p000", Fate: idem.FateDone, Body: []byte("receipt")},
				{ID: "p001", Fate: idem.FateNotDone, Status: -3, Err: errors.New("no such payee")},
				{ID: "p002", Fate: idem.Fate(9), Status: 1 << 40, RetryAfter: -time.Hour},
				{ID: "", Fate: idem.FateDone}, {ID: "p0", Fate: idem.FateDone},
			}, nil
		}})
		first, err := bench.run(items(3), 3)
		require.ErrorContains(t, err, "didn't carry: 2")
		again, _ := bench.run(items(3), 3)
		for _, got := range []map[string]idem.ItemResult{first, again} {
			require.Equal(t, "receipt", string(got["p000"].Body))
			require.Equal(t, 207, got["p000"].Status)
			require.ErrorContains(t, got["p001"].Err, "no such payee")
			require.Equal(t, idem.FateUnknown, got["p002"].Fate)
		}
	})
}

func TestForeignResultsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *bank
		b = newBank(func(_ int, lines []payoutLine) (int, any, error) {
			return 200, append(b.pay(lines), payoutLine{ID: "nobody", Status: "paid"}), nil
		})
		var foreign []string
		bench := newBatchBench(t, b, true)
		bench.with(func(o *idem.Options) {
			o.Trace = &idem.Trace{Foreign: func(_ context.Context, call idem.Key, id string) { foreign = append(foreign, id, string(call)) }}
		})
		got, err := bench.run(items(2), 3)
		require.ErrorContains(t, err, `"nobody"`, "the batch's error says so at its end")
		require.Equal(t, 2, count(got, idem.FateDone))
		require.Equal(t, []string{"nobody", b.keys[0]}, foreign)
	})
}

// An item that the provider breaks down on doesn't hold the others up for ever.
func TestAPoisonedItemIsPartedFromTheOthersOfItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *bank
		b = newBank(func(_ int, lines []payoutLine) (int, any, error) {
			if slices.ContainsFunc(lines, func(l payoutLine) bool { return l.ID == "p005" }) {
				return 500, "oops", nil
			}
			return 200, b.pay(lines), nil
		})
		bench := newBatchBench(t, b, true)
		bench.with(func(o *idem.Options) {
			o.Retry.MaxAttempts = 2
			o.Breaker.Disabled = true
		})
		got, err := bench.run(items(16), 16)
		require.NoError(t, err)
		require.Equal(t, 15, count(got, idem.FateDone))
		require.Equal(t, idem.FateUnknown, got["p005"].Fate)
		b.paidOnce(t)
	})
}

// A gateway that is down says nothing of the items: their call stays as it is.
func TestAnOutageDoesNotMultiplyTheCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(func(int, []payoutLine) (int, any, error) { return 502, "bad gateway", nil })
		bench := newBatchBench(t, b, true)
		bench.with(func(o *idem.Options) { o.Retry.MaxAttempts = 2 })
		got, err := bench.run(items(16), 16)
		require.NoError(t, err)
		require.Equal(t, 16, count(got, idem.FateUnknown))
		require.Len(t, b.calls, 2)
	})
}

func TestACallThatIsToldToWaitWaits(t *testing.T) {
	for _, status := range []int{429, 503} {
		synctest.Test(t, func(t *testing.T) {
			b, bench := batchPays(t, false)
			n := 0
			bench.with(func(o *idem.Options) {
				o.Base = batchBase(func(req *http.Request) (*http.Response, error) {
					if n++; n == 1 {
						return &http.Response{StatusCode: status, Header: http.Header{"Retry-After": {"7"}}, Body: http.NoBody, Request: req}, nil
					}
					return b.RoundTrip(req)
				})
			})
			began := time.Now()
			got, err := bench.run(items(3), 3)
			require.NoError(t, err)
			require.Equal(t, 3, count(got, idem.FateDone))
			require.GreaterOrEqual(t, time.Since(began), 7*time.Second)
			require.Len(t, b.calls, 1)
		})
	}
}

// A provider that takes keys of items alone has no use for one of the call.
func TestItemKeysMakeACallSafeToRepeat(t *testing.T) {
	for _, itemKeys := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var b *bank
			b = newBank(func(n int, lines []payoutLine) (int, any, error) {
				out := b.pay(lines)
				if n == 1 {
					return 0, nil, io.ErrUnexpectedEOF
				}
				return 200, out, nil
			})
			bench := newBatchBench(t, b, itemKeys)
			bench.with(func(o *idem.Options) { o.Dialect = idem.Dialect{Placement: idem.PlaceNone} })
			got, err := bench.run(items(3), 3)
			require.NoError(t, err)
			require.Equal(t, []string{"", ""}[:len(b.keys)], b.keys)
			if itemKeys {
				require.Equal(t, 3, count(got, idem.FateDone))
			} else {
				require.Equal(t, 3, count(got, idem.FateUnknown), "one attempt at most")
				require.Len(t, b.calls, 1)
			}
			b.paidOnce(t)
		})
	}
}

func TestACallsKeyMayStandInItsJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bodies []string
		bench := newBatchBench(t, newBank(nil), false)
		bench.with(func(o *idem.Options) {
			o.Dialect = idem.Dialect{Placement: idem.PlaceJSON, Field: "call_key"}
			o.Base = batchBase(func(req *http.Request) (*http.Response, error) {
				body, _ := io.ReadAll(req.Body)
				bodies = append(bodies, string(body))
				if len(bodies) == 1 {
					return nil, io.ErrUnexpectedEOF
				}
				return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(`[{"id":"p000","status":"paid"}]`)), ContentLength: -1, TransferEncoding: []string{"chunked"}}, nil
			})
		}).codec(batchCodec{encode: func(ctx context.Context, in []idem.KeyedItem) (*http.Request, error) {
			req, err := http.NewRequestWithContext(ctx, "POST", "http://bank.example/payouts", strings.NewReader(`{"items": [1.50]}`))
			if err == nil {
				req.Header.Set("Content-Type", "application/json")
			}
			return req, err
		}})
		got, err := bench.run(items(1), 1)
		require.NoError(t, err)
		require.Equal(t, idem.FateDone, got["p000"].Fate)
		require.Len(t, bodies, 2)
		require.Equal(t, bodies[0], bodies[1])
		require.Contains(t, bodies[0], `"call_key":"`)
		require.Contains(t, bodies[0], `"items": [1.50]`)
	})
}

// fullKeystore has no room for answers.
type fullKeystore struct{ idem.Keystore }

func (k fullKeystore) Commit(ctx context.Context, changes ...keystore.Change) error {
	for _, c := range changes {
		if len(c.Record.Response) > 0 {
			return idem.ErrFull
		}
	}
	return k.Keystore.Commit(ctx, changes...)
}

func TestAFullJournalKeepsTheFatesOfItemsWithoutTheirAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *bank
		b = newBank(func(_ int, lines []payoutLine) (int, any, error) { return 200, b.pay(lines), nil })
		c, err := idem.New(fullKeystore{idem.NewMemoryKeystore()}, &idem.Options{Base: b, Codecs: map[string]idem.BatchCodec{"payouts": payouts{true}}})
		require.NoError(t, err)
		defer c.Close()
		bench := &batchBench{t: t, client: c}
		for _, recalled := range []bool{false, true} {
			got, err := bench.run(items(3), 3)
			require.NoError(t, err)
			require.Equal(t, 3, count(got, idem.FateDone))
			require.Equal(t, recalled, got["p000"].Recalled)
		}
		require.Len(t, b.calls, 1)
	})
}
