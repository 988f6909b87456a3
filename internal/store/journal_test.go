package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/keystore"
)

var storeTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// storeRecord is an open record with a name and a request.
func storeRecord(i int) keystore.Record {
	return keystore.Record{
		Scope: "scope", Key: fmt.Sprintf("key%06d", i), Name: fmt.Sprintf("name %d", i), Lane: keystore.LaneOpen, Rev: 1,
		Order: storeTime.Add(time.Duration(i) * time.Second),
		Head:  fmt.Appendf(nil, "head %d", i), Request: []byte(strings.Repeat(fmt.Sprint("request ", i), 20)),
	}
}

func creates(from, to int) (changes []keystore.Change) {
	for i := from; i < to; i++ {
		changes = append(changes, keystore.Change{Op: keystore.OpCreate, Record: storeRecord(i)})
	}
	return changes
}

func removes(from, to int) (changes []keystore.Change) {
	for i := from; i < to; i++ {
		r := storeRecord(i)
		r.Rev = 1
		changes = append(changes, keystore.Change{Op: keystore.OpRemove, Record: r})
	}
	return changes
}

// wantRecords fails unless the store holds exactly these records, by key, name
// and scan.
func wantRecords(t testing.TB, ks keystore.Keystore, from, to int) {
	t.Helper()
	i := from
	for r, err := range ks.Scan(t.Context(), keystore.Query{Scope: "scope", Lane: keystore.LaneOpen}) {
		require.NoError(t, err)
		require.Equal(t, storeRecord(i).Key, r.Key)
		got, err := readOne(t, ks, keystore.Ref{Scope: "scope", Name: r.Name, Bodies: true})
		require.NoError(t, err)
		want := storeRecord(i)
		want.Rev = 1
		require.Equal(t, want, got)
		i++
	}
	require.Equal(t, to, i)
}

func journalPath(t testing.TB) string { return filepath.Join(t.TempDir(), "journal") }

func TestAJournalIsReadableForItsOwnerAloneAndLeavesNothingBesideIt(t *testing.T) {
	path := journalPath(t)
	ks := openJournal(t, path, nil)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	require.NoError(t, ks.Commit(t.Context(), creates(0, 10)...))
	require.NoError(t, ks.Compact(t.Context()))
	require.NoError(t, ks.Close())
	info, err = os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	files, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, files, 1)
}

func TestAJournalBehindALinkStaysThere(t *testing.T) {
	path, link := journalPath(t), journalPath(t)
	require.NoError(t, openJournal(t, path, nil).Close())
	require.NoError(t, os.Symlink(path, link))
	ks := openJournal(t, link, nil)
	require.Equal(t, path, ks.Path())
	require.NoError(t, ks.Compact(t.Context()))
	info, err := os.Lstat(link)
	require.NoError(t, err)
	require.Equal(t, os.ModeSymlink, info.Mode().Type())
}

func TestCommitsThatWaitForTheDiskShareATransaction(t *testing.T) {
	ks := openJournal(t, journalPath(t), nil)
	const writers = 64
	started, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	ks.SlowCommits(func() {
		once.Do(func() { close(started) })
		<-release
	})
	before := transactions(t, ks)
	var wg sync.WaitGroup
	write := func(i int) {
		wg.Go(func() { require.NoError(t, ks.Commit(t.Context(), creates(i, i+1)...)) })
	}
	write(0)
	<-started
	for i := 1; i < writers; i++ {
		write(i)
	}
	// All others have joined the queue, or the number below is a little higher.
	time.Sleep(50 * time.Millisecond)
	close(release)
	wg.Wait()
	wantRecords(t, ks, 0, writers)
	require.LessOrEqual(t, transactions(t, ks)-before, 8)
}

