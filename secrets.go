package idem

import (
	"encoding/base64"
	"maps"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
)

// # What is a secret
//
// The journal never holds a credential in the clear, so it has to tell one by
// its name. Headers and query parameters are credentials if their name stands in
// the list of exact names below, or has one of secretParts in it. Three kinds of
// names are exempt: the one under which the dialect sends its key, names with
// "idempot" in them, and the cursors of notSecret, which only sound alike.

// credentialHeaders are the headers, in lower case, that carry nothing but a
// credential. No dialect may put its key there.
var credentialHeaders = setOf(
	"authorization", "proxy-authorization", "cookie", "cookie2", "set-cookie",
	"set-cookie2", "api-key", "apikey", "x-api-key", "x-apikey", "x-auth", "x-auth-key",
	"x-auth-pw", "x-access-token", "x-auth-token", "private-token", "dpop",
	"x-goog-api-key", "x-functions-key", "x-amz-security-token",
	"ocp-apim-subscription-key", "x-client-cert", "x-forwarded-client-cert",
	"authentication", "x-authentication", "dd-application-key", "x-master-key",
	"x-parse-master-key",
)

// credentialQuery is the same for query parameters.
var credentialQuery = setOf(
	"access_token", "api_key", "api-key", "apikey", "key", "sig", "sign", "signature",
	"token", "auth", "authorization", "password", "passwd", "pwd", "pass", "secret",
	"client_secret", "client_assertion", "x-amz-signature", "x-amz-credential",
	"x-amz-security-token", "x-goog-signature", "x-goog-credential",
	"awsaccesskeyid", "googleaccessid", "key-pair-id",
)

// secretParts mark a name that has one of them in it, once "-", "_", "." and
// case are taken away.
var secretParts = []string{
	"token", "secret", "password", "passwd", "passphrase", "apikey", "accesskey",
	"privatekey", "subscriptionkey", "signature", "accesssign", "hmac", "credential",
	"session", "authorization", "bearer", "jwt", "cookie",
}

// notSecret are names, so reduced, that secretParts would catch.
var notSecret = setOf(
	"pagetoken", "nextpagetoken", "nexttoken", "synctoken", "continuationtoken",
)

func setOf(names ...string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, n := range names {
		set[n] = true
	}
	return set
}

var separators = strings.NewReplacer("-", "", "_", "", ".", "", "[", "", "]", "")

// soundsSecret tells whether the pattern, not the exact lists, catches a name.
func soundsSecret(name string) bool {
	bare := separators.Replace(strings.ToLower(name))
	if strings.Contains(bare, "idempot") || notSecret[bare] {
		return false
	}
	return slices.ContainsFunc(secretParts, func(part string) bool {
		return strings.Contains(bare, part)
	})
}

// isSecretHeader and isSecretQuery tell whether a name is a credential's where no
// dialect exempts it.
func isSecretHeader(name string) bool {
	return credentialHeaders[strings.ToLower(name)] || soundsSecret(name)
}

func isSecretQuery(name string) bool {
	return credentialQuery[strings.ToLower(name)] || soundsSecret(name)
}

func (d Dialect) secretHeader(name string) bool {
	return isSecretHeader(name) && !(d.inHeader() && strings.EqualFold(name, d.field()))
}

func (d Dialect) secretQuery(name string) bool {
	return isSecretQuery(name) && !(d.Placement == PlaceQuery && name == d.field())
}

// withheld is what was taken out of a request before it is journaled. The names
// are journaled in its place; the live values stay in memory.
type withheld struct {
	Headers []string // in canonical form, sorted; user info counts as Authorization
	Query   []string // as they were written, in order, each once

	header http.Header
	signed http.Header // what an AWS signature in header covers: it is valid beside these alone
	query  []queryPart
}

// queryPart is one part of a query, with its index, "name=value" as written.
type queryPart struct {
	at   int
	text string
}

// withhold splits a request into what the journal keeps and what it must not. m
// is left as it is; kept shares its body.
func (d Dialect) withhold(m *wireRequest) (kept *wireRequest, w withheld) {
	u := *m.URL
	out := *m
	kept, out.URL, out.Header = &out, &u, http.Header{}
	w.header = http.Header{}
	for name, values := range m.Header {
		if len(values) > 0 && d.secretHeader(name) {
			w.header[name] = slices.Clone(values)
			w.Headers = append(w.Headers, textproto.CanonicalMIMEHeaderKey(name))
		} else {
			out.Header[name] = slices.Clone(values)
		}
	}
	if u.User != nil {
		u.User = nil
		if !slices.Contains(w.Headers, "Authorization") { // which wins in net/http
			w.header.Set("Authorization", basicAuth(m.URL.User))
			w.Headers = append(w.Headers, "Authorization")
		}
	}
	slices.Sort(w.Headers)
	w.Headers = slices.Compact(w.Headers)
	u.Fragment, u.RawFragment = "", "" // never on the wire
	w.signed = d.signedHeaders(m)
	d.withholdQuery(&u, &w)
	return kept, w
}

