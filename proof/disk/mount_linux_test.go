//go:build linux && (amd64 || arm64)

package disk

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
	"github.com/idem-go/idem/proof/rig"
)

// mountJobEnv says which journal a child process is to work with, and how, as JSON.
const mountJobEnv = "IDEM_MOUNT_JOB"

type mountJob struct {
	Journal string
	NoSync  bool
}

// TestMountChild is not a test: it makes calls until it is killed, or the file system is
// gone, and says what must hold from then on, a line each.
func TestMountChild(t *testing.T) {
	text := os.Getenv(mountJobEnv)
	if text == "" {
		t.Skip("runs only as a child process of other tests")
	}
	var job mountJob
	require.NoError(t, json.Unmarshal([]byte(text), &job))
	srv := mockserver.New(nil)
	defer srv.Close()
	ks, err := openWith(job.Journal, job.NoSync)
	require.NoError(t, err)
	defer ks.Close()
	say := &mountSay{}
	c, err := idem.New(ks, powerOptions(powerScope, powerBase{srv.Transport(), say.mark}))
	require.NoError(t, err)
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for i := 0; powerDo(c, fmt.Sprintf("call-%d-%d", worker, i), 50+i%7*600, say.mark) == nil; i++ {
			}
		})
	}
	wg.Wait()
}

// mountSay writes marks to stdout, each with one call, so that a kill can't cut one.
type mountSay struct{ mu sync.Mutex }

func (s *mountSay) mark(m powerMark) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.Scope == "" {
		m.Scope = powerScope
	}
	line, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	_, _ = os.Stdout.Write(append(line, '\n'))
}

// mountTools tells what it takes to have a file system of one's own.
func mountTools(t *testing.T, more ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may mount")
	}
	for _, tool := range append([]string{"mount", "umount"}, more...) {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("no %s", tool)
		}
	}
}

// mountImage returns a directory with a new file system from an image on a loop device,
// and how to mount it again.
func mountImage(t *testing.T, kind string) (dir string, again func()) {
	t.Helper()
	mountTools(t, "mkfs."+kind)
	image, dir := filepath.Join(t.TempDir(), "image"), t.TempDir()
	require.NoError(t, os.WriteFile(image, nil, 0o600))
	require.NoError(t, os.Truncate(image, 320<<20)) // the least that XFS takes
	if out, err := exec.Command("mkfs."+kind, "-q", image).CombinedOutput(); err != nil {
		t.Skipf("mkfs.%s: %s", kind, out)
	}
	mount := func() error {
		out, err := exec.Command("mount", "-o", "loop", "-t", kind, image, dir).CombinedOutput()
		if err != nil {
			return fmt.Errorf("mount: %s", out)
		}
		return nil
	}
	if err := mount(); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = exec.Command("umount", dir).Run() })
	return dir, func() {
		out, err := exec.Command("umount", dir).CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.NoError(t, mount())
	}
}

// mountShutdown cuts a file system off: nothing that isn't on the device reaches it any
// more, not even the file system's own log.
func mountShutdown(t *testing.T, dir string) {
	t.Helper()
	const fsIOCShutdown, noLogFlush = 0x8004587D, 2
	d, err := os.Open(dir)
	require.NoError(t, err)
	defer d.Close()
	how := uint32(noLogFlush)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, d.Fd(), fsIOCShutdown, uintptr(unsafe.Pointer(&how)))
	if errno == unix.ENOTTY || errno == unix.EOPNOTSUPP {
		t.Skip("this file system can't be shut down")
	}
	require.Zero(t, errno, "shutdown: %v", errno)
}

// mountTrial lets a child work on a file system, cuts that off after a number of
// promises, and returns how many there were and what has become of them.
func mountTrial(t *testing.T, kind string, noSync bool, after int) (said int, err error) {
	t.Helper()
	dir, again := mountImage(t, kind)
	path := filepath.Join(dir, "journal")
	job, err := json.Marshal(mountJob{Journal: path, NoSync: noSync})
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0], "-test.run=^TestMountChild$")
	cmd.Env = append(os.Environ(), mountJobEnv+"="+string(job))
	out, pipeErr := cmd.StdoutPipe()
	require.NoError(t, pipeErr)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	marks := map[string]powerMark{}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var m powerMark
		if json.Unmarshal(lines.Bytes(), &m) != nil {
			continue // what the test binary says
		}
		if marks[m.Name].Done && !m.Done {
			continue
		}
		marks[m.Name] = m
		if said++; said == after {
			mountShutdown(t, dir)
			_ = cmd.Process.Kill()
		}
	}
	_ = cmd.Wait()
	require.GreaterOrEqual(t, said, after, "the child ended early")
	again()
	return said, powerHoldAll(path, slices.Collect(maps.Values(marks)))
}

// The same as the recorded cuts, with a real file system, its real cache and its real log.
func TestAFileSystemThatIsCutOffLosesNothingThatWasSaid(t *testing.T) {
	for _, kind := range []string{"ext4", "xfs"} {
		t.Run(kind, func(t *testing.T) {
			r := rand.New(rand.NewPCG(rig.Seed(t), 0))
			for trial := range 3 * max(1, powerRounds(t)) {
				t.Run(fmt.Sprint(trial), func(t *testing.T) {
					said, err := mountTrial(t, kind, false, 1+r.IntN(300))
					require.NoError(t, err)
					t.Logf("%d promises kept", said)
				})
			}
			t.Run("without syncs", func(t *testing.T) {
				said, err := mountTrial(t, kind, true, 100)
				require.Error(t, err, "%d promises, none of which was synced, and nothing is lost", said)
				t.Logf("noticed: %s", strings.TrimSpace(err.Error()))
			})
		})
	}
}