func TestACommitThatIsCanceledInTheQueueLeavesIt(t *testing.T) {
	ks := openJournal(t, journalPath(t), nil)
	started, release := make(chan struct{}, 9), make(chan struct{})
	ks.SlowCommits(func() {
		started <- struct{}{}
		<-release
	})
	first := make(chan error, 1)
	go func() { first <- ks.Commit(context.Background(), creates(0, 1)...) }()
	<-started

	// The disk is busy: the second waits in the queue, and gives up.
	cause := errors.New("the cause")
	ctx, cancel := context.WithCancelCause(t.Context())
	second := make(chan error, 1)
	go func() { second <- ks.Commit(ctx, creates(1, 2)...) }()
	time.Sleep(10 * time.Millisecond)
	cancel(cause)
	require.ErrorIs(t, <-second, cause)

	close(release)
	require.NoError(t, <-first)
	require.NoError(t, ks.Commit(t.Context(), creates(2, 3)...))
	_, err := readOne(t, ks, keystore.Ref{Scope: "scope", Key: storeRecord(1).Key})
	require.ErrorIs(t, err, keystore.ErrNotFound)
}

func TestCloseLetsCommitsFinish(t *testing.T) {
	path := journalPath(t)
	ks := openJournal(t, path, nil)
	started := make(chan struct{})
	var once sync.Once
	ks.SlowCommits(func() {
		once.Do(func() { close(started) })
		time.Sleep(20 * time.Millisecond)
	})
	done := make(chan error, 1)
	go func() { done <- ks.Commit(context.Background(), creates(0, 1)...) }()
	<-started
	require.NoError(t, ks.Close())
	require.NoError(t, <-done)
	wantRecords(t, openJournal(t, path, nil), 0, 1)
}

func TestAfterAFailedCommitThereAreNoWritesAndNoAbsences(t *testing.T) {
	for _, written := range []bool{false, true} {
		path := journalPath(t)
		ks := openJournal(t, path, nil)
		require.NoError(t, ks.Commit(t.Context(), creates(0, 100)...))
		ks.FailCommits(syscall.EIO, written)

		err := ks.Commit(t.Context(), creates(100, 101)...)
		require.ErrorIs(t, err, syscall.EIO)
		require.NotErrorIs(t, err, keystore.ErrFull)
		require.ErrorContains(t, err, path)
		require.ErrorIs(t, ks.Commit(t.Context(), creates(101, 102)...), syscall.EIO)
		require.ErrorIs(t, ks.Compact(t.Context()), syscall.EIO)

		// What is there can be read, what isn't can't be said not to exist.
		_, err = readOne(t, ks, keystore.Ref{Scope: "scope", Key: storeRecord(7).Key})
		require.NoError(t, err)
		_, err = readOne(t, ks, keystore.Ref{Scope: "scope", Name: "unheard of"})
		require.ErrorIs(t, err, syscall.EIO)
		require.NotErrorIs(t, err, keystore.ErrNotFound)
		var last error
		for _, err := range ks.Scan(t.Context(), keystore.Query{Scope: "scope", Lane: keystore.LaneOpen}) {
			last = err
		}
		require.ErrorIs(t, last, syscall.EIO)

		// A life later it is known.
		require.NoError(t, ks.Close())
		n := 100
		if written {
			n = 101
		}
		ks = openJournal(t, path, nil)
		wantRecords(t, ks, 0, n)
		require.NoError(t, ks.Commit(t.Context(), creates(n, n+1)...))
	}
}

func TestASyncThatFindsNoRoomIsNotAFullJournal(t *testing.T) {
	ks := openJournal(t, journalPath(t), nil)
	ks.FailCommits(syscall.ENOSPC, false)
	require.NotErrorIs(t, ks.Commit(t.Context(), creates(0, 1)...), keystore.ErrFull)
	require.Error(t, ks.Commit(t.Context(), creates(1, 2)...))
}

func TestAWriteThatFindsNoRoomIsAFullJournalThatGoesOn(t *testing.T) {
	ks := openJournal(t, journalPath(t), nil)
	ks.FailCommits(&os.PathError{Op: "write", Path: "journal", Err: syscall.ENOSPC}, false)
	require.ErrorIs(t, ks.Commit(t.Context(), creates(0, 1)...), keystore.ErrFull)
	_, err := readOne(t, ks, keystore.Ref{Scope: "scope", Key: storeRecord(0).Key})
	require.ErrorIs(t, err, keystore.ErrNotFound)
	ks.SlowCommits(func() {})
	require.NoError(t, ks.Commit(t.Context(), creates(0, 1)...))

	// The same error from behind the last write proves nothing.
	ks.FailCommits(&os.PathError{Op: "write", Path: "journal", Err: syscall.ENOSPC}, true)
	require.NotErrorIs(t, ks.Commit(t.Context(), creates(1, 2)...), keystore.ErrFull)
}

