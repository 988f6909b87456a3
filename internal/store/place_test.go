package store_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/store"
)

func filesIn(t testing.TB, dir string) (names []string) {
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, entry := range list {
		names = append(names, entry.Name())
	}
	return names
}

func onlyUnix(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files have no mode and can't be exchanged there")
	}
}

func TestCompactKeepsTheFilesMode(t *testing.T) {
	onlyUnix(t)
	path := journalPath(t)
	ks := openJournal(t, path, nil)
	require.NoError(t, os.Chmod(path, 0o660))
	require.NoError(t, ks.Compact(t.Context()))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o660), info.Mode())
}

func TestACommitWaitsForCompactNoLongerThanItsContext(t *testing.T) {
	onlyUnix(t)
	path := journalPath(t)
	ks := openJournal(t, path, nil)
	require.NoError(t, ks.Commit(t.Context(), creates(0, 2)...))
	inside, leave := make(chan struct{}), make(chan struct{})
	ks.HoldSync(func() {
		close(inside)
		<-leave
	})
	held := make(chan error, 1)
	go func() { held <- ks.Commit(context.Background(), creates(2, 3)...) }()
	<-inside
	compacted := make(chan error, 1)
	go func() { compacted <- ks.Compact(context.Background()) }()

	// Compact waits for the first commit, and the second one for Compact.
	cause := errors.New("the deadline")
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, cause)
		defer cancel()
		return errors.Is(ks.Commit(ctx, creates(3, 4)...), cause)
	}, 10*time.Second, time.Millisecond)
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, cause)
	defer cancel()
	require.ErrorIs(t, ks.Compact(ctx), cause)

	close(leave)
	require.NoError(t, <-held)
	require.NoError(t, <-compacted)
	wantRecords(t, ks, 0, 3)
	require.NoError(t, ks.Commit(t.Context(), creates(3, 4)...))
}

func TestAFileWithASecondNameIsRefused(t *testing.T) {
	onlyUnix(t)
	path := journalPath(t)
	require.NoError(t, openJournal(t, path, nil).Close())
	second := filepath.Join(filepath.Dir(path), "second")
	require.NoError(t, os.Link(path, second))
	for _, p := range []string{path, second} {
		_, err := store.Open(p, store.Options{LockWait: time.Second})
		require.ErrorContains(t, err, "has 2 names")
		require.ErrorContains(t, err, p)
	}
	require.NoError(t, os.Remove(second))
	openJournal(t, path, nil)
}

// A process may die between giving the new journal its name and taking away the name
// under which it was made.
func TestAJournalWhoseMakerDiedIsOpened(t *testing.T) {
	onlyUnix(t)
	path := journalPath(t)
	require.NoError(t, openJournal(t, path, nil).Close())
	dir, base := filepath.Split(path)
	require.NoError(t, os.Link(path, filepath.Join(dir, "."+base+".123.new")))
	openJournal(t, path, nil)
	require.Equal(t, []string{base}, filesIn(t, dir))
}

func TestOnlyWhatCompactLeftIsRemoved(t *testing.T) {
	path := journalPath(t)
	require.NoError(t, openJournal(t, path, nil).Close())
	dir, base := filepath.Split(path)

	foreign := []string{base + ".compact", base + ".compact-text", base + ".compact-journal", base + ".compact-other"}
	for _, name := range foreign[:2] {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("a neighbour's"), 0o600))
	}
	require.NoError(t, openJournal(t, filepath.Join(dir, foreign[2]), nil).Close())
	store.WriteCopy(t, filepath.Join(dir, foreign[3]), filepath.Join(dir, "other"))
	store.WriteCopy(t, filepath.Join(dir, base+".compact-1"), path)

	require.NoError(t, openJournal(t, path, nil).Close())
	require.Equal(t, append([]string{base}, foreign[0], foreign[2], foreign[3], foreign[1]), filesIn(t, dir))
}

func TestAJournalBehindALinkToNothingIsMadeThere(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "data"), 0o700))
	target, link := filepath.Join(dir, "data", "journal"), filepath.Join(dir, "link")
	require.NoError(t, os.Symlink(filepath.Join("data", "journal"), link))
	require.NoError(t, os.Symlink(link, link+"2"))
	ks := openJournal(t, link+"2", nil)
	real, err := filepath.EvalSymlinks(target)
	require.NoError(t, err)
	require.Equal(t, real, ks.Path())
	require.NoError(t, ks.Commit(t.Context(), creates(0, 1)...))
	require.NoError(t, ks.Close())
	wantRecords(t, openJournal(t, target, nil), 0, 1)
}

func TestAJournalIsMadeOnceOnAFileSystemWithoutHardLinks(t *testing.T) {
	onlyUnix(t)
	for _, refusal := range []error{syscall.EPERM, syscall.ENOTSUP, syscall.ENOSYS} {
		func() {
			defer store.LinkFiles(func(from, to string) error {
				return &os.LinkError{Op: "link", Old: from, New: to, Err: refusal}
			})()
			path := journalPath(t)
			var wg sync.WaitGroup
			for i := range 8 {
				wg.Go(func() {
					ks, err := store.Open(path, store.Options{LockWait: 20 * time.Second})
					if err == nil {
						err = errors.Join(ks.Commit(context.Background(), creates(i, i+1)...), ks.Close())
					}
					if err != nil {
						t.Errorf("opener %d: %v", i, err)
					}
				})
			}
			wg.Wait()
			wantRecords(t, openJournal(t, path, nil), 0, 8)
			require.Len(t, filesIn(t, filepath.Dir(path)), 1)
		}()
	}
	defer store.LinkFiles(func(string, string) error { return syscall.EMLINK })()
	_, err := store.Open(journalPath(t), store.Options{})
	require.ErrorIs(t, err, syscall.EMLINK)
}
