package idem_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
)

func TestASettledNameAnswersWithoutNetwork(t *testing.T) {
	for _, status := range []int{201, 402, 422} {
		idBubble(t, nil, func(t *testing.T, b *idBench) {
			if status != 201 {
				b.answer(status)
			}
			first, was, err := b.do(idNamed("order-1"), `{"id":"o1"}`)
			require.NoError(t, err)
			require.False(t, was.Recalled)
			body := idBodyOf(t, first)
			for range 3 {
				again, is, err := b.do(idNamed("order-1"), `{"id":"o1"}`)
				require.NoError(t, err)
				require.Equal(t, status, again.StatusCode)
				require.Equal(t, body, idBodyOf(t, again))
				require.Equal(t, first.Header.Get("Content-Type"), again.Header.Get("Content-Type"))
				require.True(t, is.Recalled)
				require.Equal(t, was.Fate, is.Fate)
				require.Equal(t, was.Key, is.Key)
				require.Equal(t, "order-1", is.Intent)
			}
			require.Len(t, b.srv.Requests(), 1)
		})
	}
}

func TestARecallOutlivesTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := mockserver.New(nil)
		defer srv.Close()
		path := t.TempDir() + "/journal.db"
		var keys []idem.Key
		for range 3 {
			c, err := idem.Open(path, &idem.Options{Base: srv.Transport()})
			require.NoError(t, err)
			_, r, err := idDo(t, c, idNamed("order-1"), `{"id":"o1"}`)
			require.NoError(t, err)
			keys = append(keys, r.Key)
			require.NoError(t, c.Close())
		}
		require.Equal(t, []idem.Key{keys[0], keys[0], keys[0]}, keys)
		require.Equal(t, 1, srv.Effects("o1"))
		require.Len(t, srv.Requests(), 1)
	})
}

func TestAMismatchIsToldBeforeAnyByteAndNamesTheHolder(t *testing.T) {
	for _, c := range []struct {
		name   string
		before func(b *idBench) // what becomes of the first call
		fate   idem.Fate
	}{
		{"Done", func(b *idBench) {}, idem.FateDone},
		{"Pending", func(b *idBench) { b.lose() }, idem.FateUnknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			idBubble(t, nil, func(t *testing.T, b *idBench) {
				c.before(b)
				_, was, _ := b.do(idNamed("order-1"), `{"id":"o1"}`)
				sent := len(b.srv.Requests())
				for name, change := range map[string]func(*http.Request){
					"method": func(r *http.Request) { r.Method = "PATCH" },
					"URL":    func(r *http.Request) { r.URL.Path = "/v1/refunds" },
					"type":   func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") },
				} {
					_, r, err := b.do(idNamed("order-1"), `{"id":"o1"}`, change)
					require.ErrorIs(t, err, idem.ErrMismatch, name)
					require.Equal(t, c.fate, r.Fate, name)
				}
				_, r, err := b.do(idNamed("order-1"), `{"id":"o2"}`)
				require.ErrorIs(t, err, idem.ErrMismatch)
				require.ErrorContains(t, err, "POST "+idURL)
				require.Equal(t, c.fate, r.Fate)
				require.Equal(t, was.Key, r.Key)
				require.Len(t, b.srv.Requests(), sent)
			})
		})
	}
}

func TestAChangedPayloadMayFollowOneThatIsSettledNotDone(t *testing.T) {
	idBubble(t, nil, func(t *testing.T, b *idBench) {
		b.answer(402)
		_, declined, err := b.do(idNamed("order-1"), `{"id":"o1","cvc":"111"}`)
		require.NoError(t, err)
		require.Equal(t, idem.FateNotDone, declined.Fate)

		resp, paid, err := b.do(idNamed("order-1"), `{"id":"o1","cvc":"222"}`)
		require.NoError(t, err)
		require.Equal(t, 201, resp.StatusCode)
		require.Equal(t, idem.FateDone, paid.Fate)
		require.NotEqual(t, declined.Key, paid.Key)
		require.Equal(t, []string{string(declined.Key), string(paid.Key)}, b.keys())

		e, err := b.c.Lookup(context.Background(), "order-1")
		require.NoError(t, err)
		require.Equal(t, paid.Key, e.Key)
		require.Equal(t, declined.Key, e.Parent)
		old, err := b.c.LookupKey(context.Background(), declined.Key)
		require.NoError(t, err)
		require.Equal(t, idem.FateNotDone, old.Fate)

		// The declined payload is now another one than the name's.
		_, r, err := b.do(idNamed("order-1"), `{"id":"o1","cvc":"111"}`)
		require.ErrorIs(t, err, idem.ErrMismatch)
		require.Equal(t, idem.FateDone, r.Fate)
		require.Len(t, b.srv.Requests(), 2)
	})
}

