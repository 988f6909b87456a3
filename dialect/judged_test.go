package dialect_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dialect"
	"github.com/idem-go/idem/mockserver"
)

// dwolla is the incident of February 2025: a 500 locks its key for a day.
func dwolla() provider {
	return provider{preset: dialect.Dwolla(), profile: mockserver.DwollaIncident(), path: "/transfers"}
}

// Run carries the transfer through the whole day.
func TestA500ThatLocksItsKeyForADayEndsAmbiguousWithoutANewKey(t *testing.T) {
	for name, applied := range map[string]bool{"applied": true, "not applied": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := dwolla().bench(t, nil)
				b.api.Script(mockserver.Fault{Kind: mockserver.FaultFail, After: applied})
				end, _ := b.do(b.named("o"))
				require.Equal(t, open, end)
				b.restart()
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() { ended <- b.client.Run(ctx) }()
				time.Sleep(20 * time.Minute)
				synctest.Wait()
				sent := len(b.posts())
				time.Sleep(48 * time.Hour)
				cancel()
				require.NoError(t, <-ended)

				require.Len(t, b.posts(), sent, "sent again after the cap")
				e, err := b.client.Lookup(t.Context(), "o")
				require.NoError(t, err)
				require.Equal(t, idem.StateAmbiguous, e.State)
				require.Len(t, b.api.Keys("o"), 1)
				require.Equal(t, applied, b.api.Effects("o") == 1)
				_, err = b.client.Do(b.named("o"))
				require.ErrorIs(t, err, idem.ErrInDoubt)
				require.Len(t, b.posts(), sent)
			})
		})
	}
}

// Only the look-up's "can no longer happen" lets the transfer go out anew.
func TestAfterALockedKeyOnlyALookUpAllowsANewOne(t *testing.T) {
	for name, applied := range map[string]bool{"applied": true, "not applied": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var b *bench
				b = dwolla().bench(t, nil, func(o *idem.Options) {
					o.Retry.MaxAttempts = 1000
					o.Reconcile = func(ctx context.Context, e idem.Entry) (idem.Finding, error) {
						if b.api.Effects("o") == 1 {
							return idem.Finding{Fate: idem.FateDone, Status: 200, Body: []byte(`{}`)}, nil
						}
						return idem.Finding{Fate: idem.FateNotDone}, nil
					}
				})
				b.api.Script(mockserver.Fault{Kind: mockserver.FaultFail, After: applied})
				end, err := b.do(b.named("o"))
				if applied {
					require.NoError(t, err)
					require.Equal(t, done, end)
					require.Len(t, b.api.Keys("o"), 1)
					return
				}
				require.Equal(t, notDone, end)
				require.NoError(t, b.client.Forget(t.Context(), "o"))
				end, err = b.do(b.named("o"))
				require.NoError(t, err)
				require.Equal(t, done, end)
				require.Len(t, b.api.Keys("o"), 2)
				require.Equal(t, 1, b.api.Effects("o"))
			})
		})
	}
}

// Whatever happens to it, and whoever comes back for it.
func TestAnUnkeyedPostIsNeverSentTwice(t *testing.T) {
	unkeyed := map[string]provider{
		"none":                    {preset: dialect.None(), profile: mockserver.Mute(), path: "/2010-04-01/Messages.json"},
		"outside PayPal's paths":  {preset: dialect.PayPal(), profile: mockserver.Mute(), path: "/v2/invoicing/invoices"},
		"outside Plaid's paths":   {preset: dialect.Plaid(), profile: mockserver.Mute(), path: "/transfer/create"},
		"outside Stripe's method": {preset: dialect.Stripe(), profile: mockserver.Mute(), path: "/v1/charges/1", method: "PATCH"},
	}
	for name, p := range unkeyed {
		for _, f := range []mockserver.Fault{
			{Kind: mockserver.FaultDrop}, {Kind: mockserver.FaultReset}, {Kind: mockserver.FaultReset, After: true},
			{Kind: mockserver.FaultHang}, {Kind: mockserver.FaultCutHead}, {Kind: mockserver.FaultCut},
			{Kind: mockserver.FaultDelay, Delay: time.Minute},
			{Kind: mockserver.FaultStatus, Status: 500}, {Kind: mockserver.FaultStatus, Status: 503, RetryAfter: time.Second},
			{Kind: mockserver.FaultStatus, Status: 408}, {Kind: mockserver.FaultStatus, Status: 425},
			{Kind: mockserver.FaultStatus, Status: 409}, {Kind: mockserver.FaultStatus, Status: 504, After: true},
		} {
			t.Run(name+", "+string(f.Kind)+http.StatusText(f.Status), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := p.bench(t, nil)
					b.api.Script(f)
					_, _ = b.do(b.named("o"))
					b.api.Wait()
					_, _ = b.do(b.named("o"))
					b.restart()
					_, err := b.client.Resume(t.Context(), nil)
					require.NoError(t, err)
					_, _ = b.do(b.named("o"))
					require.Len(t, b.posts(), 1)
					require.Equal(t, []string{""}, b.api.Keys("o"))
				})
			})
		}
	}
}

