package idem

import (
	"net/http"
	"slices"

	"github.com/idem-go/idem/internal/secret"
	"github.com/idem-go/idem/internal/wire"
)

// own are the names that the dialect takes for itself, though they may sound like a
// credential's.
func (d Dialect) own() secret.Own {
	own := secret.Own{FirstSent: d.FirstSent}
	if d.inHeader() {
		own.Header = d.field()
	}
	if d.Placement == PlaceQuery {
		own.Query = d.field()
	}
	return own
}

// withhold splits a request into what the journal keeps and what it must not.
func (d Dialect) withhold(m *wire.Request) (*wire.Request, secret.Withheld) {
	return d.own().Withhold(m)
}

// isTokenRequest tells whether the request asks for a token (RFC 6749): its form
// carries credentials and its answer is one, so it is never an intent.
func isTokenRequest(m *wire.Request) bool {
	return m.Method == http.MethodPost && m.IsForm() &&
		slices.ContainsFunc(wire.ParamValues(string(m.Body), "grant_type"), func(v string) bool { return v != "" })
}
