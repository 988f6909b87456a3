package idem

import (
	"encoding/json"
	"net/url"
	"strings"
)

// locate returns the URL of the resource that an AlreadyDone answer speaks of, nil
// if the answer doesn't tell.
func (r Resource) locate(from *url.URL, in *matchInput) *url.URL {
	target := ""
	switch {
	case r.Header != "":
		target = in.Header.Get(r.Header)
	case r.Path != "":
		text, ok := in.lookupText(r.Path)
		if !ok {
			return nil
		}
		target = text
		if r.URL != "" {
			target = strings.ReplaceAll(r.URL, "{id}", url.PathEscape(text))
		}
	}
	to, err := from.Parse(target)
	if err != nil || target == "" || to.Host == "" || to.Scheme != "http" && to.Scheme != "https" {
		return nil
	}
	return to
}

// sameResource compares what was asked for with what is there: wherever both have a
// scalar at the same path, it must be equal. compared tells whether there was one.
func sameResource(asked, got []byte) (same, compared bool) {
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
