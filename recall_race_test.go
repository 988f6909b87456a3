package idem_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/mockserver"
)

// modelStore runs a function before the next read of a record's bodies, which is
// when a call has found its entry and is about to recall it.
type modelStore struct {
	idem.Keystore
	before func()
}

func (s *modelStore) Read(ctx context.Context, refs ...keystore.Ref) ([]keystore.Record, error) {
	if f := s.before; refs[0].Bodies && f != nil {
		s.before = nil
		f()
	}
	return s.Keystore.Read(ctx, refs...)
}

// Forget may come between a call's two looks at a settled entry.
func TestANameThatIsForgottenDuringItsRecallIsNew(t *testing.T) {
	for name, ctx := range map[string]context.Context{
		"minted key":   idem.WithIntent(context.Background(), "order-1"),
		"caller's key": idem.WithKey(idem.WithIntent(context.Background(), "order-1"), idem.DeriveKey("orders", "1")),
	} {
		t.Run(name, func(t *testing.T) {
			srv := mockserver.New(nil)
			defer srv.Close()
			ks := &modelStore{Keystore: idem.NewMemoryKeystore()}
			defer ks.Close()
			c, err := idem.New(ks, &idem.Options{Base: srv.Transport()})
			require.NoError(t, err)
			defer c.Close()
			resp, err := c.Do(post(ctx, `{"id":"order-1"}`))
			require.NoError(t, err)
			require.Equal(t, http.StatusCreated, resp.StatusCode)

			ks.before = func() { require.NoError(t, c.Forget(context.Background(), "order-1")) }
			var r idem.Result
			resp, err = c.Do(post(idem.WithResult(ctx, &r), `{"id":"order-1"}`))
			require.NoError(t, err)
			require.Equal(t, http.StatusCreated, resp.StatusCode)
			require.Equal(t, idem.FateDone, r.Fate)
			require.NotEmpty(t, r.Key)
		})
	}
}

func TestANameThatIsForgottenAndTakenDuringItsRecallIsNotRecalledFromWhatIsPending(t *testing.T) {
	srv := mockserver.New(nil)
	defer srv.Close()
	ks := &modelStore{Keystore: idem.NewMemoryKeystore()}
	defer ks.Close()
	c, err := idem.New(ks, &idem.Options{Base: srv.Transport(), Retry: idem.RetryPolicy{MaxAttempts: 1}})
	require.NoError(t, err)
	defer c.Close()
	ctx := idem.WithKey(idem.WithIntent(context.Background(), "order-1"), idem.DeriveKey("orders", "1"))
	_, err = c.Do(post(ctx, `{"id":"order-1"}`))
	require.NoError(t, err)
	ks.before = func() {
		require.NoError(t, c.Forget(context.Background(), "order-1"))
		srv.Script(mockserver.Fault{Kind: mockserver.FaultReset})
		_, err := c.Do(post(ctx, `{"id":"order-1"}`))
		require.Error(t, err)
	}
	var r idem.Result
	_, err = c.Do(post(idem.WithResult(ctx, &r), `{"id":"order-1"}`))
	require.NoError(t, err)
	require.Equal(t, idem.FateDone, r.Fate)
	require.False(t, r.Recalled)
}
