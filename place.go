package idem

import (
	"errors"
	"net/http"
	"time"

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
	if errors.As(err, &bad) {
		return &InvalidError{bad.Field, bad.Value, bad.Why}
	}
	return err
}
