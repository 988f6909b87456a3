//go:build linux && (amd64 || arm64)

package disk

import (
	"sync"

	"golang.org/x/sys/unix"

	"github.com/idem-go/idem/proof/syscalls"
)

// powerLog is what a process did to its files, and what it had said by then.
type powerLog struct {
	mu    sync.Mutex
	Dir   uint64 // its inode
	Ops   []syscalls.Op
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

func (l *powerLog) op(op syscalls.Op) unix.Errno {
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
