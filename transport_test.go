package idem_test

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
)

// idSDK is a client as SDKs have one: it wraps the transport, mints a key for each
// call, replaces errors and bodies, and may have a timeout.
func idSDK(c *idem.Client, timeout time.Duration) *http.Client {
	wrap := idBase(func(r *http.Request) (*http.Response, error) {
		r = r.Clone(context.WithValue(r.Context(), idTestKey{}, true))
		r.Header.Set("Idempotency-Key", string(idem.NewKey()))
		resp, err := c.Transport().RoundTrip(r)
		if resp != nil {
			resp.Body = struct {
				io.Reader
				io.Closer
			}{io.LimitReader(resp.Body, 1<<20), resp.Body}
		}
		return resp, err
	})
	return &http.Client{Transport: wrap, Timeout: timeout}
}

type idTestKey struct{}

func TestAResultReachesItsCallerThroughAnSDK(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Hour} {
		idBubble(t, nil, func(t *testing.T, b *idBench) {
			var r idem.Result
			resp, err := idSDK(b.c, timeout).Do(idPost(idem.WithResult(idNamed("n"), &r), `{"id":"o1"}`))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			hung, ok := idem.ResultOf(resp)
			require.True(t, ok, "it survives wrappers of the body")
			require.Equal(t, hung, r)
			require.Equal(t, idem.FateDone, r.Fate)
			require.Equal(t, 201, r.Status)
			require.Equal(t, 1, r.Attempts)
			require.NoError(t, r.Err)
		})
	}
}

func TestATimeoutAboveLeavesTheFateInTheResult(t *testing.T) {
	idBubble(t, nil, func(t *testing.T, b *idBench) {
		b.srv.Script(mockserver.Fault{Kind: mockserver.FaultHang})
		var r idem.Result
		_, err := idSDK(b.c, time.Second).Do(idPost(idem.WithResult(idNamed("n"), &r), `{"id":"o1"}`))
		require.Error(t, err)
		require.Equal(t, idem.FateUnknown, r.Fate)
		require.ErrorIs(t, r.Err, context.DeadlineExceeded)
		key := r.Key
		require.NotEmpty(t, key)

		// The SDK's own retry comes with another key; the name keeps its own.
		resp, err := idSDK(b.c, time.Hour).Do(idPost(idem.WithResult(idNamed("n"), &r), `{"id":"o1"}`))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, key, r.Key)
		require.Equal(t, idem.FateDone, r.Fate)
		require.Equal(t, 1, b.srv.Effects("o1"))
	})
}

func TestTransportShowsTheLastAnswerUnlessItWouldMislead(t *testing.T) {
	script := func(f ...mockserver.Fault) []mockserver.Fault { return f }
	status := func(code int) mockserver.Fault {
		return mockserver.Fault{Kind: mockserver.FaultStatus, Status: code, Body: `{"error":"x"}`, Times: -1}
	}
	for _, c := range []struct {
		name   string
		faults []mockserver.Fault
		shown  int // 0: an *Error
		fate   idem.Fate
	}{
		{"success", nil, 201, idem.FateDone},
		{"refusal", script(status(402)), 402, idem.FateNotDone},
		{"at the door", script(status(401)), 401, idem.FateNotDone},
		{"rate limit", script(status(429)), 429, idem.FateNotDone},
		{"unavailable", script(status(503)), 503, idem.FateUnknown},
		{"refusal after a loss", script(mockserver.Fault{Kind: mockserver.FaultDrop}, status(402)), 0, idem.FateUnknown},
		{"door after a loss", script(mockserver.Fault{Kind: mockserver.FaultDrop}, status(401)), 0, idem.FateUnknown},
		{"rate limit after a loss", script(mockserver.Fault{Kind: mockserver.FaultDrop}, status(429)), 0, idem.FateUnknown},
		{"redirect", script(status(302)), 0, idem.FateUnknown},
		{"nothing", script(mockserver.Fault{Kind: mockserver.FaultDrop, Times: -1}), 0, idem.FateUnknown},
		{"refused dial", script(mockserver.Fault{Kind: mockserver.FaultRefuse, Times: -1}), 0, idem.FateNotDone},
	} {
		t.Run(c.name, func(t *testing.T) {
			idBubble(t, nil, func(t *testing.T, b *idBench) {
				b.srv.Script(c.faults...)
				var r idem.Result
				resp, err := b.c.Transport().RoundTrip(idPost(idem.WithResult(idNamed("n"), &r), `{"id":"o1"}`))
				require.Equal(t, c.fate, r.Fate)
				require.Equal(t, c.fate, idem.FateOf(resp, err))
				if c.shown == 0 {
					var e *idem.Error
					require.ErrorAs(t, err, &e)
					return
				}
				require.NoError(t, err)
				require.Equal(t, c.shown, resp.StatusCode)
				require.NotEmpty(t, idBodyOf(t, resp))
			})
		})
	}
}

