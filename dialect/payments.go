package dialect

import (
	"time"

	"github.com/idem-go/idem"
)

// Stripe is api.stripe.com. Version 1 honours the key on POST, stores even a 500
// for 24 hours and then replays it, marked. Version 2 honours it on POST and
// DELETE for 30 days and tries failed work again.
func Stripe() idem.Dialect {
	const source = "https://docs.stripe.com/api/idempotent_requests"
	inUse := []idem.Match{{Status: 409, Path: "error.code", Value: "idempotency_key_in_use"}}
	reused := []idem.Match{{Status: 400, Path: "error.type", Value: "idempotency_error"}}
	account := []string{"Stripe-Account", "Stripe-Context"}
	return idem.Dialect{
		Name: "stripe", MaxKey: 255, Methods: post(),
		Routes: []idem.Dialect{{
			MaxKey: 255, Methods: []string{"POST", "DELETE"}, Paths: []string{"/v2/**"},
			Window: 30 * day, InFlight: inUse, Mismatch: reused,
			ShouldRetry: "Stripe-Should-Retry", Headers: account,
			Source: "https://docs.stripe.com/api-v2-overview", Checked: checked,
			Unverified: []string{"InFlight", "Mismatch"},
		}},
		Window: day, KeyFirst: true, InFlight: inUse, Mismatch: reused,
		ShouldRetry: "Stripe-Should-Retry", Headers: account,
		Source: source, Checked: checked,
	}
}

// PayPal is api-m.paypal.com. Each of its APIs remembers the header
// PayPal-Request-Id for another time, from 3 hours to for ever; outside the paths
// below it is ignored, so requests there have no key. A repeat answers with the
// current status and not with a copy of the first answer.
func PayPal() idem.Dialect {
	route := func(window time.Duration, maxKey int, paths ...string) idem.Dialect {
		return idem.Dialect{
			Field: "PayPal-Request-Id", MaxKey: maxKey,
			Methods: post(), Paths: paths, Window: window,
			InFlight: []idem.Match{
				{Status: 409, Path: "name", Value: "PREVIOUS_REQUEST_IN_PROGRESS"},
				{Status: 409, Path: "details.0.issue", Value: "PREVIOUS_REQUEST_IN_PROGRESS"},
			},
			Mismatch:   []idem.Match{{Path: "name", Value: "DUPLICATE_REQUEST_ID"}},
			Unverified: []string{"Paths", "MaxKey", "InFlight", "Mismatch"},
		}
	}
	return unkeyed("paypal", "https://developer.paypal.com/reference/guidelines/idempotency/",
		route(6*time.Hour, 108, "/v2/checkout/orders", "/v2/checkout/orders/**"),
		route(45*day, 78, "/v2/payments/**"),
		route(30*day, 255, "/v1/payments/payouts"),
		route(30*day, 78, "/v1/payments/payment", "/v1/payments/payment/**", "/v1/payments/sale/**",
			"/v1/payments/authorization/**", "/v1/payments/capture/**"),
		route(3*day, 78, "/v1/billing/plans", "/v1/billing/plans/**", "/v1/billing/subscriptions",
			"/v1/billing/subscriptions/**", "/v1/catalogs/products"),
		route(3*time.Hour, 78, "/v3/vault/**"),
		route(idem.Forever, 78, "/v1/checkout/orders", "/v1/checkout/orders/**"),
	)
}

// Square is connect.squareup.com: a member of the JSON body, at most 45 bytes. A
// declined payment burns the key. Square doesn't say how long it remembers keys.
func Square() idem.Dialect {
	return idem.Dialect{
		Name: "square", Placement: idem.PlaceJSON, Field: "idempotency_key", MaxKey: 45,
		Methods: post(),
		Paths: []string{
			"/v2/payments", "/v2/refunds", "/v2/orders", "/v2/customers", "/v2/cards",
			"/v2/invoices", "/v2/subscriptions", "/v2/gift-cards", "/v2/gift-cards/activities",
			"/v2/terminals/checkouts", "/v2/terminals/refunds", "/v2/catalog/object",
			"/v2/catalog/batch-upsert", "/v2/inventory/changes/batch-create",
			"/v2/online-checkout/payment-links",
		},
		Window:     day,
		Mismatch:   []idem.Match{{Path: "errors.0.code", Value: "IDEMPOTENCY_KEY_REUSED"}},
		Source:     "https://developer.squareup.com/docs/working-with-apis/idempotency",
		Checked:    checked,
		Unverified: []string{"Window", "Paths"},
	}
}

// Adyen is the Checkout and other APIs of Adyen. Its answers carry
// "transient-error: true" where the same key may be tried again; an error without
// it is final. Keys should be version 4, since whoever knows a key and has any
// credential of the company can read the answer.
func Adyen() idem.Dialect {
	return idem.Dialect{
		Name: "adyen", KeyForm: idem.KeyUUIDv4, MaxKey: 64, Methods: post(), Window: 7 * day,
		InFlight: []idem.Match{
			{Status: 422, Path: "errorCode", Value: "704"},
			{Status: 409, Path: "errorCode", Value: "704"},
		},
		ShouldRetry: "Transient-Error", SilentStop: true, Shape: idem.Match{Path: "errorCode"},
		Source:  "https://docs.adyen.com/development-resources/api-idempotency",
		Checked: checked,
	}
}

