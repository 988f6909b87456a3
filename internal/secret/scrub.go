package secret

import (
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/idem-go/idem/internal/wire"
)

// redacted stands for a secret in whatever people read.
const redacted = "REDACTED"

// URL returns the URL for errors and logs: without user info, and with
// REDACTED for the values of credentials in query and fragment. Everything else
// stays as it is written.
func URL(u *url.URL) string {
	if u == nil {
		return ""
	}
	out := *u
	out.User = nil
	out.RawQuery = scrubParams(u.RawQuery)
	if at := strings.LastIndex(out.Opaque, "@"); at >= 0 {
		out.Opaque = "//" + out.Opaque[at+1:]
	}
	if fragment := u.EscapedFragment(); strings.Contains(fragment, "=") {
		out.RawFragment = scrubParams(fragment)
		out.Fragment = unescapePath(out.RawFragment)
	}
	return out.String()
}

func unescapePath(s string) string {
	plain, err := url.PathUnescape(s)
	if err != nil {
		return s
	}
	return plain
}

func scrubParams(query string) string {
	if query == "" {
		return ""
	}
	parts := strings.Split(query, "&")
	for i, part := range parts {
		name, value, _ := strings.Cut(part, "=")
		if hidesSecret(part) {
			parts[i] = name + "=" + redacted
		}
		if value != "" && IsQuery(wire.ParamName(part)) {
			parts[i] = name + "=" + redacted
		}
	}
	return strings.Join(parts, "&")
}

// URLText is URL for text. What can't be parsed is not shown at all,
// since nobody knows which part of it is the password.
func URLText(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return redacted
	}
	if u.User == nil && scrubParams(u.RawQuery) == u.RawQuery && !strings.Contains(u.EscapedFragment(), "=") {
		return s
	}
	return URL(u)
}

// Header returns the headers of an answer as they may be stored: without
// credentials, and with no secret in the URLs among the values. A signature of
// the answer stays, for it proves and doesn't open anything.
func Header(h http.Header) http.Header {
	out := make(http.Header, len(h))
	for name, values := range h {
		if IsHeader(name) && !isAnswerSignature(name) {
			continue
		}
		values = slices.Clone(values)
		for i, v := range values {
			values[i] = headerValue(name, v)
		}
		out[name] = values
	}
	return out
}

func isAnswerSignature(name string) bool {
	lower := strings.ToLower(name)
	return strings.Contains(lower, "signature") || strings.Contains(lower, "hmac")
}

func headerValue(name, value string) string {
	switch strings.ToLower(name) {
	case "location", "content-location":
		return URLText(value) // may be relative
	case "link":
		return linkTarget.ReplaceAllStringFunc(value, func(target string) string {
			return "<" + URLText(target[1:len(target)-1]) + ">"
		})
	}
	return scrubText(value)
}

var (
	linkTarget = regexp.MustCompile(`<[^<>]*>`)
	urlInText  = regexp.MustCompile(`(?i)\b[a-z][a-z0-9+.-]*://[^\s"'<>]+`)
)

// scrubText scrubs the absolute URLs in a text.
func scrubText(s string) string {
	return urlInText.ReplaceAllStringFunc(s, URLText)
}

// minSecret is the shortest value that is looked for in texts, in bytes. Shorter
// ones are no secrets, and replacing each "1" would leave nothing to read.
const minSecret = 4

// Error returns an error that shows neither the secrets nor the credentials
// in a URL, and unwraps to err, whose own texts are as they were. A nil err, and
// one that shows nothing, come back as they are.
func Error(err error, secrets []string) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	for _, e := range urlErrors(err) {
		safe := URLText(e.URL)
		if safe == redacted && e.Err != nil { // the reason quotes a part of the URL
			text = strings.ReplaceAll(text, e.Err.Error(), "malformed")
		}
		text = replaceSpellings(text, e.URL, safe)
	}
	text = scrubText(text)
	secrets = slices.Clone(secrets)
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	for _, s := range secrets {
		if len(s) >= minSecret {
			text = replaceSpellings(text, s, redacted)
		}
	}
	if text == err.Error() {
		return err
	}
	return &scrubbedError{text, err}
}

// replaceSpellings replaces s as it is, as %q prints it, and as a query has it.
func replaceSpellings(text, s, with string) string {
	if s == "" {
		return text
	}
	text = strings.ReplaceAll(text, s, with)
	quoted := strconv.Quote(s)
	text = strings.ReplaceAll(text, quoted[1:len(quoted)-1], with)
	return strings.ReplaceAll(text, url.QueryEscape(s), with)
}

// urlErrors collects the *url.Error of a chain or tree of errors.
func urlErrors(err error) []*url.Error {
	var found []*url.Error
	switch e := err.(type) {
	case nil:
		return nil
	case *url.Error:
		found = append(found, e)
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			found = append(found, urlErrors(inner)...)
		}
		return found
	}
	return append(found, urlErrors(errors.Unwrap(err))...)
}

type scrubbedError struct {
	text string
	err  error
}

func (e *scrubbedError) Error() string { return e.text }
func (e *scrubbedError) Unwrap() error { return e.err }