func TestHTTPClientFollowsNoRedirect(t *testing.T) {
	for name, c := range map[string]struct {
		status   int
		location string
		fate     idem.Fate
	}{
		"moved host": {301, "https://new.example/v1/payments", idem.FateNotDone},
		"login page": {302, "https://sso.example/login", idem.FateUnknown},
		"see other":  {303, "/v1/payments/1", idem.FateUnknown},
		"elsewhere":  {307, "https://new.example/v1/payments", idem.FateNotDone},
	} {
		t.Run(name, func(t *testing.T) {
			idBubble(t, nil, func(t *testing.T, b *idBench) {
				b.srv.Script(mockserver.Fault{Kind: mockserver.FaultStatus, Status: c.status, Header: http.Header{"Location": {c.location}}})
				var r idem.Result
				resp, err := b.c.HTTPClient().Do(idPost(idem.WithResult(context.Background(), &r), `{"id":"o1"}`, idHeader("Authorization", "Bearer x")))
				require.Equal(t, c.fate, r.Fate)
				if c.fate == idem.FateNotDone {
					require.NoError(t, err)
					require.Equal(t, c.status, resp.StatusCode)
					require.NoError(t, resp.Body.Close())
				} else {
					var e *idem.Error
					require.ErrorAs(t, err, &e)
				}
				require.Len(t, b.srv.Requests(), 1)
			})
		})
	}
}

func TestARedirectWithinTheOriginIsFollowedUnderTheSameKey(t *testing.T) {
	idBubble(t, nil, func(t *testing.T, b *idBench) {
		b.srv.Script(mockserver.Fault{Kind: mockserver.FaultStatus, Status: 308, Header: http.Header{"Location": {"/v2/payments"}}})
		_, r, err := b.do(idNamed("n"), `{"id":"o1"}`, idHeader("Authorization", "Bearer x"))
		require.NoError(t, err)
		seen := b.srv.Requests()
		require.Len(t, seen, 2)
		require.Equal(t, "http://api.example/v2/payments", seen[1].URL)
		require.Equal(t, "POST", seen[1].Method)
		require.Equal(t, []string{string(r.Key), string(r.Key)}, b.keys())
		require.Equal(t, "Bearer x", seen[1].Header.Get("Authorization"))
	})
}

