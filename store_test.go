package idem_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/storetest"
)

func openJournal(t testing.TB, path string, opts *idem.KeystoreOptions) *idem.BoltKeystore {
	t.Helper()
	ks, err := idem.OpenKeystore(path, opts)
	require.NoError(t, err)
	t.Cleanup(func() { ks.Close() })
	return ks
}

func TestTheMemoryKeystoreConforms(t *testing.T) {
	storetest.Suite{
		Open: func(testing.TB) idem.Keystore { return idem.NewMemoryKeystore() },
	}.Run(t)
}

func TestTheJournalConforms(t *testing.T) {
	storetest.Suite{
		Open: func(t testing.TB) idem.Keystore {
			return openJournal(t, filepath.Join(t.TempDir(), "journal"), nil)
		},
		Reopen: func(t testing.TB, ks idem.Keystore) idem.Keystore {
			require.NoError(t, ks.Close())
			return openJournal(t, ks.(*idem.BoltKeystore).Path(), nil)
		},
		Damage: func(t testing.TB, ks idem.Keystore, scope, key string) {
			idem.DamageRecord(t, ks.(*idem.BoltKeystore), scope, key)
		},
	}.Run(t)
}
