package idem

import (
	"fmt"
	"math"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// small opens after two failures in four and needs one probe.
var small = BreakerPolicy{MinRequests: 4, FailureRate: 0.5, OpenFor: 10 * time.Second}

// report makes one allowed attempt for each health.
func report(t *testing.T, b *breakers, group string, all ...health) {
	t.Helper()
	for _, h := range all {
		done, _, err := b.allow(group, time.Now())
		require.NoError(t, err)
		done(h)
	}
}

// refused makes an attempt that must not be allowed, and returns how long to wait.
func refused(t *testing.T, b *breakers, group string) time.Duration {
	t.Helper()
	now := time.Now()
	done, retryAt, err := b.allow(group, now)
	require.ErrorIs(t, err, ErrCircuitOpen)
	done(healthy) // does nothing, so a caller may defer it at once
	return retryAt.Sub(now)
}

// opened returns breakers whose group "a" is open.
func opened(t *testing.T, p BreakerPolicy) *breakers {
	t.Helper()
	b := newBreakers(p, nil)
	report(t, b, "a", failed, failed, failed, failed)
	require.Positive(t, refused(t, b, "a"))
	return b
}

// probing returns breakers whose group "a" has just become ready for probes.
func probing(t *testing.T, p BreakerPolicy) *breakers {
	t.Helper()
	b := opened(t, p)
	time.Sleep(refused(t, b, "a"))
	return b
}

// Ensure that the breaker opens at the rate, not below it, and not before
// enough attempts ended.
func TestBreakers_opensAtRate(t *testing.T) {
	for _, tt := range []struct {
		name   string
		policy BreakerPolicy
		given  []health
		open   bool
	}{
		{"at the rate", small, []health{healthy, healthy, failed, failed}, true},
		{"below it", small, []health{healthy, healthy, healthy, failed}, false},
		{"too few", small, []health{failed, failed, failed}, false},
		{"neutral is not counted as an attempt", small, []health{failed, failed, neutral, neutral, failed}, false},
		{"neutral doesn't hide failures", small, []health{neutral, neutral, neutral, neutral, failed, failed, failed, failed}, true},
		{"a success doesn't open", small, []health{failed, failed, failed, healthy}, false},
		{"a tiny rate opens at the first failure", BreakerPolicy{MinRequests: 1, FailureRate: 1e-300}, []health{healthy, failed}, true},
		{"all must fail at 1", BreakerPolicy{MinRequests: 1, FailureRate: 1}, []health{healthy, failed, failed}, false},
		{"longest window there is", BreakerPolicy{MinRequests: 1, Window: math.MaxInt64, OpenFor: math.MaxInt64}, []health{failed}, true},
		{"shortest window there is", BreakerPolicy{MinRequests: 1, Window: 1, OpenFor: 1}, []health{failed}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBreakers(tt.policy, nil)
				report(t, b, "a", tt.given...)
				_, _, err := b.allow("a", time.Now())
				if tt.open {
					require.ErrorIs(t, err, ErrCircuitOpen)
				} else {
					require.NoError(t, err)
				}
				_, _, err = b.allow("b", time.Now())
				require.NoError(t, err, "another group")
			})
		})
	}
}

// Ensure that the stated defaults are the real ones.
func TestBreakers_defaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreakers(BreakerPolicy{}, nil)
		for range 10 {
			report(t, b, "a", healthy, failed)
		}
		require.Equal(t, 30*time.Second+1, refused(t, b, "a"))

		b = newBreakers(BreakerPolicy{}, nil)
		for range 9 {
			report(t, b, "a", healthy, failed)
		}
		time.Sleep(61 * time.Second) // the window has moved on
		report(t, b, "a", healthy, failed)
		report(t, b, "a", healthy)
	})
}

// Ensure that attempts under way don't count, and that one that ends after its
// window is over neither counts nor divides by zero.
func TestBreakers_underWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreakers(small, nil)
		late, _, err := b.allow("a", time.Now())
		require.NoError(t, err)
		for range 20 {
			_, _, err := b.allow("a", time.Now())
			require.NoError(t, err)
		}
		report(t, b, "a", failed, failed, failed)
		time.Sleep(2 * time.Minute)
		late(failed)
		report(t, b, "a", failed, failed, failed, failed)
		refused(t, b, "a")
	})
}

// Ensure that retryAt is the very moment at which the probe passes, that it
// doesn't move meanwhile, and that a caller's odd clock doesn't stretch it.
func TestBreakers_retryAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := opened(t, small)
		time.Sleep(4 * time.Second)
		wait := refused(t, b, "a")
		require.Equal(t, 6*time.Second+1, wait)

		before := time.Now().Round(0).Add(-24 * time.Hour)
		_, retryAt, err := b.allow("a", before)
		require.ErrorIs(t, err, ErrCircuitOpen)
		require.LessOrEqual(t, retryAt.Sub(before), 11*time.Second)
		after := time.Now().Round(0).Add(24 * time.Hour)
		_, retryAt, err = b.allow("a", after)
		require.ErrorIs(t, err, ErrCircuitOpen)
		require.True(t, retryAt.After(after))

		time.Sleep(wait - time.Nanosecond)
		require.Equal(t, time.Nanosecond, refused(t, b, "a"))
		time.Sleep(time.Nanosecond)
		report(t, b, "a", healthy)
	})
}

