package limit

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

// Ensure that delays double, spread by half, and never leave 0 to MaxDelay.
func TestDelays_next(t *testing.T) {
	day := 24 * time.Hour
	for _, tt := range []struct {
		name          string
		base, longest time.Duration
		nth           int // counted from 1
		lo, hi        time.Duration
	}{
		{"first", 500 * ms, 30 * second, 1, 250 * ms, 750 * ms},
		{"second", 500 * ms, 30 * second, 2, 500 * ms, 1500 * ms},
		{"fifth", 500 * ms, 30 * second, 5, 4 * second, 12 * second},
		{"capped after jitter", 500 * ms, 30 * second, 7, 15 * second, 30 * second},
		{"for ever", 500 * ms, 30 * second, 5000, 15 * second, 30 * second},
		{"first is capped, too", second, second, 1, 500 * ms, second},
		{"shortest", 1, 1, 1, 0, 1},
		{"longest", math.MaxInt64, math.MaxInt64, 1, 10000 * day, math.MaxInt64},
		{"long, often", 1, math.MaxInt64, 200, 10000 * day, math.MaxInt64},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for range 50 {
				d := NewDelays(tt.base, tt.longest)
				for range tt.nth - 1 {
					d.Next()
				}
				got := d.Next()
				require.GreaterOrEqual(t, got, tt.lo)
				require.LessOrEqual(t, got-1, tt.hi) // backoff's range includes its end
				require.LessOrEqual(t, got, tt.longest)
			}
		})
	}
}

// Ensure that two intents don't wait alike.
func TestDelays_spread(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 20 {
		seen[NewDelays(500*ms, 30*second).Next()] = true
	}
	require.Greater(t, len(seen), 1)
}

// Ensure that a hint only ever lengthens a wait, and stops the call beyond its
// cap.
func TestWait(t *testing.T) {
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
			got, tooLong := Wait(tt.backoff, tt.hint, tt.hinted, 60*second)
			require.Equal(t, tt.want, got)
			require.Equal(t, tt.tooLong, tooLong)
		})
	}
	_, tooLong := Wait(0, time.Hour, true, time.Hour)
	require.False(t, tooLong)
}
