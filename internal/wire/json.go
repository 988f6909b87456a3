package wire

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// The functions of this file change a JSON body by cutting and splicing bytes,
// never by decoding and encoding it, which would round big numbers, reorder and
// merge members, and so change what the caller signed or meant. They first ask
// encoding/json whether the body is valid; the scanner below relies on it.

// SetJSON returns the body with the string value at the dotted path and every
// other byte as it was. Absent members, parents included, become the first of
// their object; where a member is there twice, each of them is set, for it is
// the provider's choice which one counts. The value is visible ASCII.
func SetJSON(body []byte, path, value string) ([]byte, error) {
	start, err := jsonObject(body)
	if err != nil {
		return nil, err
	}
	edits, err := setMember(nil, body, start, strings.Split(path, "."), value)
	if err != nil {
		return nil, err
	}
	return applyEdits(body, edits), nil
}

// WithoutJSON returns the body without the members at the dotted path, and
// without the objects on the path that are empty, so that it undoes SetJSON. A
// body that isn't a JSON object is returned as it is.
func WithoutJSON(body []byte, path string) []byte {
	start, err := jsonObject(body)
	if err != nil {
		return body
	}
	edits, _ := dropMember(nil, body, start, strings.Split(path, "."))
	return applyEdits(body, edits)
}

// jsonValues returns the strings that stand at the dotted path, "" for null.
// Anything else there is an *InvalidError, and so is a body that isn't a JSON
// object.
func jsonValues(body []byte, path string) ([]string, error) {
	start, err := jsonObject(body)
	if err != nil {
		return nil, err
	}
	return memberValues(nil, body, start, strings.Split(path, "."))
}

// jsonObject returns where the body's object starts.
func jsonObject(body []byte) (start int, err error) {
	if start = skipSpace(body, 0); start == len(body) || body[start] != '{' || !json.Valid(body) {
		return 0, invalid("Request.Body", nil, "want a JSON object, for the key is one of its members")
	}
	return start, nil
}

// edit replaces the bytes from start to end.
type edit struct {
	start, end int
	text       []byte
}

// applyEdits expects the edits in order and without overlap.
func applyEdits(body []byte, edits []edit) []byte {
	if len(edits) == 0 {
		return body
	}
	var out bytes.Buffer
	at := 0
	for _, e := range edits {
		out.Write(body[at:e.start])
		out.Write(e.text)
		at = e.end
	}
	out.Write(body[at:])
	return out.Bytes()
}

func setMember(edits []edit, body []byte, object int, path []string, value string) ([]edit, error) {
	members := scanObject(body, object)
	found := false
	for _, m := range members {
		if m.name(body) != path[0] {
			continue
		}
		found = true
		if len(path) > 1 {
			if body[m.value] != '{' {
				return nil, notAnObject(path[0])
			}
			var err error
			if edits, err = setMember(edits, body, m.value, path[1:], value); err != nil {
				return nil, err
			}
			continue
		}
		have, err := m.text(body)
		if err != nil {
			return nil, err
		}
		if have != value {
			edits = append(edits, edit{m.value, m.end, []byte(strconv.Quote(value))})
		}
	}
	if !found {
		edits = append(edits, insertion(object+1, path, value, len(members) > 0))
	}
	return edits, nil
}

// insertion makes the first member of an object, with objects around it for the
// rest of the path.
func insertion(at int, path []string, value string, more bool) edit {
	var text []byte
	for i, step := range path {
		if i > 0 {
			text = append(text, '{')
		}
		name, _ := json.Marshal(step) // of a string: it can't fail
		text = append(append(text, name...), ':')
	}
	text = strconv.AppendQuote(text, value)
	text = append(text, strings.Repeat("}", len(path)-1)...)
	if more {
		text = append(text, ',')
	}
	return edit{at, at, text}
}