func TestNothingIsSentAfterTheExpiry(t *testing.T) {
	at := func(ctx context.Context, d time.Duration) context.Context {
		return idem.WithExpiry(ctx, time.Now().Add(d))
	}
	t.Run("before the call", func(t *testing.T) {
		idBubble(t, nil, func(t *testing.T, b *idBench) {
			_, r, err := b.do(at(idNamed("n"), -time.Second), `{"id":"o1"}`)
			require.ErrorIs(t, err, idem.ErrExpired)
			require.Equal(t, idem.FateNotDone, r.Fate)
			require.Empty(t, b.open())
			require.Empty(t, b.srv.Requests())
		})
	})
	t.Run("never sent", func(t *testing.T) {
		idBubble(t, nil, func(t *testing.T, b *idBench) {
			b.srv.Script(mockserver.Fault{Kind: mockserver.FaultRefuse, Times: -1})
			_, r, err := b.do(at(idNamed("n"), 2*time.Second), `{"id":"o1"}`)
			require.ErrorIs(t, err, idem.ErrExpired)
			require.Equal(t, idem.FateNotDone, r.Fate)
			require.Empty(t, b.open())
		})
	})
	t.Run("sent", func(t *testing.T) {
		idBubble(t, nil, func(t *testing.T, b *idBench) {
			end := time.Now().Add(2 * time.Second)
			b.srv.Script(mockserver.Fault{Kind: mockserver.FaultReset, Times: -1})
			_, r, err := b.do(at(idNamed("n"), 2*time.Second), `{"id":"o1"}`)
			require.ErrorIs(t, err, idem.ErrExpired)
			require.Equal(t, idem.FateUnknown, r.Fate)
			b.srv.Heal()
			time.Sleep(time.Minute)
			_, err = b.c.Resume(context.Background(), nil)
			require.NoError(t, err)
			for _, req := range b.srv.Requests() {
				require.True(t, req.Time.Before(end))
			}
		})
	})
	t.Run("a slow Authorize", func(t *testing.T) {
		slow := func(*http.Request) error { time.Sleep(3 * time.Second); return nil }
		idBubble(t, func(o *idem.Options) { o.Authorize = slow }, func(t *testing.T, b *idBench) {
			_, r, err := b.do(at(idNamed("n"), 2*time.Second), `{"id":"o1"}`)
			require.ErrorIs(t, err, idem.ErrExpired)
			require.Equal(t, idem.FateNotDone, r.Fate)
			require.Empty(t, b.srv.Requests())
		})
	})
	t.Run("enqueued", func(t *testing.T) {
		idBubble(t, nil, func(t *testing.T, b *idBench) {
			key, err := b.c.Enqueue(idPost(at(idNamed("n"), time.Minute), `{"id":"o1"}`))
			require.NoError(t, err)
			time.Sleep(2 * time.Minute)
			report, err := b.c.Resume(context.Background(), nil)
			require.NoError(t, err)
			require.Equal(t, idem.Report{NotDone: 1}, report)
			e, err := b.c.LookupKey(context.Background(), key)
			require.NoError(t, err)
			require.Equal(t, idem.FateNotDone, e.Fate)
			require.Empty(t, b.srv.Requests())
		})
	})
	t.Run("of a later call only", func(t *testing.T) {
		idBubble(t, nil, func(t *testing.T, b *idBench) {
			b.lose()
			_, _, _ = b.do(idNamed("n"), `{"id":"o1"}`)
			b.srv.Heal()
			sent := len(b.srv.Requests())
			_, r, err := b.do(at(idNamed("n"), -time.Second), `{"id":"o1"}`)
			require.ErrorIs(t, err, idem.ErrExpired)
			require.Equal(t, idem.FateUnknown, r.Fate)
			require.Len(t, b.srv.Requests(), sent)
			_, _, err = b.do(idNamed("n"), `{"id":"o1"}`)
			require.NoError(t, err, "the entry itself has not expired")
			_, r, err = b.do(at(idNamed("n"), -time.Second), `{"id":"o1"}`)
			require.NoError(t, err, "a recall sends nothing")
			require.True(t, r.Recalled)
		})
	})
}

func TestNoByteLeavesAfterTheExpiryThoughTheDialIsSlow(t *testing.T) {
	idBubble(t, func(o *idem.Options) {
		inner := o.Base
		o.Base = idBase(func(r *http.Request) (*http.Response, error) {
			time.Sleep(3 * time.Second) // the dial
			return inner.RoundTrip(r)
		})
	}, func(t *testing.T, b *idBench) {
		_, _, err := b.do(idem.WithExpiry(idNamed("n"), time.Now().Add(2*time.Second)), `{"id":"o1"}`)
		require.ErrorIs(t, err, idem.ErrExpired)
		require.Empty(t, b.srv.Requests())
	})
}

func TestWhatIsBelowSeesTheAccountButNoNameKeyOrResult(t *testing.T) {
	var r idem.Result
	seen := 0
	look := func(ctx context.Context) {
		seen++
		_, named := idem.IntentFrom(ctx)
		require.False(t, named)
		account, _ := idem.AccountFrom(ctx)
		require.Equal(t, "acct", account)
		require.Equal(t, true, ctx.Value(idTestKey{}), "the caller's own values stay")
	}
	idBubble(t, func(o *idem.Options) {
		inner := o.Base
		o.Authorize = func(r *http.Request) error { look(r.Context()); return nil }
		o.Base = idBase(func(r *http.Request) (*http.Response, error) { look(r.Context()); return inner.RoundTrip(r) })
	}, func(t *testing.T, b *idBench) {
		ctx := context.WithValue(idem.WithResult(idem.WithAccount(idem.WithKey(idNamed("n"), "k"), "acct"), &r), idTestKey{}, true)
		_, err := b.c.Do(idPost(ctx, `{"id":"o1"}`))
		require.NoError(t, err)
		require.Equal(t, 2, seen)
		require.Equal(t, "n", r.Intent)
	})
}

