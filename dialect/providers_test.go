package dialect_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dialect"
	"github.com/idem-go/idem/mockserver"
)

func TestEveryPresetMeetsAProvider(t *testing.T) {
	met := map[string]bool{}
	for _, p := range append(profiled(), placedOnly()...) {
		met[p.preset.Name] = true
	}
	for _, d := range dialect.All() {
		require.True(t, met[d.Name], d.Name)
	}
}

func TestTheFirstSendHasItsKeyWhereTheProviderLooks(t *testing.T) {
	each(t, func(t *testing.T, p provider) {
		b := p.bench(t, nil)
		end, err := b.do(b.named("o"))
		require.NoError(t, err)
		require.Equal(t, done, end)
		b.once("o", 1)
		key := b.api.Keys("o")[0]
		require.Equal(t, p.unkeyed, key == "", key)
		if !p.unkeyed {
			require.Equal(t, 1, b.api.EffectsOfKey(key))
		}
		b.requireOtherwiseUntouched(key)
	})
}

// requireOtherwiseUntouched wants every byte of the caller's body and query that
// isn't the key.
func (b *bench) requireOtherwiseUntouched(key string) {
	b.Helper()
	asked := b.named("o")
	text := make([]byte, asked.ContentLength)
	asked.Body.Read(text)
	want, url := string(text), asked.URL.String()
	switch b.profile.Place {
	case mockserver.PlaceJSON:
		want = `{"` + b.profile.Field + `":"` + key + `",` + want[1:]
	case mockserver.PlaceForm:
		want += "&" + b.profile.Field + "=" + key
	case mockserver.PlaceQuery:
		sep := "?"
		if strings.Contains(url, "?") {
			sep = "&"
		}
		url += sep + b.profile.Field + "=" + key
	}
	sent := b.posts()[0]
	require.Equal(b, want, string(sent.Body))
	require.Equal(b, url, sent.URL)
}

func TestALostAnswerIsReplayedAndNotRepeated(t *testing.T) {
	each(t, func(t *testing.T, p provider) {
		b := p.bench(t, nil)
		b.api.Script(mockserver.Fault{Kind: mockserver.FaultDrop})
		end, err := b.do(b.named("o"))
		if p.unkeyed {
			require.ErrorIs(t, err, idem.ErrUnkeyed)
			require.Equal(t, ambiguous, end)
			require.Len(t, b.posts(), 1)
			return
		}
		require.NoError(t, err)
		require.Equal(t, done, end)
		b.once("o", 1)
		require.Len(t, b.posts(), 2)
		require.Equal(t, p.fetches, len(b.api.Requests()) > 2)
	})
}

// The answer that a repeat brings is the first one's, also where it has to be
// fetched or the provider says 202 in its place.
func TestTheReplayBringsTheFirstAnswersResource(t *testing.T) {
	each(t, func(t *testing.T, p provider) {
		if p.unkeyed {
			return
		}
		b := p.bench(t, nil)
		b.api.Script(mockserver.Fault{Kind: mockserver.FaultDrop})
		made, err := idem.JSON[struct{ ID, Resource string }](b.client.Do(b.named("o")))
		require.NoError(t, err)
		require.Equal(t, "o", made.ID)
		require.Equal(t, "res_1", made.Resource)
	})
}

func TestAnotherPayloadUnderANameIsRefusedWithoutAsking(t *testing.T) {
	each(t, func(t *testing.T, p provider) {
		b := p.bench(t, nil)
		_, err := b.do(b.named("o"))
		require.NoError(t, err)
		_, err = b.do(b.request(idem.WithIntent(t.Context(), "o"), "other"))
		require.ErrorIs(t, err, idem.ErrMismatch)
		require.Len(t, b.posts(), 1)
	})
}

// The journal is lost, or another program used the key: only the provider can tell.
func TestAnotherPayloadUnderAKeyIsReadAsTheProviderMeansIt(t *testing.T) {
	each(t, func(t *testing.T, p provider) {
		if p.unkeyed {
			return
		}
		b := p.bench(t, nil)
		key := idem.WithKey(t.Context(), idem.Key("0198c0de-0000-4000-8000-00000000000a"))
		resp, err := b.client.Do(b.request(key, "o"))
		require.NoError(t, err)
		resp.Body.Close()
		b.client = b.open(idem.NewMemoryKeystore())
		resp, err = b.client.Do(b.request(key, "other"))
		fate := idem.FateOf(resp, err)
		switch p.mismatch {
		case unnoticed, executed:
			require.Equal(t, idem.FateDone, fate, "%v", err)
		case mistaken:
			require.NoError(t, err)
			require.Equal(t, idem.FateNotDone, fate)
		default:
			require.ErrorIs(t, err, idem.ErrMismatch)
			require.Equal(t, idem.FateUnknown, fate)
		}
		require.Equal(t, p.mismatch == executed, b.api.EffectsOfKey("0198c0de-0000-4000-8000-00000000000a") == 2)
		require.LessOrEqual(t, len(b.posts()), 2, "a mismatch was sent again")
	})
}

