package store

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"

	"github.com/idem-go/idem/keystore"
)

// claims hands out the rights of [keystore.Keystore.Claim] within one process, first
// come, first served. It has no goroutine: whoever releases a right gives it to
// the next waiter. An id that nobody holds takes no memory.
type claims struct {
	mu     sync.Mutex
	held   map[slot]*claimLine // guarded by mu
	tokens map[string]bool     // guarded by mu: of the rights that are held
	closed bool                // guarded by mu
}

// claimLine is who waits behind the holder of one id.
type claimLine struct {
	waiters []chan error // one result each, so that a sender never blocks
}

// take is [keystore.Keystore.Claim].
func (c *claims) take(ctx context.Context, at slot, wait bool) (keystore.Claim, error) {
	line, turn, err := c.enter(ctx, at, wait)
	if err != nil {
		return nil, err
	}
	if turn == nil {
		return c.holder(at, line), nil
	}

	select {
	case err = <-turn:
	case <-ctx.Done():
		// The right may have come in the same moment; then it is taken, for
		// it has been handed over and nobody else would pass it on.
		if c.leave(line, turn) {
			return nil, context.Cause(ctx)
		}
		err = <-turn
	}
	if err != nil {
		return nil, err
	}
	return c.holder(at, line), nil
}

// holder is the right of whoever has come to the front of a line.
func (c *claims) holder(at slot, line *claimLine) *claim {
	h := &claim{claims: c, at: at, line: line, token: rand.Text()}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tokens == nil {
		c.tokens = make(map[string]bool)
	}
	c.tokens[h.token] = true
	return h
}

// check refuses changes under a right that isn't held.
func (c *claims) check(changes []keystore.Change) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, change := range changes {
		if change.Token != "" && !c.tokens[change.Token] {
			return fmt.Errorf("%w: that of record %q", keystore.ErrClaimLost, change.Record.Key)
		}
	}
	return nil
}

// enter takes a free right (then the channel is nil) or a place in its line.
func (c *claims) enter(ctx context.Context, at slot, wait bool) (*claimLine, chan error, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, nil, keystore.ErrClosed
	}
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	line := c.held[at]
	if line == nil {
		if c.held == nil {
			c.held = make(map[slot]*claimLine)
		}
		line = new(claimLine)
		c.held[at] = line
		return line, nil, nil
	}
	if !wait {
		return nil, nil, fmt.Errorf("%w: %q has a driver", keystore.ErrConflict, at.word)
	}
	turn := make(chan error, 1)
	line.waiters = append(line.waiters, turn)
	return line, turn, nil
}

// leave gives up a place in the line. It returns false if the waiter has its
// result already.
func (c *claims) leave(line *claimLine, turn chan error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(line.waiters, turn)
	if i < 0 {
		return false
	}
	line.waiters = slices.Delete(line.waiters, i, i+1)
	return true
}

// close ends all waiting with ErrClosed. Rights that are held stay held.
func (c *claims) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, line := range c.held {
		for _, turn := range line.waiters {
			turn <- keystore.ErrClosed
		}
		line.waiters = nil
	}
}

// claim is a right that is held.
type claim struct {
	claims   *claims
	at       slot
	line     *claimLine
	token    string
	released bool // guarded by claims.mu
}

// Token implements [keystore.Claim].
func (c *claim) Token() string { return c.token }

// Contended implements [keystore.Claim].
func (c *claim) Contended() bool {
	c.claims.mu.Lock()
	defer c.claims.mu.Unlock()
	return !c.released && len(c.line.waiters) > 0
}

// Lost implements [keystore.Claim]: a right within one process can't be lost.
func (c *claim) Lost() <-chan struct{} { return nil }

// Release implements [keystore.Claim].
func (c *claim) Release() {
	c.claims.mu.Lock()
	defer c.claims.mu.Unlock()
	if c.released {
		return
	}
	c.released = true
	delete(c.claims.tokens, c.token)
	if len(c.line.waiters) == 0 {
		delete(c.claims.held, c.at)
		return
	}
	next := c.line.waiters[0]
	c.line.waiters = slices.Delete(c.line.waiters, 0, 1)
	next <- nil
}
