package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/store"
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

func transactions(t testing.TB, s *store.Journal) int {
	n, err := s.Transactions()
	require.NoError(t, err)
	return n
}
