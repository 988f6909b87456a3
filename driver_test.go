package idem_test

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
)

// idCall is one Do under way.
type idCall struct {
	resp   *http.Response
	result idem.Result
	err    error
	done   chan struct{}
}

// goDo starts a Do and lets it come to rest: to send, or to wait for its turn.
func (b *idBench) goDo(c *idem.Client, ctx context.Context, body string) *idCall {
	call := &idCall{done: make(chan struct{})}
	go func() {
		defer close(call.done)
		call.resp, call.err = c.Do(idPost(idem.WithResult(ctx, &call.result), body))
	}()
	synctest.Wait()
	return call
}

func TestManyCallsOfOneNameAreOneEffectAndAllGetItsAnswer(t *testing.T) {
	for name, fault := range map[string]mockserver.Fault{
		"slow": {Kind: mockserver.FaultDelay, Delay: time.Second},
		"lost": {Kind: mockserver.FaultDrop},
	} {
		t.Run(name, func(t *testing.T) {
			idBubble(t, nil, func(t *testing.T, b *idBench) {
				twin := b.client(nil)
				b.srv.Script(fault)
				var all sync.WaitGroup
				bodies := make([]string, 40)
				for i := range bodies {
					c := b.c
					if i%2 == 1 {
						c = twin
					}
					all.Go(func() {
						resp, r, err := idDo(t, c, idNamed("n"), `{"id":"o1"}`)
						if err != nil || r.Fate != idem.FateDone {
							t.Error(err, r)
							return
						}
						bodies[i] = idBodyOf(t, resp)
					})
				}
				all.Wait()
				for _, body := range bodies {
					require.Equal(t, bodies[0], body)
				}
				require.Equal(t, 1, b.srv.Effects("o1"))
				require.Len(t, b.srv.Keys("o1"), 1)
			})
		})
	}
}

func TestAFollowerTakesOverFromACanceledLeader(t *testing.T) {
	idBubble(t, nil, func(t *testing.T, b *idBench) {
		b.srv.Script(mockserver.Fault{Kind: mockserver.FaultDelay, Delay: 5 * time.Second})
		ctx, cancel := context.WithCancel(idNamed("n"))
		leader := b.goDo(b.c, ctx, `{"id":"o1"}`)
		follower := b.goDo(b.c, idNamed("n"), `{"id":"o1"}`)
		cancel()
		<-leader.done
		require.ErrorIs(t, leader.err, context.Canceled)
		require.Equal(t, idem.FateUnknown, leader.result.Fate)
		<-follower.done
		require.NoError(t, follower.err)
		require.Equal(t, idem.FateDone, follower.result.Fate)
		require.Equal(t, leader.result.Key, follower.result.Key)
		require.Equal(t, 1, b.srv.Effects("o1"))
	})
}

func TestALeaderCanceledBeforeItSentHearsUnknownIfAnotherWaits(t *testing.T) {
	idBubble(t, nil, func(t *testing.T, b *idBench) {
		b.srv.Script(mockserver.Fault{Kind: mockserver.FaultRefuse})
		ctx, cancel := context.WithCancel(idNamed("n"))
		leader := b.goDo(b.c, ctx, `{"id":"o1"}`) // now in its backoff
		follower := b.goDo(b.c, idNamed("n"), `{"id":"o1"}`)
		cancel()
		<-leader.done
		require.Equal(t, idem.FateUnknown, leader.result.Fate, "the follower will send it")
		<-follower.done
		require.NoError(t, follower.err)
		require.Equal(t, leader.result.Key, follower.result.Key)
	})
}

func TestACanceledFollowerHearsUnknownAndHarmsNothing(t *testing.T) {
	idBubble(t, nil, func(t *testing.T, b *idBench) {
		b.srv.Script(mockserver.Fault{Kind: mockserver.FaultDelay, Delay: 10 * time.Second})
		leader := b.goDo(b.c, idNamed("n"), `{"id":"o1"}`)
		ctx, cancel := context.WithTimeout(idNamed("n"), time.Second)
		defer cancel()
		follower := b.goDo(b.c, ctx, `{"id":"o1"}`)
		<-follower.done
		require.ErrorIs(t, follower.err, context.DeadlineExceeded)
		require.Equal(t, idem.FateUnknown, follower.result.Fate)
		require.NotEmpty(t, follower.result.Key)
		<-leader.done
		require.NoError(t, leader.err)
	})
}

func TestARefusalAtTheDoorWithAWaiterIsUnknownAndTheWaiterGoesOn(t *testing.T) {
	for _, status := range []int{401, 403, 413} {
		idBubble(t, nil, func(t *testing.T, b *idBench) {
			b.srv.Script(mockserver.Fault{Kind: mockserver.FaultStatus, Status: status, Delay: time.Second})
			leader := b.goDo(b.c, idNamed("n"), `{"id":"o1"}`)
			follower := b.goDo(b.c, idNamed("n"), `{"id":"o1"}`)
			<-leader.done
			var e *idem.Error
			require.ErrorAs(t, leader.err, &e)
			require.Equal(t, idem.FateUnknown, e.Fate)
			require.Equal(t, status, e.Response.StatusCode)
			<-follower.done
			require.NoError(t, follower.err)
			require.Equal(t, e.Key, follower.result.Key)
			require.Len(t, b.srv.Keys("o1"), 1)
		})
	}
}

