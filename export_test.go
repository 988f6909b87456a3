package idem

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/wire"
)

// What tests outside the package may see of it.

// DamageRecord flips a bit of a stored record.
func DamageRecord(t testing.TB, s *BoltKeystore, scope, key string) {
	require.NoError(t, s.journal.DamageRecord(scope, key))
}

// OwnBase is the transport that a client without Options.Base made for itself. Tests
// give it the roots and the proxy that a process would get from its environment.
func OwnBase(c *Client) *http.Transport { return c.ownBase }

// Route is the dialect that speaks for a request.
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
