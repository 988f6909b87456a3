package idem_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
)

func TestADerivedKeyIsTheSameForEver(t *testing.T) {
	for _, c := range []struct{ namespace, id, key string }{
		{"orders", "42", "e261798b-fe2f-55f7-8658-cbca3185ff9a"},
		{"", "", "5786e374-94d3-51d8-95d0-59a9a874f8d3"},
		{"a", "bc", "48698d47-b192-57e4-8050-bfb7e72dcf9c"},
		{"ab", "c", "02b7ad83-e6eb-5c2e-997d-e1f3254d755b"},
	} {
		require.Equal(t, idem.Key(c.key), idem.DeriveKey(c.namespace, c.id))
	}
}

func TestANewKeyIsAFreshUUIDv7(t *testing.T) {
	seen := map[idem.Key]bool{}
	for range 100 {
		k := idem.NewKey()
		require.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, string(k))
		require.False(t, seen[k])
		seen[k] = true
	}
}

func TestAnSDKsKeyIsFoundHoweverItIsSpelled(t *testing.T) {
	for name, set := range map[string]func(*http.Request){
		"canonical": idHeader("Idempotency-Key", "sdk-1"),
		"lower":     idHeader("idempotency-key", "sdk-1"),
		"odd":       idHeader("iDEMPOTENCY-kEY", "sdk-1"),
		"twice":     idHeader("Idempotency-Key", "sdk-1", "sdk-1"),
		"variants": func(r *http.Request) {
			idHeader("Idempotency-Key", "sdk-1")(r)
			idHeader("idempotency-key", "sdk-1")(r)
			idHeader("IDEMPOTENCY-KEY", "")(r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			idBubble(t, nil, func(t *testing.T, b *idBench) {
				b.srv.Script(mockserver.Fault{Kind: mockserver.FaultDrop}, mockserver.Fault{Kind: mockserver.FaultStatus, Status: 503})
				_, r, err := b.do(context.Background(), `{"id":"o1"}`, set)
				require.NoError(t, err)
				require.Equal(t, idem.Key("sdk-1"), r.Key)
				require.Equal(t, []string{"sdk-1", "sdk-1", "sdk-1"}, b.keys())
			})
		})
	}
}

func TestTwoDifferentKeysOnARequestAreInvalid(t *testing.T) {
	idBubble(t, nil, func(t *testing.T, b *idBench) {
		_, _, err := b.do(context.Background(), `{"id":"o1"}`, idHeader("Idempotency-Key", "a"), idHeader("idempotency-key", "b"))
		var invalid *idem.InvalidError
		require.ErrorAs(t, err, &invalid)
		require.Contains(t, invalid.Field, "Request.Header")
		require.Empty(t, b.srv.Requests())
	})
}

func TestTheKeyComesFromTheNameThenTheRequestThenTheContext(t *testing.T) {
	sdk := idHeader("Idempotency-Key", "sdk-1")
	idBubble(t, nil, func(t *testing.T, b *idBench) {
		_, r, err := b.do(idKeyed("mine"), `{"id":"o1"}`, sdk)
		require.NoError(t, err)
		require.Equal(t, idem.Key("sdk-1"), r.Key, "found on the request, over WithKey")

		_, r, err = b.do(idem.WithKey(idNamed("n"), "mine-2"), `{"id":"o2"}`)
		require.NoError(t, err)
		require.Equal(t, idem.Key("mine-2"), r.Key, "WithKey, over a new one")

		_, r, err = b.do(idNamed("n"), `{"id":"o2"}`, idHeader("Idempotency-Key", "sdk-2"))
		require.NoError(t, err)
		require.Equal(t, idem.Key("mine-2"), r.Key, "the name's, over an SDK's random one")
		require.True(t, r.Recalled)
	})
}

func TestAPendingNameGoesOnUnderItsKeyThoughTheSDKMintsAnother(t *testing.T) {
	idBubble(t, nil, func(t *testing.T, b *idBench) {
		b.lose()
		_, _, err := b.do(idNamed("n"), `{"id":"o1"}`, idHeader("Idempotency-Key", "sdk-1"))
		require.Error(t, err)
		b.srv.Heal()
		_, r, err := b.do(idNamed("n"), `{"id":"o1"}`, idHeader("idempotency-key", "sdk-2"))
		require.NoError(t, err)
		require.Equal(t, idem.Key("sdk-1"), r.Key)
		require.Equal(t, []string{"sdk-1"}, b.srv.Keys("o1"))
		require.Equal(t, 1, b.srv.Effects("o1"))
	})
}

func TestAKeyThatContradictsANameIsAMismatch(t *testing.T) {
	for _, pending := range []bool{false, true} {
		idBubble(t, nil, func(t *testing.T, b *idBench) {
			if pending {
				b.lose()
			}
			_, was, _ := b.do(idNamed("n"), `{"id":"o1"}`)
			sent := len(b.srv.Requests())
			_, r, err := b.do(idem.WithKey(idNamed("n"), "another"), `{"id":"o1"}`)
			require.ErrorIs(t, err, idem.ErrMismatch)
			require.Equal(t, was.Fate, r.Fate)
			require.Len(t, b.srv.Requests(), sent)
			b.srv.Heal()
			_, r, err = b.do(idem.WithKey(idNamed("n"), was.Key), `{"id":"o1"}`)
			require.NoError(t, err, "its own key doesn't contradict it")
			require.Equal(t, was.Key, r.Key)
		})
	}
}

