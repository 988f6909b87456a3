package idem_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

func TestWhatIsKeptForeverIsNeverSwept(t *testing.T) {
	ks := idem.NewMemoryKeystore()
	defer ks.Close()
	sent := 0
	c, err := idem.New(ks, &idem.Options{Keep: idem.Forever, Base: roundTripFunc(func(*http.Request) (*http.Response, error) {
		sent++
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody}, nil
	})})
	require.NoError(t, err)
	defer c.Close()
	// The store has an age, with which Forever must not be summed up.
	for _, d := range []time.Duration{0, time.Hour} {
		_, err = ks.Clock(t.Context(), time.Now().Add(d), time.Minute)
		require.NoError(t, err)
	}
	fate, err := leasePost(t.Context(), t, c)
	require.NoError(t, err)
	require.Equal(t, idem.FateDone, fate)
	_, err = ks.Clock(t.Context(), time.Now().Add(3*time.Hour), time.Minute)
	require.NoError(t, err)
	_, err = c.Resume(t.Context(), nil)
	require.NoError(t, err)

	e, err := c.Lookup(t.Context(), "order-1")
	require.NoError(t, err)
	require.False(t, e.Trimmed, "the result was swept")
	_, err = leasePost(t.Context(), t, c)
	require.NoError(t, err)
	require.Equal(t, 1, sent)
}
