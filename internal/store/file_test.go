package store_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"

	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/keystore"
)

// childEnv makes the test binary a second process: it says what to do.
const childEnv = "IDEM_STORE_CHILD"

// TestStoreChild is not a test: it is what a child process runs.
func TestStoreChild(t *testing.T) {
	role, path, ok := strings.Cut(os.Getenv(childEnv), ":")
	if !ok {
		t.Skip("runs only as a child process of other tests")
	}
	childRoles[role](t, path)
}

// childRoles is what a child process can do with a journal.
var childRoles = map[string]func(t *testing.T, path string){
	"hold": holdJournal,
	"add":  addToJournal,
}

// holdJournal has the journal open until stdin ends.
func holdJournal(t *testing.T, path string) {
	ks := openJournal(t, path, nil)
	fmt.Println("held")
	os.Stdin.Read(make([]byte, 1))
	require.NoError(t, ks.Close())
}

// addToJournal adds one record when stdin ends, whoever else does too.
func addToJournal(t *testing.T, path string) {
	fmt.Println("ready")
	os.Stdin.Read(make([]byte, 1))
	ks := openJournal(t, path, &store.Options{LockWait: 20 * time.Second})
	r := keystore.Record{Scope: "scope", Key: fmt.Sprint(os.Getpid()), Lane: keystore.LaneOpen, Rev: 1}
	require.NoError(t, ks.Commit(t.Context(), keystore.Change{Op: keystore.OpCreate, Record: r}))
	require.NoError(t, ks.Close())
}

// child is a second process.
type child struct {
	*exec.Cmd
	stdin io.Closer
	out   output
}

// output keeps what a child says and tells when it has begun to.
type output struct {
	mu    sync.Mutex
	text  bytes.Buffer
	begun chan struct{}
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.text.Len() == 0 {
		close(o.begun)
	}
	return o.text.Write(b)
}

// startChild starts a second process and waits for its first line.
func startChild(t *testing.T, role, path string) *child {
	c := &child{Cmd: exec.Command(os.Args[0], "-test.run=^TestStoreChild$")}
	c.out.begun = make(chan struct{})
	c.Env = append(os.Environ(), childEnv+"="+role+":"+path)
	c.Stdout, c.Stderr = &c.out, &c.out
	stdin, err := c.StdinPipe()
	require.NoError(t, err)
	c.stdin = stdin
	require.NoError(t, c.Start())
	t.Cleanup(func() { c.stdin.Close(); c.Process.Kill() })
	<-c.out.begun
	return c
}

// end waits for the child, which must not have failed.
func (c *child) end(t *testing.T) {
	t.Helper()
	err := c.Wait()
	require.NoError(t, err, "%s", &c.out.text)
}

func TestAJournalThatAnotherProcessHoldsIsLocked(t *testing.T) {
	path := journalPath(t)
	c := startChild(t, "hold", path)
	begin := time.Now()
	_, err := store.Open(path, store.Options{LockWait: 200 * time.Millisecond})
	require.ErrorIs(t, err, keystore.ErrLocked)
	require.ErrorContains(t, err, path)
	require.Greater(t, time.Since(begin), 150*time.Millisecond)
	require.Less(t, time.Since(begin), 900*time.Millisecond)
	if runtime.GOOS == "linux" {
		require.ErrorContains(t, err, fmt.Sprintf("process %d", c.Process.Pid))
	}

	// It is let in as soon as the other is done.
	done := make(chan error, 1)
	go func() {
		ks, err := store.Open(path, store.Options{LockWait: 10 * time.Second})
		if err == nil {
			err = ks.Close()
		}
		done <- err
	}()
	c.stdin.Close()
	require.NoError(t, <-done)
	c.end(t)
}

func TestAJournalThatADeadProcessHeldIsFree(t *testing.T) {
	path := journalPath(t)
	c := startChild(t, "hold", path)
	require.NoError(t, c.Process.Kill())
	openJournal(t, path, nil)
}

