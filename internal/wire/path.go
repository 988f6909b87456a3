package wire

import (
	"net/url"
	"path"
	"strings"
)

// PatternFault tells why a pattern isn't one for MatchPath, "" if it is.
func PatternFault(pattern string) string {
	trunk := strings.TrimSuffix(pattern, "/**")
	switch {
	case !strings.HasPrefix(pattern, "/"):
		return `want a pattern that begins with "/"`
	case strings.Contains(trunk, "**"):
		return `"**" stands only at the end, behind a "/"`
	}
	for segment := range strings.SplitSeq(trunk, "/") {
		if _, err := path.Match(segment, ""); err != nil {
			return "want a pattern of path.Match"
		}
	}
	return ""
}

// MatchPath is path.Match for escaped paths, with a trailing "/**" that matches
// everything below. It goes segment by segment, so that an escaped slash in an
// id doesn't make another path of it.
func MatchPath(pattern, urlPath string) bool {
	pattern, below := strings.CutSuffix(pattern, "/**")
	want, have := strings.Split(pattern, "/"), strings.Split(urlPath, "/")
	if len(have) < len(want) || below != (len(have) > len(want)) {
		return false
	}
	for i, p := range want {
		if !matchSegment(p, have[i]) {
			return false
		}
	}
	return true
}

// matchSegment tries a segment as it is written, where "*" also matches one with
// an escaped slash, and unescaped.
func matchSegment(pattern, segment string) bool {
	if ok, err := path.Match(pattern, segment); ok && err == nil {
		return true
	}
	plain, err := url.PathUnescape(segment)
	if err != nil {
		return false
	}
	ok, err := path.Match(pattern, plain)
	return ok && err == nil
}
