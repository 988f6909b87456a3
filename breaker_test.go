package idem

import (
	"fmt"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/limit"
)

// Ensure that the stated defaults are the real ones, and that what was given stands.
func TestBreakerPolicy_defaults(t *testing.T) {
	require.Equal(t, limit.Trip{
		Window: 60 * time.Second, MinRequests: 20, FailureRate: 0.5, OpenFor: 30 * time.Second, Probes: 1,
	}, BreakerPolicy{}.trip())
	given := BreakerPolicy{Window: 1, MinRequests: 2, FailureRate: 0.3, OpenFor: 4, Probes: 5}
	require.Equal(t, limit.Trip{Window: 1, MinRequests: 2, FailureRate: 0.3, OpenFor: 4, Probes: 5}, given.trip())
	require.NotNil(t, given.circuits(nil))
	given.Disabled = true
	require.Nil(t, given.circuits(nil))
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
func TestBreakerPolicy_group(t *testing.T) {
	var p BreakerPolicy
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
		require.Equal(t, want, p.group(req), url)
	}
	require.Empty(t, p.group(&http.Request{}))

	p.Group = func(req *http.Request) string { return req.URL.Path }
	req, err := http.NewRequest(http.MethodPost, "https://example.com/charges", nil)
	require.NoError(t, err)
	require.Equal(t, "/charges", p.group(req))
}