func TestAJournalIsOpenOnceInOneProcess(t *testing.T) {
	path := journalPath(t)
	ks := openJournal(t, path, nil)
	_, err := store.Open(path, store.Options{LockWait: time.Millisecond})
	require.ErrorIs(t, err, keystore.ErrLocked)
	if runtime.GOOS == "linux" {
		require.ErrorContains(t, err, fmt.Sprintf("this process, %d", os.Getpid()))
	}
	require.NoError(t, ks.Close())
	openJournal(t, path, nil)
}

func TestProcessesThatCreateOneJournalAtOnceGetOneJournal(t *testing.T) {
	path := journalPath(t)
	var children []*child
	for range 6 {
		children = append(children, startChild(t, "add", path))
	}
	for _, c := range children {
		c.stdin.Close()
	}
	for _, c := range children {
		c.end(t)
	}
	ks := openJournal(t, path, nil)
	for _, c := range children {
		_, err := readOne(t, ks, keystore.Ref{Scope: "scope", Key: fmt.Sprint(c.Process.Pid)})
		require.NoError(t, err)
	}
	files, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, files, 1)
}

func TestGoroutinesThatCreateOneJournalAtOnceGetOneJournal(t *testing.T) {
	path := journalPath(t)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			ks, err := store.Open(path, store.Options{LockWait: 20 * time.Second})
			require.NoError(t, err)
			require.NoError(t, ks.Commit(t.Context(), creates(i, i+1)...))
			require.NoError(t, ks.Close())
		})
	}
	wg.Wait()
	wantRecords(t, openJournal(t, path, nil), 0, 16)
}

// refuses opens a file that is no sound journal, and fails unless the error is
// want and the file stays as it is.
func refuses(t testing.TB, path string, want error) error {
	t.Helper()
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	ks, err := store.Open(path, store.Options{LockWait: time.Second})
	if err == nil {
		ks.Close()
	}
	require.ErrorIs(t, err, want)
	require.ErrorContains(t, err, path)
	after, readErr := os.ReadFile(path)
	require.NoError(t, readErr)
	require.True(t, bytes.Equal(before, after), "the file was changed")
	return err
}

func TestWhatIsNoJournalIsCorruptAndStaysAsItIs(t *testing.T) {
	for name, content := range map[string]string{
		"empty": "", "text": "hello", "long text": strings.Repeat("hello, world\n", 10_000), "zeros": strings.Repeat("\x00", 1<<16),
	} {
		t.Run(name, func(t *testing.T) {
			path := journalPath(t)
			require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
			refuses(t, path, keystore.ErrCorrupt)
		})
	}
	t.Run("another bbolt file", func(t *testing.T) {
		path := journalPath(t)
		db, err := bolt.Open(path, 0o600, nil)
		require.NoError(t, err)
		require.NoError(t, db.Update(func(tx *bolt.Tx) error {
			_, err := tx.CreateBucket([]byte("meta"))
			return err
		}))
		require.NoError(t, db.Close())
		require.ErrorContains(t, refuses(t, path, keystore.ErrCorrupt), "not a journal")
	})
}

func TestAJournalOfALaterFormatSaysSo(t *testing.T) {
	path := journalPath(t)
	ks := openJournal(t, path, nil)
	require.NoError(t, ks.WriteFormat(7))
	require.NoError(t, ks.Close())
	_, err := store.Open(path, store.Options{LockWait: time.Second})
	require.ErrorContains(t, err, "format 7")
	require.NotErrorIs(t, err, keystore.ErrCorrupt)
}

func TestTheSystemsErrorsComeWithThePath(t *testing.T) {
	dir := t.TempDir()
	_, err := store.Open(dir, store.Options{LockWait: time.Second})
	require.ErrorContains(t, err, dir)
	require.ErrorContains(t, err, "not a regular file")

	missing := filepath.Join(dir, "missing", "journal")
	_, err = store.Open(missing, store.Options{LockWait: time.Second})
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, missing)
	require.ErrorContains(t, err, "the directory "+filepath.Dir(missing)+" doesn't exist")

	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = store.Open(filepath.Join(file, "journal"), store.Options{LockWait: time.Second})
	require.Error(t, err)

	_, err = store.Open("", store.Options{LockWait: time.Second})
	require.ErrorIs(t, err, keystore.ErrInvalid)
	require.ErrorContains(t, err, "must not be empty")
}

