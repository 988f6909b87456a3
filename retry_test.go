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

// Ensure that the delays of an intent are those of its policy.
func TestRetryPolicy_delays(t *testing.T) {
	for range 50 {
		require.LessOrEqual(t, RetryPolicy{}.delays().Next(), 750*ms+1)
	}
}
