// Package oauth2_test puts golang.org/x/oauth2 above Client.Transport and below it, as
// Options.Base.
//
// What works. Above or below, one key and one body whatever token is on the request, and
// the token is not in the journal. The request for a token itself is no intent and isn't
// journaled. Below, every attempt gets a token that is valid then, and so does what Resume
// sends after a restart.
//
// What to mind. Above, the retries of one call repeat its token, and Resume has none
// (ErrCredentials). Below, a token that can't be had looks like a send that failed, which
// is Unknown. In Options.Authorize a token source has neither trouble: it is asked for
// every attempt, and what it can't give is NotDone. Above, such a call never reaches the
// library, and WithResult stays as it was.
package oauth2_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/interop/internal/ours"
	"github.com/idem-go/idem/interop/internal/wire"
	"github.com/idem-go/idem/mockserver"
)

// fresh gives another token every time.
type fresh struct{ n int }

func (f *fresh) Token() (*oauth2.Token, error) {
	f.n++
	return &oauth2.Token{AccessToken: fmt.Sprint("opaque-token-", f.n)}, nil
}

type none struct{}

var errNoToken = errors.New("the authorization server is down")

func (none) Token() (*oauth2.Token, error) { return nil, errNoToken }

func below(t *testing.T, path string, attempts int, source oauth2.TokenSource) *idem.Client {
	return ours.Open(t, path, attempts, idem.Options{Base: &oauth2.Transport{Source: source}})
}

func above(c *idem.Client, source oauth2.TokenSource) *http.Client {
	return &http.Client{Transport: &oauth2.Transport{Base: c.Transport(), Source: source}}
}

func post(ctx context.Context, hc *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(`{"id":"7"}`))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := hc.Do(req)
	if err == nil {
		err = resp.Body.Close()
	}
	return err
}

