package mockserver

import (
	"net/http"
	"time"
)

// StripeV2 is "stripe-v2": POST and DELETE, 30 days; failed work is done again.
func StripeV2() Profile {
	p := StripeV1()
	p.Name, p.Methods, p.Window = "stripe-v2", []string{http.MethodPost, http.MethodDelete}, 30*24*time.Hour
	p.Keep4xx, p.Keep5xx = KeepNothing, KeepNothing
	return p
}

// Adyen is "adyen": in flight is 422 with errorCode 704, and only the header
// transient-error: true makes a repeat worth while. The key comes back in the
// answer.
func Adyen() Profile {
	return Profile{
		Name: "adyen", Field: "Idempotency-Key", EchoKey: "Idempotency-Key", Methods: post(), MaxKey: 64,
		Compare:     CompareNothing,
		InFlight:    jsonReply(422, `{"status":422,"errorCode":"704"}`),
		ShouldRetry: "Transient-Error",
		Window:      7 * 24 * time.Hour,
	}
}

// GoCardless is "gocardless": the repeat of a request that succeeded is 409 and
// names the resource, whatever the payload; failures leave the key free.
func GoCardless() Profile {
	return Profile{
		Name: "gocardless", Methods: post(), Compare: CompareNothing,
		Done: jsonReply(409, `{"error":{"type":"invalid_state","code":409,"errors":[{"reason":"idempotent_creation_conflict","links":{"conflicting_resource_id":"{id}"}}]}}`),
		InFlight: jsonReply(409,
			`{"error":{"type":"invalid_state","code":409,"errors":[{"reason":"idempotent_creation_conflict","links":{}}]}}`),
		Keep4xx: KeepNothing,
	}
}

// Checkout is "checkout": failures are not kept, 409 in flight, and the repeat
// of a request that succeeded is 202.
func Checkout() Profile {
	return Profile{
		Name: "checkout", Field: "Cko-Idempotency-Key", Methods: post(), Compare: CompareNothing,
		InFlight: Reply{Status: 409}, Done: Reply{Status: 202}, Keep4xx: KeepNothing,
	}
}

// ModernTreasury is "modern-treasury": a mismatch goes unnoticed, on any route;
// after another Authorization nothing is known of the key.
func ModernTreasury() Profile {
	return Profile{
		Name: "modern-treasury", Methods: post(), Compare: CompareNothing, ScopeHeader: "Authorization",
		InFlight: Reply{Status: 409}, Keep4xx: KeepNothing,
	}
}

// DwollaIncident is "dwolla-incident": a 500 leaves the key locked, 409 for 24
// h, whether it took effect (FaultFail with After) or not. The key goes with
// the exact body: another body executes.
func DwollaIncident() Profile {
	return Profile{
		Name: "dwolla-incident", Methods: post(), Compare: CompareBody,
		InFlight: Reply{Status: 409}, Keep5xx: KeepLock,
	}
}

// Fineract is "fineract": 425 in flight, with the body of the request and the
// marker of a replay; every answer is kept for ever, mismatches go unnoticed.
func Fineract() Profile {
	return Profile{
		Name: "fineract", MaxKey: 50, ScopeRoute: true, Compare: CompareNothing,
		InFlight: Reply{Status: 425, Body: "{body}",
			Header: http.Header{"Content-Type": {"application/json"}, "X-Served-From-Cache": {"true"}}},
		ReplayHeader: "X-Served-From-Cache", ReplayValue: "true", Keep5xx: KeepAnswer, Window: Forever,
	}
}

// Svix is "svix": a repeat waits for the first, and after 5 s is executed beside
// it; only 2xx is kept, for 12 h, a route and an Authorization.
func Svix() Profile {
	return Profile{
		Name: "svix", Methods: post(), Compare: CompareNothing, ScopeRoute: true, ScopeHeader: "Authorization",
		LockFor: 5 * time.Second, Window: 12 * time.Hour, Keep4xx: KeepNothing,
	}
}

