package store_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/keystore"
)

func TestACleanCloseIsRemembered(t *testing.T) {
	path := journalPath(t)
	ks := openJournal(t, path, nil)
	require.NoError(t, ks.Commit(t.Context(), creates(0, 100)...))
	require.NoError(t, ks.Close())
	require.True(t, store.ClosedClean(t, path))

	for i := range 3 { // also when nothing was written
		ks = openJournal(t, path, nil)
		wantRecords(t, ks, 0, 100)
		if i == 1 {
			require.NoError(t, ks.Commit(t.Context(), creates(100, 101)...))
			require.NoError(t, ks.Commit(t.Context(), removes(100, 101)...))
		}
		require.NoError(t, ks.Close())
		require.True(t, store.ClosedClean(t, path))
	}
}

func TestWhatCrashedOrWasChangedIsNotTakenForClosedClean(t *testing.T) {
	path := journalPath(t)
	ks := openJournal(t, path, nil)
	require.NoError(t, ks.Commit(t.Context(), creates(0, 100)...))
	require.NoError(t, ks.Close())
	closed, err := os.ReadFile(path)
	require.NoError(t, err)

	ks = openJournal(t, path, nil)
	require.NoError(t, ks.Commit(t.Context(), creates(100, 101)...))
	crashed, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, ks.Close())

	copied := filepath.Join(t.TempDir(), "copy")
	write := func(data []byte) bool {
		require.NoError(t, os.WriteFile(copied, data, 0o600))
		return store.ClosedClean(t, copied)
	}
	require.True(t, write(closed))
	require.False(t, write(crashed))
	used := len(bytes.TrimRight(closed, "\x00"))
	for bit := 7; bit < used*8; bit += 1009 {
		if write(flip(closed, bit)) {
			t.Fatalf("bit %d was changed unnoticed", bit)
		}
	}
}

// A note that a failed journal left would vouch for what nobody knows.
func TestAFailedJournalIsNotClosedClean(t *testing.T) {
	path := journalPath(t)
	ks := openJournal(t, path, nil)
	ks.FailCommits(os.ErrInvalid, true)
	require.Error(t, ks.Commit(t.Context(), creates(0, 1)...))
	require.NoError(t, ks.Close())
	require.False(t, store.ClosedClean(t, path))
	_, err := readOne(t, openJournal(t, path, nil), keystore.Ref{Scope: "scope", Key: storeRecord(0).Key})
	require.NoError(t, err)
}
