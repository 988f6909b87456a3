package idem

import (
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
		text, ok := in.LookupText(r.Path)
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