// AzureRepeatable is "azure-repeatable": OASIS repeatable requests within 5
// minutes of Repeatability-First-Sent; past them 412, and nothing executes.
func AzureRepeatable() Profile {
	rejected := func(status int) Reply {
		return Reply{Status: status, Header: http.Header{"Repeatability-Result": {"rejected"}}}
	}
	return Profile{
		Name: "azure-repeatable", Field: "Repeatability-Request-ID", FirstSent: "Repeatability-First-Sent",
		Window: 5 * time.Minute, Late: rejected(412), Mismatch: rejected(400), InFlight: Reply{Status: 409},
		Header: http.Header{"Repeatability-Result": {"accepted"}},
	}
}

// Shopify is "shopify": all answers are 200, the errors are in the body. The
// directive's key is expected in the GraphQL variable idempotencyKey.
func Shopify() Profile {
	userError := func(code string) Reply {
		return jsonReply(200, `{"data":{"mutation":{"userErrors":[{"code":"`+code+`"}]}}}`)
	}
	return Profile{
		Name: "shopify", Methods: post(), Place: PlaceJSON, Field: "variables.idempotencyKey",
		Missing:  jsonReply(200, `{"errors":[{"message":"The @idempotent directive is required for this mutation but was not provided."}]}`),
		Mismatch: userError("IDEMPOTENCY_KEY_PARAMETER_MISMATCH"),
		InFlight: userError("IDEMPOTENCY_CONCURRENT_REQUEST"),
	}
}

// Square is "square": the key stands in the JSON body, in at most 45 bytes. No
// source gives the status of a mismatch, here 400, nor the window, here Forever.
func Square() Profile {
	return Profile{
		Name: "square", Methods: post(), Place: PlaceJSON, Field: "idempotency_key", MaxKey: 45, Window: Forever,
		Mismatch: jsonReply(400, `{"errors":[{"category":"INVALID_REQUEST_ERROR","code":"IDEMPOTENCY_KEY_REUSED"}]}`),
	}
}

// Increase is "increase": 409 is a mismatch, and names what holds the key, for
// ever.
func Increase() Profile {
	return Profile{
		Name: "increase", Methods: post(), MaxKey: 200, Window: Forever, Keep4xx: KeepNothing,
		Mismatch:     jsonReply(409, `{"status":409,"type":"idempotency_key_already_used_error","resource_id":"{id}"}`),
		ReplayHeader: "Idempotent-Replayed", ReplayValue: "true",
	}
}

// Resend is "resend": 409 is a mismatch or a key in flight; the body says which.
func Resend() Profile {
	return Profile{
		Name: "resend", Methods: post(), MaxKey: 256,
		BadKey:   jsonReply(400, `{"statusCode":400,"name":"invalid_idempotency_key"}`),
		Mismatch: jsonReply(409, `{"statusCode":409,"name":"invalid_idempotent_request"}`),
		InFlight: jsonReply(409, `{"statusCode":409,"name":"concurrent_idempotent_requests"}`),
	}
}

// Formance is "formance": a repeat waits for the first; 400 for a mismatch;
// failures are rolled back with their key.
func Formance() Profile {
	return Profile{
		Name: "formance", Methods: post(), Window: Forever, Keep4xx: KeepNothing,
		Mismatch:     jsonReply(400, `{"errorCode":"VALIDATION"}`),
		ReplayHeader: "Idempotency-Hit", ReplayValue: "true",
	}
}

// Checkbook is "checkbook": with other parameters the key is ignored.
func Checkbook() Profile {
	return Profile{Name: "checkbook", Methods: post(), InFlight: Reply{Status: 409}}
}

// Bridge is "bridge": after 24 h the key answers 422.
func Bridge() Profile {
	return Profile{
		Name: "bridge", Methods: post(), Mismatch: Reply{Status: 422}, InFlight: Reply{Status: 409},
		Late: Reply{Status: 422},
	}
}

// Mastercard is "mastercard": a version 4 UUID, remembered for 30 s.
func Mastercard() Profile {
	p := Standard()
	p.Name, p.Window = "mastercard", 30*time.Second
	p.KeyPattern = "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-4[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}"
	return p
}

func post() []string { return []string{http.MethodPost} }
