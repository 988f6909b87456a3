package idem_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
)

// secretFailure is a *url.Error in the manner of http.Client, over a cause that
// quotes the request's headers.
func secretFailure(req *http.Request) error {
	cause := fmt.Errorf("stream broke after sending %q, %q and %q",
		req.Header.Get("Authorization"), req.Header.Get("X-Acme-Token"), req.Header.Get("X-Signed"))
	return &url.Error{Op: "Post", URL: req.URL.String(), Err: cause}
}

// secretScenes are calls that end in all ways; after each, no secret stands in the
// journal, the log, a trace or an error.
var secretScenes = []struct {
	name   string
	faults []mockserver.Fault
	setup  func(*secretRig)
	act    func(*secretRig)
	kept   string // "" is order-1
}{
	{name: "an answer", act: func(r *secretRig) {
		require.NoError(r.t, r.do())
		require.NoError(r.t, r.do(), "recalled")
	}},
	{name: "an answer to an anonymous call", kept: "meta", act: func(r *secretRig) {
		resp, err := r.client.Do(secretRequest(context.Background()))
		require.NoError(r.t, err)
		resp.Body.Close()
	}},
	{name: "lost answers", faults: []mockserver.Fault{{Kind: mockserver.FaultDrop, Times: 5}}, act: func(r *secretRig) {
		require.ErrorIs(r.t, r.do(), idem.ErrExhausted)
		require.NoError(r.t, r.do())
	}},
	{name: "a body cut short", faults: []mockserver.Fault{{Kind: mockserver.FaultCut, Times: 3}}, act: func(r *secretRig) {
		require.Equal(r.t, idem.FateDone, idem.FateOf(nil, r.do()))
	}},
	{name: "a 401", kept: "meta", faults: secretStatus(401), act: func(r *secretRig) { require.NoError(r.t, r.do()) }},
	{name: "a 401 after a lost answer", faults: append([]mockserver.Fault{{Kind: mockserver.FaultDrop}}, secretStatus(401)...), act: func(r *secretRig) {
		require.Equal(r.t, idem.FateUnknown, idem.FateOf(nil, r.do()))
	}},
	{name: "a 402", faults: secretStatus(402), act: func(r *secretRig) { require.NoError(r.t, r.do()) }},
	{name: "503s", faults: secretStatus(503, 503, 503), act: func(r *secretRig) { require.Error(r.t, r.do()) }},
	{name: "a 429 far off", faults: []mockserver.Fault{{Kind: mockserver.FaultDrop}, {Kind: mockserver.FaultRateLimit, Header: secretAnswerHeader(), RetryAfter: time.Hour}}, act: func(r *secretRig) {
		require.Error(r.t, r.do())
		require.Error(r.t, r.do(), "it still has to wait")
	}},
	{name: "a 302", faults: secretStatus(302), act: func(r *secretRig) { require.Error(r.t, r.do()) }},
	{name: "a 303", faults: secretStatus(303), act: func(r *secretRig) { require.Error(r.t, r.do()) }},
	{name: "a 307 to the same origin", faults: secretRedirect(307, "/v2/payments?access_token=hush-moved"), act: func(r *secretRig) { require.NoError(r.t, r.do()) }},
	{name: "a 308 to another origin", faults: secretRedirect(308, "http://eve:hush-moved@other.example/v2?api_key=hush-moved"), act: func(r *secretRig) { require.NoError(r.t, r.do()) }},
	{name: "a 308 to a location that can't be parsed", faults: secretRedirect(308, "http://eve:hush-%zz@other.example/"), act: func(r *secretRig) { require.NoError(r.t, r.do()) }},
	{name: "a poll of a location with secrets", faults: append(secretStatus(202, 202), mockserver.Fault{Kind: mockserver.FaultDrop, Times: 2}), setup: func(r *secretRig) {
		r.opts.Dialect.Accepted = idem.AcceptedPoll
	}, act: func(r *secretRig) {
		require.Error(r.t, r.do())
		r.pass()
	}},
	{name: "a refused dial", kept: "meta", faults: []mockserver.Fault{{Kind: mockserver.FaultRefuse, Times: 3}}, act: func(r *secretRig) {
		require.Equal(r.t, idem.FateNotDone, idem.FateOf(nil, r.do()))
	}},
	{name: "a base that tells all", setup: secretCareless(3, false), act: func(r *secretRig) {
		require.ErrorIs(r.t, r.do(), idem.ErrExhausted)
	}},
	{name: "a base that panics", setup: secretCareless(1, true), act: func(r *secretRig) {
		require.Panics(r.t, func() { _ = r.do() })
		require.NoError(r.t, r.do())
	}},
	{name: "Abandon", faults: []mockserver.Fault{{Kind: mockserver.FaultDrop, Times: 3}}, act: func(r *secretRig) {
		require.Error(r.t, r.do())
		require.NoError(r.t, r.client.Abandon(context.Background(), r.key(), "gone"))
		require.ErrorIs(r.t, r.do(), idem.ErrAbandoned)
	}},
	{name: "Settle with an answer", faults: []mockserver.Fault{{Kind: mockserver.FaultDrop, Times: 3}}, act: func(r *secretRig) {
		require.Error(r.t, r.do())
		require.NoError(r.t, r.client.Settle(context.Background(), r.key(), idem.Finding{Fate: idem.FateDone, Status: 201, Header: secretAnswerHeader()}))
		require.NoError(r.t, r.do())
	}},
	{name: "a mismatch", act: func(r *secretRig) {
		require.NoError(r.t, r.do())
		req := secretRequest(idem.WithIntent(context.Background(), "order-1"))
		req.URL.Path = "/v1/refunds"
		_, err := r.client.Do(req)
		require.ErrorIs(r.t, err, idem.ErrMismatch)
		r.heard(err)
	}},
	{name: "a read", kept: "meta", setup: secretCareless(3, false), act: func(r *secretRig) {
		req := secretRequest(context.Background())
		req.Method, req.Body, req.ContentLength = http.MethodGet, nil, 0
		_, err := r.client.Do(req)
		require.Error(r.t, err)
		r.heard(err)
	}},
	{name: "requests that make no sense", kept: "meta", act: func(r *secretRig) {
		for _, spoil := range []func(*http.Request){
			func(q *http.Request) { q.URL.Scheme = "ftp" },
			func(q *http.Request) { q.URL.Host = "" },
			func(q *http.Request) { q.URL.Opaque = "//alice:hush-opaque@api.example/x?sig=hush" },
			func(q *http.Request) { q.Header.Set("X-Acme-Token", "hush\nhush") },
			func(q *http.Request) { q.Host = "alice:hush-host@api.example" },
			func(q *http.Request) { q.ContentLength = 99 },
			func(q *http.Request) { q.Header["Authorization: Bearer hush"] = []string{""} },
		} {
			req := secretRequest(context.Background())
			spoil(req)
			_, err := r.client.Do(req)
			require.ErrorIs(r.t, err, idem.ErrInvalid)
			r.heard(err)
		}
		r.saw("done", nil)
	}},
	{name: "an Authorize that fails", kept: "meta", setup: func(r *secretRig) {
		r.opts.Authorize = func(req *http.Request) error {
			return fmt.Errorf("token for %q refused: %w", req.Header.Get("Authorization"),
				&url.Error{Op: "Get", URL: "http://eve:hush@login.example/?client_secret=hush", Err: errors.New("down")})
		}
	}, act: func(r *secretRig) { require.Equal(r.t, idem.FateNotDone, idem.FateOf(nil, r.do())) }},
	{name: "a Reconcile that fails", faults: append([]mockserver.Fault{{Kind: mockserver.FaultDrop}}, secretStatus(402)...), setup: func(r *secretRig) {
		r.opts.Reconcile = func(context.Context, idem.Entry) (idem.Finding, error) {
			return idem.Finding{}, &url.Error{Op: "Get", URL: secretURL, Err: errors.New("down")}
		}
	}, act: func(r *secretRig) { require.Error(r.t, r.do()) }},
	{name: "Enqueue, delivered with today's credentials", setup: func(r *secretRig) {
		r.opts.Authorize = secretAuthorize
		secretCareless(3, false)(r)
	}, act: func(r *secretRig) {
		_, err := r.client.Enqueue(secretRequest(idem.WithIntent(context.Background(), "order-1")))
		require.NoError(r.t, err)
		require.Equal(r.t, idem.Report{Unknown: 1}, r.pass())
		require.Equal(r.t, idem.Report{Done: 1}, r.pass())
	}},
	{name: "Enqueue without Authorize", kept: "meta", act: func(r *secretRig) {
		_, err := r.client.Enqueue(secretRequest(idem.WithIntent(context.Background(), "order-1")))
		require.ErrorIs(r.t, err, idem.ErrCredentials)
		r.heard(err)
	}},
	{name: "a resume that lacks its credentials", faults: []mockserver.Fault{{Kind: mockserver.FaultDrop, Times: 3}}, act: func(r *secretRig) {
		require.Error(r.t, r.do())
		require.Equal(r.t, idem.Report{Unknown: 1}, r.pass())
	}},
}

