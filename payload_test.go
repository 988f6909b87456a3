package idem_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
)

func TestTheFingerprintCoversWhatThePayloadIs(t *testing.T) {
	ignored, counts := true, false
	for _, c := range []struct {
		name   string
		same   bool
		change func(*http.Request)
	}{
		{"nothing", ignored, func(r *http.Request) {}},
		{"user info", ignored, func(r *http.Request) { r.URL.User = url.UserPassword("u", "other") }},
		{"withheld query", ignored, func(r *http.Request) { r.URL.RawQuery = "x=1&access_token=new" }},
		{"authorization", ignored, func(r *http.Request) { r.Header.Set("Authorization", "Bearer new") }},
		{"another header", ignored, func(r *http.Request) { r.Header.Set("X-Request-Id", "2") }},
		{"fragment", ignored, func(r *http.Request) { r.URL.Fragment = "f" }},
		{"SDK key", ignored, func(r *http.Request) { r.Header.Set("Idempotency-Key", "sdk") }},
		{"host header as the URL's", ignored, func(r *http.Request) { r.Host = r.URL.Host }},
		{"unknown length", ignored, func(r *http.Request) { r.ContentLength = -1 }},
		{"method", counts, func(r *http.Request) { r.Method = "PATCH" }},
		{"scheme", counts, func(r *http.Request) { r.URL.Scheme = "https" }},
		{"host", counts, func(r *http.Request) { r.URL.Host, r.Host = "b.example", "" }},
		{"overriding host", counts, func(r *http.Request) { r.Host = "b.example" }},
		{"path", counts, func(r *http.Request) { r.URL.Path += "/x" }},
		{"escaped path", counts, func(r *http.Request) { r.URL.Path, r.URL.RawPath = "/v1/pay/ments", "/v1/pay%2Fments" }},
		{"query", counts, func(r *http.Request) { r.URL.RawQuery = "x=2" }},
		{"content type", counts, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }},
		{"dialect's header", counts, func(r *http.Request) { r.Header.Set("X-Sub", "b") }},
		{"body", counts, func(r *http.Request) { r.Body, r.ContentLength = idBody(`{"id":"o1" }`), 12 }},
		{"no body", counts, func(r *http.Request) { r.Body, r.ContentLength = nil, 0 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			base := func(r *http.Request) {
				r.URL.User, r.URL.RawQuery = url.UserPassword("u", "p"), "x=1&access_token=old"
				r.Header.Set("X-Sub", "a")
			}
			dialect := idem.Dialect{Headers: []string{"x-sub"}}
			idBubble(t, func(o *idem.Options) { o.Dialect = dialect }, func(t *testing.T, b *idBench) {
				_, _, err := b.do(idNamed("n"), `{"id":"o1"}`, base)
				require.NoError(t, err)
				_, r, err := b.do(idNamed("n"), `{"id":"o1"}`, base, c.change)
				if c.same {
					require.NoError(t, err)
					require.True(t, r.Recalled)
				} else {
					require.ErrorIs(t, err, idem.ErrMismatch)
				}
				require.Len(t, b.srv.Requests(), 1)
			})
		})
	}
}

func TestEveryAttemptSendsTheSameBytes(t *testing.T) {
	faults := []mockserver.Fault{
		{Kind: mockserver.FaultRefuse}, {Kind: mockserver.FaultReset}, {Kind: mockserver.FaultStatus, Status: 429},
		{Kind: mockserver.FaultStatus, Status: 503}, {Kind: mockserver.FaultDrop},
		{Kind: mockserver.FaultInFlight}, {Kind: mockserver.FaultCut}, {Kind: mockserver.FaultHang},
	}
	for _, length := range []int64{11, -1, 0} {
		idBubble(t, func(o *idem.Options) {
			o.Retry = idem.RetryPolicy{MaxAttempts: 20, MaxElapsed: 1 << 50, NoBudget: true}
			o.Breaker.Disabled = true
		}, func(t *testing.T, b *idBench) {
			b.srv.Script(faults...)
			body := idBody(`{"id":"o1"}`)
			_, r, err := b.do(idNamed("n"), "", func(r *http.Request) {
				r.Body, r.ContentLength, r.GetBody = body, length, nil
				r.Header.Set("X-Trace", "t")
			})
			require.NoError(t, err)
			require.Equal(t, 1, body.ends, "read once")
			require.Equal(t, 1, body.closed)
			seen := b.srv.Requests()
			require.Len(t, seen, len(faults), "all but the refused one, and the one that succeeds")
			for _, req := range seen {
				require.Equal(t, `{"id":"o1"}`, string(req.Body))
				require.Equal(t, "t", req.Header.Get("X-Trace"))
				require.Equal(t, []string{string(r.Key)}, req.Header.Values("Idempotency-Key"))
				require.Equal(t, seen[0].Header, req.Header)
			}
			require.Equal(t, 1, b.srv.Effects("o1"))
		})
	}
}