func tokens(api *mockserver.Server) (out []string) {
	for _, r := range api.Requests() {
		out = append(out, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer opaque-token-"))
	}
	return out
}

func TestAboveACallIsSentUnderOneTokenAndTheNextRunUnderAnother(t *testing.T) {
	api, path, source := mockserver.Start(t, nil), ours.Journal(t), &fresh{}
	api.Script(mockserver.Fault{Kind: mockserver.FaultDrop, Times: 3})
	var r idem.Result
	ctx := idem.WithResult(idem.WithIntent(t.Context(), "order-7"), &r)
	first := ours.Open(t, path, 2, idem.Options{})
	var e *idem.Error
	require.ErrorAs(t, post(ctx, above(first, source), api.URL), &e)
	require.Equal(t, idem.FateUnknown, e.Fate)
	require.NoError(t, first.Close())

	require.NoError(t, post(ctx, above(ours.Open(t, path, 2, idem.Options{}), source), api.URL))
	require.Equal(t, []string{"1", "1", "2", "2"}, tokens(api))
	require.Equal(t, []string{string(r.Key)}, api.Keys("7"))
	require.Len(t, api.Bodies("7"), 1)
	require.Equal(t, 1, api.Effects("7"))
	require.NotContains(t, read(t, path), "opaque-token")
}

func TestBelowEveryAttemptHasATokenOfItsOwnAndTheJournalNone(t *testing.T) {
	api, path := mockserver.Start(t, nil), ours.Journal(t)
	api.Script(mockserver.Fault{Kind: mockserver.FaultDrop, Times: 2})
	var r idem.Result
	require.NoError(t, post(idem.WithResult(t.Context(), &r), below(t, path, 3, &fresh{}).HTTPClient(), api.URL))
	require.Equal(t, []string{"1", "2", "3"}, tokens(api))
	require.Equal(t, []string{string(r.Key)}, api.Keys("7"))
	require.Len(t, api.Bodies("7"), 1)
	require.NotContains(t, read(t, path), "opaque-token")
}

func TestResumeAfterARestartHasATokenWhereItIsBelowAndNoneWhereItIsAbove(t *testing.T) {
	source := &fresh{}
	for name, tc := range map[string]struct {
		run  func(path, url string) error
		left error
	}{
		"below": {func(path, url string) error {
			c := below(t, path, 1, source)
			defer c.Close()
			return post(t.Context(), c.HTTPClient(), url)
		}, nil},
		"above": {func(path, url string) error {
			c := ours.Open(t, path, 1, idem.Options{})
			defer c.Close()
			return post(t.Context(), above(c, source), url)
		}, idem.ErrCredentials},
	} {
		t.Run(name, func(t *testing.T) {
			api, path := mockserver.Start(t, nil), ours.Journal(t)
			api.Script(mockserver.Fault{Kind: mockserver.FaultDrop})
			require.Error(t, tc.run(path, api.URL))

			c := below(t, path, 1, source)
			if tc.left != nil {
				c.Close()
				c = ours.Open(t, path, 1, idem.Options{})
			}
			var why []error
			each := func(_ idem.Entry, err error) { why = append(why, err) }
			_, err := c.Resume(t.Context(), &idem.ResumeOptions{Each: each})
			require.NoError(t, err)
			require.Len(t, why, 1)
			require.ErrorIs(t, why[0], tc.left)
			require.Equal(t, 1, api.Effects("7"))
		})
	}
}

func TestATokenThatCantBeHadIsNotDoneInAuthorizeUnknownBelowAndUnheardOfAbove(t *testing.T) {
	authorize := func(r *http.Request) error {
		token, err := none{}.Token()
		if err == nil {
			token.SetAuthHeader(r)
		}
		return err
	}
	inAuthorize := ours.Open(t, ours.Journal(t), 3, idem.Options{Authorize: authorize})
	for name, tc := range map[string]struct {
		hc   *http.Client
		ours bool
		fate idem.Fate
	}{
		"in Authorize": {inAuthorize.HTTPClient(), true, idem.FateNotDone},
		"below":        {below(t, ours.Journal(t), 3, none{}).HTTPClient(), true, idem.FateUnknown},
		"above":        {above(ours.Client(t, 3), none{}), false, idem.FateUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			api := mockserver.Start(t, nil)
			var r idem.Result
			err := post(idem.WithResult(t.Context(), &r), tc.hc, api.URL)
			require.ErrorIs(t, err, errNoToken)
			var e *idem.Error
			require.Equal(t, tc.ours, errors.As(err, &e))
			require.Equal(t, tc.ours, r.Key != "")
			require.Equal(t, tc.fate, r.Fate)
			require.Empty(t, api.Requests())
		})
	}
}

func TestBelowNoTokenGoesToAnotherOriginForNoRedirectThereIsFollowed(t *testing.T) {
	elsewhere := mockserver.Start(t, nil)
	api := wire.Start(t, http.RedirectHandler(elsewhere.URL+"/payments", http.StatusPermanentRedirect))
	var r idem.Result
	hc := below(t, ours.Journal(t), 3, &fresh{}).HTTPClient()
	require.NoError(t, post(idem.WithResult(t.Context(), &r), hc, api.URL))
	require.Equal(t, 308, r.Status)
	require.Equal(t, idem.FateNotDone, r.Fate)
	require.Len(t, api.Requests(), 1)
	require.Empty(t, elsewhere.Requests())
}

func TestTheRequestForATokenIsNoIntentThoughItGoesThroughTheClient(t *testing.T) {
	api := mockserver.Start(t, nil)
	server := wire.Start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"access_token":"opaque-token-9","token_type":"Bearer","expires_in":3600}`)
	}))
	path := ours.Journal(t)
	c := ours.Open(t, path, 3, idem.Options{})
	cfg := clientcredentials.Config{ClientID: "id", ClientSecret: "hush", TokenURL: server.URL}
	hc := cfg.Client(context.WithValue(t.Context(), oauth2.HTTPClient, c.HTTPClient()))
	require.NoError(t, post(idem.WithIntent(t.Context(), "order-7"), hc, api.URL))
	require.Equal(t, []string{"9"}, tokens(api))
	require.Len(t, server.Requests(), 1)
	require.Empty(t, server.Requests()[0].Header.Get("Idempotency-Key"))
	require.Equal(t, 1, api.Effects("7"))
	require.NotContains(t, read(t, path), "opaque-token")
}

func read(t *testing.T, path string) string {
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(b)
}
