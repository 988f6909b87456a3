package idem_test

import (
	"context"
	"math"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
)

// idBadRequests are requests that make no sense, each with the field to name.
var idBadRequests = []struct {
	name, field string
	change      func(*http.Request)
}{
	{"no URL", "Request.URL", func(r *http.Request) { r.URL = nil }},
	{"no host", "Request.URL", func(r *http.Request) { r.URL.Host = "" }},
	{"only a port", "Request.URL", func(r *http.Request) { r.URL.Host = ":80" }},
	{"no scheme", "Request.URL", func(r *http.Request) { r.URL.Scheme = "" }},
	{"another scheme", "Request.URL", func(r *http.Request) { r.URL.Scheme = "ftp" }},
	{"opaque", "Request.URL", func(r *http.Request) { r.URL = &url.URL{Scheme: "http", Host: "h", Opaque: "//x/y"} }},
	{"method", "Request.Method", func(r *http.Request) { r.Method = "PO ST" }},
	{"header name", "Request.Header", func(r *http.Request) { r.Header["X Y"] = []string{"1"} }},
	{"header value", "Request.Header", func(r *http.Request) { r.Header["X-Y"] = []string{"1\r\nX: 2"} }},
	{"broken body", "Request.Body", func(r *http.Request) { r.Body, r.ContentLength = idBroken("{"), -1 }},
	{"short body", "Request.Body", func(r *http.Request) { r.ContentLength = 1000 }},
	{"no body", "Request.Body", func(r *http.Request) { r.Body = http.NoBody }},
	{"empty name", "Intent", func(r *http.Request) { *r = *r.WithContext(idem.WithIntent(r.Context(), "")) }},
	{"long name", "Intent", func(r *http.Request) { *r = *r.WithContext(idem.WithIntent(r.Context(), strings.Repeat("n", 513))) }},
	{"name not UTF-8", "Intent", func(r *http.Request) { *r = *r.WithContext(idem.WithIntent(r.Context(), "a\xff")) }},
	{"empty key", "Key", func(r *http.Request) { *r = *r.WithContext(idem.WithKey(r.Context(), "")) }},
	{"long key", "Key", func(r *http.Request) {
		*r = *r.WithContext(idem.WithKey(r.Context(), idem.Key(strings.Repeat("k", 256))))
	}},
	{"key with a break", "Key", func(r *http.Request) { *r = *r.WithContext(idem.WithKey(r.Context(), "a\r\nb")) }},
	{"SDK's long key", "Key", func(r *http.Request) { r.Header.Set("Idempotency-Key", strings.Repeat("k", 256)) }},
	{"long account", "Account", func(r *http.Request) { *r = *r.WithContext(idem.WithAccount(r.Context(), strings.Repeat("a", 256))) }},
}

func TestABadRequestIsToldByFieldAndLeavesNothing(t *testing.T) {
	for _, c := range idBadRequests {
		t.Run(c.name, func(t *testing.T) {
			idBubble(t, nil, func(t *testing.T, b *idBench) {
				_, r, err := b.do(context.Background(), `{"id":"o1"}`, c.change)
				idInvalid(t, err, c.field)
				require.Equal(t, idem.FateNotDone, r.Fate)
				_, err = b.c.Transport().RoundTrip(idPost(context.Background(), `{"id":"o1"}`, c.change))
				idInvalid(t, err, c.field)
				_, err = b.c.Enqueue(idPost(context.Background(), `{"id":"o1"}`, c.change))
				idInvalid(t, err, c.field)
				require.Empty(t, b.open())
				require.Empty(t, b.srv.Requests())
			})
		})
	}
}

func idInvalid(t *testing.T, err error, field string) {
	t.Helper()
	var invalid *idem.InvalidError
	require.ErrorAs(t, err, &invalid)
	require.ErrorIs(t, err, idem.ErrInvalid)
	require.Contains(t, invalid.Field, field)
	require.NotEmpty(t, invalid.Why)
	require.ErrorContains(t, err, field)
}

