package wire

import "net/url"

// Moved tells whether location is the same path and query elsewhere: the server
// then didn't look at the request.
func Moved(from *url.URL, location string) bool {
	to, err := from.Parse(location)
	return err == nil && location != "" && to.EscapedPath() == from.EscapedPath() && to.RawQuery == from.RawQuery &&
		Origin(to) != Origin(from)
}

// SameOrigin returns where a redirect may be followed with the key and
// the credentials, nil if nowhere.
func SameOrigin(from *url.URL, location string) *url.URL {
	to, err := from.Parse(location)
	if err != nil || location == "" || Origin(to) != Origin(from) || to.User != nil {
		return nil
	}
	return to
}
