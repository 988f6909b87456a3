package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/idem-go/idem/internal/store/pagecheck"
	"github.com/idem-go/idem/keystore"
	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// Commits come in groups, as each costs two syncs of the disk and a sync costs
// the same for one change as for a hundred. The first who comes leads: it
// writes one transaction for all that wait, which is at first itself alone.
// Whoever comes meanwhile waits in the queue. When the leader is done it tells
// the first of them to lead the next group. So there is no goroutine to stop
// and no timer: a lone commit waits for nothing, and many share.

// member is one call of Commit in a group.
type member struct {
	changes []keystore.Change
	taken   bool      // guarded by queueMu: in a group, or to lead one
	turn    chan bool // true: lead the next group; false: err is set
	err     error     // written by the leader
}

// Commit implements [keystore.Keystore]. Without changes it writes down the clock.
func (s *Journal) Commit(ctx context.Context, changes ...keystore.Change) error {
	if err := s.writes.enter(ctx); err != nil {
		return err
	}
	defer s.writes.leave()
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.gate.RUnlock()
	if err := checkChanges(changes); err != nil {
		return err
	}

	m := &member{changes: changes, turn: make(chan bool, 1)}
	lead := s.join(m)
	if !lead {
		select {
		case lead = <-m.turn:
		case <-ctx.Done():
			if s.leave(m) {
				return context.Cause(ctx)
			}
			lead = <-m.turn
		}
	}
	if lead {
		s.lead(m)
	}
	return m.err
}

// join puts m into the queue and tells whether it has to lead.
func (s *Journal) join(m *member) bool {
	s.queueMu.Lock()
	defer s.queueMu.Unlock()
	s.queue = append(s.queue, m)
	if s.leading {
		return false
	}
	s.leading, m.taken = true, true
	return true
}

// leave takes m out of the queue, if it isn't too late.
func (s *Journal) leave(m *member) bool {
	s.queueMu.Lock()
	defer s.queueMu.Unlock()
	if m.taken {
		return false
	}
	for i, other := range s.queue {
		if other == m {
			s.queue = append(s.queue[:i], s.queue[i+1:]...)
			break
		}
	}
	return true
}

// lead commits all that wait, of which m is one, and hands the lead on.
func (s *Journal) lead(m *member) {
	s.queueMu.Lock()
	group := s.queue
	s.queue = nil
	for _, other := range group {
		other.taken = true
	}
	s.queueMu.Unlock()

	s.commitGroup(group)

	s.queueMu.Lock()
	if len(s.queue) > 0 {
		s.queue[0].taken = true
		s.queue[0].turn <- true
	} else {
		s.leading = false
	}
	s.queueMu.Unlock()
	for _, other := range group {
		if other != m {
			other.turn <- false
		}
	}
}

// commitGroup sets the err of each member.
func (s *Journal) commitGroup(group []*member) {
	err := s.transact(group)
	if errors.Is(err, keystore.ErrFull) && len(group) > 1 {
		// One that is too large must not keep the others out.
		for i := range group {
			s.commitGroup(group[i : i+1])
		}
		return
	}
	if err == nil {
		return
	}
	// What a member was refused for may be the work of another one, which now
	// isn't there or isn't certain.
	for _, m := range group {
		m.err = err
	}
}

// transact writes a group in one transaction. The error is the group's; members
// whose own condition doesn't hold get theirs and are left out.
func (s *Journal) transact(group []*member) error {
	if err := s.failure(); err != nil {
		return err
	}
	if err := s.inPlace(); err != nil {
		return s.fail(err)
	}
	p := s.begin(group)
	defer s.end(p)
	err := guard(func() error {
		tx, err := s.db.Begin(true)
		if err != nil {
			return s.fail(err)
		}
		defer tx.Rollback() // does nothing after a commit
		wrote := false
		for _, m := range group {
			if m.err, err = s.write(tx, m.changes); err != nil {
				return fmt.Errorf("idem: journal %s: %w", s.path, err)
			}
			wrote = wrote || m.err == nil && len(m.changes) > 0
		}
		return s.commit(tx, wrote)
	})
	var panicked *panicError
	if errors.As(err, &panicked) {
		return uncertain(s.fail(err))
	}
	return err
}

// uncertain says that nobody knows what became of a commit.
func uncertain(err error) error { return fmt.Errorf("%w: %w", keystore.ErrUncertain, err) }

// inPlace tells whether the path still names the file that is open. What is
// written to one that was removed, or moved away for another, is durable where
// nobody will look for it, and another process may hold the lock of the other.
func (s *Journal) inPlace() error {
	mine, err := s.file.Stat()
	if err != nil {
		return err
	}
	named, err := os.Stat(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("the file was removed")
	case err == nil && !os.SameFile(mine, named):
		return errors.New("another file was put in its place")
	}
	return nil // what can't be seen now says nothing
}

