package wire

import (
	"net/url"
	"slices"
	"strings"
)

// SetParam sets a parameter of a query or form and touches no other. Where it is
// absent it goes to the end; where it is there more than once, one stays.
func SetParam(query, name, value string) string {
	part := url.QueryEscape(name) + "=" + url.QueryEscape(value)
	if query == "" {
		return part
	}
	parts := strings.Split(query, "&")
	at := slices.IndexFunc(parts, func(p string) bool { return ParamName(p) == name })
	if at < 0 {
		return query + "&" + part
	}
	if ParamValue(parts[at]) != value {
		parts[at] = part
	}
	rest := slices.DeleteFunc(parts[at+1:], func(p string) bool { return ParamName(p) == name })
	return strings.Join(parts[:at+1+len(rest)], "&")
}

// WithoutParams removes the parameters that drop names and leaves the others as
// they are written.
func WithoutParams(query string, drop func(name string) bool) string {
	if query == "" {
		return ""
	}
	parts := slices.DeleteFunc(strings.Split(query, "&"), func(p string) bool {
		return drop(ParamName(p))
	})
	return strings.Join(parts, "&")
}

func ParamValues(query, name string) []string {
	var values []string
	for part := range strings.SplitSeq(query, "&") {
		if ParamName(part) == name {
			values = append(values, ParamValue(part))
		}
	}
	return values
}

// ParamName and ParamValue read one part of a query. What can't be unescaped
// stands for itself.
func ParamName(part string) string {
	name, _, _ := strings.Cut(part, "=")
	return unescape(name)
}

func ParamValue(part string) string {
	_, value, _ := strings.Cut(part, "=")
	return unescape(value)
}

func unescape(s string) string {
	plain, err := url.QueryUnescape(s)
	if err != nil {
		return s
	}
	return plain
}