func TestABadRequestIsNeverNotDoneWhereItsNameHoldsMore(t *testing.T) {
	for _, c := range idBadRequests {
		if c.field == "Intent" || c.field == "Account" {
			continue // such a name holds nothing
		}
		t.Run(c.name, func(t *testing.T) {
			idBubble(t, nil, func(t *testing.T, b *idBench) {
				b.lose()
				_, was, _ := b.do(idNamed("n"), `{"id":"o1"}`)
				_, r, err := b.do(idNamed("n"), `{"id":"o1"}`, c.change)
				idInvalid(t, err, c.field)
				require.Equal(t, idem.FateUnknown, r.Fate)
				require.Equal(t, was.Key, r.Key)
				b.srv.Heal()
				_, _, err = b.do(idNamed("n"), `{"id":"o1"}`)
				require.NoError(t, err)
				_, r, err = b.do(idNamed("n"), `{"id":"o1"}`, c.change)
				idInvalid(t, err, c.field)
				require.Equal(t, idem.FateDone, r.Fate)
			})
		})
	}
}

func TestABadRequestIsNeverNotDoneWhereItsKeyHoldsMore(t *testing.T) {
	idBubble(t, nil, func(t *testing.T, b *idBench) {
		_, _, err := b.do(idKeyed("mine"), `{"id":"o1"}`)
		require.NoError(t, err)
		_, r, err := b.do(idKeyed("mine"), `{"id":"o1"}`, func(r *http.Request) { r.ContentLength = 1000 })
		idInvalid(t, err, "Request.Body")
		require.Equal(t, idem.FateDone, r.Fate)
		_, r, err = b.do(idem.WithKey(idNamed(strings.Repeat("n", 513)), "mine"), `{"id":"o1"}`)
		idInvalid(t, err, "Intent")
		require.Equal(t, idem.FateDone, r.Fate)
		_, r, err = b.do(context.Background(), `{"id":"o1"}`, idHeader("Idempotency-Key", "mine"), func(r *http.Request) { r.Body, r.ContentLength = idBroken("{"), -1 })
		idInvalid(t, err, "Request.Body")
		require.Equal(t, idem.FateDone, r.Fate)
	})
}

func TestANilRequestIsInvalid(t *testing.T) {
	idBubble(t, nil, func(t *testing.T, b *idBench) {
		resp, err := b.c.Do(nil)
		require.Nil(t, resp)
		idInvalid(t, err, "Request")
		require.Equal(t, idem.FateNotDone, idem.FateOf(resp, err))
		_, err = b.c.Transport().RoundTrip(nil)
		idInvalid(t, err, "Request")
		_, err = b.c.Enqueue(nil)
		idInvalid(t, err, "Request")
	})
}

func TestABodyOverMaxBodyIsRefusedAndClosed(t *testing.T) {
	idBubble(t, func(o *idem.Options) { o.MaxBody = 10 }, func(t *testing.T, b *idBench) {
		_, _, err := b.do(idNamed("held"), `{"id":"o1"`)
		require.NoError(t, err)
		for _, length := range []int64{11, -1, 0} {
			for name, fate := range map[string]idem.Fate{"free": idem.FateNotDone, "held": idem.FateDone} {
				body := idBody("12345678901")
				_, r, err := b.do(idNamed(name), "", func(r *http.Request) { r.Body, r.ContentLength = body, length })
				require.ErrorIs(t, err, idem.ErrBodyTooLarge)
				require.Equal(t, fate, r.Fate)
				require.Equal(t, 1, body.closed)
			}
		}
		require.Len(t, b.srv.Requests(), 1)
		_, _, err = b.do(idNamed("fits"), "1234567890")
		require.NoError(t, err)
	})
}

func TestTheCauseOfABrokenBodyIsFound(t *testing.T) {
	idBubble(t, nil, func(t *testing.T, b *idBench) {
		body := idBroken("{")
		_, _, err := b.do(context.Background(), "", func(r *http.Request) { r.Body, r.ContentLength = body, -1 })
		require.ErrorIs(t, err, errIDBroken)
		require.ErrorIs(t, err, idem.ErrInvalid)
		require.Equal(t, 1, body.closed)
	})
}

