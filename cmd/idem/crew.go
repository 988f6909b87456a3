package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// crew is a worker and its successors: each is killed, and the next goes on with
// what the last has left on disk.
type crew struct {
	worker   workerConfig
	plan     []kill
	progress progress

	paid  map[string]bool
	kills int
}

// run lets workers work until one is through and nobody is left to be killed.
func (c *crew) run(ctx context.Context) error {
	c.paid = map[string]bool{}
	for {
		over, err := c.life(ctx)
		if err != nil || over {
			return err
		}
		c.kills++
		c.progress.note(fmt.Sprintf("SIGKILL %d of %d after %d payments; the next worker starts on the same files", c.kills, len(c.plan), len(c.paid)))
	}
}

// life is one worker's. It is over if it got through; else it was killed.
func (c *crew) life(ctx context.Context) (over bool, err error) {
	child, err := startChild(ctx, workerCommand, c.worker.args()...)
	if err != nil {
		return false, err
	}
	over = c.watch(child)
	err = child.wait()
	switch {
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case child.killed():
		return false, nil
	case err != nil:
		return false, err
	case !over:
		return false, errors.New("the worker ended before its work")
	}
	return true, nil
}

// watch reads what a worker says until its end, which it brings about when a kill
// is due or, once none is, when the work is over.
func (c *crew) watch(child *child) (over bool) {
	armed := false
	arm := func(d time.Duration) {
		armed = true
		time.AfterFunc(d, child.kill)
	}
	for {
		if owed := c.kills < len(c.plan); owed && !armed && len(c.paid) >= c.plan[c.kills].after {
			arm(c.plan[c.kills].delay)
		}
		line, ok := child.line()
		if !ok {
			return over
		}
		e, whole := parseEvent(line)
		switch {
		case !whole:
		case e.Over && c.kills == len(c.plan):
			over = true
			child.leave()
		case e.Over && !armed: // through early, by what killed workers had paid but not said
			arm(0)
		case e.Paid != "" && !c.paid[e.Paid]:
			c.paid[e.Paid] = true
			c.progress.paid(len(c.paid))
		}
	}
}