// The provider works for three seconds, the client waits for one.
func TestAFirstRequestThatStillRunsIsWaitedFor(t *testing.T) {
	each(t, func(t *testing.T, p provider) {
		b := p.bench(t, nil)
		b.api.Script(mockserver.Fault{Kind: mockserver.FaultDelay, Delay: 3 * time.Second})
		end, err := b.do(b.named("o"))
		b.api.Wait()
		if p.unkeyed {
			require.ErrorIs(t, err, idem.ErrUnkeyed)
			require.Len(t, b.posts(), 1)
			return
		}
		require.NoError(t, err)
		require.Equal(t, done, end)
		b.once("o", 1)
	})
}

func TestARefusalWithNothingBeforeIsNotDoneAndFreesTheName(t *testing.T) {
	each(t, func(t *testing.T, p provider) {
		b := p.bench(t, nil)
		b.api.Script(mockserver.Fault{Kind: mockserver.FaultFail, Status: 402, Body: `{"error":{"type":"card_error"}}`})
		end, err := b.do(b.named("o"))
		require.NoError(t, err)
		require.Equal(t, notDone, end)
		require.Len(t, b.posts(), 1)
		first := b.posts()[0].Key

		end, err = b.do(b.request(idem.WithIntent(t.Context(), "o"), "corrected"))
		require.NoError(t, err)
		require.Equal(t, done, end)
		if !p.unkeyed {
			require.NotEqual(t, first, b.posts()[1].Key, "the burnt key went out with the corrected payload")
		}
	})
}

// The first answer, a 402, is lost. What a repeat brings proves something only if
// it is the stored one, or the provider looks keys up first.
func TestARefusalAfterALostAnswerIsBelievedOnlyWhereItProvesSomething(t *testing.T) {
	each(t, func(t *testing.T, p provider) {
		if p.unkeyed {
			return
		}
		b := p.bench(t, &mockserver.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(402)
		})})
		b.api.Script(mockserver.Fault{Kind: mockserver.FaultDrop})
		end, _ := b.do(b.named("o"))
		require.Equal(t, p.lost402, end)
		require.Len(t, b.posts(), 2)
	})
}

// A 500 did nothing, and where the provider stores it a repeat can't change that.
func TestAFailureIsRepeatedOnlyWhereThatCanChangeIt(t *testing.T) {
	each(t, func(t *testing.T, p provider) {
		b := p.bench(t, nil)
		b.api.Script(mockserver.Fault{Kind: mockserver.FaultFail})
		end, _ := b.do(b.named("o"))
		require.Equal(t, p.failed500, end)
		require.Len(t, b.api.Keys("o"), 1)
		if p.failed500 == ambiguous {
			require.LessOrEqual(t, len(b.posts()), 2)
			require.Zero(t, b.api.Effects("o"))
		}
	})
}

func TestNothingIsSentPastTheWindow(t *testing.T) {
	each(t, func(t *testing.T, p provider) {
		if p.unkeyed {
			return
		}
		b := p.bench(t, nil)
		b.api.Script(mockserver.Fault{Kind: mockserver.FaultDrop, Times: 6})
		end, _ := b.do(b.named("o"))
		require.Equal(t, open, end)
		sent := len(b.posts())
		forever := p.window == idem.Forever
		if forever {
			time.Sleep(10 * 365 * day)
		} else {
			time.Sleep(p.window)
		}
		b.restart()
		report, err := b.client.Resume(t.Context(), nil)
		require.NoError(t, err)
		e, err := b.client.Lookup(t.Context(), "o")
		require.NoError(t, err)
		if forever {
			require.Equal(t, idem.Report{Done: 1}, report)
			b.once("o", 1)
			return
		}
		require.Equal(t, idem.Report{Unknown: 1}, report)
		require.Equal(t, idem.StateAmbiguous, e.State)
		require.Len(t, b.posts(), sent)
		_, err = b.client.Do(b.named("o"))
		require.ErrorIs(t, err, idem.ErrWindowClosed)
		require.Len(t, b.posts(), sent)
	})
}
