package store_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/keystore"
)

// bigJournal is a journal of so many records, opened, as IDEM_BIG says; "" is none.
func bigJournal(t *testing.T, n int) (string, *store.Journal) {
	path := t.TempDir() + "/journal"
	ks := openJournal(t, path, nil)
	const step = 20_000
	for i := 0; i < n; i += step {
		require.NoError(t, ks.Commit(t.Context(), creates(i, min(i+step, n))...))
	}
	return path, ks
}

// What a journal of a million records costs is measured here, and said in docs.
func TestABigJournalOpensSoonAndItsCommitsStayShort(t *testing.T) {
	n := 20_000
	if os.Getenv("IDEM_BIG") != "" {
		n = 1_000_000
	}
	path, ks := bigJournal(t, n)
	limit := 2 * time.Second
	open := func(what string) {
		begin := time.Now()
		ks = openJournal(t, path, nil)
		took := time.Since(begin)
		info, err := os.Stat(path)
		require.NoError(t, err)
		t.Logf("%s: open %v, %d MiB", what, took, info.Size()>>20)
		if what != "after a crash" {
			require.Less(t, took, limit, what)
		}
	}
	closeIt := func() {
		begin := time.Now()
		require.NoError(t, ks.Close())
		t.Logf("close %v", time.Since(begin))
	}
	commits := func(what string) {
		var all []time.Duration
		for i := range 200 {
			r := storeRecord(2*n + i)
			begin := time.Now()
			require.NoError(t, ks.Commit(t.Context(), keystore.Change{Op: keystore.OpCreate, Record: r}))
			all = append(all, time.Since(begin))
			require.NoError(t, ks.Commit(t.Context(), keystore.Change{Op: keystore.OpRemove, Record: r}))
		}
		slices.Sort(all)
		t.Log(what, fmt.Sprintf("commit: median %v, 95 %% %v, worst %v", all[100], all[190], all[199]))
	}
	commits("full")
	closeIt()
	open("after a clean close")
	closeIt()
	store.Unclean(t, path)
	open("after a crash")
	for i := 0; i < n; i += 20_000 {
		most := removes(i, min(i+20_000, n))
		most = slices.DeleteFunc(most, func(c keystore.Change) bool { return strings.HasSuffix(c.Record.Key, "7") })
		require.NoError(t, ks.Commit(t.Context(), most...))
	}
	commits("90 % removed")
	before, err := os.Stat(path)
	require.NoError(t, err)
	closeIt()
	open("after 90 % were removed")
	after, err := os.Stat(path)
	require.NoError(t, err)
	require.Less(t, after.Size(), before.Size()/2, "a file that is mostly free is made small at open")
	commits("opened anew")
}
