package limit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Ensure that the hook hears every change, in order, also those that happen
// only because somebody asked, and that it may ask itself.
func TestCircuits_reentrantHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *Circuits
		var heard []string
		b = NewCircuits(small, func(_ context.Context, group, from, to string) {
			heard = append(heard, group+": "+from+" to "+to)
			done, _, ok := b.Allow(context.Background(), "a", time.Now())
			if ok {
				done(Neutral)
			}
			done, _, ok = b.Allow(context.Background(), "other", time.Now())
			require.True(t, ok)
			done(Healthy)
		})
		report(t, b, "a", Failed, Failed, Failed, Failed)
		time.Sleep(refused(t, b, "a"))
		report(t, b, "a", Failed)
		time.Sleep(refused(t, b, "a"))
		report(t, b, "a", Healthy)
		require.Equal(t, []string{
			"a: closed to open", "a: open to half-open",
			"a: half-open to open", "a: open to half-open",
			"a: half-open to closed",
		}, heard)
	})
}

// Ensure that a change caused inside the hook is told after the one that caused
// it, by the same call.
func TestCircuits_hookCausesChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *Circuits
		var heard []string
		b = NewCircuits(small, func(_ context.Context, group, _, to string) {
			heard = append(heard, group+" "+to)
			if group == "a" && to == "open" {
				report(t, b, "b", Failed, Failed, Failed, Failed)
				require.Len(t, heard, 1, "not from within")
			}
		})
		report(t, b, "a", Failed, Failed, Failed, Failed)
		require.Equal(t, []string{"a open", "b open"}, heard)
	})
}

// Ensure that a hook that panics costs neither a probe's slot nor later hooks.
func TestCircuits_panickingHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var heard []string
		b := NewCircuits(small, func(_ context.Context, _, _, to string) {
			heard = append(heard, to)
			if to == "half-open" {
				panic("in the hook")
			}
		})
		report(t, b, "a", Failed, Failed, Failed, Failed)
		time.Sleep(refused(t, b, "a"))
		require.Panics(t, func() { _, _, _ = b.Allow(context.Background(), "a", time.Now()) })
		report(t, b, "a", Healthy)
		require.Equal(t, []string{"open", "half-open", "closed"}, heard)
	})
}

// Ensure that there are never more groups than allowed, that open ones stay as
// long as a closed one can go, and that an evicted one's attempts end quietly.
func TestCircuits_bounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var heard []string
		b := NewCircuits(small, func(_ context.Context, group, from, to string) {
			heard = append(heard, group+": "+from+" to "+to)
		})
		report(t, b, "open", Failed, Failed, Failed, Failed)
		var late []func(Health)
		for range 4 {
			done, _, ok := b.Allow(context.Background(), "busy", time.Now())
			require.True(t, ok)
			late = append(late, done)
		}
		for i := range maxGroups + 5 {
			report(t, b, fmt.Sprint(i), Healthy)
			require.LessOrEqual(t, len(b.circuits.items), maxGroups)
		}
		refused(t, b, "open")
		require.NotContains(t, b.circuits.items, "busy")
		for _, done := range late {
			done(Failed)
		}
		report(t, b, "busy", Healthy)
		require.Equal(t, []string{"open: closed to open"}, heard)

		// When all are open the one used longest ago goes, which closes it.
		for i := range maxGroups {
			report(t, b, fmt.Sprint("down ", i), Failed, Failed, Failed, Failed)
		}
		require.Contains(t, heard, "open: open to closed")
		report(t, b, "open", Healthy)
		require.Len(t, b.circuits.items, maxGroups)
	})
}

// Ensure that calls of many goroutines leave no slot behind and that hooks run
// one at a time, in an order that makes sense for each group.
func TestCircuits_stress(t *testing.T) {
	const groups = 5
	var telling atomic.Int32
	state := map[string]string{}
	p := Trip{Window: time.Minute, MinRequests: 3, FailureRate: 0.5, OpenFor: 50 * time.Microsecond, Probes: 2}
	b := NewCircuits(p, func(_ context.Context, group, from, to string) {
		if telling.Add(1) != 1 {
			t.Error("two hooks at once")
		}
		defer telling.Add(-1)
		if was, ok := state[group]; ok && was != from {
			t.Errorf("%s: was %s, heard of %s to %s", group, was, from, to)
		}
		state[group] = to
	})
	b.circuits.limit = groups - 1 // so that they evict each other

	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 2000 {
				done, _, ok := b.Allow(context.Background(), fmt.Sprint(rand.N(groups)), time.Now())
				if ok {
					done([]Health{Healthy, Failed, Failed, Neutral}[rand.N(4)])
				}
			}
		})
	}
	wg.Wait()

	for group := range b.circuits.items {
		require.Eventually(t, func() bool {
			done, _, ok := b.Allow(context.Background(), group, time.Now())
			done(Healthy)
			return ok
		}, 5*time.Second, time.Millisecond, "a slot of group %s is lost", group)
	}
}
