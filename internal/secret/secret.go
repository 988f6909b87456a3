// Package secret tells credentials by their names, keeps them out of what is journaled,
// puts them back for an attempt, and takes them out of errors and URLs that people see.
package secret

import (
	"encoding/base64"
	"maps"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"github.com/idem-go/idem/internal/wire"
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
	"x-amz-security-token", "x-amz-date", "x-amz-expires", "x-amz-algorithm", "x-amz-signedheaders",
	"x-goog-signature", "x-goog-credential", "x-goog-date", "x-goog-expires", "x-goog-algorithm", "x-goog-signedheaders",
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

// IsHeader and IsQuery tell whether a name is a credential's where no
// dialect exempts it.
func IsHeader(name string) bool {
	return credentialHeaders[strings.ToLower(name)] || soundsSecret(name)
}

func IsQuery(name string) bool {
	return credentialQuery[strings.ToLower(name)] || soundsSecret(name)
}

// IsCredentialHeader and IsCredentialQuery tell the names that carry nothing but a
// credential, so that nothing else may stand there.
func IsCredentialHeader(name string) bool { return credentialHeaders[strings.ToLower(name)] }

// IsCredentialQuery is the same for query parameters.
func IsCredentialQuery(name string) bool { return credentialQuery[strings.ToLower(name)] }

// Own are the names that belong to a dialect, whatever they sound like; "" is none.
type Own struct {
	Header, Query string   // where the key stands
	FirstSent     string   // the header that dates the intent
	SignedWith    []string // headers that a signature covers
}

func (own Own) secretHeader(name string) bool {
	return IsHeader(name) && !strings.EqualFold(name, own.Header)
}

// IsPayload tells, for the parameters of a query, which are part of what is asked for:
// neither the key nor a credential, nor what a presigned URL carries beside its
// signature, all of which is made anew with it.
func (own Own) IsPayload(query string) func(param string) bool {
	sas := false
	for _, name := range []string{"sig", "sv"} { // an Azure shared access signature has both
		sas = slices.ContainsFunc(wire.ParamValues(query, name), notEmpty)
		if !sas {
			break
		}
	}
	return func(param string) bool {
		switch {
		case own.Query != "" && param == own.Query, IsQuery(param):
			return false
		case sas && sasParams[param]:
			return false
		}
		return true
	}
}

// sasParams are the fields of an Azure shared access signature
// (learn.microsoft.com/rest/api/storageservices/create-service-sas).
var sasParams = setOf(
	"sv", "ss", "srt", "sr", "st", "se", "sp", "sip", "spr", "si", "skoid", "sktid", "skt", "ske", "sks", "skv", "sdd", "saoid", "suoid", "scid", "ses",
)

// Withheld is what was taken out of a request before it is journaled. The names
// are journaled in its place; the live values stay in memory.
type Withheld struct {
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

// Withhold splits a request into what the journal keeps and what it must not. m
// is left as it is; kept shares its body.
func (own Own) Withhold(m *wire.Request) (kept *wire.Request, w Withheld) {
	u := *m.URL
	out := *m
	kept, out.URL, out.Header = &out, &u, http.Header{}
	w.header = http.Header{}
	for name, values := range m.Header {
		if len(values) > 0 && own.secretHeader(name) {
			w.header[name] = slices.Clone(values)
			if slices.ContainsFunc(values, notEmpty) { // nothing demands an empty value back
				w.Headers = append(w.Headers, textproto.CanonicalMIMEHeaderKey(name))
			}
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
	w.signed = own.signedHeaders(m)
	own.withholdQuery(&u, &w)
	return kept, w
}

func (own Own) withholdQuery(u *url.URL, w *Withheld) {
	isPayload := own.IsPayload(u.RawQuery)
	parts := strings.Split(u.RawQuery, "&")
	var kept []string
	for i, part := range parts {
		name := wire.ParamName(part)
		ours := own.Query != "" && name == own.Query
		if ours || isPayload(name) && !hidesSecret(part) {
			kept = append(kept, part)
			continue
		}
		w.query = append(w.query, queryPart{i, part})
		demanded := !isPayload(name) && wire.ParamValue(part) != "" // nothing demands an empty value back
		if demanded && !slices.Contains(w.Query, name) {
			w.Query = append(w.Query, name)
		}
	}
	u.RawQuery = strings.Join(kept, "&")
}

// hidesSecret tells a part with a credential behind a ";", at which some servers cut.
func hidesSecret(part string) bool {
	_, rest, _ := strings.Cut(part, ";")
	for sub := range strings.SplitSeq(rest, ";") {
		if IsQuery(wire.ParamName(sub)) {
			return true
		}
	}
	return false
}

// companions are names, reduced, of what a signature covers and changes with it.
var companions = setOf(
	"date", "xdate", "timestamp", "nonce", "digest", "contentdigest", "contentmd5", "signatureinput", "keyid",
)

// companionParts mark such a name that has one of them in it.
var companionParts = []string{"timestamp", "nonce", "digest", "contentsha256", "signdate", "keyid", "requesttime"}

func isCompanion(name string) bool {
	bare := separators.Replace(strings.ToLower(name))
	return companions[bare] || slices.ContainsFunc(companionParts, func(part string) bool { return strings.Contains(bare, part) })
}

// signedHeaders returns those that change with the signature on a request, so that a
// resend under another one, made for a later request of the same intent, needs that
// one's too: what an AWS signature (SigV4) names, the time stamp, nonce and digest
// beside any other, and what the dialect says. The key's own header is not among them.
func (own Own) signedHeaders(m *wire.Request) http.Header {
	named, aws := awsSigned(m.Header.Get("Authorization"))
	if !aws && !carriesSignature(m.Header) && len(own.SignedWith) == 0 {
		return nil
	}
	signed := http.Header{}
	for name, values := range m.Header {
		covered := slices.ContainsFunc(named, func(n string) bool { return strings.EqualFold(n, name) }) ||
			slices.ContainsFunc(own.SignedWith, func(n string) bool { return strings.EqualFold(n, name) })
		if !covered {
			covered = !aws && isCompanion(name)
		}
		if covered && !own.isOwnHeader(name) && !own.secretHeader(name) {
			signed[textproto.CanonicalMIMEHeaderKey(name)] = slices.Clone(values)
		}
	}
	return signed
}

func (own Own) isOwnHeader(name string) bool {
	return strings.EqualFold(name, own.Header) || strings.EqualFold(name, own.FirstSent)
}

// awsSigned are the headers that an AWS signature names.
func awsSigned(authorization string) (names []string, ok bool) {
	_, list, ok := strings.Cut(authorization, "SignedHeaders=")
	list, _, _ = strings.Cut(list, ",")
	if !ok {
		return nil, false
	}
	return strings.Split(list, ";"), true
}

// carriesSignature tells a request that was signed by other means.
func carriesSignature(h http.Header) bool {
	for name := range h {
		bare := separators.Replace(strings.ToLower(name))
		for _, part := range []string{"signature", "accesssign", "hmac"} {
			if strings.Contains(bare, part) {
				return true
			}
		}
	}
	return strings.Contains(h.Get("Authorization"), "ignature")
}

// basicAuth is the header that net/http makes of user info.
func basicAuth(user *url.Userinfo) string {
	password, _ := user.Password()
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password))
}

// Restore puts the live values back, each query parameter where it stood. It
// writes to m, but not into the URL or header map that m came with.
func (w Withheld) Restore(m *wire.Request) {
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

// Missing returns the Withheld names that m has no value for, so that a resend
// without them is not even tried.
func (w Withheld) Missing(m *wire.Request) []string {
	var names []string
	for _, name := range w.Headers {
		if !slices.ContainsFunc(wire.HeaderValues(m.Header, name), notEmpty) {
			names = append(names, name)
		}
	}
	for _, name := range w.Query {
		if !slices.ContainsFunc(wire.ParamValues(m.URL.RawQuery, name), notEmpty) {
			names = append(names, name)
		}
	}
	return names
}

func notEmpty(s string) bool { return s != "" }

// Secrets returns the live values for Error, also without their scheme
// ("Bearer"), and a Basic password on its own.
func (w Withheld) Secrets() []string {
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
		out = append(out, value, wire.ParamValue(p.text))
	}
	return slices.DeleteFunc(out, func(s string) bool { return s == "" })
}

// Expecting adds the names that the journal withheld from an entry's first request,
// each of which must stand on every attempt.
func (w Withheld) Expecting(headers, query []string) Withheld {
	w.Headers = slices.Compact(slices.Sorted(slices.Values(slices.Concat(w.Headers, headers))))
	w.Query = slices.Compact(slices.Sorted(slices.Values(slices.Concat(w.Query, query))))
	return w
}
