package idem

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/keystore"
)

const (
	sweepEvery = time.Minute
	sweepBatch = 256
)

// sweeper shows the store the clock, which may close windows, and sweeps what has
// come of age.
type sweeper struct {
	entries   *entries
	tolerance time.Duration // how far the clock may go back before that closes windows

	skew atomic.Int64 // how far the store's time is ahead of this host's, in ns

	mu   sync.Mutex // guards what follows
	last time.Duration
	ran  bool
}

// sight shows the store this host's clock and returns the time that the store goes by,
// which for a store that several hosts share is its own.
func (s *sweeper) sight(ctx context.Context) (keystore.Sighting, error) {
	return s.sightWithin(ctx, s.tolerance)
}

// sightWithin is sight for an entry whose own margin, if it has one, may be smaller.
func (s *sweeper) sightWithin(ctx context.Context, margin time.Duration) (keystore.Sighting, error) {
	ctx = context.WithoutCancel(ctx)
	tolerance := s.tolerance
	if margin > 0 {
		tolerance = min(tolerance, margin)
	}
	now := time.Now()
	sight, err := s.entries.ks.Clock(ctx, now, tolerance)
	if err == nil {
		sight.Now = sight.Now.Round(0)
		s.skew.Store(int64(sight.Now.Sub(now.Round(0))))
	}
	if err == nil && s.due(sight.Age) {
		s.sweep(ctx, sight.Age)
	}
	return sight, err
}

// now is the time that the store goes by, as far as its last sighting told.
func (s *sweeper) now() time.Time { return wallClock().Add(time.Duration(s.skew.Load())) }

func (s *sweeper) due(age time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ran && age-s.last < sweepEvery {
		return false
	}
	s.last, s.ran = age, true
	return true
}

// again makes the next sighting sweep on.
func (s *sweeper) again() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ran = false
}

// sweep turns settled entries past Keep into tombstones and removes tombstones past
// their year, a bounded number at a time. A failure is met again by the next sweep,
// or by the call that has to write.
func (s *sweeper) sweep(ctx context.Context, age time.Duration) {
	var changes []keystore.Change
	for rec, err := range s.entries.scan(ctx, keystore.LaneSettled, ageTime(age)) {
		if err != nil && !errors.Is(err, ErrCorrupt) {
			return
		}
		if err == nil {
			if change, ok := s.sweepOne(rec, age); ok {
				changes = append(changes, change)
			}
		}
		if len(changes) == sweepBatch {
			s.again()
			break
		}
	}
	for _, change := range changes {
		if err := s.entries.commit(ctx, change); err != nil && !errors.Is(err, ErrConflict) {
			return
		}
	}
}

// after is an age later by some time, at most Forever, which never comes.
func after(age, wait time.Duration) time.Duration {
	if wait > Forever-age {
		return Forever
	}
	return age + wait
}

func (s *sweeper) sweepOne(rec keystore.Record, age time.Duration) (keystore.Change, bool) {
	h, err := s.entries.openHead(rec)
	if err != nil {
		return keystore.Change{}, false // sealed with another key: kept
	}
	if h.Trimmed || !h.mayBeAskedFor() {
		return s.entries.remove(h, rec.Rev), true
	}
	change, err := s.entries.replace(h.tombstone(after(age, tombstoneKeep)), rec.Rev, nil)
	change.Record.Request, change.Record.Response = []byte{}, []byte{}
	return change, err == nil
}

// mayBeAskedFor tells an entry that an old rerun may find: by its name, as a batch's
// item, or by a key that its caller knows.
func (h *head) mayBeAskedFor() bool {
	named := h.Intent != "" && !h.Freed
	return named || h.Item != "" || h.KeySource == keyCaller || h.Queued
}