// Ensure that a half-open breaker lets as many through as it has probes, closes
// once all succeeded, and counts afresh.
func TestBreakers_probes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := small
		p.Probes = 3
		b := probing(t, p)
		var probes []func(health)
		for range 3 {
			done, _, err := b.allow("a", time.Now())
			require.NoError(t, err)
			probes = append(probes, done)
		}
		require.Equal(t, time.Second, refused(t, b, "a"), "all probes are under way")
		probes[0](healthy)
		probes[1](healthy) // a 4xx of the application is healthy too
		require.Equal(t, time.Second, refused(t, b, "a"))
		probes[2](healthy)
		report(t, b, "a", failed, failed, failed)
		report(t, b, "a", healthy)
	})
}

// Ensure that one failed probe opens it again, for all of OpenFor, whatever the
// other probes say later.
func TestBreakers_failedProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := small
		p.Probes = 2
		b := probing(t, p)
		first, _, err := b.allow("a", time.Now())
		require.NoError(t, err)
		second, _, err := b.allow("a", time.Now())
		require.NoError(t, err)
		time.Sleep(3 * time.Second)
		first(failed)
		require.Equal(t, 10*time.Second+1, refused(t, b, "a"))
		time.Sleep(time.Second)
		second(healthy)
		require.Equal(t, 9*time.Second+1, refused(t, b, "a"))
	})
}

// Ensure that a probe that tells nothing gives its slot back and decides
// nothing: canceled, reported twice, or lost to a panic.
func TestBreakers_slotComesBack(t *testing.T) {
	for name, attempt := range map[string]func(done func(health)){
		"canceled":          func(done func(health)) { done(neutral) },
		"canceled twice":    func(done func(health)) { done(neutral); done(neutral) },
		"first call counts": func(done func(health)) { done(neutral); done(failed); done(healthy) },
		"unknown health":    func(done func(health)) { done(health(99)) },
		"panic": func(done func(health)) {
			defer func() { _ = recover() }()
			defer done(neutral)
			panic("in the attempt")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := probing(t, small)
				for range 3 {
					done, _, err := b.allow("a", time.Now())
					require.NoError(t, err)
					require.Equal(t, time.Second, refused(t, b, "a"))
					attempt(done)
				}
				report(t, b, "a", healthy)
				report(t, b, "a", failed, failed, failed, healthy)
			})
		})
	}
}

// Ensure that done counts once while the breaker is closed, too.
func TestBreakers_doneTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreakers(small, nil)
		done, _, err := b.allow("a", time.Now())
		require.NoError(t, err)
		for range 10 {
			done(failed)
		}
		report(t, b, "a", healthy)
	})
}

// Ensure that a disabled breaker never refuses.
func TestBreakers_disabled(t *testing.T) {
	b := newBreakers(BreakerPolicy{Disabled: true, MinRequests: 1}, nil)
	for range 50 {
		report(t, b, "a", failed)
	}
	require.Empty(t, b.circuits.items)
}

// Ensure that nonsense is named, and that every edge that makes sense passes.
func TestBreakerPolicy_validate(t *testing.T) {
	for field, p := range map[string]BreakerPolicy{
		"Window": {Window: -1}, "OpenFor": {OpenFor: -time.Second}, "FailureRate": {FailureRate: -0.1},
	} {
		var invalid *InvalidError
		require.ErrorAs(t, p.validate(), &invalid)
		require.Equal(t, "Options.Breaker."+field, invalid.Field)
	}
	for _, rate := range []float64{1.0001, math.NaN(), math.Inf(1), math.Inf(-1)} {
		require.ErrorIs(t, BreakerPolicy{FailureRate: rate}.validate(), ErrInvalid, fmt.Sprint(rate))
	}
	for _, p := range []BreakerPolicy{{}, {FailureRate: 1}, {Window: math.MaxInt64, OpenFor: math.MaxInt64}} {
		require.NoError(t, p.validate())
	}
}

// Ensure that one origin has one name, however its URL is written.
func TestBreakers_group(t *testing.T) {
	b := newBreakers(BreakerPolicy{}, nil)
	for url, want := range map[string]string{
		"HTTPS://API.Example.com:443/v1?x=1": "https://api.example.com",
		"http://api.example.com:80":          "http://api.example.com",
		"http://api.example.com:443/":        "http://api.example.com:443",
		"https://user:pw@api.example.com:/":  "https://api.example.com",
		"https://[2001:DB8::1]:443/":         "https://[2001:db8::1]",
		"https://[2001:DB8::1]:8443/":        "https://[2001:db8::1]:8443",
	} {
		req, err := http.NewRequest(http.MethodPost, url, nil)
		require.NoError(t, err)
		require.Equal(t, want, b.group(req), url)
	}
	require.Empty(t, b.group(&http.Request{}))

	b = newBreakers(BreakerPolicy{Group: func(req *http.Request) string { return req.URL.Path }}, nil)
	req, err := http.NewRequest(http.MethodPost, "https://example.com/charges", nil)
	require.NoError(t, err)
	require.Equal(t, "/charges", b.group(req))
}
