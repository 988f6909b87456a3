package codec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// What an answer may be: no provider's batch comes near, and a hostile one can't
// take all memory. Depth is bounded by encoding/json, at 10,000.
const (
	maxAnswer  = 64 << 20 // bytes
	maxResults = 1 << 16
)

var (
	errNoObject = errors.New("codec: not a JSON object")
	errNoArray  = errors.New("codec: not a JSON array")
)

func errFormat(format string, args ...any) error { return fmt.Errorf("codec: "+format, args...) }

// readBytes reads an answer up to the limit.
func readBytes(resp *http.Response) ([]byte, error) {
	if resp == nil || resp.Body == nil {
		return nil, errors.New("codec: the answer has no body")
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, errFormat("reading the answer: %w", err)
	}
	if len(body) > maxAnswer {
		return nil, errFormat("the answer is longer than %d bytes", maxAnswer)
	}
	return bytes.TrimPrefix(body, []byte("\xef\xbb\xbf")), nil
}

// readJSON reads an answer that is one JSON value, whatever its Content-Type.
func readJSON(resp *http.Response) (json.RawMessage, error) {
	body, err := readBytes(resp)
	if err != nil {
		return nil, err
	}
	if !json.Valid(body) {
		return nil, errFormat("the answer, of %d bytes, is no whole JSON", len(body))
	}
	return bytes.TrimSpace(body), nil
}

// readObject reads an answer that is one JSON object.
func readObject(resp *http.Response) (object, error) {
	body, err := readJSON(resp)
	if err != nil {
		return nil, err
	}
	return members(body)
}

// member is one member of an object; its value starts at the given offset.
type member struct {
	name  string
	value json.RawMessage
	at    int
}

// object is read member by member, because a struct would take "Status" for
// "status", and a map the last of two.
type object []member

// members reads an object. A member that is there twice is an error, for nobody
// could tell which one counts.
func members(raw []byte) (object, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, errNoObject
	}
	var o object
	seen := map[string]bool{}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return nil, err
		}
		m := member{name: t.(string)} // the decoder takes nothing else here
		if err := dec.Decode(&m.value); err != nil {
			return nil, err
		}
		if seen[m.name] {
			return nil, errFormat("the member %q is there twice", m.name)
		}
		seen[m.name] = true
		m.at = int(dec.InputOffset()) - len(m.value)
		o = append(o, m)
	}
	_, err := dec.Token()
	return o, err
}

// elements reads an array.
func elements(raw []byte) ([]json.RawMessage, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if t, err := dec.Token(); err != nil || t != json.Delim('[') {
		return nil, errNoArray
	}
	var list []json.RawMessage
	for dec.More() {
		if len(list) == maxResults {
			return nil, errFormat("more than %d results", maxResults)
		}
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	_, err := dec.Token()
	return list, err
}

func (o object) get(name string) (json.RawMessage, bool) {
	for _, m := range o {
		if m.name == name {
			return m.value, true
		}
	}
	return nil, false
}

// at returns what stands at a dotted path. null is nothing.
func (o object) at(path string) (json.RawMessage, bool) {
	step, rest, more := strings.Cut(path, ".")
	v, ok := o.get(step)
	if ok && more {
		return at(v, rest)
	}
	return v, ok && string(v) != "null"
}

// at returns what stands at a dotted path of any value; at "" stands the value
// itself. A number in the path is an index where an array stands.
func at(v json.RawMessage, path string) (json.RawMessage, bool) {
	if path == "" {
		return v, string(v) != "null"
	}
	if o, err := members(v); err == nil {
		return o.at(path)
	}
	list, err := elements(v)
	step, rest, _ := strings.Cut(path, ".")
	i, bad := strconv.Atoi(step)
	if err != nil || bad != nil || i < 0 || i >= len(list) {
		return nil, false
	}
	return at(list[i], rest)
}

// textAt is the string, number (as it is written) or boolean at a path, "" where
// there is none.
func (o object) textAt(path string) string {
	v, ok := o.at(path)
	if !ok {
		return ""
	}
	return text(v)
}

func text(v json.RawMessage) string {
	switch {
	case len(v) == 0 || v[0] == '{' || v[0] == '[' || v[0] == 'n':
		return ""
	case v[0] == '"':
		var s string
		_ = json.Unmarshal(v, &s) // a string that the decoder passed
		return s
	}
	return string(v)
}

// quote writes a JSON value without HTML's escapes, so that what a person looks
// for in a log stands there.
func quote(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil { // of strings and structs of strings: it can't fail
		panic("codec: internal error: " + err.Error())
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
