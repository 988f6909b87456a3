package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// soakCrew is a worker and its successors on one journal.
type soakCrew struct {
	soak   *soak
	prefix string

	mu      sync.Mutex // guards what follows
	child   *child
	kills   int
	paid    map[string]bool
	refused map[string]bool
	last    int // highest number that was heard of
}

func (s *soak) crew(prefix string) *soakCrew {
	return &soakCrew{soak: s, prefix: prefix, paid: map[string]bool{}, refused: map[string]bool{}, last: -1}
}

func (c *soakCrew) journal() string { return filepath.Join(c.soak.dir, c.prefix+".db") }

// run lets workers pay until the end comes; with random each is killed after a while.
func (c *soakCrew) run(ctx context.Context, end time.Time, random *rand.Rand) error {
	for {
		over, err := c.life(ctx, end, random)
		if err != nil || over {
			return err
		}
		c.mu.Lock()
		c.kills++
		c.mu.Unlock()
	}
}

// life is one worker's. It is over if the worker left by itself; else it was killed.
func (c *soakCrew) life(ctx context.Context, end time.Time, random *rand.Rand) (over bool, err error) {
	from, seen := c.resumeAt()
	child, err := startChild(ctx, soakWorkerCommand, "--url="+c.soak.url, "--journal="+c.journal(), "--prefix="+c.prefix,
		fmt.Sprintf("--from=%d", from), fmt.Sprintf("--seen=%d", seen), fmt.Sprintf("--rate=%g", c.soak.rate))
	if err != nil {
		return false, err
	}
	c.mu.Lock()
	c.child = child
	c.mu.Unlock()
	span, stop := time.Until(end), child.leave
	if random != nil {
		if life := time.Second/2 + time.Duration(random.Int64N(int64(min(20*time.Second, c.soak.last/4)))); life < span {
			span, stop = life, child.kill
		}
	}
	timer := time.AfterFunc(span, stop)
	for line, ok := child.line(); ok; line, ok = child.line() {
		c.hear(line)
	}
	timer.Stop()
	err = child.wait()
	switch {
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case child.killed():
		return false, nil
	}
	return true, err
}

func (c *soakCrew) hear(line string) {
	e, whole := parseEvent(line)
	if !whole {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case e.Paid != "":
		c.paid[e.Paid] = true
	case e.Refused != "":
		c.refused[e.Refused] = true
	}
	c.last = max(c.last, numberOf(e.Paid), numberOf(e.Begun))
}

// numberOf is the number in an id, "steady-named-0000007" or "steady-batch-0000008.2".
func numberOf(id string) (n int) {
	_, tail, _ := strings.Cut(id, "-")
	_, tail, _ = strings.Cut(tail, "-")
	fmt.Sscanf(tail, "%d", &n)
	return n
}

// resumeAt is where the next worker begins: far enough back that every payment which
// may be open is asked for again, by its name. What has none was begun up to seen.
func (c *soakCrew) resumeAt() (from, seen int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(0, c.last-soakBehind+1), c.last
}

func (c *soakCrew) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.paid)
}

func (c *soakCrew) killed() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kills
}

// unheard counts the payments up to the last number of which no worker said anything.
func (c *soakCrew) unheard(book soakBook) (n int) {
	w := &soakWorker{prefix: c.prefix}
	for i := range c.last + 1 {
		id := w.id(i)
		ids := []string{id}
		switch soakKinds[i%len(soakKinds)] {
		case "batch":
			ids = nil
			for _, it := range soakItems(id) {
				ids = append(ids, it.ID)
			}
		case "anonymous":
			continue // one that a crash overtook is at most once, and nobody hears of it
		}
		for _, id := range ids {
			if book.Effects[id] == 0 && !c.refused[id] && !c.paid[id] {
				n++
			}
		}
	}
	return n
}

// size is what the worker of now takes; no memory is told where the system doesn't.
func (c *soakCrew) size() (s soakSize) {
	c.mu.Lock()
	child := c.child
	c.mu.Unlock()
	if child != nil {
		s.memory = residentSize(child.cmd.Process.Pid)
	}
	if info, err := os.Stat(c.journal()); err == nil {
		s.journal = info.Size()
	}
	return s
}

// residentSize reads what Linux says of a process's memory.
func residentSize(pid int) (kilo int64) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	defer f.Close()
	b, _ := io.ReadAll(f)
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			fmt.Sscanf(rest, "%d", &kilo)
		}
	}
	return kilo << 10
}
