package idem

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem/internal/wire"
	"github.com/stretchr/testify/require"
)

const testKey Key = "0198c5f5-0000-7000-8000-000000000000"

func testRequest(t testing.TB, rawURL, contentType, body string) *wire.Request {
	t.Helper()
	u, err := url.Parse(rawURL)
	require.NoError(t, err)
	h := http.Header{}
	if contentType != "" {
		h.Set("Content-Type", contentType)
	}
	return &wire.Request{Method: "POST", URL: u, Header: h, Body: []byte(body)}
}

func TestExactlyOneKeyIsInTheHeaders(t *testing.T) {
	for name, tc := range map[string]struct {
		d    Dialect
		have http.Header
		want string
	}{
		"no headers at all":      {Dialect{}, nil, string(testKey)},
		"none before":            {Dialect{}, http.Header{"Accept": {"*/*"}}, string(testKey)},
		"one before":             {Dialect{}, http.Header{"Idempotency-Key": {"old"}}, string(testKey)},
		"two before":             {Dialect{}, http.Header{"Idempotency-Key": {"a", "b"}}, string(testKey)},
		"in another spelling":    {Dialect{}, http.Header{"idempotency-key": {"a"}, "IDEMPOTENCY-KEY": {"b"}}, string(testKey)},
		"without a value":        {Dialect{}, http.Header{"Idempotency-Key": {}}, string(testKey)},
		"quoted":                 {Dialect{Placement: PlaceQuotedHeader}, http.Header{"Idempotency-Key": {"raw"}}, `"` + string(testKey) + `"`},
		"in a header of its own": {Dialect{Field: "idempotency-key"}, nil, string(testKey)},
	} {
		t.Run(name, func(t *testing.T) {
			before := tc.have.Clone()
			m := testRequest(t, "https://a.example/x", "", "body")
			m.Header = tc.have
			require.NoError(t, tc.d.place(m, testKey))
			var wire bytes.Buffer
			require.NoError(t, m.Header.Write(&wire))
			require.Equal(t, 1, strings.Count(strings.ToLower(wire.String()), "idempotency-key:"))
			require.Equal(t, []string{tc.want}, m.Header["Idempotency-Key"])
			require.Equal(t, before, tc.have, "the caller's map is left alone")
			got, err := tc.d.find(m)
			require.NoError(t, err)
			require.Equal(t, testKey, got)
		})
	}
}

func TestPlacingInJSONChangesNoOtherByte(t *testing.T) {
	for name, tc := range map[string]struct{ path, body, want string }{
		"an empty object":          {"k", `{}`, `{"k":"K"}`},
		"a spaced empty object":    {"k", " { \n} ", " {\"k\":\"K\" \n} "},
		"a big number":             {"k", `{"n":12345678901234567890.10}`, `{"k":"K","n":12345678901234567890.10}`},
		"spacing and order":        {"k", "{ \"b\" : 1 ,\n \"a\":2}", "{\"k\":\"K\", \"b\" : 1 ,\n \"a\":2}"},
		"duplicate members":        {"k", `{"a":1,"a":2}`, `{"k":"K","a":1,"a":2}`},
		"escapes":                  {"k", `{"a":"\u00e9\/\"}","b":"<&>"}`, `{"k":"K","a":"\u00e9\/\"}","b":"<&>"}`},
		"an old key":               {"k", `{"a":[1,{"k":"x"}], "k" : "old" ,"b":null}`, `{"a":[1,{"k":"x"}], "k" : "K" ,"b":null}`},
		"an empty key":             {"k", `{"k":""}`, `{"k":"K"}`},
		"a null key":               {"k", `{"k": null }`, `{"k": "K" }`},
		"an escaped name":          {"k", `{"\u006b":"old"}`, `{"\u006b":"K"}`},
		"the key twice":            {"k", `{"k":"1","k":"2"}`, `{"k":"K","k":"K"}`},
		"the same key, escaped":    {"k", `{"k":"\u004b"}`, `{"k":"\u004b"}`},
		"a parent":                 {"p.k", `{"p":{"a":1}}`, `{"p":{"k":"K","a":1}}`},
		"an empty parent":          {"p.k", `{"p":{ }}`, `{"p":{"k":"K" }}`},
		"no parent":                {"p.q.k", `{"a":1}`, `{"p":{"q":{"k":"K"}},"a":1}`},
		"the parent twice":         {"p.k", `{"p":{"k":"1"},"p":{}}`, `{"p":{"k":"K"},"p":{"k":"K"}}`},
		"a name that needs quotes": {`a"b`, `{}`, `{"a\"b":"K"}`},
		"invalid UTF-8 elsewhere":  {"k", "{\"a\":\"\xff\"}", "{\"k\":\"K\",\"a\":\"\xff\"}"},
	} {
		t.Run(name, func(t *testing.T) {
			d := Dialect{Placement: PlaceJSON, Field: tc.path}
			m := testRequest(t, "https://a.example/x", "application/json", tc.body)
			original := m.Body
			require.NoError(t, d.place(m, "K"))
			require.Equal(t, tc.want, string(m.Body))
			require.Equal(t, tc.body, string(original), "the caller's bytes are left alone")
			got, err := d.find(m)
			require.NoError(t, err)
			require.Equal(t, Key("K"), got)
		})
	}
}