func TestAKeyOutsideTheDialectsLimitsIsInvalid(t *testing.T) {
	d := idem.Dialect{MinKey: 4, MaxKey: 36}
	idBubble(t, func(o *idem.Options) { o.Dialect = d }, func(t *testing.T, b *idBench) {
		for key, ok := range map[idem.Key]bool{"abc": false, "abcd": true, idem.Key(strings.Repeat("k", 36)): true, idem.Key(strings.Repeat("k", 37)): false} {
			_, r, err := b.do(idKeyed(key), `{"id":"o1"}`)
			if ok {
				require.NoError(t, err)
				continue
			}
			idInvalid(t, err, "Key")
			require.Equal(t, idem.FateNotDone, r.Fate)
		}
		require.Len(t, b.srv.Requests(), 2)
	})
}

func TestNonsensicalOptionsAreRefusedByField(t *testing.T) {
	c, err := idem.New(idem.NewMemoryKeystore(), nil)
	require.NoError(t, err)
	defer c.Close()
	for _, bad := range []struct {
		field string
		opts  idem.Options
	}{
		{"Options.Scope", idem.Options{Scope: strings.Repeat("s", 256)}},
		{"Options.Scope", idem.Options{Scope: "\xff"}},
		{"Options.Account", idem.Options{Account: strings.Repeat("a", 256)}},
		{"Options.MaxBody", idem.Options{MaxBody: -1}},
		{"Options.MaxResult", idem.Options{MaxResult: -1}},
		{"Options.Keep", idem.Options{Keep: -time.Second}},
		{"Options.Keep", idem.Options{Keep: time.Hour}},
		{"Options.Base", idem.Options{Base: c.Transport()}},
		{"Options.Base", idem.Options{Base: (*http.Transport)(nil)}},
		{"Options.Unseal", idem.Options{Unseal: append(idem.Options{}.Unseal, nil)}},
		{"Options.Retry.MaxAttempts", idem.Options{Retry: idem.RetryPolicy{MaxAttempts: -1}}},
		{"Options.Retry.AttemptTimeout", idem.Options{Retry: idem.RetryPolicy{AttemptTimeout: -1}}},
		{"Options.Retry.BaseDelay", idem.Options{Retry: idem.RetryPolicy{BaseDelay: time.Minute, MaxDelay: time.Second}}},
		{"Options.Breaker.FailureRate", idem.Options{Breaker: idem.BreakerPolicy{FailureRate: math.NaN()}}},
		{"Options.Breaker.FailureRate", idem.Options{Breaker: idem.BreakerPolicy{FailureRate: 1.5}}},
		{"Options.Resume.Concurrency", idem.Options{Resume: idem.ResumeOptions{Concurrency: -1}}},
		{"Options.Resume.Rate", idem.Options{Resume: idem.ResumeOptions{Rate: math.NaN()}}},
		{"Dialect.Margin", idem.Options{Dialect: idem.Dialect{Window: time.Minute, Margin: time.Hour}}},
		{"Dialect.Placement", idem.Options{Dialect: idem.Dialect{Placement: 99}}},
		{"Dialect.MinKey", idem.Options{Dialect: idem.Dialect{MinKey: 9, MaxKey: 3}}},
		{"Dialect.NewKey", idem.Options{Dialect: idem.Dialect{NewKey: func() idem.Key { return "" }}}},
		{"Dialect.Field", idem.Options{Dialect: idem.Dialect{Field: "Authorization"}}},
	} {
		t.Run(bad.field, func(t *testing.T) {
			ks := idem.NewMemoryKeystore()
			defer ks.Close()
			_, err := idem.New(ks, &bad.opts)
			idInvalid(t, err, bad.field)
			path := t.TempDir() + "/journal.db"
			_, err = idem.Open(path, &bad.opts)
			idInvalid(t, err, bad.field)
			require.NoFileExists(t, path)
		})
	}
	for _, ks := range []idem.Keystore{nil, (*idem.BoltKeystore)(nil)} {
		_, err := idem.New(ks, nil)
		idInvalid(t, err, "Keystore")
	}
}

