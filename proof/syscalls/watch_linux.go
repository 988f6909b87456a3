//go:build linux && (amd64 || arm64)

package syscalls

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Op is one call that changes a file, a name, or what is durable.
type Op struct {
	Kind Kind
	File uint64 // inode: of a sync, the file or the directory
	Off  int64  // of a write; the new size
	Data []byte // of a write
	Name string // base name: of a link or rename the new one
}

// Kind is what a call does.
type Kind uint8

// The kinds.
const (
	Write  Kind = iota + 1
	Size        // of a file, changed
	Sync        // of a file or the directory
	Link        // Name also names File
	Rename      // Name now names File, and its old name nothing
	Remove      // Name names nothing any more
)

func (k Kind) String() string {
	return [...]string{"?", "write", "size", "sync", "link", "rename", "remove"}[k]
}

// Dies is what a hook returns to let the process die in place of the call.
const Dies = ^unix.Errno(0)

// Watch stops this process, for good, at every such call on a file in dir, until hook
// has returned: zero lets the call happen, [Dies] kills the process, and another number
// is the call's error. The error tells that the system doesn't let itself be watched.
func Watch(dir string, hook func(Op) unix.Errno) error {
	t := &watcher{dir: dir, hook: hook}
	var err error
	if t.memory, err = os.Open("/proc/self/mem"); err != nil {
		return err
	}
	installed := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := t.install()
		installed <- err
		if err == nil {
			t.serve()
		}
	}()
	return <-installed
}

// watcher hears of the calls.
type watcher struct {
	dir      string
	hook     func(Op) unix.Errno
	memory   *os.File
	listener uintptr
}

// watchedCalls are the calls that are stopped; Go's os package uses no others for these.
var watchedCalls = []uint32{
	unix.SYS_PWRITE64, unix.SYS_FTRUNCATE, unix.SYS_FSYNC, unix.SYS_FDATASYNC,
	unix.SYS_LINKAT, unix.SYS_RENAMEAT, unix.SYS_UNLINKAT,
}

// install puts the filter around all threads of the process.
func (t *watcher) install() error {
	program := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}} // the call's number
	for i, nr := range watchedCalls {
		toLast := uint8(len(watchedCalls) - i)
		program = append(program, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: toLast, K: nr})
	}
	program = append(program,
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF})
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	fprog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER |
		unix.SECCOMP_FILTER_FLAG_TSYNC | unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&fprog)))
	if errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	t.listener = fd
	return nil
}

// notice and answer are the kernel's struct seccomp_notif and
// seccomp_notif_resp.
type notice struct {
	id         uint64
	pid, flags uint32
	nr         int32
	arch       uint32
	ip         uint64
	args       [6]uint64
}

type answer struct {
	id    uint64
	val   int64
	errno int32
	flags uint32
}

// serve must make none of the calls that it serves.
func (t *watcher) serve() {
	for {
		var n notice
		if t.control(unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n)) != 0 {
			continue // the caller was interrupted
		}
		a := answer{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
		if op, ok := t.read(&n); ok {
			switch errno := t.hook(op); errno {
			case 0:
			case Dies:
				_ = unix.Kill(os.Getpid(), unix.SIGKILL)
				select {}
			default:
				a.errno, a.flags = -int32(errno), 0
			}
		}
		t.control(unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&a))
	}
}

func (t *watcher) control(request uintptr, with unsafe.Pointer) unix.Errno {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, t.listener, request, uintptr(with))
	return errno
}

// read tells what a call is about, if it is about something in the directory.
func (t *watcher) read(n *notice) (op Op, ok bool) {
	switch n.nr {
	case unix.SYS_PWRITE64:
		op = Op{Kind: Write, Off: int64(n.args[3]), Data: make([]byte, n.args[2])}
		if _, err := t.memory.ReadAt(op.Data, int64(n.args[1])); err != nil {
			panic(err)
		}
	case unix.SYS_FTRUNCATE:
		op = Op{Kind: Size, Off: int64(n.args[1])}
	case unix.SYS_FSYNC, unix.SYS_FDATASYNC:
		op = Op{Kind: Sync}
	case unix.SYS_LINKAT:
		return t.name(Link, n.args[1], n.args[3])
	case unix.SYS_RENAMEAT:
		return t.name(Rename, n.args[1], n.args[3])
	case unix.SYS_UNLINKAT:
		return t.name(Remove, n.args[1], n.args[1])
	}
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", n.args[0]))
	if err != nil || path != t.dir && filepath.Dir(path) != t.dir {
		return op, false
	}
	var st unix.Stat_t
	err = unix.Fstat(int(n.args[0]), &st)
	op.File = st.Ino
	return op, err == nil
}

// name reads a call that changes what names there are.
func (t *watcher) name(kind Kind, old, now uint64) (op Op, ok bool) {
	from, to := t.path(old), t.path(now)
	var st unix.Stat_t
	err := unix.Stat(from, &st)
	return Op{Kind: kind, File: st.Ino, Name: filepath.Base(to)}, err == nil && filepath.Dir(to) == t.dir
}

func (t *watcher) path(at uint64) string {
	b := make([]byte, unix.PathMax)
	n, _ := t.memory.ReadAt(b, int64(at))
	path, _, _ := bytes.Cut(b[:n], []byte{0})
	return string(path)
}
