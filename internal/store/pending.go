package store

import (
	"context"

	"github.com/idem-go/idem/keystore"
)

// pending is a group on its way to the disk. bbolt shows what a commit has written
// before that is synced, but whoever reads it acts on it, and a power cut must not take
// it back. So readers of the group's own records wait for its end. After a failure
// nobody knows what the disk holds of them, for the rest of this life.
type pending struct {
	slots map[slot]bool
	done  chan struct{} // closed at the end
	err   error         // set before; nil if the group is durable, or isn't there
}

// begin notes a group before anything of it is written.
func (s *Journal) begin(group []*member) *pending {
	p := &pending{slots: make(map[slot]bool), done: make(chan struct{})}
	for _, m := range group {
		for _, c := range m.changes {
			p.slots[slot{c.Record.Scope, c.Record.Key}] = true
		}
	}
	s.stateMu.Lock()
	defer s.stateMu.Unlock()
	s.pending = p
	return p
}

// end tells those who wait what became of the group.
func (s *Journal) end(p *pending) {
	s.stateMu.Lock()
	defer s.stateMu.Unlock()
	if s.failed != nil {
		p.err = s.failed
	} else {
		s.pending = nil
	}
	close(p.done)
}

// settled waits until what was just read of these records is durable, and returns why
// that can't be known.
func (s *Journal) settled(ctx context.Context, records ...keystore.Record) error {
	s.stateMu.Lock()
	p := s.pending
	s.stateMu.Unlock()
	if p == nil {
		return nil
	}
	for _, r := range records {
		if !p.slots[slot{r.Scope, r.Key}] {
			continue
		}
		select {
		case <-p.done:
			return p.err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