// write applies one member's changes. refused is why they must not be applied;
// with err the transaction is of no use.
func (s *Journal) write(tx *bolt.Tx, changes []keystore.Change) (refused, err error) {
	if err := s.claims.check(changes); err != nil {
		return err, nil
	}
	stage := newStage(boltTable{tx})
	for _, c := range changes {
		if err := stage.apply(c); err != nil {
			return err, nil
		}
		if c.Op == keystore.OpCreate && s.nearlyFull(tx) {
			return fmt.Errorf("%w: %s nears its %d bytes", keystore.ErrFull, s.path, s.options.MaxSize), nil
		}
	}
	// All old index entries go before the first new one comes, as a name may
	// move from one record to another.
	for _, m := range stage.moves {
		if err := unlinkRow(tx, m.old); err != nil {
			return nil, err
		}
	}
	for _, m := range stage.moves {
		if err := linkRow(tx, m); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// unlinkRow removes what a record left in the indexes.
func unlinkRow(tx *bolt.Tx, old *row) error {
	if old == nil {
		return nil
	}
	if old.Name != "" {
		if err := tx.Bucket(bucketNames).Delete(slotKey(slot{old.Scope, old.Name})); err != nil {
			return err
		}
	}
	if _, ok := indexed(&old.Record); ok {
		if err := tx.Bucket(bucketDue).Delete(duePlace(&old.Record)); err != nil {
			return err
		}
	}
	return tx.Bucket(bucketLanes).Delete(laneKey(&old.Record))
}

// linkRow stores the new record, or removes the old one.
func linkRow(tx *bolt.Tx, m *move) error {
	k := slotKey(m.at)
	if err := putBody(tx.Bucket(bucketRequests), k, m.request); err != nil {
		return err
	}
	if err := putBody(tx.Bucket(bucketResponses), k, m.response); err != nil {
		return err
	}
	if m.new == nil {
		return tx.Bucket(bucketRecords).Delete(k)
	}
	if m.new.Name != "" {
		name := slotKey(slot{m.at.scope, m.new.Name})
		if err := tx.Bucket(bucketNames).Put(name, sealValue(name, []byte(m.at.word))); err != nil {
			return err
		}
	}
	if _, ok := indexed(&m.new.Record); ok {
		place := duePlace(&m.new.Record)
		if err := tx.Bucket(bucketDue).Put(place, sealValue(place)); err != nil {
			return err
		}
	}
	place := laneKey(&m.new.Record)
	if err := tx.Bucket(bucketLanes).Put(place, sealValue(place)); err != nil {
		return err
	}
	return tx.Bucket(bucketRecords).Put(k, encodeRow(k, m.new))
}

// putBody stores a body, or removes it if it is empty.
func putBody(b *bolt.Bucket, k, body []byte) error {
	switch {
	case body == nil:
		return nil
	case len(body) == 0:
		return b.Delete(k)
	}
	return b.Put(k, sealValue(k, body))
}

// nearlyFull tells whether the last part of a limited file is reached, which is
// kept for what must be written about the records that exist: what is full must
// be known before a request is sent, not after.
func (s *Journal) nearlyFull(tx *bolt.Tx) bool {
	limit := s.options.MaxSize
	if limit == 0 {
		return false
	}
	stats := s.db.Stats()
	free := int64(stats.FreePageN+stats.PendingPageN) * int64(s.db.Info().PageSize)
	return limit-tx.Size()+free < limit/4
}

// commit ends the transaction. It writes the clock if that changed, and nothing
// if nothing did.
func (s *Journal) commit(tx *bolt.Tx, wrote bool) error {
	s.stateMu.Lock()
	now, saved := s.clock.saved(), s.savedClock
	s.stateMu.Unlock()
	if now != saved {
		wrote = true
		if err := writeClock(tx.Bucket(bucketMeta), now); err != nil {
			return err
		}
	}
	if !wrote {
		return nil
	}
	id := tx.ID()
	if err := s.ops.commit(tx); err != nil {
		return s.judge(err, uint64(id))
	}
	s.stateMu.Lock()
	s.savedClock = now
	s.stateMu.Unlock()
	return nil
}

// writeClock stores the clock.
func writeClock(meta *bolt.Bucket, c clock) error {
	if err := meta.Put(keyClock, encodeClock(keyClock, c)); err != nil {
		return err
	}
	if !c.high.After(c.mark) {
		return meta.Delete(keyHigh)
	}
	return meta.Put(keyHigh, encodeHigh(keyHigh, c))
}

// judge tells an error that means no room, and has changed nothing, from one
// after which nobody knows what is on the disk.
func (s *Journal) judge(err error, id uint64) error {
	if !noRoom(err) {
		return uncertain(s.fail(err))
	}
	// bbolt writes a commit's meta page last and after a sync of the others.
	// As long as that of the commit before is the newest, this one isn't there
	// and can't come into being.
	info, statErr := s.file.Stat()
	if statErr != nil {
		return uncertain(s.fail(err))
	}
	if meta, metaErr := pagecheck.NewestMeta(s.file, info.Size()); metaErr != nil || meta.Txid >= id {
		return uncertain(s.fail(err))
	}
	return fmt.Errorf("%w: %s: %v", keystore.ErrFull, s.path, err)
}

// noRoom tells whether bbolt could not make the file larger, or write to where
// it is larger. A sync that finds no room isn't meant: it leaves the system
// believing that what it could not write is written.
func noRoom(err error) bool {
	var p *fs.PathError
	return errors.Is(err, bolterrors.ErrMaxSizeReached) ||
		errors.As(err, &p) && p.Op == "write" &&
			(errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)) ||
		// bbolt gives this error as text alone.
		strings.HasPrefix(err.Error(), "file resize error: ")
}
