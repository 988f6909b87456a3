package mockserver

import "net/http"

// Profiles are the ready profiles, Standard first. They behave as the providers'
// documents and code say, in what a client can see; where those say nothing, a
// profile does what is worst for a client: it compares nothing, and is silent.
func Profiles() []Profile {
	return []Profile{
		Standard(), IETF(), StripeV1(), StripeV2(), Adyen(), AzureRepeatable(), Bridge(), Checkbook(),
		Checkout(), DwollaIncident(), Fineract(), Formance(), GoCardless(), Increase(), Mastercard(),
		ModernTreasury(), Resend(), Shopify(), Square(), Svix(), Mute(),
	}
}

// ProfileByName finds a ready profile by its Name; false if there is none.
func ProfileByName(name string) (Profile, bool) {
	for _, p := range Profiles() {
		if p.Name == name {
			return p, true
		}
	}
	return Profile{}, false
}

// Standard is the default, "standard": an optional raw Idempotency-Key on POST
// and PATCH, remembered for 24 h; 409 in flight, 422 for another payload; 2xx
// and 4xx are replayed, marked with Idempotent-Replayed: true, and a 5xx leaves
// the key free.
func Standard() Profile {
	return Profile{
		Name:         "standard",
		InFlight:     jsonReply(http.StatusConflict, `{"error":"idempotency_key_in_use"}`),
		Mismatch:     jsonReply(http.StatusUnprocessableEntity, `{"error":"idempotency_key_reused"}`),
		BadKey:       jsonReply(http.StatusBadRequest, `{"error":"idempotency_key_invalid"}`),
		ReplayHeader: "Idempotent-Replayed",
		ReplayValue:  "true",
	}
}

// IETF is "ietf", the Idempotency-Key draft to the letter: a quoted key is
// required; 400 without, 409 in flight, 422 for another payload, each as
// application/problem+json. Every answer is replayed, 5xx too, without a marker.
func IETF() Profile {
	return Profile{
		Name:     "ietf",
		Quoted:   true,
		Missing:  problem(http.StatusBadRequest, "Idempotency-Key is missing"),
		BadKey:   problem(http.StatusBadRequest, "Idempotency-Key is not a String"),
		InFlight: problem(http.StatusConflict, "A request is outstanding for this Idempotency-Key"),
		Mismatch: problem(http.StatusUnprocessableEntity, "Idempotency-Key is already used"),
		Keep5xx:  KeepAnswer,
	}
}

// StripeV1 is "stripe-v1": an optional key of up to 255 bytes, on POST alone.
// All that the handler answers is kept for 24 h, a 500 too, and replayed with
// Idempotent-Replayed: true; errors say Stripe-Should-Retry. Limits and missing
// credentials act before the key is looked at: FaultRateLimit, and FaultStatus
// with 401.
func StripeV1() Profile {
	return Profile{
		Name:    "stripe-v1",
		Methods: []string{http.MethodPost},
		MaxKey:  255,
		BadKey: jsonReply(http.StatusBadRequest,
			`{"error":{"type":"invalid_request_error","message":"Invalid idempotency key."}}`),
		Mismatch: jsonReply(http.StatusBadRequest,
			`{"error":{"type":"idempotency_error","message":"Keys for idempotent requests can only be used with the same parameters they were first used with."}}`),
		InFlight: jsonReply(http.StatusConflict,
			`{"error":{"type":"invalid_request_error","code":"idempotency_key_in_use","message":"There is currently another in-progress request using this key."}}`),
		RateLimit: jsonReply(http.StatusTooManyRequests,
			`{"error":{"type":"invalid_request_error","code":"rate_limit"}}`),
		Keep5xx:      KeepAnswer,
		ReplayHeader: "Idempotent-Replayed",
		ReplayValue:  "true",
		ShouldRetry:  "Stripe-Should-Retry",
	}
}

// Mute is "mute": it accepts keys and ignores them.
func Mute() Profile { return Profile{Name: "mute", Mute: true} }

func jsonReply(status int, body string) Reply {
	return Reply{Status: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: body}
}

func problem(status int, title string) Reply {
	return Reply{Status: status, Header: http.Header{"Content-Type": {"application/problem+json"}},
		Body: `{"type":"about:blank","title":"` + title + `"}`}
}