func TestAKeyOfAnotherNameIsAMismatch(t *testing.T) {
	idBubble(t, nil, func(t *testing.T, b *idBench) {
		_, _, err := b.do(idem.WithKey(idNamed("n"), "mine"), `{"id":"o1"}`)
		require.NoError(t, err)
		_, r, err := b.do(idem.WithKey(idNamed("other"), "mine"), `{"id":"o1"}`)
		require.ErrorIs(t, err, idem.ErrMismatch)
		require.Equal(t, idem.FateDone, r.Fate)
		require.Len(t, b.srv.Requests(), 1)
	})
}

func TestAKnownKeyIsItsIntentNamedOrNot(t *testing.T) {
	for _, pending := range []bool{false, true} {
		idBubble(t, nil, func(t *testing.T, b *idBench) {
			if pending {
				b.lose()
			}
			_, _, _ = b.do(idem.WithKey(idNamed("n"), "mine"), `{"id":"o1"}`)
			b.srv.Heal()
			for _, how := range []struct {
				ctx    context.Context
				change func(*http.Request)
			}{
				{idKeyed("mine"), func(*http.Request) {}},
				{context.Background(), idHeader("idempotency-key", "mine")},
				{idNamed("n"), func(*http.Request) {}},
			} {
				_, r, err := b.do(how.ctx, `{"id":"o1"}`, how.change)
				require.NoError(t, err)
				require.Equal(t, idem.Key("mine"), r.Key)
				require.Equal(t, idem.FateDone, r.Fate)
			}
			require.Equal(t, 1, b.srv.Effects("o1"))
			sent := len(b.srv.Requests())
			for _, ctx := range []context.Context{idKeyed("mine"), idem.WithKey(idNamed("n"), "mine")} {
				_, r, err := b.do(ctx, `{"id":"o2"}`)
				require.ErrorIs(t, err, idem.ErrMismatch)
				require.ErrorContains(t, err, "POST "+idURL)
				require.Equal(t, idem.FateDone, r.Fate)
			}
			require.Len(t, b.srv.Requests(), sent)
		})
	}
}

func TestAnAnonymousKeyTakesTheNameOfTheCallThatFindsIt(t *testing.T) {
	idBubble(t, nil, func(t *testing.T, b *idBench) {
		_, _, err := b.do(idKeyed("mine"), `{"id":"o1"}`)
		require.NoError(t, err)
		_, r, err := b.do(idem.WithKey(idNamed("n"), "mine"), `{"id":"o1"}`)
		require.NoError(t, err)
		require.True(t, r.Recalled)
		_, r, err = b.do(idNamed("n"), `{"id":"o1"}`)
		require.NoError(t, err)
		require.Equal(t, idem.Key("mine"), r.Key)
		require.Len(t, b.srv.Requests(), 1)
	})
}

func TestAnUnnamedRequestWithAnSDKsKeyRecallsThoughWithKeySaysOtherwise(t *testing.T) {
	idBubble(t, nil, func(t *testing.T, b *idBench) {
		for range 2 {
			_, r, err := b.do(idKeyed("mine"), `{"id":"o1"}`, idHeader("Idempotency-Key", "sdk-1"))
			require.NoError(t, err, "the found key comes before WithKey, and no name is contradicted")
			require.Equal(t, idem.Key("sdk-1"), r.Key)
		}
		require.Len(t, b.srv.Requests(), 1)
	})
}

func TestADeclinedKeyIsBoundToItsPayload(t *testing.T) {
	idBubble(t, nil, func(t *testing.T, b *idBench) {
		b.answer(402)
		_, r, err := b.do(idKeyed("mine"), `{"id":"o1"}`)
		require.NoError(t, err)
		require.Equal(t, idem.FateNotDone, r.Fate)
		_, r, err = b.do(idKeyed("mine"), `{"id":"o2"}`)
		require.ErrorIs(t, err, idem.ErrMismatch)
		require.Equal(t, idem.FateUnknown, r.Fate)
		require.Len(t, b.srv.Requests(), 1)
	})
}

