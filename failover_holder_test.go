package idem_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
)

// failoverPair is two providers over one journal, with clients that can be closed
// and opened again.
type failoverPair struct {
	*testing.T
	ks   idem.Keystore
	api  map[string]*mockserver.Server
	opts func(scope string, o *idem.Options)
	ctx  func(scope string, ctx context.Context) context.Context // of the try's request
	open []*idem.Client
}

func newFailoverPair(t *testing.T) *failoverPair {
	p := &failoverPair{T: t, ks: idem.NewMemoryKeystore(), api: map[string]*mockserver.Server{}}
	for _, scope := range []string{"a", "b"} {
		p.api[scope] = mockserver.New(nil)
		t.Cleanup(p.api[scope].Close)
	}
	t.Cleanup(p.close)
	return p
}

func (p *failoverPair) close() {
	for _, c := range p.open {
		require.NoError(p, c.Close())
	}
	p.open = nil
}

// tries is what a new process has: clients of its own over the same journal.
func (p *failoverPair) tries() (tries []idem.Try) {
	p.close()
	for _, scope := range []string{"a", "b"} {
		o := idem.Options{Scope: scope, Base: p.api[scope].Transport(), Retry: idem.RetryPolicy{MaxAttempts: 2}}
		if p.opts != nil {
			p.opts(scope, &o)
		}
		c, err := idem.New(p.ks, &o)
		require.NoError(p, err)
		p.open = append(p.open, c)
		tries = append(tries, idem.Try{Client: c, Request: func(ctx context.Context) (*http.Request, error) {
			if p.ctx != nil {
				ctx = p.ctx(scope, ctx)
			}
			return http.NewRequestWithContext(ctx, "POST", "http://"+scope+".example/pay", strings.NewReader(`{"id":"rent"}`))
		}})
	}
	return tries
}

func (p *failoverPair) paid() (a, b int) {
	return p.api["a"].Effects("rent"), p.api["b"].Effects("rent")
}

// down has a provider refuse connections for a whole run.
func (p *failoverPair) down(scope string) {
	p.api[scope].Script(mockserver.Fault{Kind: mockserver.FaultRefuse, Times: 2})
}

// The second provider may have been paid, under an account that only its own
// request names. The first one is back.
func TestFailoverFindsAHolderInTheAccountOfItsOwnRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFailoverPair(t)
		p.ctx = func(scope string, ctx context.Context) context.Context { return idem.WithAccount(ctx, "acct-"+scope) }
		p.down("a")
		p.api["b"].Script(mockserver.Fault{Kind: mockserver.FaultDrop, Times: 2})
		resp, err := idem.Failover(t.Context(), "rent", p.tries()...)
		require.Equal(t, idem.FateUnknown, idem.FateOf(resp, err))

		resp, err = idem.Failover(t.Context(), "rent", p.tries()...)
		require.Equal(t, idem.FateDone, idem.FateOf(resp, err), "%v", err)
		a, b := p.paid()
		require.Equal(t, []int{0, 1}, []int{a, b})
	})
}

func TestFailoverRefusesATryThatIsNoIntent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFailoverPair(t)
		p.opts = func(scope string, o *idem.Options) { o.Skip = func(*http.Request) bool { return scope == "b" } }
		p.down("a")
		_, err := idem.Failover(t.Context(), "rent", p.tries()...)
		require.ErrorIs(t, err, idem.ErrInvalid)
		a, b := p.paid()
		require.Zero(t, a+b, "sent without key and journal")
	})
}

func TestFailoverAsksNobodyIfARequestCantBeBuilt(t *testing.T) {
	p := newFailoverPair(t)
	tries := p.tries()
	broken := errors.New("no such payee at b")
	tries[1].Request = func(context.Context) (*http.Request, error) { return nil, broken }
	_, err := idem.Failover(t.Context(), "rent", tries...)
	require.ErrorIs(t, err, broken)
	require.Empty(t, p.api["a"].Requests())
	tries[1].Request = func(context.Context) (*http.Request, error) { return nil, nil }
	_, err = idem.Failover(t.Context(), "rent", tries...)
	require.ErrorIs(t, err, idem.ErrInvalid)
	require.Empty(t, p.api["a"].Requests())
}

