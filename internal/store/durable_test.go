package store_test

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/keystore"
)

func TestWhatAFailedSyncLeftOpenIsNotReadAsTrue(t *testing.T) {
	ks := openJournal(t, journalPath(t), nil)
	require.NoError(t, ks.Commit(t.Context(), creates(0, 100)...))
	ks.FailCommits(syscall.EIO, true)
	changed := storeRecord(50)
	changed.Lane = keystore.LaneSettled
	err := ks.Commit(t.Context(), keystore.Change{Op: keystore.OpReplace, Record: changed}, creates(100, 101)[0])
	require.ErrorIs(t, err, keystore.ErrUncertain)

	for _, ref := range []keystore.Ref{
		{Scope: "scope", Key: changed.Key}, {Scope: "scope", Name: changed.Name}, {Scope: "scope", Key: storeRecord(100).Key},
	} {
		_, err := readOne(t, ks, ref)
		require.ErrorIs(t, err, syscall.EIO)
	}
	for _, lane := range []keystore.Lane{keystore.LaneOpen, keystore.LaneSettled} {
		for r, err := range ks.Scan(t.Context(), keystore.Query{Scope: "scope", Lane: lane}) {
			if err != nil {
				require.ErrorIs(t, err, syscall.EIO)
			}
			require.NotEqual(t, changed.Key, r.Key)
		}
	}
	_, err = readOne(t, ks, keystore.Ref{Scope: "scope", Key: storeRecord(51).Key})
	require.NoError(t, err, "what the commit didn't touch is known")
}

func TestNothingIsReadBeforeItsSync(t *testing.T) {
	ks := openJournal(t, journalPath(t), nil)
	require.NoError(t, ks.Commit(t.Context(), creates(0, 2)...))
	written, sync := make(chan struct{}), make(chan struct{})
	ks.HoldSync(func() {
		close(written)
		<-sync
	})
	changed := storeRecord(0)
	changed.Head = []byte("new")
	committed := make(chan error, 1)
	go func() {
		committed <- ks.Commit(context.Background(), keystore.Change{Op: keystore.OpReplace, Record: changed})
	}()
	<-written
	ref := keystore.Ref{Scope: "scope", Key: changed.Key}
	cause := errors.New("the cause")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(20*time.Millisecond, func() { cancel(cause) })
	_, err := ks.Read(ctx, ref)
	require.ErrorIs(t, err, cause, "it waits")
	_, err = readOne(t, ks, keystore.Ref{Scope: "scope", Key: storeRecord(1).Key})
	require.NoError(t, err, "others don't")

	close(sync)
	require.NoError(t, <-committed)
	r, err := readOne(t, ks, ref)
	require.NoError(t, err)
	require.Equal(t, "new", string(r.Head))
}

// The page that makes the last commit count may be in memory alone, and the system may
// take it for written.
func TestAnOpenMakesDurableWhatItReads(t *testing.T) {
	path := journalPath(t)
	ks := openJournal(t, path, nil)
	require.NoError(t, ks.Commit(t.Context(), creates(0, 10)...))
	require.NoError(t, ks.Close())
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	long := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(path, long, long))

	synced := false
	defer store.SyncAtOpen(func(f *os.File) error {
		info, err := f.Stat()
		require.NoError(t, err)
		require.True(t, info.ModTime().After(long), "nothing was written again")
		synced = true
		return syscall.EIO
	})()
	_, err = store.Open(path, store.Options{})
	require.ErrorIs(t, err, syscall.EIO)
	require.True(t, synced)
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, before, after)
}
