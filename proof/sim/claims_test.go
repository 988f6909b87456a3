package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// line is who holds a claim, and who waits for it.
type line struct {
	holder  *right
	waiters []*right
}

// right is one claim, held or awaited.
type right struct {
	h     *handle
	o     *opState
	at    slot
	token string
	turn  chan error    // one result, so that a sender never blocks
	lost  chan struct{} // closed when another took it over
	over  bool          // guarded by store.mu
}

// Claim waits in line.
func (h *handle) Claim(ctx context.Context, scope, id string, wait bool) (claim, error) {
	o := opOf(ctx)
	if err := h.trip(o); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		o.looked(false, true)
		return nil, context.Cause(ctx)
	}
	r := &right{h: h, o: o, at: slot{scope, id}, turn: make(chan error, 1), lost: make(chan struct{})}
	if !h.enter(r, wait) {
		return nil, errConflict
	}
	var err error
	select {
	case err = <-r.turn:
	case <-ctx.Done():
		err = context.Cause(ctx)
		if !h.leave(r) && !h.proc.dead.Load() { // it came in the same moment
			err = <-r.turn
		}
	}
	o.looked(err == nil, err != nil)
	h.w.logf("%v claim %q of %q: %s, %v", o, id, scope, r.token, err)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// enter takes a free right or a place in the line.
func (s *store) enter(r *right, wait bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rights++
	r.token = fmt.Sprintf("claim %d", s.rights)
	l := s.lines[r.at]
	switch {
	case l == nil:
		s.lines[r.at] = &line{}
		s.grant(r)
	case !wait:
		return false
	default:
		l.waiters = append(l.waiters, r)
	}
	return true
}

// grant makes somebody the holder.
func (s *store) grant(r *right) {
	s.lines[r.at].holder = r
	s.held[r.token] = true
	r.turn <- nil
}

func (s *store) leave(r *right) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drop(r)
}

// drop takes a waiter out of its line.
func (s *store) drop(r *right) bool {
	l := s.lines[r.at]
	if l == nil {
		return false
	}
	i := slices.Index(l.waiters, r)
	if i < 0 {
		return false
	}
	l.waiters = slices.Delete(l.waiters, i, i+1)
	return true
}

// pass gives the right to the next in line.
func (s *store) pass(r *right) {
	if r.over {
		return
	}
	r.over = true
	delete(s.held, r.token)
	l := s.lines[r.at]
	if len(l.waiters) == 0 {
		delete(s.lines, r.at)
		return
	}
	next := l.waiters[0]
	l.waiters = slices.Delete(l.waiters, 0, 1)
	s.grant(next)
}

// Token names the right. What its holder commits after the end of it is refused.
func (r *right) Token() string { return r.token }

// Contended tells whether somebody waits.
func (r *right) Contended() bool {
	s := r.h.store
	s.mu.Lock()
	defer s.mu.Unlock()
	return !r.over && len(s.lines[r.at].waiters) > 0
}

// Lost is closed when a lease ends too early.
func (r *right) Lost() <-chan struct{} {
	if !r.h.w.prog.Leases {
		return nil
	}
	return r.lost
}

// Release passes the right on.
func (r *right) Release() {
	s := r.h.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if !r.over {
		s.w.logf("%v release %q", r.o, r.at.word)
	}
	s.pass(r)
}

// lose takes the right that stands at place n from its holder.
func (s *store) lose(n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	places := s.places()
	if len(places) == 0 || !s.w.prog.Leases {
		return
	}
	r := s.lines[places[n%uint64(len(places))]].holder
	s.w.logf("lease of %v on %q is lost", r.o, r.at.word)
	s.w.lostLease(r.o)
	close(r.lost)
	s.pass(r)
}

// places are those of all lines, in an order that doesn't change from run to run.
func (s *store) places() []slot {
	return slices.SortedFunc(maps.Keys(s.lines), func(a, b slot) int {
		return cmp.Or(strings.Compare(a.scope, b.scope), strings.Compare(a.word, b.word))
	})
}

// bury ends what a dead or closed process holds and awaits.
func (s *store) bury(p *proc, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.places() {
		l := s.lines[at]
		for _, r := range slices.Clone(l.waiters) {
			if r.h.proc == p && s.drop(r) {
				r.over = true
				r.turn <- why
			}
		}
		if l.holder.h.proc == p {
			s.pass(l.holder)
		}
	}
}

// ended tells errors of the store from those of the library.
func ended(err error) bool {
	return errors.Is(err, errStore) || errors.Is(err, errDead) || errors.Is(err, errClosed)
}
