package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/keystore"
)

func openJournal(t testing.TB, path string, opts *store.Options) *store.Journal {
	t.Helper()
	o := store.Options{LockWait: time.Second}
	if opts != nil {
		o = *opts
	}
	ks, err := store.Open(path, o)
	require.NoError(t, err)
	t.Cleanup(func() { ks.Close() })
	return ks
}

// readOne returns one record, what is wrong with it, or ErrNotFound.
func readOne(t testing.TB, ks keystore.Keystore, ref keystore.Ref) (keystore.Record, error) {
	list, err := ks.Read(t.Context(), ref)
	if err != nil {
		return keystore.Record{}, err
	}
	r := list[0]
	if !r.Found() {
		return r, keystore.ErrNotFound
	}
	damage := r.Damage
	r.Damage = nil
	return r, damage
}

func transactions(t testing.TB, s *store.Journal) int {
	n, err := s.Transactions()
	require.NoError(t, err)
	return n
}
