package dialect_test

import (
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dialect"
	"github.com/idem-go/idem/mockserver"
)

const day = 24 * time.Hour

// profiled are the presets whose provider has a ready profile of its quirks.
func profiled() []provider {
	return []provider{
		{preset: dialect.Standard(), profile: mockserver.Standard(), path: "/pay", window: day, mismatch: mistaken, lost402: notDone, failed500: done},
		{preset: dialect.IETF(), profile: mockserver.IETF(), path: "/pay", window: day, lost402: notDone, failed500: open},
		{preset: dialect.Stripe(), profile: mockserver.StripeV1(), path: "/v1/charges", window: day, lost402: notDone, failed500: ambiguous},
		{name: "stripe-v2", preset: dialect.Stripe(), profile: mockserver.StripeV2(), path: "/v2/core/events", window: 30 * day, lost402: open, failed500: done},
		{preset: dialect.Square(), profile: mockserver.Square(), path: "/v2/payments", window: day, lost402: open, failed500: done},
		{preset: dialect.Adyen(), profile: mockserver.Adyen(), path: "/v71/payments", window: 7 * day, mismatch: unnoticed, lost402: open, failed500: done},
		{preset: dialect.GoCardless(), profile: mockserver.GoCardless(), path: "/payments", window: time.Hour, mismatch: compared, lost402: open, failed500: done, fetches: true},
		{preset: dialect.Checkout(), profile: mockserver.Checkout(), path: "/payments", window: day, mismatch: unnoticed, lost402: open, failed500: done},
		{preset: dialect.ModernTreasury(), profile: mockserver.ModernTreasury(), path: "/api/payment_orders", window: day, mismatch: unnoticed, lost402: open, failed500: done},
		{preset: dialect.Increase(), profile: mockserver.Increase(), path: "/ach_transfers", window: idem.Forever, lost402: open, failed500: done},
		{preset: dialect.Dwolla(), profile: mockserver.DwollaIncident(), path: "/transfers", window: day, mismatch: executed, lost402: open, failed500: open, locks: true},
		{preset: dialect.Fineract(), profile: mockserver.Fineract(), path: "/fineract-provider/api/v1/loans", window: idem.Forever, mismatch: unnoticed, lost402: notDone, failed500: ambiguous},
		{preset: dialect.Formance(), profile: mockserver.Formance(), path: "/v2/main/transactions", window: idem.Forever, mismatch: mistaken, lost402: open, failed500: done},
		{preset: dialect.Svix(), profile: mockserver.Svix(), path: "/api/v1/app/1/msg", window: 12 * time.Hour, mismatch: unnoticed, lost402: open, failed500: done},
		{preset: dialect.Resend(), profile: mockserver.Resend(), path: "/emails", window: day, lost402: open, failed500: done},
		{preset: dialect.Azure(), profile: mockserver.AzureRepeatable(), path: "/sms", window: 5 * time.Minute, lost402: open, failed500: done},
		{preset: dialect.None(), profile: mockserver.Mute(), path: "/2010-04-01/Messages.json", unkeyed: true, failed500: ambiguous},
	}
}

// placedOnly are the presets of which the facts tell little more than where the key
// goes and which keys are good. The mock is strict about both.
func placedOnly() []provider {
	at := func(field string) mockserver.Profile {
		return mockserver.Profile{Name: "at " + field, Field: field, Methods: []string{"POST", "PATCH", "PUT", "DELETE"},
			InFlight: mockserver.Reply{Status: 409}, Missing: mockserver.Reply{Status: 400}, Compare: mockserver.CompareNothing}
	}
	in := func(place mockserver.Place, field, pattern string, most int) mockserver.Profile {
		p := at(field)
		p.Place, p.KeyPattern, p.MaxKey = place, pattern, most
		return p
	}
	const v4 = "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
	locked := at("X-Idempotency-Key")
	locked.InFlight = mockserver.Reply{Status: 423}
	expiring := at("Idempotency-Key")
	expiring.Window = 25 * time.Hour
	busy := in(mockserver.PlaceJSON, "clientToken", v4, 64)
	busy.InFlight = mockserver.Reply{Status: 400, Body: `{"__type":"TransactionInProgressException"}`}
	list := []provider{
		{preset: preset("paypal"), profile: in("", "PayPal-Request-Id", "", 108), path: "/v2/checkout/orders", window: 6 * time.Hour},
		{name: "paypal payments", preset: preset("paypal"), profile: in("", "PayPal-Request-Id", "", 78), path: "/v2/payments/captures/1/refund", window: 45 * day},
		{preset: preset("plaid"), profile: in(mockserver.PlaceJSON, "idempotency_key", "", 50), path: "/transfer/authorization/create", window: 2 * day},
		{preset: preset("mercadopago"), profile: locked, path: "/v1/payments", window: time.Hour},
		{preset: preset("wise"), profile: in(mockserver.PlaceJSON, "customerTransactionId", v4, 0), path: "/v1/transfers", window: time.Hour},
		{name: "wise balances", preset: preset("wise"), profile: in("", "X-idempotence-uuid", v4, 0), path: "/v2/profiles/1/balance-movements", window: time.Hour},
		{preset: preset("razorpay"), profile: in("", "X-Payout-Idempotency", "[-A-Za-z0-9_ ]{4,36}", 0), path: "/v1/payouts", window: time.Hour},
		{name: "razorpay route", preset: preset("razorpay"), profile: in("", "X-Transfer-Idempotency", "[-A-Za-z0-9_ ]{4,36}", 0), path: "/v1/transfers", window: time.Hour},
		{preset: preset("brex"), profile: in("", "Idempotency-Key", v4, 0), path: "/v1/transfers", window: time.Hour},
		{preset: preset("mollie"), profile: at("Idempotency-Key"), path: "/v2/payments", window: time.Hour},
		{preset: preset("klarna"), profile: at("Klarna-Idempotency-Key"), path: "/ordermanagement/v1/orders/1/captures", window: day},
		{preset: preset("xero"), profile: in("", "Idempotency-Key", "", 128), path: "/api.xro/2.0/Invoices", window: 5 * time.Minute},
		{name: "xero PUT", preset: preset("xero"), profile: in("", "Idempotency-Key", "", 128), method: "PUT", path: "/api.xro/2.0/Invoices", window: 5 * time.Minute},
		{preset: preset("google-body"), profile: in(mockserver.PlaceJSON, "requestId", v4, 0), path: "/v1/projects/p/things/1:start", window: time.Hour},
		{preset: preset("google-query"), profile: in(mockserver.PlaceQuery, "requestId", v4, 0), path: "/v1/projects/p/things?thingId=1", window: time.Hour},
		{preset: preset("google-compute"), profile: in(mockserver.PlaceQuery, "requestId", v4, 0), path: "/compute/v1/projects/p/zones/z/instances", window: time.Hour},
		{preset: preset("aws"), profile: busy, path: "/", window: 10 * time.Minute},
		{preset: preset("ec2"), profile: in(mockserver.PlaceForm, "ClientToken", "[!-~]{1,64}", 0), path: "/", window: day, form: true},
		{preset: preset("courier"), profile: expiring, path: "/send", window: day},
	}
	for i := range list { // nothing is known beyond: the worst
		list[i].mismatch, list[i].lost402, list[i].failed500 = unnoticed, open, done
	}
	return list
}
