package idem_test

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

func openJournal(t testing.TB, path string, opts *idem.KeystoreOptions) *idem.BoltKeystore {
	t.Helper()
	ks, err := idem.OpenKeystore(path, opts)
	require.NoError(t, err)
	t.Cleanup(func() { ks.Close() })
	return ks
}

func journalPath(t testing.TB) string { return filepath.Join(t.TempDir(), "journal") }

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

// childEnv makes the test binary a second process: it says what to do.
const childEnv = "IDEM_ROOT_CHILD"

// TestRootChild is not a test: it is what a child process runs.
func TestRootChild(t *testing.T) {
	role, path, ok := strings.Cut(os.Getenv(childEnv), ":")
	if !ok {
		t.Skip("runs only as a child process of other tests")
	}
	childRoles[role](t, path)
}

// childRoles is what a child process can do with a journal.
var childRoles = map[string]func(t *testing.T, path string){}

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
	c := &child{Cmd: exec.Command(os.Args[0], "-test.run=^TestRootChild$")}
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
