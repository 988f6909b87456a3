package limit

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// small opens after two failures in four and needs one probe.
var small = Trip{Window: time.Minute, MinRequests: 4, FailureRate: 0.5, OpenFor: 10 * time.Second, Probes: 1}

// sized is small but for how many attempts it needs, and at which rate it opens.
func sized(requests uint32, rate float64) Trip {
	t := small
	t.MinRequests, t.FailureRate = requests, rate
	return t
}

// report makes one allowed attempt for each health.
func report(t *testing.T, b *Circuits, group string, all ...Health) {
	t.Helper()
	for _, h := range all {
		done, _, ok := b.Allow(context.Background(), group, time.Now())
		require.True(t, ok)
		done(h)
	}
}

// refused makes an attempt that must not be allowed, and returns how long to wait.
func refused(t *testing.T, b *Circuits, group string) time.Duration {
	t.Helper()
	now := time.Now()
	done, retryAt, ok := b.Allow(context.Background(), group, now)
	require.False(t, ok)
	done(Healthy) // does nothing, so a caller may defer it at once
	return retryAt.Sub(now)
}

// opened returns breakers whose group "a" is open.
func opened(t *testing.T, p Trip) *Circuits {
	t.Helper()
	b := NewCircuits(p, nil)
	report(t, b, "a", Failed, Failed, Failed, Failed)
	require.Positive(t, refused(t, b, "a"))
	return b
}

// probing returns breakers whose group "a" has just become ready for probes.
func probing(t *testing.T, p Trip) *Circuits {
	t.Helper()
	b := opened(t, p)
	time.Sleep(refused(t, b, "a"))
	return b
}

// Ensure that the breaker opens at the rate, not below it, and not before
// enough attempts ended.
func TestCircuits_opensAtRate(t *testing.T) {
	for _, tt := range []struct {
		name   string
		policy Trip
		given  []Health
		open   bool
	}{
		{"at the rate", small, []Health{Healthy, Healthy, Failed, Failed}, true},
		{"below it", small, []Health{Healthy, Healthy, Healthy, Failed}, false},
		{"too few", small, []Health{Failed, Failed, Failed}, false},
		{"neutral is not counted as an attempt", small, []Health{Failed, Failed, Neutral, Neutral, Failed}, false},
		{"neutral doesn't hide failures", small, []Health{Neutral, Neutral, Neutral, Neutral, Failed, Failed, Failed, Failed}, true},
		{"a success doesn't open", small, []Health{Failed, Failed, Failed, Healthy}, false},
		{"a tiny rate opens at the first failure", sized(1, 1e-300), []Health{Healthy, Failed}, true},
		{"all must fail at 1", sized(1, 1), []Health{Healthy, Failed, Failed}, false},
		{"longest window there is", Trip{math.MaxInt64, 1, 0.5, math.MaxInt64, 1}, []Health{Failed}, true},
		{"shortest window there is", Trip{1, 1, 0.5, 1, 1}, []Health{Failed}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := NewCircuits(tt.policy, nil)
				report(t, b, "a", tt.given...)
				_, _, ok := b.Allow(context.Background(), "a", time.Now())
				if tt.open {
					require.False(t, ok)
				} else {
					require.True(t, ok)
				}
				_, _, ok = b.Allow(context.Background(), "b", time.Now())
				require.True(t, ok, "another group")
			})
		})
	}
}

// Ensure that what happened before the window doesn't count.
func TestCircuits_window(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		usual := Trip{Window: time.Minute, MinRequests: 20, FailureRate: 0.5, OpenFor: 30 * time.Second, Probes: 1}
		b := NewCircuits(usual, nil)
		for range 10 {
			report(t, b, "a", Healthy, Failed)
		}
		require.Equal(t, 30*time.Second+1, refused(t, b, "a"))

		b = NewCircuits(usual, nil)
		for range 9 {
			report(t, b, "a", Healthy, Failed)
		}
		time.Sleep(61 * time.Second) // the window has moved on
		report(t, b, "a", Healthy, Failed)
		report(t, b, "a", Healthy)
	})
}

