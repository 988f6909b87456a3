package idem_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
)

// twoProviders are clients of two mock providers over one keystore.
func twoProviders(t *testing.T, ks idem.Keystore) (a, b *mockserver.Server, tries []idem.Try) {
	a, b = mockserver.New(nil), mockserver.New(nil)
	t.Cleanup(a.Close)
	t.Cleanup(b.Close)
	for scope, srv := range map[string]*mockserver.Server{"a": a, "b": b} {
		c, err := idem.New(ks, &idem.Options{Scope: scope, Base: srv.Transport(), Retry: idem.RetryPolicy{MaxAttempts: 2}})
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		try := idem.Try{Client: c, Request: func(ctx context.Context) (*http.Request, error) {
			return http.NewRequestWithContext(ctx, "POST", "http://"+scope+".example/pay", strings.NewReader(`{"id":"rent"}`))
		}}
		tries = append(tries, try)
	}
	if tries[0].Client != nil {
		resp, _ := tries[0].Request(context.Background())
		if resp.URL.Host != "a.example" {
			tries[0], tries[1] = tries[1], tries[0]
		}
	}
	return a, b, tries
}

func TestFailoverGoesOnAtNotDoneAlone(t *testing.T) {
	for name, tc := range map[string]struct {
		fault  mockserver.Fault
		a, b   int
		fate   idem.Fate
		rerunB int
	}{
		"the first does it":      {mockserver.Fault{}, 1, 0, idem.FateDone, 0},
		"the first refuses":      {mockserver.Fault{Kind: mockserver.FaultStatus, Status: 401}, 0, 1, idem.FateDone, 1},
		"the first is not there": {mockserver.Fault{Kind: mockserver.FaultRefuse, Times: 2}, 0, 1, idem.FateDone, 1},
		"the first is silent":    {mockserver.Fault{Kind: mockserver.FaultDrop, Times: 2}, 1, 0, idem.FateUnknown, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b, tries := twoProviders(t, idem.NewMemoryKeystore())
				if tc.fault.Kind != mockserver.FaultNone {
					a.Script(tc.fault)
				}
				resp, err := idem.Failover(context.Background(), "rent", tries...)
				require.Equal(t, tc.fate, idem.FateOf(resp, err), "%v", err)
				require.Equal(t, tc.a, a.Effects("rent"))
				require.Equal(t, tc.b, b.Effects("rent"))

				resp, err = idem.Failover(context.Background(), "rent", tries...) // a rerun
				require.Equal(t, idem.FateDone, idem.FateOf(resp, err), "%v", err)
				require.Equal(t, 1, a.Effects("rent")+b.Effects("rent"))
				require.Equal(t, tc.rerunB, b.Effects("rent"))
			})
		})
	}
}

func TestFailoverRefusesWhatCouldPayTwice(t *testing.T) {
	_, _, tries := twoProviders(t, idem.NewMemoryKeystore())
	_, _, others := twoProviders(t, idem.NewMemoryKeystore())
	for name, tries := range map[string][]idem.Try{
		"no tries":      nil,
		"two keystores": {tries[0], others[1]},
		"one scope":     {tries[0], tries[0]},
		"no client":     {{Request: tries[0].Request}},
		"no request":    {{Client: tries[0].Client}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := idem.Failover(context.Background(), "rent", tries...)
			require.ErrorIs(t, err, idem.ErrInvalid)
		})
	}
}
