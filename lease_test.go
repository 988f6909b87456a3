package idem_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
)

// leaseKeystore is a store whose claims can be taken away, and whose clock is its own.
type leaseKeystore struct {
	idem.Keystore
	ahead time.Duration
	last  *lease
}

type lease struct {
	keystore.Claim
	lost chan struct{}
}

func (l *lease) Lost() <-chan struct{} { return l.lost }

// lose takes the claim away, as another host does when the lease is over.
func (l *lease) lose() {
	l.Release()
	close(l.lost)
}

func (k *leaseKeystore) Claim(ctx context.Context, scope, id string, wait bool) (keystore.Claim, error) {
	claim, err := k.Keystore.Claim(ctx, scope, id, wait)
	if err != nil {
		return nil, err
	}
	k.last = &lease{claim, make(chan struct{})}
	return k.last, nil
}

func (k *leaseKeystore) Clock(ctx context.Context, now time.Time, tolerance time.Duration) (keystore.Sighting, error) {
	return k.Keystore.Clock(ctx, now.Add(k.ahead), tolerance)
}

type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func leasePost(ctx context.Context, t *testing.T, c *idem.Client) (idem.Fate, error) {
	req, err := http.NewRequestWithContext(idem.WithIntent(ctx, "order-1"), http.MethodPost, "http://api.example/pay", strings.NewReader("{}"))
	require.NoError(t, err)
	resp, err := c.Do(req)
	if resp != nil {
		resp.Body.Close()
	}
	return idem.FateOf(resp, err), err
}

// Another host drives the entry by then; what this one writes would be over its work.
func TestAfterALostClaimNothingIsWrittenAndTheCallerHearsUnknown(t *testing.T) {
	ks := &leaseKeystore{Keystore: idem.NewMemoryKeystore()}
	defer ks.Close()
	for name, status := range map[string]int{"refused": http.StatusPaymentRequired, "broken": http.StatusInternalServerError} {
		c, err := idem.New(ks, &idem.Options{Scope: name, Base: roundTripFunc(func(r *http.Request) (*http.Response, error) {
			ks.last.lose()
			return &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody}, nil
		})})
		require.NoError(t, err)
		fate, err := leasePost(t.Context(), t, c)
		require.Equal(t, idem.FateUnknown, fate, "%s: %v", name, err)
		require.ErrorIs(t, err, idem.ErrClaimLost, name)
		e, err := c.Lookup(t.Context(), "order-1")
		require.NoError(t, err)
		require.Equal(t, idem.StatePending, e.State, name)
		require.NoError(t, c.Close())
	}
}

func TestWhatIsFirstSentIsDatedByTheStoresClock(t *testing.T) {
	ks := &leaseKeystore{Keystore: idem.NewMemoryKeystore(), ahead: 10 * time.Minute}
	defer ks.Close()
	c, err := idem.New(ks, &idem.Options{
		Base:  roundTripFunc(func(*http.Request) (*http.Response, error) { return nil, context.DeadlineExceeded }),
		Retry: idem.RetryPolicy{MaxAttempts: 1},
	})
	require.NoError(t, err)
	defer c.Close()
	_, err = leasePost(t.Context(), t, c)
	require.Error(t, err)
	e, err := c.Lookup(t.Context(), "order-1")
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(ks.ahead), e.FirstSent, time.Minute)
}
