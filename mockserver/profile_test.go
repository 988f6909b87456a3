package mockserver_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem/mockserver"
	"github.com/stretchr/testify/require"
)

func TestStandardIsTheDefault(t *testing.T) {
	c := inMemory(t, nil)
	c.post(201, "k", order("o"))
	_, text := c.post(422, "k", order("other"))
	require.Contains(t, text, "idempotency_key_reused")
	c.effects(0, "other")
}

func TestIETFWantsAQuotedKey(t *testing.T) {
	c := inMemory(t, &mockserver.Config{Profile: mockserver.IETF()})
	resp, _ := c.post(400, "", order("o"))
	require.Equal(t, "application/problem+json", resp.Header.Get("Content-Type"))
	c.post(400, "k", order("o"))
	c.post(201, `"k"`, order("o"))
	c.post(422, `"k"`, order("other"))
	require.Equal(t, []string{"", "k", `"k"`}, c.api.Keys("o"))
	require.Equal(t, 1, c.api.EffectsOfKey("k"))
	require.Equal(t, 1, c.api.EffectsOfKey(`"k"`))
}

func TestStripeKeepsEvenFailures(t *testing.T) {
	c := inMemory(t, &mockserver.Config{Profile: mockserver.StripeV1()})
	c.script(mockserver.Fault{Kind: mockserver.FaultFail})
	resp, _ := c.post(500, "k", order("o"))
	require.Equal(t, "false", resp.Header.Get("Stripe-Should-Retry"))
	resp, _ = c.post(500, "k", order("o"))
	require.Equal(t, "true", resp.Header.Get("Idempotent-Replayed"))
	resp, text := c.post(400, "k", order("other"))
	require.Contains(t, text, "idempotency_error")
	require.Equal(t, "false", resp.Header.Get("Stripe-Should-Retry"))
	c.post(400, strings.Repeat("k", 256), order("o"))
}

func TestMuteExecutesEveryRequest(t *testing.T) {
	c := inMemory(t, &mockserver.Config{Profile: mockserver.Mute()})
	c.post(201, "k", order("o"))
	c.post(201, "k", order("o"))
	c.effects(2, "o")
	require.Equal(t, 2, c.api.EffectsOfKey("k"))
}

func TestKeysCountOnlyForTheMethodsOfTheProfile(t *testing.T) {
	c := inMemory(t, nil)
	for range 2 {
		req, _ := http.NewRequest("PUT", c.api.URL+"/orders/o", nil)
		req.Header.Set("Idempotency-Key", "k")
		_, _, err := c.do(req)
		require.NoError(t, err)
	}
	c.effects(2, "o")
}

func TestTwoKeysInOneRequestAreBad(t *testing.T) {
	c := inMemory(t, nil)
	req := c.request(t.Context(), "k", order("o"))
	req.Header["idempotency-key"] = []string{"k"}
	resp, _, err := c.do(req)
	require.NoError(t, err)
	require.Equal(t, 400, resp.StatusCode)
	c.effects(0, "o")
}

func TestAKeyIsReadWhereTheProfileHasIt(t *testing.T) {
	for _, tt := range []struct {
		place             mockserver.Place
		field, path, kind string
		body              string
	}{
		{mockserver.PlaceQuery, "requestId", "/o?requestId=k", "application/json", `{}`},
		{mockserver.PlaceJSON, "meta.key", "/o", "application/json", `{"meta":{"key":"k"}}`},
		{mockserver.PlaceForm, "token", "/o", "application/x-www-form-urlencoded", `token=k`},
	} {
		c := inMemory(t, &mockserver.Config{Profile: mockserver.Profile{Name: "x", Place: tt.place, Field: tt.field}})
		for range 2 {
			req, _ := http.NewRequest("POST", c.api.URL+tt.path, strings.NewReader(tt.body))
			req.Header.Set("Content-Type", tt.kind)
			_, _, err := c.do(req)
			require.NoError(t, err)
		}
		require.Equal(t, 1, c.api.EffectsOfKey("k"), tt.field)
		require.Equal(t, 1, c.api.Total())
	}
}

func TestAPatternLimitsKeys(t *testing.T) {
	p := mockserver.Standard()
	p.KeyPattern, p.MinKey = "[0-9]+", 2
	c := inMemory(t, &mockserver.Config{Profile: p})
	c.post(400, "1", order("o"))
	c.post(400, "12x", order("o"))
	c.post(201, "12", order("o"))
}

func TestAMismatchMayGoUnnoticedOrExecute(t *testing.T) {
	deaf := mockserver.Profile{Name: "deaf", Compare: mockserver.CompareNothing}
	c := inMemory(t, &mockserver.Config{Profile: deaf})
	_, text := c.post(201, "k", order("o"))
	_, other := c.post(201, "k", order("other"))
	require.Equal(t, text, other)
	c.effects(0, "other")

	c = inMemory(t, &mockserver.Config{Profile: mockserver.Profile{Name: "eager"}})
	c.post(201, "k", order("o"))
	c.post(201, "k", order("other"))
	c.effects(1, "other")
}

func TestAKeyMayBelongToARouteOrAnAccount(t *testing.T) {
	p := mockserver.Standard()
	p.ScopeRoute, p.ScopeHeader = true, "Authorization"
	c := inMemory(t, &mockserver.Config{Profile: p})
	send := func(path, account string) {
		req := c.request(t.Context(), "k", order("o"))
		req.URL.Path = path
		req.Header.Set("Authorization", account)
		_, _, err := c.do(req)
		require.NoError(t, err)
	}
	send("/a", "x")
	send("/a", "x")
	c.effects(1, "o")
	send("/b", "x")
	send("/a", "y")
	c.effects(3, "o")
}

func TestTheWindowClosesByTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := inMemory(t, nil)
		c.post(201, "k", order("o"))
		time.Sleep(24*time.Hour - time.Second)
		c.post(201, "k", order("o"))
		c.effects(1, "o")
		time.Sleep(time.Second)
		c.post(201, "k", order("o"))
		c.effects(2, "o")
	})
}

func TestALateKeyMayBeRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := mockserver.Standard()
		p.Late = mockserver.Reply{Status: 412}
		p.FirstSent = "Repeatability-First-Sent"
		c := inMemory(t, &mockserver.Config{Profile: p, Window: time.Minute})
		c.post(201, "k", order("o"))
		old := time.Now().UTC().Format(http.TimeFormat)
		time.Sleep(time.Minute)
		c.post(412, "k", order("o"))
		req := c.request(t.Context(), "new", order("o"))
		req.Header.Set("Repeatability-First-Sent", old)
		resp, _, err := c.do(req)
		require.NoError(t, err)
		require.Equal(t, 412, resp.StatusCode)
		c.effects(1, "o")
	})
}

func TestALockThatRunsOutExecutesBesideTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := mockserver.Profile{Name: "svix-like", LockFor: 5 * time.Second}
		c := inMemory(t, &mockserver.Config{Profile: p})
		c.script(mockserver.Fault{Kind: mockserver.FaultDelay, Delay: 20 * time.Second})
		go c.try(t.Context(), "k", order("o"))
		synctest.Wait()
		start := time.Now()
		c.post(201, "k", order("o"))
		require.Equal(t, 5*time.Second, time.Since(start))
		c.api.Wait()
		c.effects(2, "o")
	})
}

func TestAlreadyDoneMayBeAnErrorThatNamesTheResource(t *testing.T) {
	p := mockserver.Profile{Name: "gocardless-like", Done: mockserver.Reply{Status: 409,
		Body: `{"links":{"conflicting_resource_id":"{id}"},"key":"{key}"}`}}
	c := inMemory(t, &mockserver.Config{Profile: p})
	c.post(201, "k", order("o"))
	_, text := c.post(409, "k", order("o"))
	require.JSONEq(t, `{"links":{"conflicting_resource_id":"res_1"},"key":"k"}`, text)
	require.True(t, c.api.Requests()[1].Replayed)
}

func TestHandlersMayLeaveTheKeyFree(t *testing.T) {
	valid := false
	c := inMemory(t, &mockserver.Config{Profile: mockserver.StripeV1(), Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			if !valid {
				w.Header().Set(mockserver.KeepHeader, string(mockserver.KeepNothing))
				w.WriteHeader(400)
			}
		})})
	c.post(400, "k", order("o"))
	valid = true
	c.post(200, "k", order("o"))
}

func TestProfilesAreFoundByName(t *testing.T) {
	for _, p := range mockserver.Profiles() {
		found, ok := mockserver.ProfileByName(p.Name)
		require.True(t, ok)
		require.Equal(t, p, found)
	}
	_, ok := mockserver.ProfileByName("nobody")
	require.False(t, ok)
}

func TestTheKeyMayBeEchoed(t *testing.T) {
	c := inMemory(t, &mockserver.Config{Profile: mockserver.Profile{Name: "echo", EchoKey: "X-Key"}})
	for i := range 2 {
		resp, _ := c.post(201, fmt.Sprint(i), order("o"))
		require.Equal(t, fmt.Sprint(i), resp.Header.Get("X-Key"))
	}
}

func TestAProfileSaysWhatIsCompared(t *testing.T) {
	for _, tt := range []struct {
		compare     mockserver.Compare
		body, route int
	}{
		{mockserver.CompareAll, 422, 422},
		{mockserver.CompareBody, 422, 201},
		{mockserver.CompareRoute, 201, 422},
		{mockserver.CompareNothing, 201, 201},
	} {
		p := mockserver.Standard()
		p.Compare = tt.compare
		c := inMemory(t, &mockserver.Config{Profile: p})
		c.post(201, "k", order("o"))
		c.post(tt.body, "k", order("other"))
		req := c.request(t.Context(), "k", order("o"))
		req.URL.RawQuery = "x=1"
		resp, _, err := c.do(req)
		require.NoError(t, err)
		require.Equal(t, tt.route, resp.StatusCode, tt.compare)
	}
}

func TestMethodsOfAProfileHonourTheKey(t *testing.T) {
	p := mockserver.Standard()
	p.Methods = []string{"put"}
	c := inMemory(t, &mockserver.Config{Profile: p})
	for range 2 {
		c.post(201, "k", order("post"))
		req := c.request(t.Context(), "k", order("put"))
		req.Method = "PUT"
		_, _, err := c.do(req)
		require.NoError(t, err)
	}
	c.effects(2, "post")
	c.effects(1, "put")
}

func TestAFirstSentThatIsNoDateIsNotJudged(t *testing.T) {
	c := inMemory(t, &mockserver.Config{Profile: mockserver.AzureRepeatable()})
	req := c.request(t.Context(), "", order("o"))
	req.Header.Set("Repeatability-Request-ID", "k")
	req.Header.Set("Repeatability-First-Sent", "not a date")
	resp, _, err := c.do(req)
	require.NoError(t, err)
	require.Equal(t, 201, resp.StatusCode)
}
