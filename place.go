package idem

import (
	"crypto/sha256"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/idem-go/idem/internal/secret"
	"github.com/idem-go/idem/internal/wire"
)

// spot is where the dialect's key stands.
func (d Dialect) spot() wire.Spot { return wire.Spot{Place: wire.Place(d.Placement), Field: d.field()} }

// place puts the key into the request, see wire.Spot.Put. A key that the dialect
// refuses and a body that can't carry one are an *InvalidError.
func (d Dialect) place(m *wire.Request, key Key) error {
	if d.Placement == PlaceNone {
		return nil
	}
	if err := d.checkKey(key); err != nil {
		return err
	}
	return asInvalid(d.spot().Put(m, string(key)))
}

// placeFirstSent writes the header that dates the intent, where the dialect has
// one. The provider refuses a late repeat by it, so at is the first send's time
// on every attempt.
func (d Dialect) placeFirstSent(m *wire.Request, at time.Time) {
	if d.FirstSent != "" {
		m.Header = wire.SetHeader(m.Header, d.FirstSent, at.UTC().Format(http.TimeFormat))
	}
}

// find returns the key that the request already carries, see wire.Spot.Find.
func (d Dialect) find(m *wire.Request) (Key, error) {
	key, err := d.spot().Find(m)
	return Key(key), asInvalid(err)
}

// asInvalid gives what the wire refuses the form that callers know.
func asInvalid(err error) error {
	var bad *wire.Invalid
	if !errors.As(err, &bad) {
		return err
	}
	if u, ok := bad.Value.(*url.URL); ok {
		return &InvalidError{bad.Field, secret.URL(u), bad.Why}
	}
	return &InvalidError{bad.Field, bad.Value, bad.Why}
}

// own are the names that the dialect takes for itself, though they may sound like a
// credential's.
func (d Dialect) own() secret.Own {
	own := secret.Own{FirstSent: d.FirstSent, SignedWith: d.SignedWith}
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

// fingerprint is what makes two requests the same intent: all of it but the key and the
// credentials. See wire.Request.Fingerprint.
func (d Dialect) fingerprint(m *wire.Request) [sha256.Size]byte {
	return m.Fingerprint(d.spot(), d.own().IsPayload(m.URL.RawQuery), d.Headers)
}

func sumOf(b []byte) []byte {
	sum := sha256.Sum256(b)
	return sum[:]
}