func TestAFullJournalTakesResultsAndThenGoesOnWhenThereIsRoom(t *testing.T) {
	ks := openJournal(t, journalPath(t), &store.Options{MaxSize: 1 << 20})
	n := 0
	var err error
	for err == nil {
		if err = ks.Commit(t.Context(), creates(n, n+5)...); err == nil {
			n += 5
		}
		require.Less(t, n, 10_000)
	}
	require.ErrorIs(t, err, keystore.ErrFull)
	require.Greater(t, n, 200)
	wantRecords(t, ks, 0, n)
	info, err := os.Stat(ks.Path())
	require.NoError(t, err)
	require.LessOrEqual(t, info.Size(), int64(1<<20))

	// What exists can still get its result.
	r := storeRecord(0)
	r.Rev, r.Lane, r.Response = 1, keystore.LaneSettled, []byte("response")
	require.NoError(t, ks.Commit(t.Context(), keystore.Change{Op: keystore.OpReplace, Record: r}))
	require.ErrorIs(t, ks.Commit(t.Context(), creates(n, n+1)...), keystore.ErrFull)

	// A remove needs some room too, as no page that is in use is written over.
	for i := 1; i < 100; i++ {
		require.NoError(t, ks.Commit(t.Context(), removes(i, i+1)...))
	}
	require.NoError(t, ks.Commit(t.Context(), creates(n, n+1)...))
	wantRecords(t, ks, 100, n+1)
}

func TestOneCommitThatIsTooLargeKeepsNoOtherOut(t *testing.T) {
	ks := openJournal(t, journalPath(t), &store.Options{MaxSize: 1 << 20})
	started, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	ks.SlowCommits(func() {
		once.Do(func() { close(started) })
		<-release
	})
	var wg sync.WaitGroup
	var full atomic.Int32
	wg.Go(func() { require.NoError(t, ks.Commit(t.Context(), creates(0, 1)...)) })
	<-started
	for i := 1; i < 9; i++ {
		wg.Go(func() {
			changes := creates(i, i+1)
			if i == 8 {
				changes[0].Record.Request = make([]byte, 4<<20)
			}
			if err := ks.Commit(t.Context(), changes...); errors.Is(err, keystore.ErrFull) {
				full.Add(1)
			} else {
				require.NoError(t, err)
			}
		})
	}
	time.Sleep(20 * time.Millisecond)
	close(release)
	wg.Wait()
	require.EqualValues(t, 1, full.Load())
	wantRecords(t, ks, 0, 8)
}

func TestCompactGivesSpaceBackAndChangesNothingElse(t *testing.T) {
	path := journalPath(t)
	ks := openJournal(t, path, nil)
	for i := 0; i < 3000; i += 500 {
		require.NoError(t, ks.Commit(t.Context(), creates(i, i+500)...))
	}
	now := storeTime
	_, err := ks.Clock(t.Context(), now, time.Minute)
	require.NoError(t, err)
	require.NoError(t, ks.Commit(t.Context(), removes(0, 2900)...))
	before, err := os.Stat(path)
	require.NoError(t, err)

	// Readers and writers go on beside it.
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				wantRecords(t, ks, 2900, 3000)
			}
		}
	})
	wg.Go(func() {
		for i := 0; i < 20; i++ {
			c := creates(1, 2)
			c[0].Record.Lane = keystore.LaneSettled
			require.NoError(t, ks.Commit(t.Context(), c...))
			require.NoError(t, ks.Commit(t.Context(), removes(1, 2)...))
		}
	})
	for range 3 {
		require.NoError(t, ks.Compact(t.Context()))
	}
	close(stop)
	wg.Wait()

	after, err := os.Stat(path)
	require.NoError(t, err)
	require.Less(t, after.Size(), before.Size()/4)
	wantRecords(t, ks, 2900, 3000)
	require.NoError(t, ks.Close())
	ks = openJournal(t, path, nil)
	wantRecords(t, ks, 2900, 3000)
	s, err := ks.Clock(t.Context(), now.Add(time.Hour), time.Minute)
	require.NoError(t, err)
	require.Equal(t, keystore.Sighting{Now: s.Now, Age: time.Hour}, s)
}