func TestAFollowUpUnderAKeyOfAnotherIntentIsAMismatch(t *testing.T) {
	idBubble(t, nil, func(t *testing.T, b *idBench) {
		_, _, err := b.do(idKeyed("mine"), `{"id":"other"}`)
		require.NoError(t, err)
		b.answer(402)
		_, _, err = b.do(idNamed("order-1"), `{"id":"o1","cvc":"111"}`)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(idem.WithKey(idNamed("order-1"), "mine"), time.Minute)
		defer cancel()
		_, r, err := b.do(ctx, `{"id":"o1","cvc":"222"}`)
		require.ErrorIs(t, err, idem.ErrMismatch)
		require.NotEqual(t, idem.FateNotDone, r.Fate)
		require.Len(t, b.srv.Requests(), 2)
	})
}

func TestANameIsFreeAgainAfterARefusalAtTheDoor(t *testing.T) {
	for _, status := range []int{401, 403, 407, 411, 413, 414, 431} {
		idBubble(t, nil, func(t *testing.T, b *idBench) {
			b.answer(status)
			resp, r, err := b.do(idNamed("order-1"), `{"id":"o1"}`)
			require.NoError(t, err)
			require.Equal(t, status, resp.StatusCode)
			require.Equal(t, idem.FateNotDone, r.Fate)
			require.Empty(t, b.open())
			_, err = b.c.Lookup(context.Background(), "order-1")
			require.ErrorIs(t, err, idem.ErrNotFound)
			_, r, err = b.do(idNamed("order-1"), `{"id":"o1","changed":true}`)
			require.NoError(t, err)
			require.Equal(t, idem.FateDone, r.Fate)
		})
	}
}

func TestANameLeftPendingGoesOnUnderItsKey(t *testing.T) {
	idBubble(t, nil, func(t *testing.T, b *idBench) {
		b.lose()
		_, was, err := b.do(idNamed("order-1"), `{"id":"o1"}`)
		require.ErrorIs(t, err, idem.ErrExhausted)
		require.Equal(t, idem.FateUnknown, was.Fate)
		b.srv.Heal()
		_, is, err := b.do(idNamed("order-1"), `{"id":"o1"}`)
		require.NoError(t, err)
		require.Equal(t, was.Key, is.Key)
		require.True(t, is.Replayed)
		require.Equal(t, 1, b.srv.Effects("o1"))
		require.Len(t, b.srv.Keys("o1"), 1)
	})
}

func TestAnAccountNeverRecallsAnothersName(t *testing.T) {
	idBubble(t, func(o *idem.Options) { o.Account = "test" }, func(t *testing.T, b *idBench) {
		_, test, err := b.do(idNamed("order-1"), `{"id":"o1"}`)
		require.NoError(t, err)
		live := idem.WithAccount(idNamed("order-1"), "live")
		_, paid, err := b.do(live, `{"id":"o1"}`)
		require.NoError(t, err)
		require.False(t, paid.Recalled)
		require.NotEqual(t, test.Key, paid.Key)
		require.Len(t, b.srv.Requests(), 2)
		_, again, err := b.do(live, `{"id":"o1"}`)
		require.NoError(t, err)
		require.True(t, again.Recalled)
		require.Equal(t, paid.Key, again.Key)

		e, err := b.c.Lookup(live, "order-1")
		require.NoError(t, err)
		require.Equal(t, "live", e.Account)
		e, err = b.c.Lookup(context.Background(), "order-1")
		require.NoError(t, err)
		require.Equal(t, "test", e.Account)
	})
}

func TestAKeyOfAnotherAccountIsRefused(t *testing.T) {
	for _, pending := range []bool{false, true} {
		idBubble(t, nil, func(t *testing.T, b *idBench) {
			if pending {
				b.lose()
			}
			_, _, _ = b.do(idem.WithAccount(idKeyed("k-1"), "a"), `{"id":"o1"}`)
			sent := len(b.srv.Requests())
			for _, other := range []context.Context{idem.WithAccount(idKeyed("k-1"), "b"), idKeyed("k-1")} {
				_, r, err := b.do(other, `{"id":"o1"}`)
				require.ErrorIs(t, err, idem.ErrAccountChanged)
				require.Equal(t, idem.FateUnknown, r.Fate)
			}
			require.Len(t, b.srv.Requests(), sent)
		})
	}
}

