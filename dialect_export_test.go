package idem

import (
	"net/http"

	"github.com/idem-go/idem/internal/wire"
)

// These let presets_test.go, which imports package dialect, see what a preset
// does with requests and answers.

func (d Dialect) Route(method, path string) (Dialect, bool) { return d.route(method, path) }

// Reading tells which matchers recognise an answer.
func (d Dialect) Reading(method string, status int, header http.Header, body string) []string {
	in := &matchInput{Method: method, Status: status, Header: header, Document: wire.Document{Body: []byte(body)}}
	var reading []string
	for name, list := range map[string][]Match{
		"in flight": d.InFlight, "mismatch": d.Mismatch, "already done": d.AlreadyDone,
		"not done": d.NotDone, "replay": {d.replay()},
	} {
		if matchAny(list, in) {
			reading = append(reading, name)
		}
	}
	switch retry, ok := d.shouldRetry(in); {
	case ok && retry:
		reading = append(reading, "retry")
	case ok:
		reading = append(reading, "stop")
	}
	return reading
}
