package idem

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// maxMatchBody is how long a body may be, in bytes, for a Path to look into it.
// Error objects are small; a longer body is a document.
const maxMatchBody = 1 << 20

// matchInput is an answer as the matchers see it. Its body is parsed when the
// first Path asks for it, and once.
type matchInput struct {
	Method string // of the request
	Status int
	Header http.Header
	Body   []byte

	parsed bool
	json   any // nil where the body is no JSON
}

// matchAny tells whether one of the matches recognises the answer.
func matchAny(matches []Match, m *matchInput) bool {
	return slices.ContainsFunc(matches, func(match Match) bool { return match.matches(m) })
}

// matches tells whether everything that is set holds. A zero Match, and one that
// would recognise answers by the request's method alone, match nothing.
func (m Match) matches(in *matchInput) bool {
	if m.Status == 0 && m.Header == "" && m.Path == "" {
		return false
	}
	if m.Method != "" && m.Method != in.Method || m.Status != 0 && m.Status != in.Status {
		return false
	}
	if m.Header != "" && !m.matchesHeader(in.Header) {
		return false
	}
	if m.Path == "" {
		return true
	}
	v, ok := in.lookup(m.Path)
	if !ok || m.Value == "" {
		return ok
	}
	text, ok := scalarText(v)
	return ok && text == m.Value
}

func (m Match) matchesHeader(h http.Header) bool {
	values := headerValues(h, m.Header)
	if m.Value == "" {
		return len(values) > 0
	}
	return slices.ContainsFunc(values, func(v string) bool { return strings.EqualFold(v, m.Value) })
}

// lookup returns what stands at a dotted path of the JSON body. A number in the
// path is an index where an array stands, else a member's name. null is nothing.
func (in *matchInput) lookup(path string) (any, bool) {
	v := in.parse()
	for step := range strings.SplitSeq(path, ".") {
		switch at := v.(type) {
		case map[string]any:
			v = at[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(at) {
				return nil, false
			}
			v = at[i]
		default:
			return nil, false
		}
	}
	return v, v != nil
}

// lookupText returns the string, number or boolean at a path as text.
func (in *matchInput) lookupText(path string) (string, bool) {
	v, ok := in.lookup(path)
	if !ok {
		return "", false
	}
	return scalarText(v)
}

// parse decodes the body. What it claims to be doesn't matter: providers send
// JSON as text/html and the other way round.
func (in *matchInput) parse() any {
	if in.parsed {
		return in.json
	}
	in.parsed = true
	if len(in.Body) > maxMatchBody || !json.Valid(in.Body) {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(in.Body))
	dec.UseNumber() // 704 and 704.0 are different texts
	if err := dec.Decode(&in.json); err != nil {
		in.json = nil
	}
	return in.json
}

// scalarText returns a string, a number as it is written, "true" or "false".
func scalarText(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case json.Number:
		return v.String(), true
	case bool:
		return strconv.FormatBool(v), true
	}
	return "", false
}