func TestABodyThatCannotCarryTheKeyIsRefused(t *testing.T) {
	inJSON := Dialect{Placement: PlaceJSON, Field: "p.k"}
	form := Dialect{Placement: PlaceForm, Field: "k"}
	for name, tc := range map[string]struct {
		d           Dialect
		media, body string
	}{
		"no body":                     {inJSON, "application/json", ""},
		"an array":                    {inJSON, "application/json", `[{}]`},
		"a string":                    {inJSON, "application/json", `"p"`},
		"broken JSON":                 {inJSON, "application/json", `{"a":1`},
		"two values":                  {inJSON, "application/json", `{} {}`},
		"a byte order mark":           {inJSON, "application/json", "\ufeff{}"},
		"a parent that is a string":   {inJSON, "application/json", `{"p":"x"}`},
		"a parent that is an array":   {inJSON, "application/json", `{"p":[{}]}`},
		"a number in the key's place": {inJSON, "application/json", `{"p":{"k":1}}`},
		"JSON instead of a form":      {form, "application/json", `{}`},
		"a form without its type":     {form, "", `a=1`},
	} {
		t.Run(name, func(t *testing.T) {
			m := testRequest(t, "https://a.example/x", tc.media, tc.body)
			for _, err := range []error{tc.d.place(m, testKey), errOnly(tc.d.find(m))} {
				var bad *InvalidError
				require.ErrorAs(t, err, &bad)
				require.Equal(t, "Request.Body", bad.Field)
			}
			require.Equal(t, tc.body, string(m.Body))
		})
	}
}

func errOnly(_ Key, err error) error { return err }

func TestAQueryOrFormKeepsItsOtherParameters(t *testing.T) {
	for name, tc := range map[string]struct{ have, want string }{
		"nothing before":        {"", "k=a+b%26"},
		"others before":         {"b=%7e&a=1&b=%7E", "b=%7e&a=1&b=%7E&k=a+b%26"},
		"an old key":            {"a=1&k=old&b=2", "a=1&k=a+b%26&b=2"},
		"an empty key":          {"k=&b=2", "k=a+b%26&b=2"},
		"a key without a value": {"k&b=2", "k=a+b%26&b=2"},
		"two old keys":          {"k=1&b=2&k=2", "k=a+b%26&b=2"},
		"an escaped name":       {"%6b=old", "k=a+b%26"},
		"the same key":          {"a=1&k=a%20b%26", "a=1&k=a%20b%26"},
		"broken parts":          {"%zz=1&&;&K=1", "%zz=1&&;&K=1&k=a+b%26"},
	} {
		t.Run(name, func(t *testing.T) {
			query := Dialect{Placement: PlaceQuery, Field: "k"}
			m := testRequest(t, "https://a.example/x?"+tc.have, "", "")
			u := m.URL
			require.NoError(t, query.place(m, "a b&"))
			require.Equal(t, tc.want, m.URL.RawQuery)
			require.Equal(t, tc.have, u.RawQuery, "the caller's URL is left alone")
			got, err := query.find(m)
			require.NoError(t, err)
			require.Equal(t, Key("a b&"), got)

			form := Dialect{Placement: PlaceForm, Field: "k"}
			m = testRequest(t, "https://a.example/x", "application/x-www-form-urlencoded; charset=utf-8", tc.have)
			require.NoError(t, form.place(m, "a b&"))
			require.Equal(t, tc.want, string(m.Body))
			got, err = form.find(m)
			require.NoError(t, err)
			require.Equal(t, Key("a b&"), got)
		})
	}
}