func TestAFileThatCantBeWrittenIsThePermissionsError(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may write everything")
	}
	path := journalPath(t)
	require.NoError(t, openJournal(t, path, nil).Close())
	require.NoError(t, os.Chmod(path, 0o400))
	_, err := store.Open(path, store.Options{LockWait: time.Second})
	require.ErrorIs(t, err, fs.ErrPermission)
	require.NoError(t, os.Chmod(filepath.Dir(path), 0o500))
	_, err = store.Open(path+"2", store.Options{LockWait: time.Second})
	require.ErrorIs(t, err, fs.ErrPermission)
	require.NoError(t, os.Chmod(filepath.Dir(path), 0o700))
}

// sampleSize is how many open records a sample journal has.
const sampleSize = 60

// sampleRecords are these.
var sampleRecords = func() (all []keystore.Record) {
	for i := range sampleSize {
		r := storeRecord(i)
		r.Rev = 1
		all = append(all, r)
	}
	return all
}()

// sampleJournal returns the bytes of a journal with inner pages, free pages and
// bodies of more than a page.
func sampleJournal(t testing.TB) []byte {
	path := journalPath(t)
	ks := openJournal(t, path, nil)
	require.NoError(t, ks.Commit(t.Context(), creates(sampleSize, 2*sampleSize)...))
	require.NoError(t, ks.Commit(t.Context(), creates(0, sampleSize)...))
	require.NoError(t, ks.Commit(t.Context(), removes(sampleSize, 2*sampleSize)...))
	r := storeRecord(sampleSize)
	r.Lane, r.Name, r.Request = keystore.LaneSettled, "", bytes.Repeat([]byte("long"), 3000)
	require.NoError(t, ks.Commit(t.Context(), keystore.Change{Op: keystore.OpCreate, Record: r}))
	require.NoError(t, ks.Close())
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return data
}

// judge opens a damaged sample journal. It may be refused; a record may be said
// to be damaged; everything else must be right.
func judge(t testing.TB, path string, data []byte) (opened bool) {
	require.NoError(t, os.WriteFile(path, data, 0o600))
	ks, err := store.Open(path, store.Options{LockWait: time.Second})
	if err != nil {
		require.ErrorIs(t, err, keystore.ErrCorrupt)
		after, readErr := os.ReadFile(path)
		require.NoError(t, readErr)
		require.True(t, bytes.Equal(data, after), "the file was changed")
		return false
	}
	defer ks.Close()
	for i, want := range sampleRecords {
		for _, ref := range []keystore.Ref{{Scope: "scope", Key: want.Key, Bodies: true}, {Scope: "scope", Name: want.Name, Bodies: true}} {
			if got, err := readOne(t, ks, ref); !errors.Is(err, keystore.ErrCorrupt) && (err != nil || !reflect.DeepEqual(want, got)) {
				t.Fatalf("record %d is read as %+v, %v", i, got, err)
			}
		}
	}
	n := 0
	for r, err := range ks.Scan(t.Context(), keystore.Query{Scope: "scope", Lane: keystore.LaneOpen}) {
		if !errors.Is(err, keystore.ErrCorrupt) {
			require.NoError(t, err)
		}
		require.Equal(t, sampleRecords[n].Key, r.Key)
		n++
	}
	require.Equal(t, sampleSize, n)
	// Writing must not meet what reading has not.
	require.NoError(t, ks.Commit(t.Context(), creates(1000, 1020)...))
	return true
}

