package wire

import (
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
)

// Check refuses what net/http would refuse later, when it is too late to know cheaply
// that nothing was sent. The error is an *Invalid; a URL in it is still to be scrubbed.
func Check(req *http.Request) error {
	if err := checkURL(req.URL); err != nil {
		return err
	}
	switch {
	case !sends(req.Method):
		return invalid("Request.Method", req.Method, "must be a method that sends a request")
	case strings.ContainsAny(req.Host, " \r\n\t/@"):
		shown := req.Host[strings.LastIndex(req.Host, "@")+1:]
		return invalid("Request.Host", shown, "must be a host, without user info")
	case len(req.Trailer) > 0:
		return invalid("Request.Trailer", len(req.Trailer), "is not journaled, so it must be empty")
	}
	return checkHeader(req.Header)
}

func checkURL(u *url.URL) error {
	if u == nil {
		return invalid("Request.URL", nil, "must not be nil")
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return invalid("Request.URL", u, "must be http or https")
	case u.Hostname() == "":
		return invalid("Request.URL", u, "must have a host")
	case u.Opaque != "":
		return invalid("Request.URL", &url.URL{Scheme: u.Scheme, Host: u.Host}, "must not be opaque")
	}
	plain := *u
	plain.RawQuery = ""                                  // which may hold anything
	if _, err := url.Parse(plain.String()); err != nil { // it could be sent once, and never read back
		return invalid("Request.URL", nil, "can't be written down and read again")
	}
	return nil
}

func sends(method string) bool {
	if method == http.MethodConnect {
		return false
	}
	return method == "" || IsToken(method)
}

func checkHeader(h http.Header) error {
	for name, values := range h {
		if !IsToken(name) {
			shown, _, _ := strings.Cut(name, ":") // a whole header line in place of a name
			return invalid("Request.Header", shown, "is not a header name")
		}
		for _, v := range values {
			if strings.ContainsAny(v, "\r\n\x00") {
				return invalid("Request.Header."+textproto.CanonicalMIMEHeaderKey(name), nil, "has a value with a line break")
			}
		}
	}
	return nil
}