// GoCardless is api.gocardless.com. A repeat of a request that succeeded is a 409
// that names the resource, which is fetched. A conflict that names none proves
// nothing, and is waited for as one in flight.
func GoCardless() idem.Dialect {
	source := "https://gocardless.com/blog/idempotency-keys"
	creates := func(resource string) idem.Dialect {
		return idem.Dialect{
			Methods: post(), Paths: []string{"/" + resource}, Window: unknown,
			AlreadyDone: []idem.Match{{
				Status: 409, Path: "error.errors.0.links.conflicting_resource_id",
			}},
			Resource: idem.Resource{
				Path: "error.errors.0.links.conflicting_resource_id",
				URL:  "/" + resource + "/{id}",
			},
			Unverified: []string{"Window", "Paths"},
		}
	}
	return unkeyed("gocardless", source,
		creates("payments"), creates("mandates"), creates("customers"),
		creates("customer_bank_accounts"), creates("subscriptions"), creates("refunds"),
		creates("instalment_schedules"), creates("redirect_flows"),
		creates("billing_requests"), creates("billing_request_flows"),
	)
}

// Plaid is the transfer, wallet and payment consent endpoints of Plaid. Elsewhere
// it takes no key; /transfer/create goes by its authorization_id. Plaid asks for a
// minute between two tries of a wallet transaction: see RetryPolicy.BaseDelay.
func Plaid() idem.Dialect {
	route := func(window time.Duration, maxKey int, paths ...string) idem.Dialect {
		return idem.Dialect{
			Placement: idem.PlaceJSON, Field: "idempotency_key", MaxKey: maxKey,
			Methods: post(), Paths: paths, Window: window, Unverified: []string{"Paths"},
		}
	}
	others := route(unknown, 50, "/transfer/recurring/create", "/transfer/refund/create",
		"/transfer/ledger/deposit", "/transfer/ledger/withdraw", "/transfer/ledger/distribute")
	others.Unverified = []string{"Window", "Paths"}
	return unkeyed("plaid", "https://plaid.com/docs/bank-transfers/idempotency-and-retries/",
		route(2*day, 50, "/transfer/authorization/create"),
		route(2*day, 128, "/payment_initiation/consent/payment/execute"),
		route(7*day, 50, "/bank_transfer/create"),
		route(day, 128, "/wallet/transaction/execute"),
		others,
	)
}

// MercadoPago is api.mercadopago.com, where POST needs the key. 423 is its lock,
// 424 another failure that may be repeated. Its 409 can also be a conflict that
// has nothing to do with keys, and is left to the common table.
func MercadoPago() idem.Dialect {
	return idem.Dialect{
		Name: "mercadopago", Field: "X-Idempotency-Key", Methods: post(), Window: unknown,
		InFlight:   []idem.Match{{Status: 423}, {Status: 424}},
		Source:     "https://github.com/mercadopago/sdk-go",
		Checked:    checked,
		Unverified: []string{"Window", "Methods"},
	}
}

// Checkout is api.checkout.com. The endpoints that honour the key are listed by
// the provider. Failures are not stored. The sandbox may remember for 2 minutes.
func Checkout() idem.Dialect {
	return idem.Dialect{
		Name: "checkout", Field: "Cko-Idempotency-Key", KeyForm: idem.KeyUUIDv4, Methods: post(),
		Paths:  []string{"/payments", "/payments/*/captures", "/payments/*/refunds", "/payments/*/voids"},
		Window: day, InFlight: []idem.Match{{Status: 409}}, InFlightDelay: 30 * time.Second,
		Source:     "https://www.checkout.com/docs/payments/manage-payments/idempotency",
		Checked:    checked,
		Unverified: []string{"Paths"},
	}
}

// Wise is api.wise.com: a member of the body of a transfer, a header for balances.
func Wise() idem.Dialect {
	unverified := []string{"Window", "Paths"}
	return unkeyed("wise", "https://docs.wise.com/guides/product/send-money/standard-api-transfers",
		idem.Dialect{
			Placement: idem.PlaceJSON, Field: "customerTransactionId", KeyForm: idem.KeyUUIDv4,
			MinKey: 36, MaxKey: 36, Methods: post(), Paths: []string{"/v1/transfers"},
			Window: unknown, Unverified: unverified,
		},
		idem.Dialect{
			Field: "X-idempotence-uuid", KeyForm: idem.KeyUUIDv4, MinKey: 36, MaxKey: 36,
			Methods: post(), Paths: []string{"/v*/profiles/*/balances", "/v*/profiles/*/balance-movements"},
			Window: unknown, Unverified: unverified,
		},
	)
}