func (d Dialect) withholdQuery(u *url.URL, w *withheld) {
	for i, part := range strings.Split(u.RawQuery, "&") {
		name := paramName(part)
		if !d.secretQuery(name) {
			continue
		}
		w.query = append(w.query, queryPart{i, part})
		if !slices.Contains(w.Query, name) {
			w.Query = append(w.Query, name)
		}
	}
	u.RawQuery = withoutParams(u.RawQuery, d.secretQuery)
}

// signedHeaders returns those that an AWS signature (SigV4) names, with the time and
// the attempt's number among them. They change with the signature, so a resend under
// another one, made for a later request of the same intent, needs that one's too. The
// key's own header is not among them.
func (d Dialect) signedHeaders(m *wireRequest) http.Header {
	_, names, aws := strings.Cut(m.Header.Get("Authorization"), "SignedHeaders=")
	if !aws {
		return nil
	}
	names, _, _ = strings.Cut(names, ",")
	signed := http.Header{}
	for name := range strings.SplitSeq(names, ";") {
		key := d.inHeader() && strings.EqualFold(name, d.field()) || strings.EqualFold(name, d.FirstSent)
		if values := m.Header.Values(name); len(values) > 0 && !key && !d.secretHeader(name) {
			signed[textproto.CanonicalMIMEHeaderKey(name)] = slices.Clone(values)
		}
	}
	return signed
}

// basicAuth is the header that net/http makes of user info.
func basicAuth(user *url.Userinfo) string {
	password, _ := user.Password()
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password))
}

// restore puts the live values back, each query parameter where it stood. It
// writes to m, but not into the URL or header map that m came with.
func (w withheld) restore(m *wireRequest) {
	if len(w.header) > 0 {
		h := m.Header.Clone()
		if h == nil {
			h = http.Header{}
		}
		maps.Copy(h, w.signed)
		for name, values := range w.header {
			h[name] = slices.Clone(values)
		}
		m.Header = h
	}
	if len(w.query) == 0 {
		return
	}
	u := *m.URL
	var parts []string
	if u.RawQuery != "" {
		parts = strings.Split(u.RawQuery, "&")
	}
	for _, p := range w.query {
		parts = slices.Insert(parts, min(p.at, len(parts)), p.text)
	}
	u.RawQuery = strings.Join(parts, "&")
	m.URL = &u
}

// missing returns the withheld names that m has no value for, so that a resend
// without them is not even tried.
func (w withheld) missing(m *wireRequest) []string {
	var names []string
	for _, name := range w.Headers {
		if !slices.ContainsFunc(headerValues(m.Header, name), notEmpty) {
			names = append(names, name)
		}
	}
	for _, name := range w.Query {
		if !slices.ContainsFunc(paramValues(m.URL.RawQuery, name), notEmpty) {
			names = append(names, name)
		}
	}
	return names
}

func notEmpty(s string) bool { return s != "" }

// secrets returns the live values for scrubError, also without their scheme
// ("Bearer"), and a Basic password on its own.
func (w withheld) secrets() []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(w.header)) {
		for _, v := range w.header[name] {
			out = append(out, v)
			scheme, rest, ok := strings.Cut(v, " ")
			if !ok {
				continue
			}
			out = append(out, strings.TrimSpace(rest))
			if plain, err := base64.StdEncoding.DecodeString(rest); err == nil && strings.EqualFold(scheme, "Basic") {
				_, password, _ := strings.Cut(string(plain), ":")
				out = append(out, password)
			}
		}
	}
	for _, p := range w.query {
		_, value, _ := strings.Cut(p.text, "=")
		out = append(out, value, paramValue(p.text))
	}
	return slices.DeleteFunc(out, func(s string) bool { return s == "" })
}

// isTokenRequest tells whether the request asks for a token (RFC 6749): its form
// carries credentials and its answer is one, so it is never an intent.
func isTokenRequest(m *wireRequest) bool {
	return m.Method == http.MethodPost && isForm(m) &&
		slices.ContainsFunc(paramValues(string(m.Body), "grant_type"), notEmpty)
}
