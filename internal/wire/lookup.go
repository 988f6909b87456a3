package wire

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"math/big"
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
	json   any // nil where the body is neither JSON nor XML
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
	if len(d.Body) > maxLookup {
		return nil
	}
	if !json.Valid(d.Body) {
		d.json = parseXML(d.Body)
		return d.json
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
	a, b := (&Document{Body: asked}).parse(), (&Document{Body: got}).parse()
	if a == nil || b == nil {
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
		return sameScalar(a, b), true
	}
}

// sameScalar compares numbers by their value and all digits: 1 is 1.0, and account
// 9007199254740993 is not 9007199254740992, as it would be in a float64.
func sameScalar(a, b any) bool {
	x, ok := a.(json.Number)
	y, also := b.(json.Number)
	if !ok || !also {
		return a == b
	}
	p, pok := plainNumber(x)
	q, qok := plainNumber(y)
	if !pok || !qok {
		return x == y
	}
	return p.Cmp(q) == 0
}

// plainNumber is the exact value of a number that is written without an exponent, which
// would let a few bytes ask for gigabytes.
func plainNumber(n json.Number) (*big.Rat, bool) {
	if len(n) > 100 || strings.ContainsAny(string(n), "eE") {
		return nil, false
	}
	return new(big.Rat).SetString(string(n))
}

// parseXML reads an XML document as JSON would say it: an element is a member of its
// parent by its local name, the first of a name counts, and one without children is its
// text. The root element is the document. Nil is no XML.
func parseXML(body []byte) any {
	if !bytes.HasPrefix(bytes.TrimSpace(body), []byte("<")) {
		return nil
	}
	dec := xml.NewDecoder(bytes.NewReader(body))
	for {
		token, err := dec.Token()
		if err != nil {
			return nil
		}
		if _, ok := token.(xml.StartElement); ok {
			value, err := readElement(dec, 0)
			if err != nil {
				return nil
			}
			return value
		}
	}
}

// maxDepth bounds what a hostile document can nest.
const maxDepth = 100

func readElement(dec *xml.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, errors.New("nested too deep")
	}
	var text strings.Builder
	members := map[string]any{}
	for {
		token, err := dec.Token()
		if err != nil {
			return nil, err
		}
		switch t := token.(type) {
		case xml.StartElement:
			value, err := readElement(dec, depth+1)
			if err != nil {
				return nil, err
			}
			if _, there := members[t.Name.Local]; !there {
				members[t.Name.Local] = value
			}
		case xml.CharData:
			text.Write(t)
		case xml.EndElement:
			if len(members) > 0 {
				return members, nil
			}
			return strings.TrimSpace(text.String()), nil
		}
	}
}
