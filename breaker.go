package idem

import (
	"net/http"
	"time"
)

// BreakerPolicy says when the circuit breaker of an origin opens. It is
// sony/gobreaker in its two-step form with a rolling window. The zero value is
// the default policy.
type BreakerPolicy struct {
	Disabled    bool                       // no breaker at all
	Window      time.Duration              // the rolling window that is counted; default 60 s
	MinRequests uint32                     // attempts in the window before it may open; default 20
	FailureRate float64                    // share of failed attempts, 0 to 1, at which it opens; default 0.5
	OpenFor     time.Duration              // how long it stays open before it lets probes through; default 30 s
	Probes      uint32                     // successful probes that close it, and how many may run at once; default 1
	Group       func(*http.Request) string // requests of one group share a breaker; nil: scheme and host
}
