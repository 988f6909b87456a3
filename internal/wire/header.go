package wire

import (
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"
)

// HeaderValues returns a header's values over all spellings of its name in the
// map, in an order that doesn't depend on the map's.
func HeaderValues(h http.Header, name string) []string {
	var spellings, values []string
	for k := range h {
		if strings.EqualFold(k, name) {
			spellings = append(spellings, k)
		}
	}
	slices.Sort(spellings)
	for _, k := range spellings {
		for _, v := range h[k] {
			values = append(values, strings.Trim(v, " \t"))
		}
	}
	return values
}

// SetHeader returns a copy of h in which name has one value. Other spellings go:
// net/http would send each of them.
func SetHeader(h http.Header, name, value string) http.Header {
	h = withoutHeader(h, name)
	h.Set(name, value)
	return h
}

func withoutHeader(h http.Header, name string) http.Header {
	out := h.Clone()
	if out == nil {
		return http.Header{}
	}
	maps.DeleteFunc(out, func(k string, _ []string) bool { return strings.EqualFold(k, name) })
	return out
}

// IsForm tells whether the body is declared as a URL-encoded form.
func (m *Request) IsForm() bool {
	values := HeaderValues(m.Header, "Content-Type")
	if len(values) != 1 {
		return false
	}
	media, _, err := mime.ParseMediaType(values[0])
	return err == nil && media == "application/x-www-form-urlencoded"
}

// streams are the media types whose bodies come bit by bit, perhaps for hours.
var streams = []string{
	"text/event-stream", "application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines",
	"application/json-seq", "application/stream+json", "application/vnd.amazon.eventstream", "multipart/x-mixed-replace",
}

// IsStream tells an answer whose body is a stream.
func IsStream(h http.Header) bool {
	media, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	return slices.Contains(streams, strings.ToLower(strings.TrimSpace(media)))
}

// Delimited tells an answer whose end is known by more than the end of its connection.
func Delimited(resp *http.Response) bool {
	return resp.ContentLength >= 0 || len(resp.TransferEncoding) > 0 || resp.ProtoMajor > 1 || resp.Uncompressed
}
