package idem_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

func TestARedirectWithinTheOriginIsFollowedWithKeyAndBytes(t *testing.T) {
	for _, status := range []int{307, 308} {
		for _, location := range []string{"/v2/charges", "http://api.example/v2/charges", "http://API.example:80/v2/charges", "//api.example/v2/charges"} {
			synctest.Test(t, func(t *testing.T) {
				base := &verdictBase{}
				authorized := 0
				c := verdictClient(t, base, idem.Options{Retry: verdictPatient, Authorize: func(*http.Request) error { authorized++; return nil }})
				defer c.Close()
				base.script(verdictAnswer(status, "", "Location", location))
				resp, err := c.Do(verdictNamed("hop"))
				require.NoError(t, err)
				require.Equal(t, 200, resp.StatusCode)
				sent := base.sends()
				require.Len(t, sent, 2)
				verdictSame(t, sent)
				require.Equal(t, "POST", sent[1].Method)
				require.Contains(t, sent[1].URL, "/v2/charges")
				require.Equal(t, 2, authorized)
				r, _ := idem.ResultOf(resp)
				require.Equal(t, 2, r.Attempts)
			})
		}
	}
}

func TestARedirectIsFollowedWhenItsRetryAfterSaysSo(t *testing.T) {
	for after, want := range map[string]time.Duration{"20": 20 * time.Second, "0": 0, "": 0} {
		synctest.Test(t, func(t *testing.T) {
			base := &verdictBase{}
			c := verdictClient(t, base, idem.Options{Retry: verdictPatient})
			defer c.Close()
			base.script(verdictAnswer(307, "", "Location", "/v2/charges", "Retry-After", after))
			began := time.Now()
			_, err := c.Do(verdictNamed("hop"))
			require.NoError(t, err)
			require.Len(t, base.sends(), 2)
			require.Equal(t, want, time.Since(began))
		})
	}
}

func TestARedirectElsewhereIsNotFollowed(t *testing.T) {
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, location := range []string{
			"https://api.example/v1/charges?mode=live", "http://evil.example/v1/charges?mode=live",
			"http://api.example:8080/v1/charges?mode=live", "http://user:pw@api.example/v2", "ftp://api.example/x", "http://[::1", "",
		} {
			synctest.Test(t, func(t *testing.T) {
				base := &verdictBase{}
				c := verdictClient(t, base, idem.Options{Retry: verdictPatient})
				defer c.Close()
				base.script(verdictAnswer(status, "", "Location", location))
				resp, err := c.Do(verdictNamed("hop"))
				require.Len(t, base.sends(), 1, "%d %q", status, location)
				if status >= 307 {
					require.NoError(t, err)
					require.Equal(t, status, resp.StatusCode)
					require.Equal(t, location, resp.Header.Get("Location"))
				}
			})
		}
	}
}

// HTTPClient is an http.Client, which by itself would turn a POST into a GET.
func TestHTTPClientFollowsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &verdictBase{}
		c := verdictClient(t, base, idem.Options{Retry: verdictPatient})
		defer c.Close()
		for _, status := range []int{301, 302, 303, 307, 308} {
			base.script(verdictAnswer(status, "", "Location", "https://sso.example/login"))
			resp, err := c.HTTPClient().Do(verdictNamed(fmt.Sprint("sso-", status)))
			require.Len(t, base.sends(), 1)
			if status >= 307 {
				require.NoError(t, err)
				require.Equal(t, status, resp.StatusCode)
				continue
			}
			var e *idem.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, idem.FateUnknown, e.Fate)
		}
	})
}

func TestARedirectToItselfEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &verdictBase{}
		c := verdictClient(t, base, idem.Options{Retry: verdictPatient})
		defer c.Close()
		base.always(verdictAnswer(307, "", "Location", verdictURL))
		resp, err := c.Do(verdictNamed("loop"))
		require.NoError(t, err)
		require.Equal(t, 307, resp.StatusCode)
		require.Len(t, base.sends(), verdictPatient.MaxAttempts)
		require.Equal(t, idem.FateNotDone, idem.FateOf(resp, err))
	})
}

func TestAFollowedHopIsARealAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &verdictBase{}
		c := verdictClient(t, base, idem.Options{Retry: verdictPatient})
		defer c.Close()
		retry := verdictAnswer(307, "", "Location", "/v2/charges")
		base.script(retry, verdictLost, verdictAnswer(402, "{}"))
		resp, err := c.Do(verdictNamed("hop"))
		require.Equal(t, idem.FateUnknown, verdictErr(t, resp, err).Fate, "the hop's lost answer was forgotten")
		require.Len(t, base.sends(), 3)
		verdictSame(t, base.sends())
	})
}

// A key in the query doesn't come along by itself: Location is the server's.
func TestARedirectThatDropsAKeyInTheQueryIsNotFollowedWithoutIt(t *testing.T) {
	for location, sends := range map[string]int{"/v2/charges": 1, "": 1} {
		synctest.Test(t, func(t *testing.T) {
			base := &verdictBase{}
			c := verdictClient(t, base, idem.Options{Retry: verdictPatient, Dialect: idem.Dialect{Placement: idem.PlaceQuery, Field: "requestId"}})
			defer c.Close()
			base.script(verdictAnswer(307, "", "Location", location))
			_, err := c.Do(verdictNamed("hop"))
			require.NoError(t, err)
			for _, s := range base.sends() {
				require.Contains(t, s.URL, "requestId=", "sent without its key")
			}
			require.Len(t, base.sends(), sends)
		})
	}
}

func TestA303IsDoneWhereTheDialectSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &verdictBase{}
		c := verdictClient(t, base, idem.Options{Retry: verdictPatient, Dialect: idem.Dialect{
			AlreadyDone: []idem.Match{{Status: 303}}, Resource: idem.Resource{Header: "Location"},
		}})
		defer c.Close()
		base.script(verdictAnswer(303, "", "Location", "/v1/charges/ch_1"), verdictAnswer(200, `{"id":"ch_1","amount":500}`))
		resp, err := c.Do(verdictNamed("made"))
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		require.Equal(t, idem.FateDone, idem.FateOf(resp, err))
		require.Equal(t, "GET", base.sends()[1].Method)
		require.Equal(t, "settled", verdictState(t, c, "made"))
	})
}

func TestA303IsDoneAlsoWhereNothingCanBeFetched(t *testing.T) {
	for _, op := range []string{"Do", "Transport"} {
		synctest.Test(t, func(t *testing.T) {
			base := &verdictBase{}
			c := verdictClient(t, base, idem.Options{Retry: verdictPatient, Dialect: idem.Dialect{AlreadyDone: []idem.Match{{Status: 303}}}})
			defer c.Close()
			call := c.Do
			if op == "Transport" {
				call = c.Transport().RoundTrip
			}
			base.script(verdictAnswer(303, "", "Location", "/v1/charges/ch_1"))
			resp, err := call(verdictNamed("made"))
			require.Equal(t, idem.FateDone, idem.FateOf(resp, err))
			require.Equal(t, "settled", verdictState(t, c, "made"))
			require.Len(t, base.sends(), 1)
			resp, err = call(verdictNamed("made"))
			require.Equal(t, idem.FateDone, idem.FateOf(resp, err))
			require.Len(t, base.sends(), 1)
		})
	}
}

func TestNothingOfTheCallersCredentialsGoesToAnotherOrigin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []http.Header
		base := verdictStep(func(req *http.Request) (*http.Response, error) {
			seen = append(seen, req.Header.Clone())
			if req.Method == "GET" {
				return verdictAnswer(200, `{"amount":500}`)(req)
			}
			return verdictAnswer(409, `{}`, "Location", "https://cdn.example/charges/1")(req)
		})
		c := verdictClient(t, base, idem.Options{
			Retry:     verdictPatient,
			Authorize: func(r *http.Request) error { r.Header.Set("Authorization", "Bearer s3cret"); return nil },
			Dialect:   idem.Dialect{AlreadyDone: []idem.Match{{Status: 409}}, Resource: idem.Resource{Header: "Location"}},
		})
		defer c.Close()
		req := verdictReq(context.Background(), "POST", `{"amount":500}`)
		req.Header.Set("X-Api-Key", "s3cret")
		_, err := c.Do(req)
		require.NoError(t, err)
		require.Len(t, seen, 2)
		require.NotContains(t, fmt.Sprint(seen[1]), "s3cret")
		require.Empty(t, seen[1].Get("Idempotency-Key"))
	})
}

// RoundTrip implements http.RoundTripper.
func (s verdictStep) RoundTrip(req *http.Request) (*http.Response, error) { return s(req) }
