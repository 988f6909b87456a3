package codec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/idem-go/idem"
)

// none is a path that says: don't put it there, or there is none.
const none = "-"

// put returns a JSON object with a string at the dotted path and every other byte
// as it was. The body is the caller's word: another value there is an error, not
// overwritten; an empty one is filled. Absent members become the first of their
// object.
func put(body []byte, path, value string) ([]byte, error) {
	step, rest, more := strings.Cut(path, ".")
	o, err := members(body)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(o, func(m member) bool { return m.name == step })
	if i < 0 {
		return insert(body, path, value, len(o) > 0), nil
	}
	now := []byte(nil)
	switch m := o[i]; {
	case more:
		now, err = put(m.value, rest, value)
	case text(m.value) == value:
		return body, nil
	case string(m.value) == "null" || string(m.value) == `""`:
		now = quote(value)
	default:
		err = fmt.Errorf("codec: another value stands at %q", path)
	}
	if err != nil {
		return nil, err
	}
	return slices.Concat(body[:o[i].at], now, body[o[i].at+len(o[i].value):]), nil
}

// insert makes the first member of an object, with objects around it for the rest
// of the path.
func insert(body []byte, path, value string, more bool) []byte {
	first := bytes.IndexByte(body, '{') + 1
	step, rest, deep := strings.Cut(path, ".")
	text := append(quote(step), ':')
	if deep {
		text = append(text, insert([]byte("{}"), rest, value, false)...)
	} else {
		text = append(text, quote(value)...)
	}
	if more {
		text = append(text, ',')
	}
	return slices.Concat(body[:first], text, body[first:])
}

// element makes an item's part of a call: its body, a JSON object, with ID and key
// where they are wanted.
func element(it idem.KeyedItem, idPath, id, keyPath string) ([]byte, error) {
	body := bytes.TrimSpace(it.Body)
	if !json.Valid(body) || body[0] != '{' {
		return nil, invalidItem(it, "want a JSON object")
	}
	for _, p := range []struct{ path, value string }{{keyPath, string(it.Key)}, {idPath, id}} {
		if p.path == none {
			continue
		}
		var err error
		if body, err = put(body, p.path, p.value); err != nil {
			return nil, invalidItem(it, strings.TrimPrefix(err.Error(), "codec: "))
		}
	}
	return body, nil
}

// wrap puts a JSON value at a dotted path of an object that holds nothing else.
func wrap(path string, value []byte) []byte {
	if path == "" {
		return value
	}
	step, rest, _ := strings.Cut(path, ".")
	return slices.Concat([]byte("{"), quote(step), []byte(":"), wrap(rest, value), []byte("}"))
}

// array joins JSON values.
func array(list [][]byte) []byte {
	return slices.Concat([]byte("["), bytes.Join(list, []byte(",")), []byte("]"))
}