// dropMember returns the edits that remove what path names, and whether they
// leave nothing of the object.
func dropMember(edits []edit, body []byte, object int, path []string) (_ []edit, empty bool) {
	members := scanObject(body, object)
	kept := 0
	for i, m := range members {
		var inner []edit
		drop := m.name(body) == path[0]
		if drop && len(path) > 1 {
			drop = false
			if body[m.value] == '{' {
				inner, drop = dropMember(nil, body, m.value, path[1:])
			}
		}
		switch {
		case !drop:
			kept++
			edits = append(edits, inner...)
		case kept > 0: // from the comma in front
			edits = append(edits, edit{start: members[i-1].comma, end: m.end})
		case i+1 < len(members): // to the comma behind
			edits = append(edits, edit{start: m.start, end: m.comma + 1})
		default:
			edits = append(edits, edit{start: m.start, end: m.end})
		}
	}
	return edits, kept == 0
}

func memberValues(values []string, body []byte, object int, path []string) ([]string, error) {
	for _, m := range scanObject(body, object) {
		if m.name(body) != path[0] {
			continue
		}
		if len(path) > 1 {
			if body[m.value] != '{' {
				return nil, notAnObject(path[0])
			}
			var err error
			if values, err = memberValues(values, body, m.value, path[1:]); err != nil {
				return nil, err
			}
			continue
		}
		v, err := m.text(body)
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	return values, nil
}

func notAnObject(name string) error {
	return invalid("Request.Body", nil, "the member around the key, "+name+", is no object")
}

// jsonMember is where one member of an object stands: its name's opening quote, its
// value, the value's end, and the comma behind it, 0 for the last member.
type jsonMember struct{ start, value, end, comma int }

// name decodes the member's name.
func (m jsonMember) name(body []byte) string {
	return decodeString(body[m.start:skipString(body, m.start)])
}

// text decodes the member's value, which is a string or null.
func (m jsonMember) text(body []byte) (string, error) {
	switch value := body[m.value:m.end]; {
	case value[0] == '"':
		return decodeString(value), nil
	case string(value) == "null":
		return "", nil
	}
	return "", invalid("Request.Body", nil, "the member for the key, "+m.name(body)+", is no string")
}

func decodeString(quoted []byte) string {
	if !slices.Contains(quoted, '\\') {
		return string(quoted[1 : len(quoted)-1])
	}
	var s string
	_ = json.Unmarshal(quoted, &s) // valid, as all of the body is
	return s
}

// scanObject lists the members of the object that starts at i.
func scanObject(body []byte, i int) []jsonMember {
	var members []jsonMember
	for i = skipSpace(body, i+1); body[i] == '"'; i = skipSpace(body, i+1) {
		m := jsonMember{start: i}
		colon := skipSpace(body, skipString(body, i))
		m.value = skipSpace(body, colon+1)
		m.end = skipValue(body, m.value)
		i = skipSpace(body, m.end)
		if body[i] == ',' {
			m.comma = i
		}
		members = append(members, m)
		if body[i] == '}' {
			break
		}
	}
	return members
}

func skipSpace(body []byte, i int) int {
	for i < len(body) && strings.IndexByte(" \t\r\n", body[i]) >= 0 {
		i++
	}
	return i
}

// skipString returns the index behind the string that starts at i.
func skipString(body []byte, i int) int {
	for i++; body[i] != '"'; i++ {
		if body[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// skipValue returns the index behind the value that starts at i.
func skipValue(body []byte, i int) int {
	for depth := 0; ; {
		switch body[i] {
		case '"':
			i = skipString(body, i)
		case '{', '[':
			depth++
			i++
		case '}', ']':
			depth--
			i++
		case ',', ':', ' ', '\t', '\r', '\n':
			i++
			continue
		default:
			i = skipScalar(body, i)
		}
		if depth == 0 {
			return i
		}
	}
}

// skipScalar returns the index behind a number, true, false or null.
func skipScalar(body []byte, i int) int {
	for i < len(body) && strings.IndexByte(",]} \t\r\n", body[i]) < 0 {
		i++
	}
	return i
}
