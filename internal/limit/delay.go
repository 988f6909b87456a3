package limit

import (
	"math"
	"time"

	"github.com/cenkalti/backoff/v4"
)

const (
	backoffMultiplier = 2
	backoffSpread     = 0.5

	// longestBackoff leaves room to multiply: beyond it the jitter of backoff,
	// computed as a float, would overflow a Duration and might come back
	// negative or zero, which is no wait at all.
	longestBackoff = math.MaxInt64 / 2
)

// Delays is the backoff of one intent. It counts inside, so no two intents
// share one, and it isn't safe for concurrent use.
type Delays struct {
	policy *backoff.ExponentialBackOff
	limit  time.Duration
}

// NewDelays returns the delays of an intent that wasn't retried yet: base is about the
// first, longest the cap of each.
func NewDelays(base, longest time.Duration) *Delays {
	return &Delays{
		policy: backoff.NewExponentialBackOff(
			backoff.WithInitialInterval(min(base, longestBackoff)),
			backoff.WithMaxInterval(min(longest, longestBackoff)),
			backoff.WithMultiplier(backoffMultiplier),
			backoff.WithRandomizationFactor(backoffSpread),
			backoff.WithMaxElapsedTime(0), // never stops: the loop that waits has its own end
		),
		limit: longest,
	}
}

// Next returns the delay before the next retry, from 0 to the longest. The cap
// stands here because backoff caps before it spreads.
func (d *Delays) Next() time.Duration {
	return min(max(d.policy.NextBackOff(), 0), d.limit)
}

// Wait returns how long to wait before the next attempt: as long as the backoff
// says, or longer if the provider hinted so. A hint in the past or of zero thus
// means the backoff, for a provider that says "now" may say it to everybody.
// tooLong means that the hint exceeds longest: nobody should sleep for d then, but it
// tells when to come again.
func Wait(backoff, hint time.Duration, hinted bool, longest time.Duration) (d time.Duration, tooLong bool) {
	d = max(backoff, 0)
	if !hinted {
		return d, false
	}
	return max(d, hint), hint > longest
}
