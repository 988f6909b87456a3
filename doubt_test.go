package idem_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
)

func TestAnAnonymousIntentLeavesNoEntryOnceSettled(t *testing.T) {
	for _, status := range []int{0, 402, 401} {
		idBubble(t, nil, func(t *testing.T, b *idBench) {
			if status != 0 {
				b.answer(status)
			}
			_, r, err := b.do(context.Background(), `{"id":"o1"}`)
			require.NoError(t, err)
			require.Empty(t, b.open())
			_, err = b.c.LookupKey(context.Background(), r.Key)
			require.ErrorIs(t, err, idem.ErrNotFound)
			// The next equal one is another intent.
			_, next, err := b.do(context.Background(), `{"id":"o1"}`)
			require.NoError(t, err)
			require.NotEqual(t, r.Key, next.Key)
			require.False(t, next.Recalled)
		})
	}
}

// idDoubt leaves an anonymous request Unknown and heals the server.
func idDoubt(t *testing.T, b *idBench) idem.Key {
	t.Helper()
	b.lose()
	_, r, err := b.do(context.Background(), `{"id":"o1"}`)
	require.Error(t, err)
	require.Equal(t, idem.FateUnknown, r.Fate)
	require.NotEmpty(t, r.Key)
	b.srv.Heal()
	return r.Key
}

func TestARequestEqualToOneLeftUnknownIsInDoubt(t *testing.T) {
	idBubble(t, nil, func(t *testing.T, b *idBench) {
		key := idDoubt(t, b)
		sent := len(b.srv.Requests())
		for range 3 {
			_, r, err := b.do(context.Background(), `{"id":"o1"}`)
			require.ErrorIs(t, err, idem.ErrInDoubt)
			require.Equal(t, key, r.Key)
			require.Equal(t, idem.FateUnknown, r.Fate)
		}
		_, err := b.c.Enqueue(idPost(context.Background(), `{"id":"o1"}`))
		require.ErrorIs(t, err, idem.ErrInDoubt)
		require.Len(t, b.srv.Requests(), sent)

		_, r, err := b.do(idKeyed(key), `{"id":"o1"}`)
		require.NoError(t, err)
		require.Equal(t, key, r.Key)
		require.Equal(t, 1, b.srv.Effects("o1"))
	})
}

func TestARequestThatIsNotEqualIsNotInDoubt(t *testing.T) {
	for name, c := range map[string]struct {
		ctx    context.Context
		body   string
		change func(*http.Request)
	}{
		"body":    {context.Background(), `{"id":"o2"}`, func(*http.Request) {}},
		"account": {idem.WithAccount(context.Background(), "b"), `{"id":"o1"}`, func(*http.Request) {}},
		"name":    {idNamed("n"), `{"id":"o1"}`, func(*http.Request) {}},
		"key":     {idKeyed("k"), `{"id":"o1"}`, func(*http.Request) {}},
		"URL":     {context.Background(), `{"id":"o1"}`, func(r *http.Request) { r.URL.Path = "/v1/refunds" }},
		"SDK key": {context.Background(), `{"id":"o1"}`, idHeader("Idempotency-Key", "sdk")},
	} {
		t.Run(name, func(t *testing.T) {
			idBubble(t, nil, func(t *testing.T, b *idBench) {
				idDoubt(t, b)
				_, r, err := b.do(c.ctx, c.body, c.change)
				require.NoError(t, err)
				require.Equal(t, idem.FateDone, r.Fate)
			})
		})
	}
}