func TestAResendTakesTheJournaledBytesAndTheNewCredentials(t *testing.T) {
	idBubble(t, nil, func(t *testing.T, b *idBench) {
		b.lose()
		auth := func(v string) func(*http.Request) { return idHeader("Authorization", v) }
		_, _, err := b.do(idNamed("n"), `{"id":"o1"}`, auth("Bearer old"), idHeader("X-Trace", "1"))
		require.Error(t, err)
		b.srv.Heal()
		_, _, err = b.do(idNamed("n"), `{"id":"o1"}`, auth("Bearer new"), idHeader("X-Trace", "2"))
		require.NoError(t, err)
		seen := b.srv.Requests()
		last := seen[len(seen)-1]
		require.Equal(t, "Bearer new", last.Header.Get("Authorization"))
		require.Equal(t, "1", last.Header.Get("X-Trace"))
		_, r, err := b.do(idNamed("n"), `{"id":"o1"}`)
		require.NoError(t, err)
		require.True(t, r.Recalled)
	})
}

func TestACallWithoutTheWithheldCredentialsDoesNotSend(t *testing.T) {
	idBubble(t, nil, func(t *testing.T, b *idBench) {
		b.lose()
		_, _, err := b.do(idNamed("n"), `{"id":"o1"}`, idHeader("Authorization", "Bearer x"))
		require.Error(t, err)
		b.srv.Heal()
		sent := len(b.srv.Requests())
		_, r, err := b.do(idNamed("n"), `{"id":"o1"}`)
		require.ErrorIs(t, err, idem.ErrCredentials)
		require.Equal(t, idem.FateUnknown, r.Fate)
		require.Len(t, b.srv.Requests(), sent)
		require.Len(t, b.open(), 1)
	})
}

func TestStoredPayloadGoesOnThoughTheRequestDiffers(t *testing.T) {
	for _, pending := range []bool{true, false} {
		idBubble(t, nil, func(t *testing.T, b *idBench) {
			if pending {
				b.lose()
			}
			_, was, _ := b.do(idNamed("n"), `{"id":"o1","at":1}`)
			b.srv.Heal()
			_, _, err := b.do(idNamed("n"), `{"id":"o1","at":2}`)
			require.ErrorIs(t, err, idem.ErrMismatch)
			_, is, err := b.do(idem.WithStoredPayload(idNamed("n")), `{"id":"o1","at":2}`)
			require.NoError(t, err)
			require.Equal(t, was.Key, is.Key)
			require.Equal(t, !pending, is.Recalled)
			for _, r := range b.srv.Requests() {
				require.Equal(t, `{"id":"o1","at":1}`, string(r.Body))
			}
			require.Equal(t, 1, b.srv.Effects("o1"))
		})
	}
}

func TestStoredPayloadDoesNotReviveADecline(t *testing.T) {
	idBubble(t, nil, func(t *testing.T, b *idBench) {
		b.answer(402)
		_, was, err := b.do(idNamed("n"), `{"id":"o1","at":1}`)
		require.NoError(t, err)
		_, is, err := b.do(idem.WithStoredPayload(idNamed("n")), `{"id":"o1","at":2}`)
		require.NoError(t, err)
		require.NotEqual(t, was.Key, is.Key)
		require.Equal(t, idem.FateDone, is.Fate)
	})
}

func TestStoredPayloadGivesNoCredentialToAnotherOrigin(t *testing.T) {
	idBubble(t, nil, func(t *testing.T, b *idBench) {
		b.lose()
		_, _, err := b.do(idNamed("n"), `{"id":"o1"}`)
		require.Error(t, err)
		b.srv.Heal()
		_, _, _ = b.do(idem.WithStoredPayload(idNamed("n")), `{"id":"o1"}`, idHeader("Authorization", "Bearer other"),
			func(r *http.Request) { r.URL.Host, r.Host = "other.example", "other.example" })
		for _, r := range b.srv.Requests() {
			if strings.HasPrefix(r.URL, "http://api.example/") {
				require.NotContains(t, r.Header.Get("Authorization"), "other")
			}
		}
	})
}

func TestTheCallersRequestAndOptionsAreNeverWrittenTo(t *testing.T) {
	opts := &idem.Options{
		Scope: "pay", Dialect: idem.Dialect{Methods: []string{"POST"}, Headers: []string{"X-Sub"}, Routes: []idem.Dialect{{Paths: []string{"/x"}}}},
		Retry: idem.RetryPolicy{MaxAttempts: 3},
	}
	for name, body := range map[string]string{"answered": `{"id":"o1"}`, "bad": `{`} {
		t.Run(name, func(t *testing.T) {
			idBubble(t, func(o *idem.Options) { opts.Base = o.Base; *o = *opts }, func(t *testing.T, b *idBench) {
				before := *opts
				before.Dialect.Routes = append([]idem.Dialect(nil), opts.Dialect.Routes...)
				b.srv.Script(mockserver.Fault{Kind: mockserver.FaultDrop})
				reader := idBody(body)
				req := idPost(idNamed("n"), "", idHeader("idempotency-key", "sdk"), idHeader("authorization", "Bearer x"),
					func(r *http.Request) {
						r.Body, r.ContentLength, r.URL.User, r.URL.Fragment = reader, int64(len(body)), url.User("u"), "f"
						r.GetBody = nil
					})
				shown := fmt.Sprint(req.Header, req.URL, req.Host, req.Method, req.ContentLength)
				u, ctx := req.URL, req.Context()
				_, err := b.c.Do(req)
				require.NoError(t, err)
				require.Equal(t, shown, fmt.Sprint(req.Header, req.URL, req.Host, req.Method, req.ContentLength))
				require.Same(t, u, req.URL)
				require.Equal(t, ctx, req.Context())
				require.Same(t, reader, req.Body)
				require.Nil(t, req.GetBody)
				require.Equal(t, 1, reader.closed)
				require.True(t, reflect.DeepEqual(before, *opts))
			})
		})
	}
}

