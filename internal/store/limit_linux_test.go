package store_test

import (
	"fmt"
	"os/signal"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/keystore"
)

func init() { childRoles["fill"] = fillToTheLimit }

func TestAJournalWhoseFileCantGrowIsFullAndGoesOn(t *testing.T) {
	c := startChild(t, "fill", journalPath(t))
	c.end(t)
}

// fillToTheLimit meets the error that bbolt gives as text alone.
func fillToTheLimit(t *testing.T, path string) {
	ks := openJournal(t, path, nil)
	signal.Ignore(syscall.SIGXFSZ)
	var before syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before))
	limit := syscall.Rlimit{Cur: 1 << 20, Max: before.Max}
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit))
	fmt.Println("limited")
	n := 0
	var err error
	for err == nil {
		if err = ks.Commit(t.Context(), creates(n, n+20)...); err == nil {
			n += 20
		}
		require.Less(t, n, 10_000)
	}
	require.ErrorIs(t, err, keystore.ErrFull)
	wantRecords(t, ks, 0, n)

	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before))
	require.NoError(t, ks.Commit(t.Context(), creates(n, n+20)...))
	require.NoError(t, ks.Close())
	wantRecords(t, openJournal(t, path, nil), 0, n+20)
}