func TestFailoverAsksOnlyTheHolderWhateverItsState(t *testing.T) {
	key := func(p *failoverPair, c *idem.Client) idem.Key {
		e, err := c.Lookup(p.Context(), "rent")
		require.NoError(p, err)
		return e.Key
	}
	for name, tc := range map[string]struct {
		make func(p *failoverPair, b *idem.Client)
		fate idem.Fate
		why  error
		paid [2]int
	}{
		"Pending": {func(p *failoverPair, b *idem.Client) {}, idem.FateDone, nil, [2]int{0, 1}},
		"abandoned": {func(p *failoverPair, b *idem.Client) {
			require.NoError(p, b.Abandon(p.Context(), key(p, b), "looked into"))
		}, idem.FateUnknown, idem.ErrAbandoned, [2]int{0, 1}},
		"settled Done by a person": {func(p *failoverPair, b *idem.Client) {
			require.NoError(p, b.Settle(p.Context(), key(p, b), idem.Finding{Fate: idem.FateDone}))
		}, idem.FateDone, idem.ErrSettled, [2]int{0, 1}},
		"settled NotDone by a person": {func(p *failoverPair, b *idem.Client) {
			require.NoError(p, b.Settle(p.Context(), key(p, b), idem.Finding{Fate: idem.FateNotDone}))
		}, idem.FateDone, nil, [2]int{1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newFailoverPair(t)
				p.down("a")
				p.api["b"].Script(mockserver.Fault{Kind: mockserver.FaultDrop, Times: 2})
				tries := p.tries()
				_, err := idem.Failover(t.Context(), "rent", tries...)
				require.Error(t, err)
				tc.make(p, tries[1].Client)

				resp, err := idem.Failover(t.Context(), "rent", p.tries()...)
				require.Equal(t, tc.fate, idem.FateOf(resp, err), "%v", err)
				if tc.why != nil {
					require.ErrorIs(t, err, tc.why)
				}
				a, b := p.paid()
				require.Equal(t, tc.paid, [2]int{a, b})
			})
		})
	}
}

// An Ambiguous holder: the provider ignores keys, so that nothing more is sent.
func TestFailoverDoesNotGoAroundAnAmbiguousHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFailoverPair(t)
		p.opts = func(_ string, o *idem.Options) { o.Dialect = idem.Dialect{Name: "mute", Placement: idem.PlaceNone} }
		p.down("a")
		p.api["b"].Script(mockserver.Fault{Kind: mockserver.FaultReset})
		for range 3 {
			resp, err := idem.Failover(t.Context(), "rent", p.tries()...)
			require.Equal(t, idem.FateUnknown, idem.FateOf(resp, err))
			require.ErrorIs(t, err, idem.ErrUnkeyed)
		}
		a, b := p.paid()
		require.Zero(t, a+b)
		require.Len(t, p.api["b"].Requests(), 1)
		require.Empty(t, p.api["a"].Requests())
	})
}

func TestConcurrentFailoversPayOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFailoverPair(t)
		p.api["a"].Script(mockserver.Fault{Kind: mockserver.FaultStatus, Status: 401, Times: 3})
		tries := p.tries()
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				order := tries
				if i%2 == 1 {
					order = []idem.Try{tries[1], tries[0]}
				}
				resp, err := idem.Failover(t.Context(), "rent", order...)
				require.Equal(t, idem.FateDone, idem.FateOf(resp, err), "%v", err)
			})
		}
		all.Wait()
		a, b := p.paid()
		require.Equal(t, 1, a+b)
	})
}

func TestACanceledFailoverGoesNoFurther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFailoverPair(t)
		ctx, cancel := context.WithCancel(t.Context())
		p.opts = func(scope string, o *idem.Options) {
			o.Trace = &idem.Trace{Ended: func(context.Context, idem.Entry, error) { cancel() }}
		}
		p.api["a"].Script(mockserver.Fault{Kind: mockserver.FaultStatus, Status: 401})
		resp, err := idem.Failover(ctx, "rent", p.tries()...)
		require.Equal(t, idem.FateNotDone, idem.FateOf(resp, err), "%v", err)
		require.Empty(t, p.api["b"].Requests())

		var r idem.Result
		resp, err = idem.Failover(idem.WithResult(ctx, &r), "rent", p.tries()...)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, idem.FateOf(resp, err), r.Fate)
		require.Equal(t, "rent", r.Intent)
		require.ErrorIs(t, r.Err, context.Canceled)
		require.Empty(t, p.api["b"].Requests())
	})
}

// A rerun builds its request anew, with another time stamp in it.
func TestFailoverGoesOnWithTheStoredPayload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFailoverPair(t)
		p.api["a"].Script(mockserver.Fault{Kind: mockserver.FaultDrop, Times: 2})
		_, err := idem.Failover(t.Context(), "rent", p.tries()...)
		require.Error(t, err)
		tries := p.tries()
		tries[0].Request = func(ctx context.Context) (*http.Request, error) {
			return http.NewRequestWithContext(ctx, "POST", "http://a.example/pay", strings.NewReader(`{"id":"rent","at":"now"}`))
		}
		resp, err := idem.Failover(idem.WithStoredPayload(t.Context()), "rent", tries...)
		require.Equal(t, idem.FateDone, idem.FateOf(resp, err), "%v", err)
		require.Len(t, p.api["a"].Bodies("rent"), 1)
		require.Equal(t, 1, p.api["a"].Effects("rent"))
	})
}

// A queue holds the name at the second provider, though nothing was sent there.
func TestFailoverLeavesItToTheQueueThatHasTheName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFailoverPair(t)
		tries := p.tries()
		req, err := tries[1].Request(idem.WithIntent(t.Context(), "rent"))
		require.NoError(t, err)
		_, err = tries[1].Client.Enqueue(req)
		require.NoError(t, err)
		resp, err := idem.Failover(t.Context(), "rent", tries...)
		require.Equal(t, idem.FateDone, idem.FateOf(resp, err), "%v", err)
		a, b := p.paid()
		require.Equal(t, [2]int{0, 1}, [2]int{a, b})
	})
}