func TestATokenFetchThroughTheSameClientDoesNotTakeTheName(t *testing.T) {
	var b *idBench
	idBubble(t, func(o *idem.Options) {
		o.Authorize = func(r *http.Request) error {
			if r.URL.Path != "/v1/payments" {
				return nil
			}
			form := url.Values{"grant_type": {"client_credentials"}}.Encode()
			req, err := http.NewRequestWithContext(r.Context(), "POST", "http://api.example/token", strings.NewReader(form))
			require.NoError(t, err)
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			resp, err := b.c.Do(req)
			if err != nil {
				return err
			}
			r.Header.Set("Authorization", "Bearer fresh")
			return resp.Body.Close()
		}
	}, func(t *testing.T, bench *idBench) {
		b = bench
		_, r, err := b.do(idNamed("n"), `{"id":"o1"}`)
		require.NoError(t, err)
		require.Equal(t, "n", r.Intent)
		require.Equal(t, []string{"", string(r.Key)}, b.keys())
		require.Equal(t, "Bearer fresh", b.srv.Requests()[1].Header.Get("Authorization"))
	})
}

func TestAFailedAuthorizeIsNotDoneIfNothingWasSentBefore(t *testing.T) {
	fail := false
	idBubble(t, func(o *idem.Options) {
		o.Authorize = func(*http.Request) error {
			if fail {
				return errIDBroken
			}
			return nil
		}
	}, func(t *testing.T, b *idBench) {
		fail = true
		_, r, err := b.do(idNamed("n"), `{"id":"o1"}`)
		require.ErrorIs(t, err, errIDBroken)
		require.Equal(t, idem.FateNotDone, r.Fate)
		require.Empty(t, b.open())
		fail = false
		b.lose()
		_, _, _ = b.do(idNamed("n"), `{"id":"o1"}`)
		fail = true
		_, r, err = b.do(idNamed("n"), `{"id":"o1"}`)
		require.ErrorIs(t, err, errIDBroken)
		require.Equal(t, idem.FateUnknown, r.Fate)
	})
}

func TestAResendUnderALaterSignatureHasTheHeadersThatItCovers(t *testing.T) {
	idBubble(t, nil, func(t *testing.T, b *idBench) {
		signed := func(number, key string) func(*http.Request) {
			return func(r *http.Request) {
				r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=k/s, SignedHeaders=amz-sdk-request;host;idempotency-key;x-amz-date, Signature="+number)
				r.Header.Set("Amz-Sdk-Request", number)
				r.Header.Set("X-Amz-Date", number)
				r.Header.Set("X-Unsigned", number)
				r.Header.Set("Idempotency-Key", key)
			}
		}
		b.lose()
		_, first, err := b.do(idNamed("n"), `{"id":"o1"}`, signed("1", "key-1"))
		require.Error(t, err)
		b.srv.Heal()
		_, second, err := b.do(idNamed("n"), `{"id":"o1"}`, signed("2", "key-2"))
		require.NoError(t, err)
		require.Equal(t, first.Key, second.Key)

		sent := b.srv.Requests()
		last := sent[len(sent)-1].Header
		require.Contains(t, last.Get("Authorization"), "Signature=2")
		require.Equal(t, "2", last.Get("Amz-Sdk-Request"))
		require.Equal(t, "2", last.Get("X-Amz-Date"))
		require.Equal(t, "1", last.Get("X-Unsigned"), "as journaled")
		require.Equal(t, []string{"key-1"}, last.Values("Idempotency-Key"))
	})
}

func TestTheResultSaysWhyALastAnswerIsNotFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := mockserver.New(nil)
		defer srv.Close()
		c, err := idem.New(idem.NewMemoryKeystore(), &idem.Options{Base: srv.Transport(), Retry: idem.RetryPolicy{MaxAttempts: 1}})
		require.NoError(t, err)
		defer c.Close()
		srv.Script(mockserver.Fault{Kind: mockserver.FaultStatus, Status: 503})
		var r idem.Result
		ctx := idem.WithResult(context.Background(), &r)
		req, err := http.NewRequestWithContext(ctx, "POST", "http://bank.example/pay", strings.NewReader("{}"))
		require.NoError(t, err)
		resp, err := c.Transport().RoundTrip(req)
		require.NoError(t, err)
		require.Equal(t, 503, resp.StatusCode)
		require.Equal(t, idem.FateUnknown, r.Fate)
		require.ErrorIs(t, r.Err, idem.ErrExhausted)
	})
}