func TestCompactKeepsTheLock(t *testing.T) {
	path := journalPath(t)
	ks := openJournal(t, path, nil)
	require.NoError(t, ks.Commit(t.Context(), creates(0, 10)...))

	// Others wait for the file that is about to be replaced.
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			other, err := store.Open(path, store.Options{LockWait: 300 * time.Millisecond})
			if err == nil {
				other.Close()
			}
			require.ErrorIs(t, err, keystore.ErrLocked)
		})
	}
	for range 20 {
		require.NoError(t, ks.Compact(t.Context()))
		time.Sleep(10 * time.Millisecond)
	}
	wg.Wait()
	require.NoError(t, ks.Commit(t.Context(), creates(10, 11)...))
	wantRecords(t, ks, 0, 11)
}

func TestACompactThatIsCanceledOrFailsChangesNothing(t *testing.T) {
	path := journalPath(t)
	ks := openJournal(t, path, nil)
	require.NoError(t, ks.Commit(t.Context(), creates(0, 10)...))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, ks.Compact(ctx), context.Canceled)
	require.Len(t, filesIn(t, filepath.Dir(path)), 1)
	require.NoError(t, ks.Commit(t.Context(), creates(10, 11)...))

	// A name that isn't durable leads to the old file after a power cut.
	ks.FailSyncDir(syscall.EIO)
	require.ErrorIs(t, ks.Compact(t.Context()), syscall.EIO)
	require.ErrorIs(t, ks.Commit(t.Context(), creates(11, 12)...), syscall.EIO)
	require.NoError(t, ks.Close())
	wantRecords(t, openJournal(t, path, nil), 0, 11)
}

func TestASetbackOfTheClockIsDurableWithoutACommit(t *testing.T) {
	path := journalPath(t)
	ks := openJournal(t, path, nil)
	_, err := ks.Clock(t.Context(), storeTime, time.Minute)
	require.NoError(t, err)
	before := transactions(t, ks)
	_, err = ks.Clock(t.Context(), storeTime.Add(time.Second), time.Minute)
	require.NoError(t, err)
	require.Equal(t, before, transactions(t, ks), "an ordinary sighting costs no sync")
	_, err = ks.Clock(t.Context(), storeTime.Add(-time.Hour), time.Minute)
	require.NoError(t, err)
	require.Equal(t, before+1, transactions(t, ks))

	// If it can't be written, nobody hears of it.
	ks.FailCommits(syscall.EIO, false)
	_, err = ks.Clock(t.Context(), storeTime.Add(-2*time.Hour), time.Minute)
	require.ErrorIs(t, err, syscall.EIO)
	_, err = ks.Clock(t.Context(), storeTime.Add(-2*time.Hour), time.Minute)
	require.ErrorIs(t, err, syscall.EIO)
}

func BenchmarkCommit(b *testing.B) {
	for _, writers := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			ks := openJournal(b, journalPath(b), nil)
			before := transactions(b, ks)
			var next atomic.Int64
			var wg sync.WaitGroup
			b.ResetTimer()
			for range writers {
				wg.Go(func() {
					for i := int(next.Add(1)); i <= b.N; i = int(next.Add(1)) {
						if err := ks.Commit(b.Context(), creates(i, i+1)...); err != nil {
							b.Error(err)
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			b.ReportMetric(float64(b.N)/float64(transactions(b, ks)-before), "commits/tx")
		})
	}
}

func TestNobodyIsRefusedForACommitThatFailed(t *testing.T) {
	ks := openJournal(t, journalPath(t), nil)
	started, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	ks.SlowCommits(func() {
		once.Do(func() { close(started) })
		<-release
	})
	errs := make(chan error, 3)
	commit := func(i int) { go func() { errs <- ks.Commit(context.Background(), creates(i, i+1)...) }() }
	commit(0)
	<-started
	// Two that create the same wait for the next transaction.
	commit(1)
	commit(1)
	time.Sleep(20 * time.Millisecond)
	ks.FailCommits(syscall.EIO, false)
	close(release)
	var failed int
	for range 3 {
		if err := <-errs; err != nil {
			require.ErrorIs(t, err, syscall.EIO)
			failed++
		}
	}
	require.Equal(t, 2, failed)
}
