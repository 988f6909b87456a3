package wire

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
)

// maxLookup is how long a body may be, in bytes, for a path to look into it.
// Error objects are small; a longer body is a document.
const maxLookup = 1 << 20

// Document is a body that paths look into. It is parsed when the first one asks, and
// once.
type Document struct {
	Body []byte

	parsed bool
	json   any // nil where the body is no JSON
}

// Lookup returns what stands at a dotted path of the JSON body. A number in the
// path is an index where an array stands, else a member's name. null is nothing.
func (d *Document) Lookup(path string) (any, bool) {
	v := d.parse()
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

// LookupText returns the string, number or boolean at a path as text.
func (d *Document) LookupText(path string) (string, bool) {
	v, ok := d.Lookup(path)
	if !ok {
		return "", false
	}
	return Text(v)
}

// parse decodes the body. What it claims to be doesn't matter: providers send
// JSON as text/html and the other way round.
func (d *Document) parse() any {
	if d.parsed {
		return d.json
	}
	d.parsed = true
	if len(d.Body) > maxLookup || !json.Valid(d.Body) {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(d.Body))
	dec.UseNumber() // 704 and 704.0 are different texts
	if err := dec.Decode(&d.json); err != nil {
		d.json = nil
	}
	return d.json
}

// Text returns a string, a number as it is written, "true" or "false".
func Text(v any) (string, bool) {
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

// SameScalars compares what was asked for with what is there: wherever both have a
// scalar at the same path, it must be equal. compared tells whether there was one.
func SameScalars(asked, got []byte) (same, compared bool) {
	var a, b any
	if json.Unmarshal(asked, &a) != nil || json.Unmarshal(got, &b) != nil {
		return true, false
	}
	return sameValue(a, b)
}

func sameValue(a, b any) (same, compared bool) {
	switch a := a.(type) {
	case map[string]any:
		object, ok := b.(map[string]any)
		if !ok {
			return true, false
		}
		same = true
		for name, v := range a {
			other, ok := object[name]
			if !ok {
				continue
			}
			s, c := sameValue(v, other)
			same, compared = same && s, compared || c
		}
		return same, compared
	case []any, nil:
		return true, false
	default:
		switch b.(type) {
		case map[string]any, []any, nil:
			return true, false
		}
		return a == b, true
	}
}