func TestAnSDKsKeyIsRememberedForTheWindowAndTheCallersForKeep(t *testing.T) {
	idBubble(t, nil, func(t *testing.T, b *idBench) {
		known := func(key idem.Key) bool {
			_, err := b.c.LookupKey(context.Background(), key)
			if err != nil {
				require.ErrorIs(t, err, idem.ErrNotFound)
			}
			return err == nil
		}
		live := func(d time.Duration) {
			for ; d > 0; d -= time.Hour {
				time.Sleep(time.Hour)
				_, err := b.c.Resume(context.Background(), nil)
				require.NoError(t, err)
			}
		}
		_, _, err := b.do(context.Background(), `{"id":"o1"}`, idHeader("Idempotency-Key", "sdk"))
		require.NoError(t, err)
		_, _, err = b.do(idKeyed("caller"), `{"id":"o2"}`)
		require.NoError(t, err)
		_, _, err = b.do(idNamed("n"), `{"id":"o3"}`, idHeader("Idempotency-Key", "sdk-named"))
		require.NoError(t, err)
		_, _, err = b.do(idKeyed("both"), `{"id":"o4"}`, idHeader("Idempotency-Key", "both"))
		require.NoError(t, err)

		live(23 * time.Hour)
		require.True(t, known("sdk"))
		live(2 * time.Hour)
		require.False(t, known("sdk"))
		require.True(t, known("sdk-named"), "a named intent is kept for Keep")
		live(28 * 24 * time.Hour)
		require.True(t, known("caller"))
		_, r, err := b.do(idKeyed("caller"), `{"id":"o2"}`)
		require.NoError(t, err)
		require.True(t, r.Recalled)
		require.False(t, r.Trimmed)
		_, r, err = b.do(idKeyed("both"), `{"id":"o4"}`)
		require.NoError(t, err)
		require.True(t, r.Recalled)

		live(2 * 24 * time.Hour)
		_, r, err = b.do(idKeyed("caller"), `{"id":"o2"}`)
		require.True(t, r.Trimmed, "%v", err)
		require.Equal(t, idem.FateDone, r.Fate)
		require.Equal(t, 4, b.srv.Total())
	})
}

func TestAKeyStandsOnceWhereverTheDialectPutsIt(t *testing.T) {
	form := func(r *http.Request) { r.Header.Set("Content-Type", "application/x-www-form-urlencoded") }
	for _, c := range []struct {
		name    string
		dialect idem.Dialect
		profile mockserver.Profile
		body    string // %k is the SDK's key
		sdk     func(*http.Request)
		setup   func(*http.Request)
	}{
		{"query", idem.Dialect{Placement: idem.PlaceQuery, Field: "rid"}, mockserver.Profile{Place: mockserver.PlaceQuery, Field: "rid"}, `{"id":"o1"}`,
			func(r *http.Request) { r.URL.RawQuery = "rid=%k&x=1" }, func(r *http.Request) { r.URL.RawQuery = "x=1" }},
		{"JSON", idem.Dialect{Placement: idem.PlaceJSON, Field: "rid"}, mockserver.Profile{Place: mockserver.PlaceJSON, Field: "rid"}, `{"id":"o1"%k}`, nil, nil},
		{"form", idem.Dialect{Placement: idem.PlaceForm, Field: "rid"}, mockserver.Profile{Place: mockserver.PlaceForm, Field: "rid"}, `id=o1%k`, nil, form},
		{"quoted", idem.Dialect{Placement: idem.PlaceQuotedHeader}, mockserver.Profile{Quoted: true}, `{"id":"o1"}`,
			idHeader("idempotency-key", `"%k"`), nil},
	} {
		for _, found := range []bool{false, true} {
			name := c.name
			if found {
				name += ", found"
			}
			t.Run(name, func(t *testing.T) { idPlacedOnce(t, c.dialect, c.profile, c.body, c.sdk, c.setup, found) })
		}
	}
}

// idPlacedOnce sends one intent twice and twice again after a loss, and looks for
// its key in what the server saw.
func idPlacedOnce(t *testing.T, d idem.Dialect, p mockserver.Profile, body string, sdk, setup func(*http.Request), found bool) {
	idBubbleOf(t, &mockserver.Config{Profile: p}, func(o *idem.Options) { o.Dialect = d }, func(t *testing.T, b *idBench) {
		ctx, changes := idNamed("n"), []func(*http.Request){}
		if setup != nil {
			changes = append(changes, setup)
		}
		if found && sdk != nil {
			changes = append(changes, func(r *http.Request) {
				sdk(r)
				r.URL.RawQuery = strings.ReplaceAll(r.URL.RawQuery, "%k", "sdk-1")
				for _, v := range r.Header {
					v[0] = strings.ReplaceAll(v[0], "%k", "sdk-1")
				}
			})
		}
		member := ""
		if found {
			member = map[string]string{"{": `,"rid":"sdk-1"`, "i": "&rid=sdk-1"}[body[:1]]
		}
		body = strings.ReplaceAll(body, "%k", member)
		b.srv.Script(mockserver.Fault{Kind: mockserver.FaultDrop})
		_, r, err := b.do(ctx, body, changes...)
		require.NoError(t, err)
		if found {
			require.Equal(t, idem.Key("sdk-1"), r.Key)
		}
		require.Equal(t, 1, b.srv.Effects("o1"))
		for _, req := range b.srv.Requests() {
			all := req.URL + string(req.Body)
			for _, vs := range req.Header {
				all += strings.Join(vs, "\n")
			}
			require.Equal(t, 1, strings.Count(all, string(r.Key)), all)
			require.Equal(t, r.Key, idem.Key(strings.Trim(req.Key, `"`)))
		}
		_, r, err = b.do(ctx, body, changes...)
		require.NoError(t, err)
		require.True(t, r.Recalled)
	})
}
