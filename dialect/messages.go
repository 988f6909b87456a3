package dialect

import (
	"time"

	"github.com/idem-go/idem"
)

// Svix is api.svix.com. It holds a lock for 5 seconds only: a repeat while a
// slower first request still runs is executed too, so give RetryPolicy an
// AttemptTimeout well above that. Another payload gets the first answer.
func Svix() idem.Dialect {
	return idem.Dialect{
		Name: "svix", Methods: post(), Window: 12 * time.Hour,
		Source:  "https://github.com/svix/svix-webhooks",
		Checked: checked,
	}
}

// Resend is api.resend.com: single mails and whole batches.
func Resend() idem.Dialect {
	return idem.Dialect{
		Name: "resend", MaxKey: 256, Methods: post(), Paths: []string{"/emails", "/emails/batch"},
		Window:   day,
		InFlight: []idem.Match{{Status: 409, Path: "name", Value: "concurrent_idempotent_requests"}},
		Mismatch: []idem.Match{{Status: 409, Path: "name", Value: "invalid_idempotent_request"}},
		NotDone:  []idem.Match{{Status: 400, Path: "name", Value: "invalid_idempotency_key"}},
		Source:   "https://resend.com/docs/dashboard/emails/idempotency-keys",
		Checked:  checked,
	}
}

// Courier is api.courier.com. Its pages give 24 and 25 hours; a request with the
// header x-idempotency-expiration may choose up to a year, for which Window is
// yours to raise.
func Courier() idem.Dialect {
	return idem.Dialect{
		Name: "courier", Methods: post(), Window: day,
		Source:  "https://courier.com/docs/reference/idempotent-requests",
		Checked: checked,
	}
}
