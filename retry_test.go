package idem

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	ms     = time.Millisecond
	second = time.Second
)

// Ensure that the stated defaults are the real ones.
func TestRetryPolicy_defaults(t *testing.T) {
	var p RetryPolicy
	require.NoError(t, p.validate())
	require.Equal(t, 6, p.maxAttempts())
	require.Equal(t, 30*second, p.attemptTimeout())
	require.Equal(t, 2*time.Minute, p.maxElapsed())
	require.Equal(t, 500*ms, p.baseDelay())
	require.Equal(t, 30*second, p.maxDelay())
	require.Equal(t, 60*second, p.maxRetryAfter())

	given := RetryPolicy{MaxAttempts: 1, AttemptTimeout: 2, MaxElapsed: 3, BaseDelay: 4, MaxDelay: 5, MaxRetryAfter: 6}
	require.NoError(t, given.validate())
	require.Equal(t, given, RetryPolicy{
		MaxAttempts: given.maxAttempts(), AttemptTimeout: given.attemptTimeout(), MaxElapsed: given.maxElapsed(),
		BaseDelay: given.baseDelay(), MaxDelay: given.maxDelay(), MaxRetryAfter: given.maxRetryAfter(),
	})
}

// Ensure that the default of one delay gives way to the other that was given.
func TestRetryPolicy_oneDelayGiven(t *testing.T) {
	for _, tt := range []struct{ base, max, wantBase, wantMax time.Duration }{
		{2 * second, 0, 2 * second, 30 * second},
		{time.Minute, 0, time.Minute, time.Minute},
		{0, 10 * ms, 10 * ms, 10 * ms},
		{0, time.Hour, 500 * ms, time.Hour},
		{time.Minute, time.Minute, time.Minute, time.Minute},
		{0, 1, 1, 1},
		{math.MaxInt64, 0, math.MaxInt64, math.MaxInt64},
	} {
		p := RetryPolicy{BaseDelay: tt.base, MaxDelay: tt.max}
		require.NoError(t, p.validate())
		require.Equal(t, tt.wantBase, p.baseDelay(), "%+v", tt)
		require.Equal(t, tt.wantMax, p.maxDelay(), "%+v", tt)
	}
}

// Ensure that nonsense is named.
func TestRetryPolicy_validate(t *testing.T) {
	for _, tt := range []struct {
		field  string
		policy RetryPolicy
	}{
		{"MaxAttempts", RetryPolicy{MaxAttempts: -1}},
		{"AttemptTimeout", RetryPolicy{AttemptTimeout: -1}},
		{"MaxElapsed", RetryPolicy{MaxElapsed: -second}},
		{"BaseDelay", RetryPolicy{BaseDelay: -1}},
		{"MaxDelay", RetryPolicy{MaxDelay: math.MinInt64}},
		{"MaxRetryAfter", RetryPolicy{MaxRetryAfter: -1}},
		{"BaseDelay", RetryPolicy{BaseDelay: 2 * second, MaxDelay: second}},
	} {
		var invalid *InvalidError
		require.ErrorAs(t, tt.policy.validate(), &invalid, tt.field)
		require.Equal(t, "Options.Retry."+tt.field, invalid.Field)
		require.ErrorIs(t, invalid, ErrInvalid)
	}
}

// Ensure that delays double, spread by half, and never leave 0 to MaxDelay.
func TestDelays_next(t *testing.T) {
	day := 24 * time.Hour
	for _, tt := range []struct {
		name   string
		policy RetryPolicy
		nth    int // counted from 1
		lo, hi time.Duration
	}{
		{"first", RetryPolicy{}, 1, 250 * ms, 750 * ms},
		{"second", RetryPolicy{}, 2, 500 * ms, 1500 * ms},
		{"fifth", RetryPolicy{}, 5, 4 * second, 12 * second},
		{"capped after jitter", RetryPolicy{}, 7, 15 * second, 30 * second},
		{"for ever", RetryPolicy{}, 5000, 15 * second, 30 * second},
		{"first is capped, too", RetryPolicy{BaseDelay: second, MaxDelay: second}, 1, 500 * ms, second},
		{"shortest", RetryPolicy{BaseDelay: 1, MaxDelay: 1}, 1, 0, 1},
		{"longest", RetryPolicy{BaseDelay: math.MaxInt64}, 1, 10000 * day, math.MaxInt64},
		{"long, often", RetryPolicy{BaseDelay: 1, MaxDelay: math.MaxInt64}, 200, 10000 * day, math.MaxInt64},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for range 50 {
				d := newDelays(tt.policy)
				for range tt.nth - 1 {
					d.next()
				}
				got := d.next()
				require.GreaterOrEqual(t, got, tt.lo)
				require.LessOrEqual(t, got-1, tt.hi) // backoff's range includes its end
				require.LessOrEqual(t, got, tt.policy.maxDelay())
			}
		})
	}
}

// Ensure that two intents don't wait alike.
func TestDelays_spread(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 20 {
		seen[newDelays(RetryPolicy{}).next()] = true
	}
	require.Greater(t, len(seen), 1)
}

// Ensure that a hint only ever lengthens a wait, and stops the call beyond its
// cap.
func TestRetryPolicy_wait(t *testing.T) {
	for _, tt := range []struct {
		name          string
		backoff, hint time.Duration
		hinted        bool
		want          time.Duration
		tooLong       bool
	}{
		{"no hint", 2 * second, 0, false, 2 * second, false},
		{"a value that isn't a hint", 2 * second, time.Hour, false, 2 * second, false},
		{"longer hint", 2 * second, 5 * second, true, 5 * second, false},
		{"shorter hint", 2 * second, second, true, 2 * second, false},
		{"hint of zero", 2 * second, 0, true, 2 * second, false},
		{"hint in the past", 2 * second, -time.Hour, true, 2 * second, false},
		{"at the cap", 2 * second, 60 * second, true, 60 * second, false},
		{"beyond it", 2 * second, 60*second + 1, true, 60*second + 1, true},
		{"far beyond it", 2 * second, math.MaxInt64, true, math.MaxInt64, true},
		{"backoff beyond the cap isn't the provider's", time.Hour, second, true, time.Hour, false},
		{"backoff longer than a hint that is too long", time.Hour, 2 * time.Minute, true, time.Hour, true},
		{"negative backoff", -second, 0, false, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, tooLong := RetryPolicy{}.wait(tt.backoff, tt.hint, tt.hinted)
			require.Equal(t, tt.want, got)
			require.Equal(t, tt.tooLong, tooLong)
		})
	}
	_, tooLong := RetryPolicy{MaxRetryAfter: time.Hour}.wait(0, time.Hour, true)
	require.False(t, tooLong)
}
