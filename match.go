package idem

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/idem-go/idem/internal/wire"
)

// matchInput is an answer as the matchers see it. Its body is parsed when the
// first Path asks for it, and once.
type matchInput struct {
	Method string // of the request
	Status int
	Header http.Header
	wire.Document
}

// matchAny tells whether one of the matches recognises the answer.
func matchAny(matches []Match, m *matchInput) bool {
	return slices.ContainsFunc(matches, func(match Match) bool { return match.matches(m) })
}

// matchPoll tells whether a match reads the answer to a poll: one that says GET, or, in
// a poll that succeeded and so tells the job's state, one without a method. A match by
// status speaks of the request itself: a job's 404 is no refusal of it.
func matchPoll(matches []Match, in *matchInput) bool {
	return slices.ContainsFunc(matches, func(m Match) bool {
		ofJob := m.Method == "" && in.Status/100 == 2
		return (m.Method == http.MethodGet || ofJob) && m.matches(in)
	})
}

// matches tells whether everything that is set holds. A zero Match, and one that
// would recognise answers by the request's method alone, match nothing.
func (m Match) matches(in *matchInput) bool {
	if m.Status == 0 && m.Header == "" && m.Path == "" {
		return false
	}
	if m.Method != "" && m.Method != in.Method {
		return false
	}
	if m.Status != 0 && m.Status != in.Status {
		return false
	}
	if m.Header != "" && !m.matchesHeader(in.Header) {
		return false
	}
	if m.Path == "" {
		return true
	}
	v, ok := in.Lookup(m.Path)
	if !ok || m.Value == "" {
		return ok
	}
	text, ok := wire.Text(v)
	return ok && (text == m.Value || isErrorType(m.Path) && shapeName(text) == m.Value)
}

// isErrorType tells the places where AWS names the type of an error.
func isErrorType(place string) bool {
	return place == "__type" || strings.EqualFold(place, "X-Amzn-Errortype")
}

// shapeName is what counts of an AWS error type: "com.amazonaws.x#Name" and
// "Name:http://…" are both Name (AWS JSON 1.1 protocol, "Operation error
// serialization").
func shapeName(text string) string {
	text, _, _ = strings.Cut(text, ":")
	return text[strings.LastIndex(text, "#")+1:]
}

func (m Match) matchesHeader(h http.Header) bool {
	values := wire.HeaderValues(h, m.Header)
	if m.Value == "" {
		return len(values) > 0
	}
	if isErrorType(m.Header) {
		for i, v := range values {
			values[i] = shapeName(v)
		}
	}
	return slices.ContainsFunc(values, func(v string) bool { return strings.EqualFold(v, m.Value) })
}

// shouldRetry reads the dialect's own hint, the strongest there is. ok is false
// where the dialect has none or the answer doesn't give it.
func (d Dialect) shouldRetry(m *matchInput) (value, ok bool) {
	if d.ShouldRetry == "" {
		return false, false
	}
	for _, v := range wire.HeaderValues(m.Header, d.ShouldRetry) {
		if strings.EqualFold(v, "true") || strings.EqualFold(v, "false") {
			return strings.EqualFold(v, "true"), true
		}
	}
	return false, d.SilentStop && d.Shape.matches(m)
}

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
