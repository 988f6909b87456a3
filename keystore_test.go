package idem_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/storetest"
)

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

func TestNegativeKeystoreOptionsAreInvalid(t *testing.T) {
	for field, opts := range map[string]*idem.KeystoreOptions{
		"KeystoreOptions.MaxSize":  {MaxSize: -1},
		"KeystoreOptions.LockWait": {LockWait: -1},
	} {
		_, err := idem.OpenKeystore(journalPath(t), opts)
		var invalid *idem.InvalidError
		require.ErrorAs(t, err, &invalid)
		require.Equal(t, field, invalid.Field)
		require.ErrorIs(t, err, idem.ErrInvalid)
	}
}

func TestAClientCompactsItsJournal(t *testing.T) {
	path := journalPath(t)
	c, err := idem.Open(path, nil)
	require.NoError(t, err)
	require.NoError(t, c.Compact(t.Context()))
	require.NoError(t, c.Close())
	require.ErrorIs(t, c.Compact(t.Context()), idem.ErrClosed)

	ks := idem.NewMemoryKeystore()
	defer ks.Close()
	c, err = idem.New(ks, nil)
	require.NoError(t, err)
	defer c.Close()
	require.ErrorIs(t, c.Compact(t.Context()), errors.ErrUnsupported)
}