// Modern Treasury and Increase honour the key on POST alone.
func TestAPatchThatTheKeyDoesntCoverIsSentOnce(t *testing.T) {
	for _, p := range []provider{
		{preset: dialect.ModernTreasury(), profile: mockserver.ModernTreasury(), method: "PATCH", path: "/api/payment_orders/1"},
		{preset: dialect.Increase(), profile: mockserver.Increase(), method: "PATCH", path: "/accounts/1"},
	} {
		t.Run(p.preset.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := p.bench(t, nil)
				b.api.Script(mockserver.Fault{Kind: mockserver.FaultDrop})
				end, err := b.do(b.named("o"))
				require.ErrorIs(t, err, idem.ErrUnkeyed)
				require.Equal(t, ambiguous, end)
				require.Len(t, b.posts(), 1)
				require.Equal(t, []string{""}, b.api.Keys("o"))
			})
		})
	}
}

// The time of the first send goes out with every attempt, over restarts, and a
// provider that finds it too old leaves the intent Unknown.
func TestAzureRefusesALateRepeatAndThatProvesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := provider{preset: dialect.Azure(), profile: mockserver.AzureRepeatable(), path: "/sms"}
		p.preset.Window = time.Hour // what this test is about is the provider's own word
		b := p.bench(t, nil)
		b.api.Script(mockserver.Fault{Kind: mockserver.FaultDrop, Times: 6})
		end, _ := b.do(b.named("o"))
		require.Equal(t, open, end)
		b.restart()
		time.Sleep(6 * time.Minute)
		end, err := b.do(b.named("o"))
		require.ErrorIs(t, err, idem.ErrInDoubt)
		require.Equal(t, open, end)
		var refusal *idem.Error
		require.True(t, errors.As(err, &refusal))
		require.Equal(t, http.StatusPreconditionFailed, refusal.Response.StatusCode)
		b.once("o", 1)
		first := b.posts()[0].Header.Get("Repeatability-First-Sent")
		require.NotEmpty(t, first)
		for _, r := range b.posts() {
			require.Equal(t, first, r.Header.Get("Repeatability-First-Sent"))
		}
		time.Sleep(time.Hour)
		end, err = b.do(b.named("o"))
		require.ErrorIs(t, err, idem.ErrWindowClosed)
		require.Equal(t, ambiguous, end)
	})
}

// Svix holds its lock for five seconds: only an attempt that outlasts the work is
// safe there, which is what the preset's comment asks for.
func TestSvixIsGivenTimeToEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := provider{preset: dialect.Svix(), profile: mockserver.Svix(), path: "/api/v1/app/1/msg"}
		b := p.bench(t, nil, func(o *idem.Options) { o.Retry.AttemptTimeout = time.Minute })
		b.api.Script(mockserver.Fault{Kind: mockserver.FaultDelay, Delay: 20 * time.Second})
		end, err := b.do(b.named("o"))
		require.NoError(t, err)
		require.Equal(t, done, end)
		b.once("o", 1)
	})
}

// A mock that takes version 4 alone, as trigger.dev and Mastercard do: the wrong
// form is refused, and refused is all that happens; the right one is a field away.
func TestAProviderThatChecksTheVersionOfTheUUIDGetsThatOne(t *testing.T) {
	for form, want := range map[idem.KeyForm]ending{idem.KeyUUIDv7: notDone, idem.KeyUUIDv4: done} {
		synctest.Test(t, func(t *testing.T) {
			d := idem.Dialect{Name: "mastercard", KeyForm: form, Window: 30 * time.Second}
			b := provider{preset: d, profile: mockserver.Mastercard(), path: "/pay"}.bench(t, nil)
			end, err := b.do(b.named("o"))
			require.NoError(t, err)
			require.Equal(t, want, end)
			require.Len(t, b.posts(), 1)
		})
	}
}

// Increase's 409 is somebody else's key, not a request in flight (fault 15).
func TestAConflictOverAKeyIsNotRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := provider{preset: dialect.Increase(), profile: mockserver.Increase(), path: "/ach_transfers"}.bench(t, nil)
		b.api.Script(mockserver.Fault{Kind: mockserver.FaultStatus, Status: 409, Body: `{"status":409,"type":"idempotency_key_already_used_error","resource_id":"ach_1"}`})
		_, err := b.do(b.named("o"))
		require.ErrorIs(t, err, idem.ErrMismatch)
		var e *idem.Error
		require.True(t, errors.As(err, &e))
		body, err := io.ReadAll(e.Response.Body)
		require.NoError(t, err)
		require.Contains(t, string(body), "ach_1")
		require.Len(t, b.posts(), 1)
	})
}

// Dwolla's 409 to a key that nobody else can hold is a duplicate of something else.
func TestAConflictOfAFreshKeyAtDwollaIsARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := dwolla().bench(t, nil)
		b.api.Script(mockserver.Fault{Kind: mockserver.FaultStatus, Status: 409, Body: `{"code":"DuplicateResource"}`})
		end, err := b.do(b.named("o"))
		require.NoError(t, err)
		require.Equal(t, notDone, end)
		require.Len(t, b.posts(), 1)
	})
}