// Ensure that attempts under way don't count, and that one that ends after its
// window is over neither counts nor divides by zero.
func TestCircuits_underWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewCircuits(small, nil)
		late, _, ok := b.Allow(context.Background(), "a", time.Now())
		require.True(t, ok)
		for range 20 {
			_, _, ok := b.Allow(context.Background(), "a", time.Now())
			require.True(t, ok)
		}
		report(t, b, "a", Failed, Failed, Failed)
		time.Sleep(2 * time.Minute)
		late(Failed)
		report(t, b, "a", Failed, Failed, Failed, Failed)
		refused(t, b, "a")
	})
}

// Ensure that retryAt is the very moment at which the probe passes, that it
// doesn't move meanwhile, and that a caller's odd clock doesn't stretch it.
func TestCircuits_retryAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := opened(t, small)
		time.Sleep(4 * time.Second)
		wait := refused(t, b, "a")
		require.Equal(t, 6*time.Second+1, wait)

		before := time.Now().Round(0).Add(-24 * time.Hour)
		_, retryAt, ok := b.Allow(context.Background(), "a", before)
		require.False(t, ok)
		require.LessOrEqual(t, retryAt.Sub(before), 11*time.Second)
		after := time.Now().Round(0).Add(24 * time.Hour)
		_, retryAt, ok = b.Allow(context.Background(), "a", after)
		require.False(t, ok)
		require.True(t, retryAt.After(after))

		time.Sleep(wait - time.Nanosecond)
		require.Equal(t, time.Nanosecond, refused(t, b, "a"))
		time.Sleep(time.Nanosecond)
		report(t, b, "a", Healthy)
	})
}

// Ensure that a half-open breaker lets as many through as it has probes, closes
// once all succeeded, and counts afresh.
func TestCircuits_probes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := small
		p.Probes = 3
		b := probing(t, p)
		var probes []func(Health)
		for range 3 {
			done, _, ok := b.Allow(context.Background(), "a", time.Now())
			require.True(t, ok)
			probes = append(probes, done)
		}
		require.Equal(t, time.Second, refused(t, b, "a"), "all probes are under way")
		probes[0](Healthy)
		probes[1](Healthy) // a 4xx of the application is healthy too
		require.Equal(t, time.Second, refused(t, b, "a"))
		probes[2](Healthy)
		report(t, b, "a", Failed, Failed, Failed)
		report(t, b, "a", Healthy)
	})
}

// Ensure that one failed probe opens it again, for all of OpenFor, whatever the
// other probes say later.
func TestCircuits_failedProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := small
		p.Probes = 2
		b := probing(t, p)
		first, _, ok := b.Allow(context.Background(), "a", time.Now())
		require.True(t, ok)
		second, _, ok := b.Allow(context.Background(), "a", time.Now())
		require.True(t, ok)
		time.Sleep(3 * time.Second)
		first(Failed)
		require.Equal(t, 10*time.Second+1, refused(t, b, "a"))
		time.Sleep(time.Second)
		second(Healthy)
		require.Equal(t, 9*time.Second+1, refused(t, b, "a"))
	})
}

// Ensure that a probe that tells nothing gives its slot back and decides
// nothing: canceled, reported twice, or lost to a panic.
func TestCircuits_slotComesBack(t *testing.T) {
	for name, attempt := range map[string]func(done func(Health)){
		"canceled":          func(done func(Health)) { done(Neutral) },
		"canceled twice":    func(done func(Health)) { done(Neutral); done(Neutral) },
		"first call counts": func(done func(Health)) { done(Neutral); done(Failed); done(Healthy) },
		"unknown health":    func(done func(Health)) { done(Health(99)) },
		"panic": func(done func(Health)) {
			defer func() { _ = recover() }()
			defer done(Neutral)
			panic("in the attempt")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := probing(t, small)
				for range 3 {
					done, _, ok := b.Allow(context.Background(), "a", time.Now())
					require.True(t, ok)
					require.Equal(t, time.Second, refused(t, b, "a"))
					attempt(done)
				}
				report(t, b, "a", Healthy)
				report(t, b, "a", Failed, Failed, Failed, Healthy)
			})
		})
	}
}

// Ensure that done counts once while the breaker is closed, too.
func TestCircuits_doneTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewCircuits(small, nil)
		done, _, ok := b.Allow(context.Background(), "a", time.Now())
		require.True(t, ok)
		for range 10 {
			done(Failed)
		}
		report(t, b, "a", Healthy)
	})
}

// Ensure that without circuits nothing is refused.
func TestCircuits_none(t *testing.T) {
	var none *Circuits
	for range 50 {
		report(t, none, "a", Failed)
	}
}