// Razorpay is RazorpayX payouts and Route transfers. A key stays bound until the
// payout is processed or failed.
func Razorpay() idem.Dialect {
	route := func(field, path string) idem.Dialect {
		return idem.Dialect{
			Field: field, MinKey: 4, MaxKey: 36, Methods: post(), Paths: []string{path},
			Window: unknown, InFlight: []idem.Match{{Status: 409}},
			Unverified: []string{"Window", "Paths"},
		}
	}
	return unkeyed("razorpay", "https://razorpay.com/docs/api/x/payout-idempotency/make-request",
		route("X-Payout-Idempotency", "/v1/payouts"),
		route("X-Transfer-Idempotency", "/v1/transfers"),
	)
}

// ModernTreasury is app.moderntreasury.com. Keys belong to the API key, so
// rotating it between two tries acts twice; another payload gets the first answer.
func ModernTreasury() idem.Dialect {
	return idem.Dialect{
		Name: "moderntreasury", Methods: post(), Window: day,
		InFlight: []idem.Match{{Status: 409}},
		Source:   "https://docs.moderntreasury.com/reference/idempotent-requests",
		Checked:  checked,
	}
}

// Increase is api.increase.com. A key belongs to an object for ever, and lists can
// be filtered by it, which makes Reconcile exact.
func Increase() idem.Dialect {
	return idem.Dialect{
		Name: "increase", MaxKey: 200, Methods: post(), Window: idem.Forever,
		Mismatch:    []idem.Match{{Status: 409, Path: "type", Value: "idempotency_key_already_used_error"}},
		ShouldRetry: "X-Should-Retry",
		Source:      "https://increase.com/documentation/idempotency-keys",
		Checked:     checked,
	}
}

// Brex is platform.brexapis.com.
func Brex() idem.Dialect {
	return idem.Dialect{
		Name: "brex", KeyForm: idem.KeyUUIDv4, Methods: post(), Window: unknown,
		Source:     "https://developer.brex.com/docs/idempotency",
		Checked:    checked,
		Unverified: []string{"Window", "Methods"},
	}
}

// Dwolla is api.dwolla.com. After an internal failure the key has been seen locked
// for its whole 24 hours, which the cap on in-flight answers ends. Its 409 can also be
// a duplicate that has nothing to do with keys, and is left to the common table.
func Dwolla() idem.Dialect {
	return idem.Dialect{
		Name: "dwolla", Methods: post(), Window: day,
		Source:  "https://developers.dwolla.com/docs/balance/api-reference/api-fundamentals/idempotency-key",
		Checked: checked,
	}
}

// Mollie is api.mollie.com.
func Mollie() idem.Dialect {
	return idem.Dialect{
		Name: "mollie", Methods: []string{"POST", "PATCH", "DELETE"}, Window: time.Hour,
		Source:     "https://docs.mollie.com/reference/api-idempotency",
		Checked:    checked,
		Unverified: []string{"Window"},
	}
}

// Klarna is Klarna's order management API. Klarna advises UUIDs of version 5, as
// idem.DeriveKey makes them.
func Klarna() idem.Dialect {
	return idem.Dialect{
		Name: "klarna", Field: "Klarna-Idempotency-Key", Paths: []string{"/ordermanagement/**"},
		Window:     day,
		Source:     "https://docs.klarna.com/api/escalation-and-retry-policy/",
		Checked:    checked,
		Unverified: []string{"KeyForm", "Paths"},
	}
}

// Xero is api.xero.com. Its window isn't documented where we looked, and may be
// minutes.
func Xero() idem.Dialect {
	return idem.Dialect{
		Name: "xero", MaxKey: 128, Methods: []string{"POST", "PUT"}, Window: 5 * time.Minute,
		Source:     "https://github.com/XeroAPI/Xero-OpenAPI/blob/master/xero_accounting.yaml",
		Checked:    checked,
		Unverified: []string{"Window", "Methods"},
	}
}

// Fineract is Apache Fineract with its default header. It stores failures as well
// as successes, doesn't compare payloads, and marks even the 425 of a request that
// still runs as replayed.
func Fineract() idem.Dialect {
	return idem.Dialect{
		Name: "fineract", MaxKey: 50, Methods: post(), Window: idem.Forever,
		InFlight:   []idem.Match{{Status: 425}, {Status: 409}},
		Replay:     idem.Match{Header: "X-Served-From-Cache", Value: "true"},
		Source:     "https://github.com/apache/fineract",
		Checked:    checked,
		Unverified: []string{"Methods"},
	}
}

// Formance is the Formance ledger. It waits for a request that still runs. Another
// payload is refused as any bad request is, 400 VALIDATION.
func Formance() idem.Dialect {
	return idem.Dialect{
		Name: "formance", MaxKey: 255, Methods: post(), Window: idem.Forever,
		Replay:     idem.Match{Header: "Idempotency-Hit", Value: "true"},
		Source:     "https://github.com/formancehq/ledger",
		Checked:    checked,
		Unverified: []string{"Methods"},
	}
}