func TestAKeyThatAnSDKPutThereIsFound(t *testing.T) {
	quoted := Dialect{Placement: PlaceQuotedHeader}
	inJSON := Dialect{Placement: PlaceJSON, Field: "k"}
	query := Dialect{Placement: PlaceQuery, Field: "k"}
	header := func(values ...string) *wire.Request {
		m := testRequest(t, "https://a.example/x", "", "")
		m.Header["idempotency-key"] = values
		return m
	}
	for name, tc := range map[string]struct {
		d    Dialect
		m    *wire.Request
		want Key
		bad  bool
	}{
		"none":                         {Dialect{}, header(), "", false},
		"an empty one":                 {Dialect{}, header(""), "", false},
		"in any spelling":              {Dialect{}, header(" abc "), "abc", false},
		"twice the same":               {Dialect{}, header("abc", "abc"), "abc", false},
		"two different ones":           {Dialect{}, header("abc", "abd"), "", true},
		"quotes in a raw dialect stay": {Dialect{}, header(`"abc"`), `"abc"`, false},
		"quoted":                       {quoted, header(`"abc"`), "abc", false},
		"raw in a quoted dialect":      {quoted, header("abc"), "abc", false},
		"quoted and empty":             {quoted, header(`""`), "", false},
		"half a pair of quotes":        {quoted, header(`"abc`), "", true},
		"a quote alone":                {quoted, header(`"`), "", true},
		"parameters behind the quotes": {quoted, header(`"abc";p="q"`), "", true},
		"in JSON":                      {inJSON, testRequest(t, "https://a.example", "", `{"k":"a\u0062"}`), "ab", false},
		"absent from JSON":             {inJSON, testRequest(t, "https://a.example", "", `{"a":{"k":"x"}}`), "", false},
		"empty in JSON":                {inJSON, testRequest(t, "https://a.example", "", `{"k":""}`), "", false},
		"null in JSON":                 {inJSON, testRequest(t, "https://a.example", "", `{"k":null}`), "", false},
		"two in JSON":                  {inJSON, testRequest(t, "https://a.example", "", `{"k":"a","k":"b"}`), "", true},
		"in the query":                 {query, testRequest(t, "https://a.example?a=1&k=%61", "", ""), "a", false},
		"two in the query":             {query, testRequest(t, "https://a.example?k=1&k=2", "", ""), "", true},
		"no placement":                 {Dialect{Placement: PlaceNone}, header("abc"), "", false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tc.d.find(tc.m)
			require.Equal(t, tc.bad, err != nil)
			require.Equal(t, tc.want, got)
			if tc.bad {
				require.ErrorIs(t, err, ErrInvalid)
			}
		})
	}
}

func TestAKeyThatTheDialectRefusesIsNotPlaced(t *testing.T) {
	m := testRequest(t, "https://a.example/x", "", "")
	require.ErrorIs(t, Dialect{}.place(m, "a\r\nX-Evil: 1"), ErrInvalid)
	require.Empty(t, m.Header)
	require.NoError(t, Dialect{Placement: PlaceNone}.place(m, ""))
}

func TestTheFirstSendIsDatedWhereTheDialectWantsIt(t *testing.T) {
	at := time.Date(2026, 9, 1, 14, 0, 0, 5, time.FixedZone("CEST", 7200))
	m := testRequest(t, "https://a.example/x", "", "")
	Dialect{}.placeFirstSent(m, at)
	require.Empty(t, m.Header)
	d := Dialect{FirstSent: "Repeatability-First-Sent"}
	before := d.fingerprint(m)
	d.placeFirstSent(m, at)
	require.Equal(t, "Tue, 01 Sep 2026 12:00:00 GMT", m.Header.Get("Repeatability-First-Sent"))
	require.Equal(t, before, d.fingerprint(m))
}

