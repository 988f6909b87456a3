package idem

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/idem-go/idem/internal/secret"
	"github.com/stretchr/testify/require"
)

func TestNamesThatCarryCredentialsAreKnown(t *testing.T) {
	for _, name := range []string{
		"Authorization", "proxy-authorization", "Cookie", "X-Api-Key", "Api-Key", "DD-API-KEY",
		"X-MBX-APIKEY", "X-Auth-Token", "X-Shopify-Access-Token", "X-Amz-Security-Token",
		"PLAID-SECRET", "X-Vault-Token", "X-CSRF-Token", "X-Hub-Signature-256", "Signature",
		"OK-ACCESS-KEY", "CB-ACCESS-SIGN", "OK-ACCESS-PASSPHRASE", "X-Session-Id", "X-Shopify-Hmac-Sha256",
		"Authentication", "X-Authentication", "DD-APPLICATION-KEY", "X-Parse-Master-Key", "X-Master-Key",
	} {
		require.True(t, secret.IsHeader(name), name)
	}
	for _, name := range []string{
		"Content-Type", "Accept", "Idempotency-Key", "X-Idempotency-Token", "User-Agent",
		"Stripe-Account", "Stripe-Version", "X-Request-Id", "X-Amz-Target", "X-Amz-Date", "Date",
		"X-GCS-Idempotence-Session",
	} {
		require.False(t, secret.IsHeader(name), name)
	}
	for _, name := range []string{
		"access_token", "api_key", "apikey", "key", "sig", "signature", "token", "auth", "password",
		"secret", "client_secret", "X-Amz-Signature", "X-Amz-Credential", "X-Amz-Security-Token",
		"payment_intent_client_secret", "user[password]", "sessionId", "ACCESS_TOKEN",
	} {
		require.True(t, secret.IsQuery(name), name)
	}
	for _, name := range []string{"id", "keyword", "page_token", "nextToken", "code", "requestId", "sign_up", "author"} {
		require.False(t, secret.IsQuery(name), name)
	}
}

func TestTheDialectsOwnFieldIsNoCredential(t *testing.T) {
	header := Dialect{Field: "X-Goog-Gcs-Idempotency-Token"}
	require.NoError(t, header.validate())
	require.False(t, withholdsHeader(t, header, "x-goog-gcs-idempotency-token"))
	token := Dialect{Field: "X-Request-Token"}
	require.False(t, withholdsHeader(t, token, "X-Request-Token"))
	require.True(t, withholdsHeader(t, token, "X-Other-Token"))
	query := Dialect{Placement: PlaceQuery, Field: "ClientToken"}
	require.False(t, withholdsParam(t, query, "ClientToken"))
	require.True(t, withholdsParam(t, Dialect{}, "ClientToken"))
}

func withholdsHeader(t *testing.T, d Dialect, name string) bool {
	m := testRequest(t, "https://a.example", "", "")
	m.Header.Set(name, "v")
	_, w := d.withhold(m)
	return len(w.Headers) > 0
}

func withholdsParam(t *testing.T, d Dialect, name string) bool {
	_, w := d.withhold(testRequest(t, "https://a.example?"+name+"=v", "", ""))
	return len(w.Query) > 0
}

func TestWithholdingTakesSecretsOutAndRestoringPutsThemBack(t *testing.T) {
	const raw = "https://user:p%40ss@a.example/x?b=%7e&access_token=t%20k&a=1&sig=s&access_token=t2#f"
	m := testRequest(t, raw, "application/json", "{}")
	m.Header.Set("X-Api-Key", "k-1234")
	m.Header["x-auth-TOKEN"] = []string{"t-1234"}
	m.Header.Set("Idempotency-Key", "key")

	kept, w := Dialect{}.withhold(m)
	require.Equal(t, "https://a.example/x?b=%7e&a=1", kept.URL.String())
	require.Equal(t, http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {"key"}}, kept.Header)
	require.Equal(t, []string{"Authorization", "X-Api-Key", "X-Auth-Token"}, w.Headers)
	require.Equal(t, []string{"access_token", "sig"}, w.Query)
	require.Equal(t, raw, m.URL.String(), "the request is left as it is")
	require.Len(t, m.Header, 4)
	require.Equal(t, Dialect{}.fingerprint(m), Dialect{}.fingerprint(kept))
	require.Equal(t, []string{"Authorization", "X-Api-Key", "X-Auth-Token", "access_token", "sig"}, w.Missing(kept))
	for _, s := range []string{"k-1234", "t-1234", "p@ss", "t k", "s"} {
		require.Contains(t, w.Secrets(), s)
	}

	u := kept.URL
	w.Restore(kept)
	require.Equal(t, "b=%7e&access_token=t%20k&a=1&sig=s&access_token=t2", kept.URL.RawQuery)
	require.Equal(t, "b=%7e&a=1", u.RawQuery)
	require.Empty(t, w.Missing(kept))
	req := &http.Request{Header: kept.Header}
	name, password, ok := req.BasicAuth()
	require.True(t, ok)
	require.Equal(t, []string{"user", "p@ss"}, []string{name, password})
}

func TestAnExplicitAuthorizationWinsOverUserInfo(t *testing.T) {
	m := testRequest(t, "https://user:pass@a.example/x", "", "")
	m.Header.Set("Authorization", "Bearer abcd")
	kept, w := Dialect{}.withhold(m)
	require.Nil(t, kept.URL.User)
	w.Restore(kept)
	require.Equal(t, []string{"Bearer abcd"}, kept.Header["Authorization"])
	require.Contains(t, w.Secrets(), "abcd")
}