func TestARefusalAtTheDoorWithAWaiterIsAnErrorAlsoUnderAnSDK(t *testing.T) {
	idBubble(t, nil, func(t *testing.T, b *idBench) {
		b.srv.Script(mockserver.Fault{Kind: mockserver.FaultStatus, Status: 401, Delay: time.Second})
		errs := make(chan error, 1)
		go func() {
			errs <- idErr(b.c.Transport().RoundTrip(idPost(idNamed("n"), `{"id":"o1"}`)))
		}()
		synctest.Wait()
		follower := b.goDo(b.c, idNamed("n"), `{"id":"o1"}`)
		require.Equal(t, idem.FateUnknown, idem.FateOf(nil, <-errs))
		<-follower.done
		require.NoError(t, follower.err)
	})
}

func TestOfManyRefusedAtTheDoorOnlyTheLastMayHearNotDone(t *testing.T) {
	idBubble(t, nil, func(t *testing.T, b *idBench) {
		b.srv.Script(mockserver.Fault{Kind: mockserver.FaultStatus, Status: 401, Delay: time.Second, Times: -1})
		var calls []*idCall
		for range 4 {
			calls = append(calls, b.goDo(b.c, idNamed("n"), `{"id":"o1"}`))
		}
		fates := map[idem.Fate]int{}
		for _, c := range calls {
			<-c.done
			fates[c.result.Fate]++
		}
		require.Equal(t, map[idem.Fate]int{idem.FateUnknown: 3, idem.FateNotDone: 1}, fates)
		require.Empty(t, b.open(), "NotDone was said, so it is gone")
		require.Zero(t, b.srv.Total())
	})
}

func TestWhatEnqueueJoinsIsNeverWithdrawn(t *testing.T) {
	for name, fault := range map[string]mockserver.Fault{
		"refused dial":        {Kind: mockserver.FaultRefuse, Times: 100, Delay: time.Second},
		"refused at the door": {Kind: mockserver.FaultStatus, Status: 401, Delay: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			idBubble(t, nil, func(t *testing.T, b *idBench) {
				b.srv.Script(fault)
				call := b.goDo(b.c, idNamed("n"), `{"id":"o1"}`)
				key, err := b.c.Enqueue(idPost(idNamed("n"), `{"id":"o1"}`))
				require.NoError(t, err)
				<-call.done
				require.Error(t, call.err, "no refusal is shown of what will be sent")
				require.Equal(t, idem.FateUnknown, call.result.Fate)
				require.Equal(t, key, call.result.Key)
				open := b.open()
				require.Len(t, open, 1)
				require.True(t, open[0].Enqueued)
				require.NotEmpty(t, open[0].LastError)
				b.srv.Heal()
				time.Sleep(time.Minute)
				report, err := b.c.Resume(context.Background(), nil)
				require.NoError(t, err)
				require.Equal(t, idem.Report{Done: 1}, report)
				require.Equal(t, []string{string(key)}, b.srv.Keys("o1"))
			})
		})
	}
}

func TestResumeSkipsWhatADoDrives(t *testing.T) {
	idBubble(t, nil, func(t *testing.T, b *idBench) {
		b.srv.Script(mockserver.Fault{Kind: mockserver.FaultDelay, Delay: time.Second})
		call := b.goDo(b.c, context.Background(), `{"id":"o1"}`)
		report, err := b.c.Resume(context.Background(), nil)
		require.NoError(t, err)
		require.Equal(t, idem.Report{Skipped: 1}, report)
		require.ErrorIs(t, b.c.Abandon(context.Background(), b.open()[0].Key, "no"), idem.ErrConflict)
		<-call.done
		require.NoError(t, call.err)
		require.Len(t, b.srv.Requests(), 1)
	})
}

func TestANameIsForgottenOnlyWhenItsEndIsKnown(t *testing.T) {
	idBubble(t, nil, func(t *testing.T, b *idBench) {
		b.srv.Script(mockserver.Fault{Kind: mockserver.FaultDelay, Delay: time.Second})
		call := b.goDo(b.c, idNamed("n"), `{"id":"o1"}`)
		require.ErrorIs(t, b.c.Forget(context.Background(), "n"), idem.ErrConflict)
		<-call.done
		require.NoError(t, b.c.Forget(context.Background(), "n"))
		_, r, err := b.do(idNamed("n"), `{"id":"o2"}`)
		require.NoError(t, err)
		require.NotEqual(t, call.result.Key, r.Key)
	})
}

