package store

import (
	"context"
	"sync"
)

// turnstile lets many in, or one alone, and nobody waits beyond the end of a context. Who
// wants to be alone goes before those who come later.
type turnstile struct {
	mu     sync.Mutex
	inside int           // guarded by mu
	shut   chan struct{} // guarded by mu: closed when it opens again; nil if it is open
	empty  chan struct{} // guarded by mu: closed when the last one leaves; nil if nobody waits
}

// enter lets one of many in.
func (t *turnstile) enter(ctx context.Context) error {
	for {
		t.mu.Lock()
		shut := t.shut
		if shut == nil {
			t.inside++
			t.mu.Unlock()
			return nil
		}
		t.mu.Unlock()
		select {
		case <-shut:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// leave undoes enter.
func (t *turnstile) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inside--
	if t.inside == 0 && t.empty != nil {
		close(t.empty)
		t.empty = nil
	}
}

// lock waits until nobody else is inside.
func (t *turnstile) lock(ctx context.Context) error {
	for {
		t.mu.Lock()
		shut := t.shut
		if shut == nil {
			break
		}
		t.mu.Unlock()
		select {
		case <-shut:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	t.shut = make(chan struct{})
	empty := make(chan struct{})
	if t.inside == 0 {
		close(empty)
	} else {
		t.empty = empty
	}
	t.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		t.unlock()
		return context.Cause(ctx)
	}
}

// unlock undoes lock.
func (t *turnstile) unlock() {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.shut)
	t.shut, t.empty = nil, nil
}
