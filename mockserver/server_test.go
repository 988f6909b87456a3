package mockserver_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem/mockserver"
	"github.com/stretchr/testify/require"
)

func TestARepeatUnderOneKeyIsReplayedAndHasNoEffect(t *testing.T) {
	both(t, nil, func(c *client) {
		first, text := c.post(201, "k", order("o-1"))
		require.Equal(t, "/orders/res_1", first.Header.Get("Location"))
		require.JSONEq(t, `{"id":"o-1","resource":"res_1"}`, text)
		require.Empty(t, first.Header.Get("Idempotent-Replayed"))

		again, same := c.post(201, "k", order("o-1"))
		require.Equal(t, text, same)
		require.Equal(t, "true", again.Header.Get("Idempotent-Replayed"))
		c.effects(1, "o-1")
		require.Equal(t, 1, c.api.EffectsOfKey("k"))
		require.Equal(t, 1, c.api.Total())
	})
}

func TestAnotherKeyOrNoneIsAnotherEffect(t *testing.T) {
	c := inMemory(t, nil)
	c.post(201, "k1", order("o"))
	c.post(201, "k2", order("o"))
	c.post(201, "", order("o"))
	c.effects(3, "o")
	require.Equal(t, []string{"k1", "k2", ""}, c.api.Keys("o"))
	require.Equal(t, 1, c.api.Effects("k2"), "a value that no request had is a key")
	require.Equal(t, 0, c.api.Effects("unknown"))
}

func TestTheLedgerTellsWhatArrived(t *testing.T) {
	both(t, nil, func(c *client) {
		c.script(mockserver.Fault{Kind: mockserver.FaultStatus, Status: 502})
		c.post(502, "k", order("o-1"))
		c.post(201, "k", order("o-1"))
		c.post(201, "k", order("o-1"))
		c.post(201, "k2", `{"id":7}`)

		got := c.api.Requests()
		require.Len(t, got, 4)
		require.Equal(t, "POST", got[0].Method)
		require.Equal(t, c.api.URL+"/orders", got[0].URL)
		require.Equal(t, order("o-1"), string(got[0].Body))
		require.Equal(t, "k", got[0].Key)
		require.Equal(t, mockserver.FaultStatus, got[0].Fault)
		require.False(t, got[0].Time.IsZero())
		for i, want := range []struct {
			status           int
			effect, replayed bool
		}{{502, false, false}, {201, true, false}, {201, false, true}, {201, true, false}} {
			require.Equal(t, want.status, got[i].Status, i)
			require.Equal(t, want.effect, got[i].Effect, i)
			require.Equal(t, want.replayed, got[i].Replayed, i)
		}
		require.Equal(t, []string{"o-1", "7"}, c.api.Values())
		require.Equal(t, []string{order("o-1")}, c.api.Bodies("o-1"))
	})
}

func TestTheValueIsTheJSONIdElseTheFormsElseThePathsEnd(t *testing.T) {
	c := inMemory(t, nil)
	form, _ := http.NewRequest("POST", "https://api.test/orders", strings.NewReader("id=f-1&x=2"))
	form.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	bare, _ := http.NewRequest("PUT", "https://api.test/orders/p-1", nil)
	c.post(201, "k", order("j-1"))
	for _, r := range []*http.Request{form, bare} {
		_, _, err := c.do(r)
		require.NoError(t, err)
	}
	require.Equal(t, []string{"j-1", "f-1", "p-1"}, c.api.Values())
}

func TestAFailingHandlerHasNoEffectUnlessItSaysSo(t *testing.T) {
	status, says := 500, ""
	c := inMemory(t, &mockserver.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if says != "" {
			w.Header().Set(mockserver.EffectHeader, says)
		}
		w.WriteHeader(status)
	})})
	c.post(500, "k1", order("o"))
	c.effects(0, "o")
	says = "yes"
	resp, _ := c.post(500, "k2", order("o"))
	c.effects(1, "o")
	require.Empty(t, resp.Header.Get(mockserver.EffectHeader))
	status, says = 200, "no"
	c.post(200, "k3", order("o"))
	c.effects(1, "o")
}