func TestClientsOfOneKeystoreMustAgree(t *testing.T) {
	idBubble(t, func(o *idem.Options) { o.Account = "a" }, func(t *testing.T, b *idBench) {
		for field, o := range map[string]*idem.Options{
			"Scope":   {Account: "a"},
			"Account": {Scope: "pay", Account: "b"},
			"Dialect": {Scope: "pay", Account: "a", Dialect: idem.Dialect{Window: time.Hour}},
		} {
			_, err := idem.New(b.ks, o)
			idInvalid(t, err, "Options."+field)
		}
		_, err := idem.New(b.ks, nil)
		idInvalid(t, err, "Options.Scope")
		b.client(func(o *idem.Options) { o.Account = "a" })
		b.client(func(o *idem.Options) { o.Scope, o.Account = "other", "b" })
	})
}

func TestClientsOfOneKeystoreAgreeOnlyWhileBothAreOpen(t *testing.T) {
	ks := idem.NewMemoryKeystore()
	defer ks.Close()
	alone, err := idem.New(ks, nil)
	require.NoError(t, err)
	_, err = idem.New(ks, &idem.Options{Scope: "pay"})
	idInvalid(t, err, "Options.Scope")
	require.NoError(t, alone.Close())
	one, err := idem.New(ks, &idem.Options{Scope: "pay", Account: "a"})
	require.NoError(t, err)
	require.NoError(t, one.Close())
	two, err := idem.New(ks, &idem.Options{Scope: "pay", Account: "b"})
	require.NoError(t, err)
	require.NoError(t, two.Close())
}

func TestAHookMayCallBackIntoTheClient(t *testing.T) {
	type hook struct {
		name string
		set  func(o *idem.Options, f func(context.Context))
		call func(t *testing.T, b *idBench)
	}
	lost := func(t *testing.T, b *idBench) {
		b.lose()
		_, _, err := b.do(idNamed("n"), `{"id":"o1"}`)
		require.Error(t, err)
		b.srv.Heal()
	}
	resume := func(t *testing.T, b *idBench) {
		lost(t, b)
		_, err := b.c.Resume(context.Background(), nil)
		require.NoError(t, err)
	}
	for _, h := range []hook{
		{"Authorize", func(o *idem.Options, f func(context.Context)) {
			o.Authorize = func(r *http.Request) error { f(r.Context()); return nil }
		}, func(t *testing.T, b *idBench) { _, _, _ = b.do(idNamed("n"), `{"id":"o1"}`) }},
		{"Reconcile", func(o *idem.Options, f func(context.Context)) {
			o.Reconcile = func(ctx context.Context, _ idem.Entry) (idem.Finding, error) {
				f(ctx)
				return idem.Finding{Fate: idem.FateDone}, nil
			}
		}, func(t *testing.T, b *idBench) {
			lost(t, b)
			time.Sleep(48 * time.Hour)
			_, err := b.c.Resume(context.Background(), nil)
			require.NoError(t, err)
		}},
		{"Each", func(o *idem.Options, f func(context.Context)) {
			o.Resume.Each = func(idem.Entry, error) { f(context.Background()) }
		}, resume},
		{"Settled", func(o *idem.Options, f func(context.Context)) {
			o.Settled = func(ctx context.Context, _ idem.Entry) error { f(ctx); return nil }
		}, resume},
	} {
		t.Run(h.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var b *idBench
				var calls atomic.Int32
				back := func(ctx context.Context) {
					if calls.Add(1) > 1 {
						return // one level is enough
					}
					_, named := idem.IntentFrom(ctx)
					require.False(t, named, "a hook's context names nothing")
					idCallAll(t, b, ctx)
				}
				b = idNew(t, nil, func(o *idem.Options) { h.set(o, back) })
				h.call(t, b)
				require.NotZero(t, calls.Load())
				require.Equal(t, 1, b.srv.Effects("o1"))
				require.Equal(t, 1, b.srv.Effects("o9"))
			})
		})
	}
}

// idCallAll calls what a hook might; none may block.
func idCallAll(t *testing.T, b *idBench, ctx context.Context) {
	t.Helper()
	_, _, err := b.do(idem.WithIntent(ctx, "another"), `{"id":"o9"}`)
	require.NoError(t, err)
	_, r, err := b.do(idem.WithIntent(ctx, "n"), `{"id":"o1"}`)
	if err != nil {
		require.ErrorIs(t, err, idem.ErrConflict)
		require.Equal(t, idem.FateUnknown, r.Fate)
	}
	_, err = b.c.Lookup(ctx, "n")
	require.NoError(t, err)
	_, err = b.c.Resume(ctx, &idem.ResumeOptions{})
	require.NoError(t, err)
	// What these say depends on the hook; that they return is the point.
	_, _ = b.c.Enqueue(idPost(idem.WithIntent(ctx, "n"), `{"id":"o1"}`))
	e, err := b.c.Lookup(ctx, "n")
	require.NoError(t, err)
	require.Error(t, b.c.Abandon(ctx, e.Key, "no"), "it is settled, or has a driver")
	for _, err := range b.c.Pending(ctx) {
		require.NoError(t, err)
	}
}
