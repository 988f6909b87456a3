package dialect_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dialect"
)

func TestEveryPresetIsValidDocumentedAndSurvivesJSON(t *testing.T) {
	seen := map[string]bool{}
	for _, d := range dialect.All() {
		t.Run(d.Name, func(t *testing.T) {
			require.NotEmpty(t, d.Name)
			require.False(t, seen[d.Name], "the name is taken")
			seen[d.Name] = true
			b, err := json.Marshal(d)
			require.NoError(t, err)
			parsed, err := idem.ParseDialect(b)
			require.NoError(t, err, string(b))
			require.Equal(t, d, parsed)
			found, ok := dialect.ByName(d.Name)
			require.True(t, ok)
			require.Equal(t, d, found)
			for _, part := range append(d.Routes, d) {
				requireDocumented(t, part)
			}
		})
	}
	_, ok := dialect.ByName("nobody")
	require.False(t, ok)
}

// The lists of paths were written down from memory, but for these two.
func TestPathsFromMemoryAreMarked(t *testing.T) {
	sourced := map[string]bool{"stripe": true, "resend": true}
	for _, d := range dialect.All() {
		for _, part := range append(d.Routes, d) {
			if part.Paths != nil && !sourced[d.Name] {
				require.Contains(t, part.Unverified, "Paths", "%s %v", d.Name, part.Paths)
			}
		}
	}
}

// requireDocumented wants a source for every fact, and names in Unverified that
// are fields. A window that nobody vouches for is short.
func requireDocumented(t *testing.T, d idem.Dialect) {
	t.Helper()
	if d.Name != "standard" && d.Name != "none" {
		require.NotEmpty(t, d.Source)
		require.NotEmpty(t, d.Checked)
	}
	for _, name := range d.Unverified {
		_, ok := reflect.TypeFor[idem.Dialect]().FieldByName(name)
		require.True(t, ok, name)
		if name == "Window" {
			require.LessOrEqual(t, d.Window, 24*time.Hour)
		}
	}
}

func TestChangingAPresetDoesNotChangeTheNextOne(t *testing.T) {
	d := dialect.Stripe()
	d.Methods[0], d.InFlight[0].Status, d.Routes[0].Paths[0] = "X", 1, "/x"
	require.NotEqual(t, d, dialect.Stripe())
	require.Equal(t, []string{"POST"}, dialect.Stripe().Methods)
	require.Equal(t, []string{"POST"}, dialect.Adyen().Methods)
}