func TestALoopAroundAnAnonymousRequestNeverDoubles(t *testing.T) {
	for name, between := range map[string]func(t *testing.T, b *idBench, key idem.Key){
		"nothing": func(*testing.T, *idBench, idem.Key) {},
		"Resume": func(t *testing.T, b *idBench, _ idem.Key) {
			_, err := b.c.Resume(context.Background(), nil)
			require.NoError(t, err)
		},
		"Run": func(t *testing.T, b *idBench, _ idem.Key) {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
			defer cancel()
			require.NoError(t, b.c.Run(ctx))
		},
		"Settle": func(t *testing.T, b *idBench, key idem.Key) {
			require.NoError(t, b.c.Settle(context.Background(), key, idem.Finding{Fate: idem.FateDone}))
		},
		"days": func(t *testing.T, b *idBench, _ idem.Key) {
			for range 5 {
				time.Sleep(23 * time.Hour)
				_, err := b.c.Resume(context.Background(), nil)
				require.NoError(t, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			idBubble(t, nil, func(t *testing.T, b *idBench) {
				key := idDoubt(t, b)
				between(t, b, key)
				for range 5 {
					_, r, err := b.do(context.Background(), `{"id":"o1"}`)
					require.ErrorIs(t, err, idem.ErrInDoubt)
					require.Equal(t, key, r.Key)
					require.NotEqual(t, idem.FateNotDone, r.Fate)
				}
				require.Equal(t, 1, b.srv.Effects("o1"))
				require.Len(t, b.srv.Keys("o1"), 1)
			})
		})
	}
}

func TestADoubtEndsWhenItsCallerHasHeardTheEnd(t *testing.T) {
	for name, settle := range map[string]func(t *testing.T, b *idBench){
		"continued": func(*testing.T, *idBench) {},
		"recalled": func(t *testing.T, b *idBench) {
			_, err := b.c.Resume(context.Background(), nil)
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			idBubble(t, nil, func(t *testing.T, b *idBench) {
				key := idDoubt(t, b)
				settle(t, b)
				_, _, err := b.do(idKeyed(key), `{"id":"o1"}`)
				require.NoError(t, err)
				_, r, err := b.do(context.Background(), `{"id":"o1"}`)
				require.NoError(t, err, "the caller knows the end of the first, so this is a second")
				require.NotEqual(t, key, r.Key)
			})
		})
	}
}

func TestADoubtThatIsSettledNotDoneIsOver(t *testing.T) {
	idBubble(t, nil, func(t *testing.T, b *idBench) {
		b.srv.Script(mockserver.Fault{Kind: mockserver.FaultReset, Times: -1})
		_, r, err := b.do(context.Background(), `{"id":"o1"}`)
		require.Error(t, err)
		require.Equal(t, idem.FateUnknown, r.Fate)
		b.srv.Heal()
		require.NoError(t, b.c.Settle(context.Background(), r.Key, idem.Finding{Fate: idem.FateNotDone}))
		_, again, err := b.do(context.Background(), `{"id":"o1"}`)
		require.NoError(t, err)
		require.NotEqual(t, r.Key, again.Key)
		require.Equal(t, 1, b.srv.Effects("o1"))
	})
}

func TestNobodyHearsNotDoneOfARequestInDoubt(t *testing.T) {
	for name, ctx := range map[string]func() (context.Context, context.CancelFunc){
		"canceled": func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			return ctx, func() {}
		},
		"deadline": func() (context.Context, context.CancelFunc) {
			return context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
		},
		"expired": func() (context.Context, context.CancelFunc) {
			return idem.WithExpiry(context.Background(), time.Now().Add(-time.Second)), func() {}
		},
	} {
		t.Run(name, func(t *testing.T) {
			idBubble(t, nil, func(t *testing.T, b *idBench) {
				key := idDoubt(t, b)
				ctx, cancel := ctx()
				defer cancel()
				_, r, err := b.do(ctx, `{"id":"o1"}`)
				require.Error(t, err)
				require.Equal(t, idem.FateUnknown, r.Fate, "%v", err)
				require.Equal(t, key, r.Key)
			})
		})
	}
}

func TestADoubtIsSharedByTheClientsOfAKeystore(t *testing.T) {
	idBubble(t, nil, func(t *testing.T, b *idBench) {
		twin := b.client(nil)
		key := idDoubt(t, b)
		_, r, err := idDo(t, twin, context.Background(), `{"id":"o1"}`)
		require.ErrorIs(t, err, idem.ErrInDoubt)
		require.Equal(t, key, r.Key)
		other := b.client(func(o *idem.Options) { o.Scope = "other" })
		_, _, err = idDo(t, other, context.Background(), `{"id":"o1"}`)
		require.NoError(t, err)
	})
}

func TestADoubtOutlivesItsClientInTheSameProcess(t *testing.T) {
	idBubble(t, nil, func(t *testing.T, b *idBench) {
		key := idDoubt(t, b)
		require.NoError(t, b.c.Close())
		next := b.client(nil)
		_, r, err := idDo(t, next, context.Background(), `{"id":"o1"}`)
		require.ErrorIs(t, err, idem.ErrInDoubt)
		require.Equal(t, key, r.Key)
	})
}

func TestAPanicLeavesADoubt(t *testing.T) {
	base := idBase(func(*http.Request) (*http.Response, error) { panic("a bug below") })
	idBubble(t, func(o *idem.Options) { o.Base = base }, func(t *testing.T, b *idBench) {
		require.PanicsWithValue(t, "a bug below", func() { _, _ = b.c.Do(idPost(context.Background(), `{"id":"o1"}`)) })
		_, _, err := b.do(context.Background(), `{"id":"o1"}`)
		require.ErrorIs(t, err, idem.ErrInDoubt)
		require.Len(t, b.open(), 1)
	})
}