func (r *secretRig) key() idem.Key {
	e, err := r.client.Lookup(context.Background(), "order-1")
	require.NoError(r.t, err)
	return e.Key
}

func secretStatus(codes ...int) []mockserver.Fault {
	var faults []mockserver.Fault
	for _, code := range codes {
		faults = append(faults, mockserver.Fault{Kind: mockserver.FaultStatus, Status: code, Header: secretAnswerHeader()})
	}
	return faults
}

func secretRedirect(code int, location string) []mockserver.Fault {
	return []mockserver.Fault{{Kind: mockserver.FaultStatus, Status: code, Header: http.Header{"Location": {location}}}}
}

func secretCareless(fails int, panics bool) func(*secretRig) {
	return func(r *secretRig) {
		r.opts.Base = &secretBase{next: r.srv.Transport(), fails: fails, panic: panics}
	}
}

// secretAuthorize adds credentials that no request of a caller ever showed.
func secretAuthorize(req *http.Request) error {
	for _, name := range []string{"Authorization", "Proxy-Authorization", "Cookie", "X-Api-Key", "X-Acme-Token"} {
		req.Header.Set(name, "hush-fresh-"+name)
	}
	req.Header.Set("X-Signed", "hush-fresh-signature")
	q := req.URL.Query()
	for _, name := range []string{"api_key", "access_token", "sig"} {
		q.Set(name, "hush-fresh-"+name)
	}
	req.URL.RawQuery = q.Encode()
	return nil
}

func TestNoSecretIsShownOrJournaled(t *testing.T) {
	for _, scene := range secretScenes {
		t.Run(scene.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newSecretRig(t, scene.setup)
				r.srv.Script(scene.faults...)
				scene.act(r)
				kept := scene.kept
				if kept == "" {
					kept = "order-1"
				}
				r.requireSilence(kept)
			})
		})
	}
}