func TestTheFingerprintIsTheSameInEveryRelease(t *testing.T) {
	m := testRequest(t, "HTTPS://user:pass@API.example:8443/v1/a%2Fb?b=2&a=1&api_key=s3cret#f",
		"multipart/form-data; boundary=x", "payload")
	m.Host = "Tenant.example"
	m.Header.Set("Stripe-Account", "acct_1")
	d := Dialect{Headers: []string{"Stripe-Version", "stripe-account"}}
	sum := d.fingerprint(m)
	require.Equal(t, "62a9b95a56c78a384d78c7d40e4f504d8b3b94ae4248d3df087523ad665fcaf3", hex.EncodeToString(sum[:]))
}

func TestTheFingerprintSeesThePayloadAndNothingElse(t *testing.T) {
	d := Dialect{Headers: []string{"Stripe-Account"}}
	base := func() *wire.Request {
		return testRequest(t, "https://a.example/v1/x?b=1&c=2", "application/json", `{"a":1}`)
	}
	for name, tc := range map[string]struct {
		change func(*wire.Request)
		same   bool
	}{
		"nothing":                       {func(m *wire.Request) {}, true},
		"the key":                       {func(m *wire.Request) { m.Header.Set("Idempotency-Key", "x") }, true},
		"another header":                {func(m *wire.Request) { m.Header.Set("User-Agent", "x") }, true},
		"the credential":                {func(m *wire.Request) { m.Header.Set("Authorization", "x") }, true},
		"user info":                     {func(m *wire.Request) { m.URL.User = url.UserPassword("u", "p") }, true},
		"a fragment":                    {func(m *wire.Request) { m.URL.Fragment = "f" }, true},
		"a credential in the query":     {func(m *wire.Request) { m.URL.RawQuery = "b=1&access_token=s&c=2" }, true},
		"the host's case":               {func(m *wire.Request) { m.URL.Host = "A.Example" }, true},
		"the host that net/http writes": {func(m *wire.Request) { m.Host = "a.example" }, true},
		"a named header's spelling": {func(m *wire.Request) {
			m.Header["stripe-account"] = m.Header["Stripe-Account"]
		}, true},
		"the method":                 {func(m *wire.Request) { m.Method = "PATCH" }, false},
		"the scheme":                 {func(m *wire.Request) { m.URL.Scheme = "http" }, false},
		"the host":                   {func(m *wire.Request) { m.URL.Host = "b.example" }, false},
		"an overriding host":         {func(m *wire.Request) { m.Host = "b.example" }, false},
		"the path":                   {func(m *wire.Request) { m.URL.Path = "/v1/y" }, false},
		"the order of the query":     {func(m *wire.Request) { m.URL.RawQuery = "c=2&b=1" }, false},
		"the content type":           {func(m *wire.Request) { m.Header.Set("Content-Type", "text/plain") }, false},
		"a header the dialect named": {func(m *wire.Request) { m.Header.Set("Stripe-Account", "acct_2") }, false},
		"the body":                   {func(m *wire.Request) { m.Body = []byte(`{"a":2}`) }, false},
		"a space in the body":        {func(m *wire.Request) { m.Body = []byte(`{"a": 1}`) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := base()
			tc.change(m)
			require.Equal(t, tc.same, d.fingerprint(base()) == d.fingerprint(m))
		})
	}
}

