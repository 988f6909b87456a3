package disk

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

func openJournal(t testing.TB, path string, opts *idem.KeystoreOptions) *idem.BoltKeystore {
	t.Helper()
	ks, err := idem.OpenKeystore(path, opts)
	require.NoError(t, err)
	t.Cleanup(func() { ks.Close() })
	return ks
}
