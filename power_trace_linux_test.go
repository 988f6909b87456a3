//go:build linux && (amd64 || arm64)

package idem_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What a program asks of the system is the only full account of what it does to its
// files: here are the temporary file, its link and the directory as well as bbolt's
// writes and syncs, which has no hook for the latter. So a child process puts a seccomp
// filter around itself that stops each of these calls and shows it to a goroutine, which
// records it and lets it go on, fail, or kill the process. That needs no rights.

// powerOp is one call that changes a file, a name, or what is durable.
type powerOp struct {
	Kind powerKind
	File uint64 // inode: of a sync, the file or the directory
	Off  int64  // of a write; the new size
	Data []byte // of a write
	Name string // base name: of a link or rename the new one
}

type powerKind uint8

const (
	powerWrite powerKind = iota + 1
	powerSize
	powerSync
	powerLink   // Name also names File
	powerRename // Name now names File, and its old name nothing
	powerRemove
)

func (k powerKind) String() string {
	return [...]string{"?", "write", "size", "sync", "link", "rename", "remove"}[k]
}

// powerDies is what a hook returns to let the process die in place of the call.
const powerDies = ^unix.Errno(0)

// powerTrace stops this process, for good, at every such call on a file in dir, until
// hook has returned: zero lets the call happen, another number is its error.
func powerTrace(dir string, hook func(powerOp) unix.Errno) error {
	t := &powerTracer{dir: dir, hook: hook}
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

// powerTracer hears of the calls.
type powerTracer struct {
	dir      string
	hook     func(powerOp) unix.Errno
	memory   *os.File
	listener uintptr
}

// powerCalls are the calls that are stopped; Go's os package uses no others for these.
var powerCalls = []uint32{
	unix.SYS_PWRITE64, unix.SYS_FTRUNCATE, unix.SYS_FSYNC, unix.SYS_FDATASYNC,
	unix.SYS_LINKAT, unix.SYS_RENAMEAT, unix.SYS_UNLINKAT,
}

// install puts the filter around all threads of the process.
func (t *powerTracer) install() error {
	program := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}} // the call's number
	for i, nr := range powerCalls {
		program = append(program, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: uint8(len(powerCalls) - i), K: nr})
	}
	program = append(program,
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF})
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	fprog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_TSYNC | unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&fprog)))
	if errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	t.listener = fd
	return nil
}

// powerNotice and powerAnswer are the kernel's struct seccomp_notif and
// seccomp_notif_resp.
type powerNotice struct {
	id         uint64
	pid, flags uint32
	nr         int32
	arch       uint32
	ip         uint64
	args       [6]uint64
}

type powerAnswer struct {
	id    uint64
	val   int64
	errno int32
	flags uint32
}

// serve must make none of the calls that it serves.
func (t *powerTracer) serve() {
	for {
		var n powerNotice
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, t.listener, unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&n))); errno != 0 {
			continue // the caller was interrupted
		}
		a := powerAnswer{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
		if op, ok := t.read(&n); ok {
			switch errno := t.hook(op); errno {
			case 0:
			case powerDies:
				_ = unix.Kill(os.Getpid(), unix.SIGKILL)
				select {}
			default:
				a.errno, a.flags = -int32(errno), 0
			}
		}
		_, _, _ = unix.Syscall(unix.SYS_IOCTL, t.listener, unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&a)))
	}
}

// read tells what a call is about, if it is about something in the directory.
func (t *powerTracer) read(n *powerNotice) (op powerOp, ok bool) {
	switch n.nr {
	case unix.SYS_PWRITE64:
		op = powerOp{Kind: powerWrite, Off: int64(n.args[3]), Data: make([]byte, n.args[2])}
		if _, err := t.memory.ReadAt(op.Data, int64(n.args[1])); err != nil {
			panic(err)
		}
	case unix.SYS_FTRUNCATE:
		op = powerOp{Kind: powerSize, Off: int64(n.args[1])}
	case unix.SYS_FSYNC, unix.SYS_FDATASYNC:
		op = powerOp{Kind: powerSync}
	case unix.SYS_LINKAT:
		return t.name(powerLink, n.args[1], n.args[3])
	case unix.SYS_RENAMEAT:
		return t.name(powerRename, n.args[1], n.args[3])
	case unix.SYS_UNLINKAT:
		return t.name(powerRemove, n.args[1], n.args[1])
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
func (t *powerTracer) name(kind powerKind, old, now uint64) (op powerOp, ok bool) {
	from, to := t.path(old), t.path(now)
	var st unix.Stat_t
	err := unix.Stat(from, &st)
	return powerOp{Kind: kind, File: st.Ino, Name: filepath.Base(to)}, err == nil && filepath.Dir(to) == t.dir
}

func (t *powerTracer) path(at uint64) string {
	b := make([]byte, unix.PathMax)
	n, _ := t.memory.ReadAt(b, int64(at))
	path, _, _ := bytes.Cut(b[:n], []byte{0})
	return string(path)
}

// powerLog is what a process did to its files, and what it had said by then.
type powerLog struct {
	mu    sync.Mutex
	Dir   uint64 // its inode
	Ops   []powerOp
	Marks []powerMark
	Notes map[string]int // where in Ops a part of the work begins
}

// powerMark is what must hold from a moment on, whatever happens to the power.
type powerMark struct {
	At    int // how many operations there had been
	Scope string
	Name  string
	Key   string // under which the intent is held; "" frees the name: it may be there or not
	Done  bool   // and a result was returned, with this body
	Body  string
}

func (l *powerLog) op(op powerOp) unix.Errno {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Ops = append(l.Ops, op)
	return 0
}

func (l *powerLog) mark(m powerMark) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m.At = len(l.Ops)
	l.Marks = append(l.Marks, m)
}

func (l *powerLog) note(part string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Notes[part] = len(l.Ops)
}