func TestTheFingerprintIsTheSameBeforeAndAfterPlacing(t *testing.T) {
	for name, tc := range map[string]struct {
		d                Dialect
		url, media, body string
	}{
		"header":           {Dialect{}, "https://a.example/x", "text/plain", "b"},
		"quoted header":    {Dialect{Placement: PlaceQuotedHeader}, "https://a.example/x", "", "b"},
		"query":            {Dialect{Placement: PlaceQuery, Field: "k"}, "https://a.example/x?a=1", "", "b"},
		"empty query":      {Dialect{Placement: PlaceQuery, Field: "k"}, "https://a.example/x", "", "b"},
		"a token as field": {Dialect{Placement: PlaceQuery, Field: "ClientToken"}, "https://a.example/x?ClientToken=old", "", "b"},
		"form":             {Dialect{Placement: PlaceForm, Field: "k"}, "https://a.example/x", "application/x-www-form-urlencoded", "a=1&k=old"},
		"json":             {Dialect{Placement: PlaceJSON, Field: "k"}, "https://a.example/x", "application/json", `{"a":1, "k":"old"}`},
		"json, new":        {Dialect{Placement: PlaceJSON, Field: "k"}, "https://a.example/x", "application/json", `{ "a":1}`},
		"json, deep":       {Dialect{Placement: PlaceJSON, Field: "p.q.k"}, "https://a.example/x", "application/json", `{"p":{},"a":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			m := testRequest(t, tc.url, tc.media, tc.body)
			before := tc.d.fingerprint(m)
			require.NoError(t, tc.d.place(m, testKey))
			require.Equal(t, before, tc.d.fingerprint(m))
			require.NoError(t, tc.d.place(m, "another-key"))
			require.Equal(t, before, tc.d.fingerprint(m))
		})
	}
}

func TestTakingTheKeyOutOfJSONClosesTheGap(t *testing.T) {
	for name, tc := range map[string]struct{ path, body, want string }{
		"the only member":     {"k", `{"k":"1"}`, `{}`},
		"the first":           {"k", `{"k":"1", "a":1}`, `{ "a":1}`},
		"the middle":          {"k", `{"a":1 , "k":"1" , "b":2}`, `{"a":1  , "b":2}`},
		"the last":            {"k", `{"a":1, "k":"1" }`, `{"a":1 }`},
		"two at the front":    {"k", `{"k":"1","k":"2","a":1}`, `{"a":1}`},
		"two behind":          {"k", `{"a":1,"k":"1","k":"2"}`, `{"a":1}`},
		"all":                 {"k", `{"k":"1","k":"2"}`, `{}`},
		"with its parents":    {"p.q.k", `{"p":{"q":{"k":"1"}},"a":1}`, `{"a":1}`},
		"its parent has more": {"p.k", `{"p":{"k":"1","b":2},"a":1}`, `{"p":{"b":2},"a":1}`},
		"no object":           {"k", `[1]`, `[1]`},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, string(wire.WithoutJSON([]byte(tc.body), tc.path)))
		})
	}
}

func FuzzPlaceJSON(f *testing.F) {
	f.Add([]byte(`{"a":1,"n":1e400,"s":"\ud800\u0041\"}"}`), "k", "key-1")
	f.Add([]byte(` { "k" : null , "p" : { "k" : "x" } } `), "p.k", "0198c5f5")
	f.Add([]byte(`{"k":"1","a":[{"k":{}}],"k":"1"}`), "k", `a"b\c`)
	f.Add([]byte(`{"p":{},"p":{"q":{}}}`), "p.q.r", "z")
	f.Add([]byte(`{"\u006b":"old","K":[[],{},[{}]]}`), "k", "<&>")
	f.Fuzz(func(t *testing.T, body []byte, path, key string) {
		d := Dialect{Placement: PlaceJSON, Field: path}
		if d.validate() != nil || d.checkKey(Key(key)) != nil {
			return
		}
		m := &wire.Request{Method: "POST", URL: &url.URL{Scheme: "https", Host: "a.example"}, Body: bytes.Clone(body)}
		had, findErr := d.find(m)
		before := d.fingerprint(m)
		if err := d.place(m, Key(key)); err != nil {
			require.ErrorIs(t, err, ErrInvalid)
			require.Equal(t, string(body), string(m.Body))
			return
		}
		require.True(t, json.Valid(m.Body))
		got, err := d.find(m)
		require.NoError(t, err)
		require.Equal(t, Key(key), got)
		require.Equal(t, before, d.fingerprint(m))

		placed := bytes.Clone(m.Body)
		require.NoError(t, d.place(m, Key(key)))
		require.Equal(t, string(placed), string(m.Body), "placing again changes nothing")
		first, _, _ := strings.Cut(path, ".")
		if findErr != nil || had != "" || bytes.Contains(body, []byte(`"`+first)) || bytes.Contains(body, []byte(`\`)) {
			return // something of the path may have been there
		}
		require.Equal(t, string(body), string(wire.WithoutJSON(m.Body, path)))
	})
}
