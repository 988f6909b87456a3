package limit

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var noon = time.Date(2026, 3, 29, 12, 0, 0, 0, time.UTC)

// drain takes all tokens and returns how many there were.
func drain(b *Budgets, origin string, now time.Time) (n int) {
	for b.Take(origin, now) {
		n++
	}
	return n
}

// Ensure that a budget starts full, that each origin has its own, and that time
// and successes fill it up to its capacity and not beyond.
func TestBudgets_take(t *testing.T) {
	b := NewBudgets()
	require.Equal(t, 1000, drain(b, "a", noon))
	require.False(t, b.Take("a", noon))
	require.True(t, b.Take("b", noon))

	require.False(t, b.Take("a", noon.Add(49*time.Millisecond)))
	require.True(t, b.Take("a", noon.Add(50*time.Millisecond)), "the part of a token isn't lost")
	require.Equal(t, 20, drain(b, "a", noon.Add(1050*time.Millisecond)))

	b.Refund("a", noon.Add(1050*time.Millisecond))
	b.Refund("a", noon.Add(1050*time.Millisecond))
	require.Equal(t, 2, drain(b, "a", noon.Add(1050*time.Millisecond)))

	year := noon.AddDate(1, 0, 0)
	b.Refund("a", year)
	require.Equal(t, 1000, drain(b, "a", year))
	require.Equal(t, 1000, drain(b, "a", year.AddDate(9999, 0, 0)), "longer than a Duration")
}

// Ensure that a clock that is set back neither fills the bucket nor stops it
// from filling, and that readings out of order give no token twice.
func TestBudgets_clockGoesBack(t *testing.T) {
	b := NewBudgets()
	drain(b, "a", noon)
	yesterday := noon.AddDate(0, 0, -1)
	require.False(t, b.Take("a", yesterday))
	require.Equal(t, 20, drain(b, "a", yesterday.Add(time.Second)))

	drain(b, "a", noon)
	for range 1000 { // each pair would give 100 ms once more
		require.False(t, b.Take("a", noon.Add(-100*time.Millisecond)))
		require.False(t, b.Take("a", noon))
	}
	require.Equal(t, 2, drain(b, "a", noon.Add(100*time.Millisecond)))
}

// Ensure that there are never more origins than allowed.
func TestBudgets_bounded(t *testing.T) {
	b := NewBudgets()
	drain(b, "used", noon)
	drain(b, "unused", noon)
	for i := range 2 * maxBudgets {
		b.Refund(fmt.Sprint(i), noon)
		require.False(t, b.Take("used", noon))
	}
	require.Len(t, b.origins.items, maxBudgets)
	require.True(t, b.Take("unused", noon), "forgotten, so it starts full")
}

// Ensure that many goroutines don't take more than there is.
func TestBudgets_stress(t *testing.T) {
	b := NewBudgets()
	var taken atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 300 {
				if b.Take("a", noon) {
					taken.Add(1)
				}
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1000, taken.Load())
}
