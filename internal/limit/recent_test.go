package limit

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Ensure that a full map forgets what was used longest ago, but nothing that it
// was asked to spare while there is something else.
func TestRecent_add(t *testing.T) {
	even := func(v int) bool { return v%2 == 0 }
	r := newRecent[int](3)
	for i, name := range []string{"one", "two", "three"} {
		_, evicted := r.add(name, i+1, even)
		require.False(t, evicted)
	}

	out, evicted := r.add("five", 5, even)
	require.True(t, evicted)
	require.Equal(t, 2, out, "the only one that isn't spared, though not the oldest")

	v, ok := r.get("one")
	require.True(t, ok)
	require.Equal(t, 1, v)
	out, evicted = r.add("seven", 7, even)
	require.True(t, evicted)
	require.Equal(t, 3, out, "all are spared: the least recently used goes")

	_, ok = r.get("three")
	require.False(t, ok)
	require.Len(t, r.items, 3)
	require.Equal(t, 3, r.order.Len())
}
