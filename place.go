package idem

import (
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// wireRequest is a request in the parts that are journaled and sent.
type wireRequest struct {
	Method string
	URL    *url.URL
	Host   string // overrides the URL's host if not empty
	Header http.Header
	Body   []byte
}

// place puts the key into the request in its wire form, so that exactly one key
// is on the wire. Nothing else changes: no other byte of the body or the query,
// and nothing at all if the key stands there already, for the request may be
// signed. It writes to m, but not into the URL, header map or body that m came
// with. A key that the dialect refuses and a body that can't carry one are an
// *InvalidError.
func (d Dialect) place(m *wireRequest, key Key) error {
	if d.Placement == PlaceNone {
		return nil
	}
	if err := d.checkKey(key); err != nil {
		return err
	}
	switch d.Placement {
	case PlaceQuery:
		u := *m.URL
		u.RawQuery = setParam(u.RawQuery, d.field(), string(key))
		m.URL = &u
	case PlaceForm:
		if !isForm(m) {
			return errNoForm
		}
		m.Body = []byte(setParam(string(m.Body), d.field(), string(key)))
	case PlaceJSON:
		body, err := setJSON(m.Body, d.field(), string(key))
		if err != nil {
			return err
		}
		m.Body = body
	default:
		m.Header = setHeader(m.Header, d.field(), d.wireForm(key))
	}
	return nil
}

// placeFirstSent writes the header that dates the intent, where the dialect has
// one. The provider refuses a late repeat by it, so at is the first send's time
// on every attempt.
func (d Dialect) placeFirstSent(m *wireRequest, at time.Time) {
	if d.FirstSent != "" {
		m.Header = setHeader(m.Header, d.FirstSent, at.UTC().Format(http.TimeFormat))
	}
}

var errNoForm = invalid("Request.Body", nil, "want a form, application/x-www-form-urlencoded, for the key is one of its fields")

// wireForm is what stands on the wire for a key, before any escaping.
func (d Dialect) wireForm(key Key) string {
	if d.Placement == PlaceQuotedHeader {
		return `"` + string(key) + `"`
	}
	return string(key)
}

// find returns the key that the request already carries, say from an SDK, or "".
// An empty value is no key: SDKs send one for "none". Two different keys are an
// *InvalidError, for nobody could tell which one the provider takes, and so is
// a body that can't carry one and something in the key's place that isn't text.
func (d Dialect) find(m *wireRequest) (Key, error) {
	switch d.Placement {
	case PlaceNone:
		return "", nil
	case PlaceQuery:
		return oneKey("Request.URL", paramValues(m.URL.RawQuery, d.field()))
	case PlaceForm:
		if !isForm(m) {
			return "", errNoForm
		}
		return oneKey("Request.Body", paramValues(string(m.Body), d.field()))
	case PlaceJSON:
		values, err := jsonValues(m.Body, d.field())
		if err != nil {
			return "", err
		}
		return oneKey("Request.Body", values)
	}
	values := headerValues(m.Header, d.field())
	if d.Placement == PlaceQuotedHeader {
		for i, v := range values {
			plain, ok := unquoteKey(v)
			if !ok {
				return "", invalid("Request.Header", v, "not a key in double quotes")
			}
			values[i] = plain
		}
	}
	return oneKey("Request.Header", values)
}

// oneKey returns the only distinct value that isn't empty.
func oneKey(field string, values []string) (Key, error) {
	var key string
	for _, v := range values {
		if key != "" && v != "" && v != key {
			return "", invalid(field, v, "there is another key besides, "+key)
		}
		if v != "" {
			key = v
		}
	}
	return Key(key), nil
}

// unquoteKey takes the quotes off a structured-field string. A raw value is
// accepted as it is. Escapes and parameters are refused, since no dialect mints
// keys that need them.
func unquoteKey(v string) (string, bool) {
	if !strings.HasPrefix(v, `"`) {
		return v, true
	}
	if len(v) < 2 || !strings.HasSuffix(v, `"`) {
		return "", false
	}
	v = v[1 : len(v)-1]
	return v, !strings.ContainsAny(v, `"\`)
}

// headerValues returns a header's values over all spellings of its name in the
// map, in an order that doesn't depend on the map's.
func headerValues(h http.Header, name string) []string {
	var spellings, values []string
	for k := range h {
		if strings.EqualFold(k, name) {
			spellings = append(spellings, k)
		}
	}
	slices.Sort(spellings)
	for _, k := range spellings {
		for _, v := range h[k] {
			values = append(values, strings.Trim(v, " \t"))
		}
	}
	return values
}

// setHeader returns a copy of h in which name has one value. Other spellings go:
// net/http would send each of them.
func setHeader(h http.Header, name, value string) http.Header {
	h = withoutHeader(h, name)
	h.Set(name, value)
	return h
}

func withoutHeader(h http.Header, name string) http.Header {
	out := h.Clone()
	if out == nil {
		return http.Header{}
	}
	maps.DeleteFunc(out, func(k string, _ []string) bool { return strings.EqualFold(k, name) })
	return out
}

// isForm tells whether the body is declared as a URL-encoded form.
func isForm(m *wireRequest) bool {
	values := headerValues(m.Header, "Content-Type")
	if len(values) != 1 {
		return false
	}
	media, _, err := mime.ParseMediaType(values[0])
	return err == nil && media == "application/x-www-form-urlencoded"
}

// setParam sets a parameter of a query or form and touches no other. Where it is
// absent it goes to the end; where it is there more than once, one stays.
func setParam(query, name, value string) string {
	part := url.QueryEscape(name) + "=" + url.QueryEscape(value)
	if query == "" {
		return part
	}
	parts := strings.Split(query, "&")
	at := slices.IndexFunc(parts, func(p string) bool { return paramName(p) == name })
	if at < 0 {
		return query + "&" + part
	}
	if paramValue(parts[at]) != value {
		parts[at] = part
	}
	rest := slices.DeleteFunc(parts[at+1:], func(p string) bool { return paramName(p) == name })
	return strings.Join(parts[:at+1+len(rest)], "&")
}

// withoutParams removes the parameters that drop names and leaves the others as
// they are written.
func withoutParams(query string, drop func(name string) bool) string {
	if query == "" {
		return ""
	}
	parts := slices.DeleteFunc(strings.Split(query, "&"), func(p string) bool {
		return drop(paramName(p))
	})
	return strings.Join(parts, "&")
}

func paramValues(query, name string) []string {
	var values []string
	for part := range strings.SplitSeq(query, "&") {
		if paramName(part) == name {
			values = append(values, paramValue(part))
		}
	}
	return values
}

// paramName and paramValue read one part of a query. What can't be unescaped
// stands for itself.
func paramName(part string) string {
	name, _, _ := strings.Cut(part, "=")
	return unescape(name)
}

func paramValue(part string) string {
	_, value, _ := strings.Cut(part, "=")
	return unescape(value)
}

func unescape(s string) string {
	plain, err := url.QueryUnescape(s)
	if err != nil {
		return s
	}
	return plain
}
