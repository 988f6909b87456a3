package wire

import "strings"

// Place is where a key stands in a request.
type Place uint8

// The places. Their numbers are those of package wire's placements.
const (
	Header Place = iota
	QuotedHeader
	JSON
	Query
	Form
	Nowhere
)

// Spot is one place for a key, with the name of its header, parameter or member.
type Spot struct {
	Place Place
	Field string
}

// Put puts the key into the request in its wire form, so that exactly one key is on
// the wire. Nothing else changes: no other byte of the body or the query, and nothing
// at all if the key stands there already, for the request may be signed. It writes to
// m, but not into the URL, header map or body that m came with. A body that can't
// carry a key is an *Invalid.
func (s Spot) Put(m *Request, key string) error {
	switch s.Place {
	case Nowhere:
	case Query:
		u := *m.URL
		u.RawQuery = SetParam(u.RawQuery, s.Field, key)
		m.URL = &u
	case Form:
		if !m.IsForm() {
			return errNoForm
		}
		m.Body = []byte(SetParam(string(m.Body), s.Field, key))
	case JSON:
		body, err := SetJSON(m.Body, s.Field, key)
		if err != nil {
			return err
		}
		m.Body = body
	default:
		m.Header = SetHeader(m.Header, s.Field, s.Spell(key))
	}
	return nil
}

var errNoForm = invalid("Request.Body", nil, "want a form, application/x-www-form-urlencoded, for the key is one of its fields")

// Spell is what stands on the wire for a key, before any escaping.
func (s Spot) Spell(key string) string {
	if s.Place == QuotedHeader {
		return `"` + key + `"`
	}
	return key
}

// Find returns the key that the request already carries, say from an SDK, or "".
// An empty value is no key: SDKs send one for "none". Two different keys are an
// *Invalid, for nobody could tell which one the provider takes, and so is a body that
// can't carry one and something in the key's place that isn't text.
func (s Spot) Find(m *Request) (string, error) {
	switch s.Place {
	case Nowhere:
		return "", nil
	case Query:
		return oneKey("Request.URL", ParamValues(m.URL.RawQuery, s.Field))
	case Form:
		if !m.IsForm() {
			return "", errNoForm
		}
		return oneKey("Request.Body", ParamValues(string(m.Body), s.Field))
	case JSON:
		values, err := jsonValues(m.Body, s.Field)
		if err != nil {
			return "", err
		}
		return oneKey("Request.Body", values)
	}
	values, err := s.headerKeys(m)
	if err != nil {
		return "", err
	}
	return oneKey("Request.Header", values)
}

func (s Spot) headerKeys(m *Request) ([]string, error) {
	values := HeaderValues(m.Header, s.Field)
	if s.Place != QuotedHeader {
		return values, nil
	}
	for i, v := range values {
		plain, ok := unquote(v)
		if !ok {
			return nil, invalid("Request.Header", v, "not a key in double quotes")
		}
		values[i] = plain
	}
	return values, nil
}

// Payload is the body without the key.
func (s Spot) Payload(m *Request) []byte {
	switch {
	case s.Place == JSON:
		return WithoutJSON(m.Body, s.Field)
	case s.Place == Form && m.IsForm():
		return []byte(WithoutParams(string(m.Body), func(name string) bool { return name == s.Field }))
	}
	return m.Body
}

// oneKey returns the only distinct value that isn't empty.
func oneKey(field string, values []string) (string, error) {
	var key string
	for _, v := range values {
		if key != "" && v != "" && v != key {
			return "", invalid(field, v, "there is another key besides, "+key)
		}
		if v != "" {
			key = v
		}
	}
	return key, nil
}

// unquote takes the quotes off a structured-field string. A raw value is
// accepted as it is. Escapes and parameters are refused, since no dialect mints
// keys that need them.
func unquote(v string) (string, bool) {
	if !strings.HasPrefix(v, `"`) {
		return v, true
	}
	if len(v) < 2 || !strings.HasSuffix(v, `"`) {
		return "", false
	}
	v = v[1 : len(v)-1]
	return v, !strings.ContainsAny(v, `"\`)
}