func TestABodyIsClosedWhateverBecomesOfTheCall(t *testing.T) {
	for name, c := range map[string]struct {
		ctx    context.Context
		change func(*http.Request)
	}{
		"recalled": {idNamed("done"), func(*http.Request) {}},
		"mismatch": {idNamed("done"), func(r *http.Request) { r.URL.Path = "/x" }},
		"in doubt": {context.Background(), func(r *http.Request) { r.URL.Path = "/doubt" }},
		"read":     {context.Background(), func(r *http.Request) { r.Method = "GET" }},
		"skipped":  {context.Background(), func(r *http.Request) { r.URL.Path = "/skip" }},
		"token":    {context.Background(), idForm},
		"no URL":   {context.Background(), func(r *http.Request) { r.URL = nil }},
		"ended":    {idEnded(), func(*http.Request) {}},
	} {
		t.Run(name, func(t *testing.T) {
			skip := func(r *http.Request) bool { return r.URL.Path == "/skip" }
			idBubble(t, func(o *idem.Options) { o.Skip = skip }, func(t *testing.T, b *idBench) {
				text := "grant_type=client_credentials"
				_, _, err := b.do(idNamed("done"), text)
				require.NoError(t, err)
				b.lose()
				_, _, err = b.do(context.Background(), text, func(r *http.Request) { r.URL.Path = "/doubt" })
				require.Error(t, err)
				b.srv.Heal()
				for _, transport := range []bool{false, true} {
					body := idBody(text)
					req := idPost(c.ctx, "", c.change, func(r *http.Request) { r.Body, r.ContentLength, r.GetBody = body, int64(len(text)), nil })
					if transport {
						_, _ = b.c.Transport().RoundTrip(req)
					} else {
						_, _ = b.c.Do(req)
					}
					require.GreaterOrEqual(t, body.closed, 1)
				}
			})
		})
	}
}

func idForm(r *http.Request) { r.Header.Set("Content-Type", "application/x-www-form-urlencoded") }

func idEnded() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func TestTokenRequestsAndSkippedOnesAreNoIntents(t *testing.T) {
	skip := func(r *http.Request) bool { return r.URL.Path == "/upload" }
	idBubble(t, func(o *idem.Options) { o.Skip = skip }, func(t *testing.T, b *idBench) {
		for name, c := range map[string]struct {
			body   string
			change func(*http.Request)
		}{
			"token":  {"grant_type=client_credentials&client_secret=s", idForm},
			"upload": {"bytes", func(r *http.Request) { r.URL.Path = "/upload" }},
		} {
			for range 2 {
				ctx := idNamed("n")
				resp, err := b.c.Do(idPost(ctx, c.body, c.change, idHeader("Authorization", "Basic x")))
				require.NoError(t, err, name)
				require.Equal(t, 201, resp.StatusCode)
			}
			seen := b.srv.Requests()
			for _, r := range seen[len(seen)-2:] {
				require.Equal(t, c.body, string(r.Body))
				require.Equal(t, "Basic x", r.Header.Get("Authorization"))
				require.Empty(t, r.Header.Values("Idempotency-Key"))
			}
			require.Empty(t, b.open())
			_, err := b.c.Lookup(context.Background(), "n")
			require.ErrorIs(t, err, idem.ErrNotFound)
		}
		require.Len(t, b.srv.Requests(), 4)
	})
}

func TestASkippedBodyIsNotReadBeforeBaseReadsIt(t *testing.T) {
	body := idBody(strings.Repeat("x", 100))
	var got *http.Request
	base := idBase(func(r *http.Request) (*http.Response, error) {
		got = r
		require.Zero(t, body.ends)
		return &http.Response{StatusCode: 200, Body: http.NoBody, Request: r}, nil
	})
	idBubble(t, func(o *idem.Options) {
		o.Base, o.MaxBody = base, 10
		o.Skip = func(*http.Request) bool { return true }
	}, func(t *testing.T, b *idBench) {
		req := idPost(context.Background(), "", func(r *http.Request) { r.Body, r.ContentLength = body, 100 })
		_, err := b.c.Do(req)
		require.NoError(t, err)
		require.Same(t, body, got.Body)
	})
}
