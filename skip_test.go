package idem_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

// skippedBody tells whether it was closed.
type skippedBody struct {
	io.Reader
	closed bool
}

func (b *skippedBody) Close() error { b.closed = true; return nil }

func TestASkippedRequestOfAClosedClientHasItsBodyClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSecretRig(t, func(r *secretRig) { r.opts.Skip = func(*http.Request) bool { return true } })
		defer r.srv.Close()
		require.NoError(t, r.client.Close())
		body := &skippedBody{Reader: strings.NewReader("x")}
		req := secretRequest(context.Background())
		req.Body = body
		_, err := r.client.Do(req)
		require.ErrorIs(t, err, idem.ErrClosed)
		require.True(t, body.closed, "a RoundTripper closes the body, also on errors")
	})
}

func TestTheErrorOfASkippedRequestShowsNoSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSecretRig(t, func(r *secretRig) {
			r.opts.Skip = func(*http.Request) bool { return true }
			secretCareless(1, false)(r)
		})
		defer r.srv.Close()
		defer r.client.Close()
		_, err := r.client.Do(secretRequest(context.Background()))
		require.Error(t, err)
		requireNoSecret(t, "the error", []byte(err.Error()))
	})
}

func TestASkippedRequestGivesBaseNoName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		named := false
		r := newSecretRig(t, func(r *secretRig) {
			r.opts.Skip = func(*http.Request) bool { return true }
			next := r.opts.Base
			r.opts.Base = skippedBase(func(req *http.Request) (*http.Response, error) {
				_, named = idem.IntentFrom(req.Context())
				return next.RoundTrip(req)
			})
		})
		defer r.srv.Close()
		defer r.client.Close()
		resp, err := r.client.Do(secretRequest(idem.WithIntent(context.Background(), "order-1")))
		require.NoError(t, err)
		resp.Body.Close()
		require.False(t, named)
	})
}

type skippedBase func(*http.Request) (*http.Response, error)

func (f skippedBase) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