func TestARequestWithoutSecretsWithholdsNothing(t *testing.T) {
	m := testRequest(t, "https://a.example/x?a=1&&b", "", "")
	kept, w := Dialect{}.withhold(m)
	require.Equal(t, "a=1&&b", kept.URL.RawQuery)
	require.Empty(t, w.Headers)
	require.Empty(t, w.Query)
	require.Empty(t, w.Secrets())
	w.Restore(kept)
	require.Equal(t, m, kept)
}

func TestURLsAreShownWithoutSecrets(t *testing.T) {
	for have, want := range map[string]string{
		"https://a.example/x?b=%7e&a=1":                  "https://a.example/x?b=%7e&a=1",
		"https://u:p@a.example/x":                        "https://a.example/x",
		"https://a.example/x?token=abc&a=%7e&%73ig=1":    "https://a.example/x?token=REDACTED&a=%7e&%73ig=REDACTED",
		"https://a.example/x?token=&token":               "https://a.example/x?token=&token",
		"https://a.example/x#access_token=abc&expires=1": "https://a.example/x#access_token=REDACTED&expires=1",
		"https://a.example/x#top":                        "https://a.example/x#top",
		"/relative?secret=1":                             "/relative?secret=REDACTED",
	} {
		u, err := url.Parse(have)
		require.NoError(t, err)
		require.Equal(t, want, secret.URL(u))
		require.Equal(t, want, secret.URLText(have))
	}
	require.Equal(t, "", secret.URL(nil))
	require.Equal(t, "REDACTED", secret.URLText("https://u:p%zz@a.example"))
}

func TestStoredAnswersHoldNoCredential(t *testing.T) {
	h := http.Header{
		"Set-Cookie":          {"a=b"},
		"X-Csrf-Token":        {"t"},
		"Location":            {"/x?token=abc&a=1"},
		"Link":                {`<https://u:p@a.example/2?api_key=k&page=2>; rel="next", </3?page=3>; rel="last"`},
		"Operation-Location":  {"https://a.example/op?sig=abc"},
		"Content-Type":        {"application/json"},
		"Wechatpay-Signature": {"proof"},
		"Idempotent-Replayed": {"true"},
	}
	got := secret.Header(h)
	require.Equal(t, http.Header{
		"Location":            {"/x?token=REDACTED&a=1"},
		"Link":                {`<https://a.example/2?api_key=REDACTED&page=2>; rel="next", </3?page=3>; rel="last"`},
		"Operation-Location":  {"https://a.example/op?sig=REDACTED"},
		"Content-Type":        {"application/json"},
		"Wechatpay-Signature": {"proof"},
		"Idempotent-Replayed": {"true"},
	}, got)
	require.Equal(t, "/x?token=abc&a=1", h.Get("Location"), "the answer is left as it is")
}

func TestErrorsShowNoSecretAndStillUnwrap(t *testing.T) {
	cause := context.DeadlineExceeded
	inURL := &url.Error{Op: "Post", URL: "https://u:hunter22@a.example/x?api_key=abc%2Fd&a=1", Err: cause}
	for name, tc := range map[string]struct {
		err     error
		secrets []string
		want    string
	}{
		"a URL":               {inURL, nil, `Post "https://a.example/x?api_key=REDACTED&a=1": context deadline exceeded`},
		"a wrapped URL":       {fmt.Errorf("try 1: %w", inURL), nil, `try 1: Post "https://a.example/x?api_key=REDACTED&a=1": context deadline exceeded`},
		"a joined URL":        {errors.Join(errors.New("first"), inURL), nil, "first\n" + `Post "https://a.example/x?api_key=REDACTED&a=1": context deadline exceeded`},
		"a URL only in text":  {fmt.Errorf("%v; %w", inURL, cause), nil, `Post "https://a.example/x?api_key=REDACTED&a=1": context deadline exceeded; context deadline exceeded`},
		"a header's value":    {fmt.Errorf("bad header \"Bearer s3cr\\\"et\": %w", cause), []string{`s3cr"et`, "Bearer s3cr\"et"}, `bad header "REDACTED": context deadline exceeded`},
		"a value in an error": {fmt.Errorf("no such key a/b+c and a%%2Fb%%2Bc: %w", cause), []string{"a/b+c"}, "no such key REDACTED and REDACTED: context deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			got := secret.Error(tc.err, tc.secrets)
			require.Equal(t, tc.want, got.Error())
			require.ErrorIs(t, got, cause)
		})
	}
	bad := "https://u:hunter22@a.example:x y/"
	_, err := url.Parse(strings.ToLower(bad))
	got := secret.Error(err, nil)
	require.NotContains(t, got.Error(), "hunter22")
	require.NotContains(t, got.Error(), "x y")
	require.NoError(t, secret.Error(nil, nil))
	require.Equal(t, cause, secret.Error(cause, []string{"1", ""}), "nothing to hide")
}

func TestTokenRequestsAreRecognised(t *testing.T) {
	const form = "application/x-www-form-urlencoded"
	for name, tc := range map[string]struct {
		media, body string
		want        bool
	}{
		"client credentials": {form, "client_id=a&grant_type=client_credentials", true},
		"an escaped name":    {form + "; charset=utf-8", "grant%5Ftype=password", true},
		"an empty grant":     {form, "grant_type=", false},
		"another form":       {form, "amount=1", false},
		"no form":            {"application/json", "grant_type=x", false},
	} {
		t.Run(name, func(t *testing.T) {
			m := testRequest(t, "https://a.example/token", tc.media, tc.body)
			require.Equal(t, tc.want, isTokenRequest(m))
			m.Method = "PUT"
			require.False(t, isTokenRequest(m))
		})
	}
}
