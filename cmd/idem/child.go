package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
)

// child is another process of this program. It lives no longer than the demo: it
// is killed when ctx ends, and it ends by itself when its input closes, which
// the system does for a parent that was killed.
type child struct {
	name   string
	cmd    *exec.Cmd
	in     io.WriteCloser
	lines  *bufio.Scanner
	stderr bytes.Buffer // read after wait

	shot atomic.Bool // kill was called

	once sync.Once
	err  error
}

// startChild runs this program again with other arguments.
func startChild(ctx context.Context, name string, args ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{name: name, cmd: exec.CommandContext(ctx, self, append([]string{name}, args...)...)}
	c.cmd.Stderr = &c.stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.lines = bufio.NewScanner(out)
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return c, nil
}

// line returns the next line that the child wrote; false at its end. A last line
// that the kill cut off is returned as it is.
func (c *child) line() (string, bool) {
	if !c.lines.Scan() {
		return "", false
	}
	return c.lines.Text(), true
}

func (c *child) drain() {
	for c.lines.Scan() {
	}
}

// leave tells the child to go.
func (c *child) leave() { c.in.Close() }

// kill is SIGKILL: no deferred call runs, no buffer is written.
func (c *child) kill() {
	c.shot.Store(true) // first, for the process may be collected before Kill returns
	c.cmd.Process.Kill()
}

// killed reports, after wait, that kill ended the process. One that failed in the
// same moment has said why.
func (c *child) killed() bool {
	return c.shot.Load() && !c.cmd.ProcessState.Success() && c.stderr.Len() == 0
}

// wait collects the process, so that no zombie stays. All output must have been
// read. What the child said of its end is part of the error.
func (c *child) wait() error {
	c.once.Do(func() {
		c.err = c.cmd.Wait()
		if said := strings.TrimSpace(c.stderr.String()); c.err != nil && said != "" {
			c.err = fmt.Errorf("%s: %w: %s", c.name, c.err, said)
		}
	})
	return c.err
}

// errOrphaned ends a child whose parent is gone.
var errOrphaned = errors.New("the demo is gone")

// untilOrphaned returns ctx, ended also when the parent closes our input or dies.
func untilOrphaned(ctx context.Context, in io.Reader) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		io.Copy(io.Discard, in)
		cancel(errOrphaned)
	}()
	return ctx
}