func TestADamagedJournalIsAnErrorOrRight(t *testing.T) {
	data := sampleJournal(t)
	path := filepath.Join(fastDir(t), "journal")
	page := os.Getpagesize()
	require.True(t, judge(t, path, data), "the sample is sound")
	used := len(bytes.TrimRight(data, "\x00"))

	t.Run("cut off", func(t *testing.T) {
		for _, n := range []int{1, 100, page - 1, page, 2*page - 1, 2 * page, 3 * page, len(data) / 2} {
			require.False(t, judge(t, path, data[:n]), "the first %d bytes", n)
		}
	})
	t.Run("every byte of every page's header", func(t *testing.T) {
		for at := 0; at < used; at += page {
			for i := range 16 {
				judge(t, path, flip(data, (at+i)*8+(at/page+i)%8))
			}
		}
	})
	t.Run("every byte of the newer meta page", func(t *testing.T) {
		at := newerMeta(data)
		for i := range 80 {
			for bit := range 8 {
				require.False(t, judge(t, path, flip(data, (at+i)*8+bit)), "bit %d of byte %d", bit, at+i)
			}
		}
	})
	t.Run("every byte of the older meta page", func(t *testing.T) {
		at := page - newerMeta(data)
		for i := range 80 {
			// The transaction is at 64; without it nobody knows that it is the older.
			harmless := i >= 32 && i < 64 || i >= 72
			require.Equal(t, harmless, judge(t, path, flip(data, (at+i)*8+i%8)), "byte %d", at+i)
		}
	})
	t.Run("a page of zeros", func(t *testing.T) {
		for at := 0; at < used; at += page {
			d := bytes.Clone(data)
			clear(d[at : at+page])
			judge(t, path, d)
		}
	})
	t.Run("a page in another's place", func(t *testing.T) {
		for at := 0; at < used; at += page {
			for _, by := range []int{1, 2, 5} {
				d := bytes.Clone(data)
				copy(d[at:at+page], data[at+by*page:])
				judge(t, path, d)
			}
		}
	})
	t.Run("anything", func(t *testing.T) {
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 0))
		const rounds = 200
		opened := 0
		for range rounds {
			d := bytes.Clone(data)
			for range 1 + rng.IntN(3) {
				d = flip(d, rng.IntN(used*8))
			}
			if judge(t, path, d) {
				opened++
			}
		}
		t.Logf("%d of %d could be opened", opened, rounds)
	})
}

// newerMeta returns where the meta page of the last commit is.
func newerMeta(data []byte) int {
	const txid = 64
	page := os.Getpagesize()
	if binary.NativeEndian.Uint64(data[page+txid:]) > binary.NativeEndian.Uint64(data[txid:]) {
		return page
	}
	return 0
}

// fastDir returns a directory in memory where there is one: tests that open
// hundreds of journals needn't wait for a disk.
func fastDir(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "idem")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func flip(data []byte, bit int) []byte {
	d := bytes.Clone(data)
	d[bit/8] ^= 1 << (bit % 8)
	return d
}

func TestAFileCutShortWhileItIsOpenIsAnError(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a mapped file can't be cut there")
	}
	for _, pages := range []int{0, 1, 2, 9} {
		path := journalPath(t)
		ks := openJournal(t, path, nil)
		require.NoError(t, ks.Commit(t.Context(), creates(0, 1000)...))
		require.NoError(t, os.Truncate(path, int64(pages*os.Getpagesize())))
		var corrupt error
		for i := 0; i < 1000 && corrupt == nil; i++ {
			_, corrupt = readOne(t, ks, keystore.Ref{Scope: "scope", Key: storeRecord(i).Key})
		}
		require.ErrorIs(t, corrupt, keystore.ErrCorrupt)
		require.ErrorIs(t, ks.Commit(t.Context(), creates(1000, 1001)...), keystore.ErrCorrupt)
		require.NoError(t, ks.Close())

		// The lock isn't left with the memory map, which stays.
		_, err := store.Open(path, store.Options{})
		require.ErrorIs(t, err, keystore.ErrCorrupt)
		require.NotErrorIs(t, err, keystore.ErrLocked)
	}
}

func FuzzJournalFile(f *testing.F) {
	data := sampleJournal(f)
	used := len(bytes.TrimRight(data, "\x00"))
	f.Add([]byte{})
	f.Add([]byte{0, 0, 0, 0, 1, 0, 0, 16, 24, 255})
	dir := fastDir(f)
	// The input is a list of places and of what to write there.
	f.Fuzz(func(t *testing.T, edits []byte) {
		d := bytes.Clone(data)
		for ; len(edits) >= 5; edits = edits[5:] {
			d[int(binary.LittleEndian.Uint32(edits))%used] = edits[4]
		}
		path := filepath.Join(dir, fmt.Sprint(os.Getpid()))
		judge(t, path, d)
	})
}
