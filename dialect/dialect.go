// Package dialect has ready-made dialects of package idem.
//
// Each preset is plain data. Take one and change what your account or endpoint
// does differently:
//
//	d := dialect.Square()
//	d.Paths = []string{"/v2/payments"}
//
// Every preset says in Source and Checked where its facts were read and when, and
// lists in Unverified the fields that no page of the provider vouches for. An
// unverified window is short, since a window that is too long can act twice and
// one that is too short only asks a person.
//
// Providers change. A preset is corrected in a minor release; entries on disk
// keep the placement, wire form and window they were first sent with.
package dialect

import (
	"time"

	"github.com/idem-go/idem"
)

const (
	day     = 24 * time.Hour
	checked = "2026-09-01" // all facts were read in that month; the day is only its first

	// unknown is the window where no source tells one.
	unknown = time.Hour
)

// post returns a new slice each time, for presets are the caller's to change.
func post() []string { return []string{"POST"} }

//go:generate go test -run TestTheTablesInTheDocs -update .

// presets is the table of this package, in the order of [All].
var presets = []func() idem.Dialect{
	Standard, IETF, None,
	Stripe, PayPal, Square, Adyen, GoCardless, Plaid, MercadoPago, Checkout, Wise,
	Razorpay, ModernTreasury, Increase, Brex, Dwolla, Mollie, Klarna, Xero,
	Fineract, Formance,
	GoogleBody, GoogleQuery, GoogleCompute, AWS, EC2, Azure,
	Svix, Resend, Courier,
}

// All returns every preset, each a fresh copy.
func All() []idem.Dialect {
	all := make([]idem.Dialect, len(presets))
	for i, preset := range presets {
		all[i] = preset()
	}
	return all
}

// ByName returns the preset whose Name is name, and false if there is none.
func ByName(name string) (idem.Dialect, bool) {
	for _, d := range All() {
		if d.Name == name {
			return d, true
		}
	}
	return idem.Dialect{}, false
}

// Standard is the zero Dialect with a name: a raw UUIDv7 in Idempotency-Key on
// POST and PATCH, remembered for 24 hours, and every answer read conservatively.
func Standard() idem.Dialect {
	return idem.Dialect{Name: "standard"}
}

// IETF is draft-ietf-httpapi-idempotency-key-header-07: the key in double quotes,
// 409 while the first request runs, 422 for another payload. The draft expired in
// April 2026, and most providers that cite it take the raw key; see [Standard].
func IETF() idem.Dialect {
	return idem.Dialect{
		Name:       "ietf",
		Placement:  idem.PlaceQuotedHeader,
		Window:     day,
		KeyFirst:   true,
		InFlight:   []idem.Match{{Status: 409}},
		Mismatch:   []idem.Match{{Status: 422}},
		Source:     "https://www.ietf.org/archive/id/draft-ietf-httpapi-idempotency-key-header-07.txt",
		Checked:    checked,
		Unverified: []string{"Window", "Replay"},
	}
}

// None is for a provider that takes no key: a request is sent once, and a lost
// answer leaves it Unknown until Reconcile finds out.
func None() idem.Dialect {
	return idem.Dialect{Name: "none", Placement: idem.PlaceNone}
}

// unkeyed is a dialect whose provider takes keys only on the given routes.
func unkeyed(name, source string, routes ...idem.Dialect) idem.Dialect {
	for i := range routes {
		routes[i].Source, routes[i].Checked = source, checked
	}
	return idem.Dialect{
		Name: name, Placement: idem.PlaceNone, Routes: routes,
		Source: source, Checked: checked,
	}
}