func TestAnEntryWithoutAnAccountAdoptsTheFirstItMeets(t *testing.T) {
	for _, pending := range []bool{false, true} {
		idBubble(t, nil, func(t *testing.T, b *idBench) {
			if pending {
				b.lose()
			}
			_, was, _ := b.do(idNamed("order-1"), `{"id":"o1"}`)
			b.srv.Heal()
			first := idem.WithAccount(idNamed("order-1"), "a")
			_, is, err := b.do(first, `{"id":"o1"}`)
			require.NoError(t, err)
			require.Equal(t, was.Key, is.Key)
			require.Equal(t, !pending, is.Recalled)
			e, err := b.c.Lookup(first, "order-1")
			require.NoError(t, err)
			require.Equal(t, "a", e.Account)

			_, second, err := b.do(idem.WithAccount(idNamed("order-1"), "b"), `{"id":"o1"}`)
			require.NoError(t, err)
			require.NotEqual(t, was.Key, second.Key)
			require.False(t, second.Recalled)
		})
	}
}

func TestAccountsAndNamesNeverRunTogether(t *testing.T) {
	idBubble(t, nil, func(t *testing.T, b *idBench) {
		pairs := [][2]string{
			{"a", "b:c"}, {"a:b", "c"}, {"a", "bc"}, {"ab", "c"}, {"1", ":ab"}, {"1:a", "b"}, {"", "1:ab"}, {"", "2:abc"},
			{"a/b", "c"}, {"a", "/bc"}, {"a\x00b", "c"}, {"a", "\x00bc"},
		}
		for i, p := range pairs {
			ctx := idNamed(p[1])
			if p[0] != "" {
				ctx = idem.WithAccount(ctx, p[0])
			}
			_, r, err := b.do(ctx, `{"id":"o1"}`)
			require.NoError(t, err, "%q", p)
			require.False(t, r.Recalled, "%q", p)
			require.Equal(t, i+1, b.srv.Total(), "%q", p)
		}
	})
}

func TestOneNameInTwoScopesIsTwoIntents(t *testing.T) {
	idBubble(t, nil, func(t *testing.T, b *idBench) {
		other := b.client(func(o *idem.Options) { o.Scope = "payx" })
		_, one, err := b.do(idNamed("order-1"), `{"id":"o1"}`)
		require.NoError(t, err)
		_, two, err := idDo(t, other, idNamed("order-1"), `{"id":"o1"}`)
		require.NoError(t, err)
		require.NotEqual(t, one.Key, two.Key)
		require.Len(t, b.srv.Requests(), 2)
		_, err = other.LookupKey(context.Background(), one.Key)
		require.ErrorIs(t, err, idem.ErrNotFound)
	})
}

func TestOptionsNameTakesThePlaceOfTheContextsName(t *testing.T) {
	name := func(r *http.Request) string {
		if r.URL.Path == "/v1/payments" {
			return "order-1"
		}
		return ""
	}
	idBubble(t, func(o *idem.Options) { o.Name = name }, func(t *testing.T, b *idBench) {
		_, r, err := b.do(idNamed("order-9"), `{"id":"o1"}`)
		require.NoError(t, err)
		require.Equal(t, "order-1", r.Intent)
		_, r, err = b.do(idNamed("order-9"), `{"id":"c1"}`, func(r *http.Request) { r.URL.Path = "/v1/confirm" })
		require.NoError(t, err)
		require.Empty(t, r.Intent)
	})
}

func TestAnAbandonedNameStaysUnknownUntilForget(t *testing.T) {
	idBubble(t, nil, func(t *testing.T, b *idBench) {
		b.lose()
		_, was, _ := b.do(idNamed("order-1"), `{"id":"o1"}`)
		b.srv.Heal()
		sent := len(b.srv.Requests())
		require.NoError(t, b.c.Abandon(context.Background(), was.Key, "the customer went away"))
		for _, body := range []string{`{"id":"o1"}`, `{"id":"o2"}`} {
			_, r, err := b.do(idNamed("order-1"), body)
			require.ErrorIs(t, err, idem.ErrAbandoned)
			require.Equal(t, idem.FateUnknown, r.Fate)
		}
		require.Len(t, b.srv.Requests(), sent)
		require.NoError(t, b.c.Forget(context.Background(), "order-1"))
		_, is, err := b.do(idNamed("order-1"), `{"id":"o2"}`)
		require.NoError(t, err)
		require.NotEqual(t, was.Key, is.Key)
	})
}

func TestANameOfTheLongestLengthAndAnyTextWorks(t *testing.T) {
	idBubble(t, nil, func(t *testing.T, b *idBench) {
		for i, name := range []string{strings.Repeat("n", 512), "\x00", "ö/ü\n\"", " ", "0"} {
			for range 2 {
				_, r, err := b.do(idNamed(name), `{"id":"o1"}`)
				require.NoError(t, err)
				require.Equal(t, name, r.Intent)
			}
			require.Len(t, b.srv.Requests(), i+1)
		}
	})
}