func TestAClosedClientTellsWhatMayStillBe(t *testing.T) {
	for _, owned := range []bool{false, true} {
		idBubble(t, nil, func(t *testing.T, b *idBench) {
			c := b.client(nil)
			if owned {
				var err error
				c, err = idem.Open(t.TempDir()+"/own.db", &idem.Options{Base: b.srv.Transport()})
				require.NoError(t, err)
			}
			b.lose()
			_, left, _ := idDo(t, c, context.Background(), `{"id":"left"}`)
			b.srv.Heal()
			sent := len(b.srv.Requests())
			require.NoError(t, c.Close())
			require.NoError(t, c.Close(), "a second Close does nothing")
			for name, call := range map[string]struct {
				ctx  context.Context
				body string
				fate idem.Fate
			}{
				"fresh":    {context.Background(), `{"id":"fresh"}`, idem.FateNotDone},
				"named":    {idNamed("n"), `{"id":"o1"}`, idem.FateUnknown},
				"keyed":    {idKeyed("k"), `{"id":"o1"}`, idem.FateUnknown},
				"in doubt": {context.Background(), `{"id":"left"}`, idem.FateUnknown},
			} {
				_, r, err := idDo(t, c, call.ctx, call.body)
				require.ErrorIs(t, err, idem.ErrClosed, name)
				require.Equal(t, call.fate, r.Fate, name)
				if name == "in doubt" {
					require.Equal(t, left.Key, r.Key)
				}
			}
			body := idBody("x")
			req := idPost(context.Background(), "", func(r *http.Request) { r.Body, r.ContentLength = body, 1 })
			_, err := c.Transport().RoundTrip(req)
			require.ErrorIs(t, err, idem.ErrClosed)
			require.Equal(t, 1, body.closed)
			_, err = c.Enqueue(idPost(context.Background(), `{"id":"fresh"}`))
			require.ErrorIs(t, err, idem.ErrClosed)
			_, err = c.Resume(context.Background(), nil)
			require.ErrorIs(t, err, idem.ErrClosed)
			require.ErrorIs(t, c.Run(context.Background()), idem.ErrClosed)
			require.ErrorIs(t, idErr(c.Lookup(context.Background(), "n")), idem.ErrClosed)
			require.Len(t, b.srv.Requests(), sent)
		})
	}
}

func idErr[T any](_ T, err error) error { return err }

func TestCloseLeavesWhatIsUnderWayPending(t *testing.T) {
	for name, fault := range map[string]mockserver.Fault{
		"in flight":                      {Kind: mockserver.FaultHang},
		"backing off from refused dials": {Kind: mockserver.FaultRefuse, Times: -1},
		"refused at the door":            {Kind: mockserver.FaultRateLimit, Times: -1, RetryAfter: 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			idBubble(t, nil, func(t *testing.T, b *idBench) {
				c := b.client(nil)
				b.srv.Script(fault)
				done := make(chan error, 1)
				go func() { done <- idErr(c.Do(idPost(idNamed("n"), `{"id":"o1"}`))) }()
				time.Sleep(100 * time.Millisecond)
				require.NoError(t, c.Close())
				err := <-done
				require.ErrorIs(t, err, idem.ErrClosed)
				require.Equal(t, idem.FateUnknown, idem.FateOf(nil, err))
				require.Len(t, b.open(), 1)
				b.srv.Heal()
				time.Sleep(time.Minute)
				report, err := b.c.Resume(context.Background(), nil)
				require.NoError(t, err)
				require.Equal(t, idem.Report{Done: 1}, report)
				require.Equal(t, 1, b.srv.Effects("o1"))
			})
		})
	}
}
