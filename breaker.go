package idem

import (
	"context"
	"net/http"
	"time"

	"github.com/idem-go/idem/internal/limit"
	"github.com/idem-go/idem/internal/wire"
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

// validate refuses what can't be meant.
func (p BreakerPolicy) validate() error {
	switch {
	case p.Window < 0:
		return &InvalidError{Field: "Options.Breaker.Window", Value: p.Window, Why: "must not be negative"}
	case !(p.FailureRate >= 0 && p.FailureRate <= 1): // NaN too
		return &InvalidError{Field: "Options.Breaker.FailureRate", Value: p.FailureRate, Why: "must be from 0 to 1"}
	case p.OpenFor < 0:
		return &InvalidError{Field: "Options.Breaker.OpenFor", Value: p.OpenFor, Why: "must not be negative"}
	}
	return nil
}

// circuits returns the closed circuits of a client under a valid policy, defaults filled,
// or nil if there are to be none. changed is nil if nobody wants to hear of them.
func (p BreakerPolicy) circuits(changed func(ctx context.Context, group, from, to string)) *limit.Circuits {
	if p.Disabled {
		return nil
	}
	return limit.NewCircuits(p.trip(), changed)
}

func (p BreakerPolicy) trip() limit.Trip {
	return limit.Trip{
		Window:      orDefault(p.Window, 60*time.Second),
		MinRequests: orDefault(p.MinRequests, 20),
		FailureRate: orDefault(p.FailureRate, 0.5),
		OpenFor:     orDefault(p.OpenFor, 30*time.Second),
		Probes:      orDefault(p.Probes, 1),
	}
}

// group names the breaker of a request.
func (p BreakerPolicy) group(req *http.Request) string {
	if p.Group != nil {
		return p.Group(req)
	}
	return wire.Origin(req.URL)
}

// orDefault returns v, or its default if v is zero.
func orDefault[T comparable](v, byDefault T) T {
	var zero T
	if v == zero {
		return byDefault
	}
	return v
}