func TestApplyCountsEachItemKeyOnce(t *testing.T) {
	var api *mockserver.Server
	c := inMemory(t, &mockserver.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(mockserver.EffectHeader, "no")
		api.Apply("item-1", "a")
		api.Apply("item-2", "b")
	})})
	api = c.api
	c.post(200, "call-1", order("batch"))
	c.post(200, "call-2", order("batch"))
	require.Equal(t, []int{1, 1, 0}, []int{api.Effects("a"), api.Effects("b"), api.Effects("batch")})
}

func TestTheDefaultHandlerShowsWhatItMade(t *testing.T) {
	c := inMemory(t, nil)
	made, text := c.post(201, "k", order("o-1"))
	resp, err := c.http.Get(c.api.URL + made.Header.Get("Location"))
	require.NoError(t, err)
	defer resp.Body.Close()
	shown, _ := io.ReadAll(resp.Body)
	require.Equal(t, text, string(shown))
	require.Equal(t, 1, c.api.Total())
}

func TestConcurrentRequestsUnderOneKeyHaveOneEffect(t *testing.T) {
	waiting := mockserver.Standard()
	waiting.InFlight = mockserver.Reply{}
	both(t, &mockserver.Config{Profile: waiting}, func(c *client) {
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				resp, _, err := c.try(t.Context(), "k", order("o"))
				if err == nil && resp.StatusCode != 201 {
					t.Errorf("status %d", resp.StatusCode)
				}
			})
		}
		wg.Wait()
		c.effects(1, "o")
		require.Len(t, c.api.Requests(), 20)
	})
}

func TestABodyOverTheLimitIsRefused(t *testing.T) {
	both(t, &mockserver.Config{MaxBody: 5}, func(c *client) {
		c.post(413, "k", "123456")
		c.post(201, "k", "12345")
		require.Len(t, c.api.Requests(), 1)
	})
}

func TestAClosedServerRefuses(t *testing.T) {
	c := inMemory(t, nil)
	c.api.Close()
	c.api.Close()
	c.api.Restart(true)
	require.ErrorContains(t, c.fail("k", order("o")), "connection refused")
}

func TestARecorderThatCantBeHijackedAborts(t *testing.T) {
	api := mockserver.New(&mockserver.Config{Faults: []mockserver.Fault{{Kind: mockserver.FaultDrop}}})
	r := httptest.NewRequest("POST", "/orders/o", nil)
	require.PanicsWithValue(t, http.ErrAbortHandler, func() { api.ServeHTTP(httptest.NewRecorder(), r) })
	require.Equal(t, 1, api.Effects("o"))
}

func TestWorkGoesOnWithoutItsClient(t *testing.T) {
	entered, leave := make(chan bool), make(chan bool)
	cfg := &mockserver.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		entered <- true
		<-leave
		if r.Context().Err() != nil {
			t.Error("the handler's context ended with the client's")
		}
		w.WriteHeader(201)
	})}
	both(t, cfg, func(c *client) {
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-entered; cancel() }()
		_, _, err := c.try(ctx, "k", order("o"))
		require.ErrorIs(t, err, context.Canceled)
		c.effects(0, "o")
		c.post(409, "k", order("o"))
		leave <- true
		c.api.Wait()
		c.effects(1, "o")
		c.post(201, "k", order("o"))
	})
}

func TestAPanickingHandlerFreesItsKey(t *testing.T) {
	var abort atomic.Bool
	cfg := &mockserver.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if abort.Load() {
			panic(http.ErrAbortHandler)
		}
	})}
	both(t, cfg, func(c *client) {
		abort.Store(true)
		c.fail("k", order("o"))
		abort.Store(false)
		c.post(200, "k", order("o"))
		c.effects(1, "o")
	})
}

func TestARestartCutsConnectionsThatWait(t *testing.T) {
	api := mockserver.Start(t, nil)
	c := &client{t, api, &http.Client{Transport: &http.Transport{}}}
	t.Cleanup(c.http.CloseIdleConnections)
	c.script(mockserver.Fault{Kind: mockserver.FaultDelay, Delay: time.Hour})
	go func() {
		for len(api.Requests()) == 0 {
			time.Sleep(time.Millisecond)
		}
		api.Restart(true)
	}()
	c.fail("k", order("o"))
	c.effects(0, "o")
	c.post(201, "k", order("o"))
	api.Restart(true)
	c.post(201, "k", order("o"))
	c.effects(1, "o")
}
