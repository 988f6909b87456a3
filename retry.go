package idem

import (
	"time"

	"github.com/idem-go/idem/internal/limit"
)

// RetryPolicy says how often and how patiently a call is tried again. It bounds
// one call, or one pass of Resume or Run, never an intent's life: what is left
// Unknown stays in the journal and is found out later. The zero value is the
// default policy.
type RetryPolicy struct {
	// MaxAttempts is how many attempts a call makes at most, the first
	// included; default 6. 1 means no retry.
	MaxAttempts int

	// AttemptTimeout is how long one attempt may take, from the dial to the
	// last byte of the answer; default 30 s. An attempt that takes longer is
	// Unknown and retried. It is no deadline of the call: that is its context's.
	AttemptTimeout time.Duration

	// MaxElapsed is how long a call may take with all attempts and the waits
	// between them; default 2 min. No wait begins that would end after it.
	MaxElapsed time.Duration

	// BaseDelay is the wait before the first retry; each further one is twice
	// as long, and all are spread at random from half to one and a half of
	// that. Default 500 ms, or MaxDelay if that is given and shorter.
	BaseDelay time.Duration

	// MaxDelay caps such a wait, spread included; default 30 s, or BaseDelay if
	// that is longer. A wait that the provider asked for has a cap of its own.
	MaxDelay time.Duration

	// MaxRetryAfter is the longest wait that a provider may ask for, by
	// Retry-After or its relatives; default 60 s. If it asks for more, the call
	// stops at once and its [Error.RetryAt] says until when.
	MaxRetryAfter time.Duration

	// NoBudget lifts the budget of retries that each origin has: 1,000, refilled
	// by 20 a second and by 1 for each success. A retry beyond it is [ErrBudget].
	NoBudget bool
}

// validate refuses what can't be meant.
func (p RetryPolicy) validate() error {
	if p.MaxAttempts < 0 {
		return &InvalidError{Field: "Options.Retry.MaxAttempts", Value: p.MaxAttempts, Why: "must not be negative"}
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"AttemptTimeout", p.AttemptTimeout},
		{"MaxElapsed", p.MaxElapsed},
		{"BaseDelay", p.BaseDelay},
		{"MaxDelay", p.MaxDelay},
		{"MaxRetryAfter", p.MaxRetryAfter},
	} {
		if d.value < 0 {
			return &InvalidError{Field: "Options.Retry." + d.field, Value: d.value, Why: "must not be negative"}
		}
	}
	if p.MaxDelay != 0 && p.BaseDelay > p.MaxDelay {
		return &InvalidError{Field: "Options.Retry.BaseDelay", Value: p.BaseDelay, Why: "must not exceed MaxDelay, " + p.MaxDelay.String()}
	}
	return nil
}

func (p RetryPolicy) maxAttempts() int { return orDefault(p.MaxAttempts, 6) }

func (p RetryPolicy) attemptTimeout() time.Duration {
	return orDefault(p.AttemptTimeout, 30*time.Second)
}

func (p RetryPolicy) maxElapsed() time.Duration { return orDefault(p.MaxElapsed, 2*time.Minute) }

func (p RetryPolicy) maxRetryAfter() time.Duration { return orDefault(p.MaxRetryAfter, 60*time.Second) }

// baseDelay's default gives way to a shorter MaxDelay.
func (p RetryPolicy) baseDelay() time.Duration {
	byDefault := 500 * time.Millisecond
	return orDefault(p.BaseDelay, min(byDefault, orDefault(p.MaxDelay, byDefault)))
}

// maxDelay's default gives way to a longer BaseDelay.
func (p RetryPolicy) maxDelay() time.Duration {
	return orDefault(p.MaxDelay, max(30*time.Second, p.BaseDelay))
}

// delays returns the delays of an intent that wasn't retried yet.
func (p RetryPolicy) delays() *limit.Delays { return limit.NewDelays(p.baseDelay(), p.maxDelay()) }
