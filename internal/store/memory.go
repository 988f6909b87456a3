package store

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/idem-go/idem/keystore"
)

// scanBatch is how many records a scan fetches at a time.
const scanBatch = 64

// Memory is a [keystore.Keystore] that forgets everything with the process. It
// is for tests, and for programs that want the retries but no memory of them.
type Memory struct {
	claims claims

	mu      sync.Mutex
	closed  bool                      // guarded by mu
	clock   clock                     // guarded by mu
	records map[slot]*keystore.Record // guarded by mu
	names   map[slot]string           // guarded by mu: keys by name
	lanes   map[string][]string       // guarded by mu: sorted positions by scope and lane
}

var _ keystore.Keystore = (*Memory)(nil)

// NewMemory returns an empty keystore.
func NewMemory() *Memory {
	return &Memory{
		records: make(map[slot]*keystore.Record),
		names:   make(map[slot]string),
		lanes:   make(map[string][]string),
	}
}

// enter locks the store for a call.
func (m *Memory) enter(ctx context.Context) error {
	m.mu.Lock()
	var err error
	if m.closed {
		err = keystore.ErrClosed
	} else if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		m.mu.Unlock()
	}
	return err
}

// Commit implements [keystore.Keystore].
func (m *Memory) Commit(ctx context.Context, changes ...keystore.Change) error {
	if err := m.enter(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	if err := checkChanges(changes); err != nil {
		return err
	}
	s := newStage(memTable{m})
	for _, c := range changes {
		if err := s.apply(c); err != nil {
			return err
		}
	}
	// All old index entries go before the first new one comes, as a name may
	// move from one record to another.
	for _, mv := range s.moves {
		m.unlink(mv)
	}
	for _, mv := range s.moves {
		m.link(mv)
	}
	return nil
}

// memTable shows the records to a stage.
type memTable struct{ m *Memory }

func (t memTable) row(at slot) (*row, error) {
	r := t.m.records[at]
	if r == nil {
		return nil, nil
	}
	return &row{Record: *r, hasRequest: len(r.Request) > 0, hasResponse: len(r.Response) > 0}, nil
}

func (t memTable) owner(name slot) string { return t.m.names[name] }

// unlink removes what the old record left in the indexes.
func (m *Memory) unlink(mv *move) {
	if mv.old == nil {
		return
	}
	delete(m.names, slot{mv.at.scope, mv.old.Name})
	lane := string(lanePrefix(mv.old.Scope, mv.old.Lane))
	list := m.lanes[lane]
	i, _ := slices.BinarySearch(list, string(position(mv.old.Order, mv.old.Key)))
	if list = slices.Delete(list, i, i+1); len(list) == 0 {
		delete(m.lanes, lane)
		return
	}
	m.lanes[lane] = list
}

// link stores the new record, if there is one, and its place in the indexes.
func (m *Memory) link(mv *move) {
	if mv.new == nil {
		delete(m.records, mv.at)
		return
	}
	r := mv.new.Record
	r.Head = cloneBytes(r.Head)
	if mv.old != nil {
		r.Request, r.Response = mv.old.Request, mv.old.Response
	}
	if mv.request != nil {
		r.Request = cloneBytes(mv.request)
	}
	if mv.response != nil {
		r.Response = cloneBytes(mv.response)
	}
	m.records[mv.at] = &r
	if r.Name != "" {
		m.names[slot{r.Scope, r.Name}] = r.Key
	}
	lane := string(lanePrefix(r.Scope, r.Lane))
	list := m.lanes[lane]
	pos := string(position(r.Order, r.Key))
	i, _ := slices.BinarySearch(list, pos)
	m.lanes[lane] = slices.Insert(list, i, pos)
}

// Read implements [keystore.Keystore].
func (m *Memory) Read(ctx context.Context, ref keystore.Ref) (keystore.Record, error) {
	if err := m.enter(ctx); err != nil {
		return keystore.Record{}, err
	}
	defer m.mu.Unlock()
	if err := checkRef(ref); err != nil {
		return keystore.Record{}, err
	}
	key := ref.Key
	if key == "" {
		key = m.names[slot{ref.Scope, ref.Name}]
	}
	r := m.records[slot{ref.Scope, key}]
	if r == nil {
		return keystore.Record{}, notFound(ref)
	}
	return cloneRecord(r, ref.Bodies), nil
}

// notFound is the error for a record that isn't there. It doesn't show the
// name, which may be personal.
func notFound(ref keystore.Ref) error {
	if ref.Key == "" {
		return fmt.Errorf("%w: no record with this name", keystore.ErrNotFound)
	}
	return fmt.Errorf("%w: record %q", keystore.ErrNotFound, ref.Key)
}

// cloneRecord copies a record, so that the caller may write to it.
func cloneRecord(r *keystore.Record, bodies bool) keystore.Record {
	c := *r
	c.Head, c.Request, c.Response = cloneBytes(r.Head), nil, nil
	if bodies {
		c.Request, c.Response = cloneBytes(r.Request), cloneBytes(r.Response)
	}
	return c
}

// cloneBytes copies b. Nothing is nil in every keystore, however it is stored.
func cloneBytes(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return bytes.Clone(b)
}

// Scan implements [keystore.Keystore].
func (m *Memory) Scan(ctx context.Context, q keystore.Query) iter.Seq2[keystore.Record, error] {
	return func(yield func(keystore.Record, error) bool) {
		for after := ""; ; {
			batch, last, err := m.batch(ctx, q, after)
			if err != nil {
				yield(keystore.Record{}, err)
				return
			}
			for _, r := range batch {
				if !yield(r, nil) {
					return
				}
			}
			if last == "" {
				return
			}
			after = last
		}
	}
}

// batch fetches the records behind a position. last is where to go on, "" at
// the end.
func (m *Memory) batch(ctx context.Context, q keystore.Query, after string) (batch []keystore.Record, last string, err error) {
	if err := m.enter(ctx); err != nil {
		return nil, "", err
	}
	defer m.mu.Unlock()
	list := m.lanes[string(lanePrefix(q.Scope, q.Lane))]
	i := sort.Search(len(list), func(i int) bool { return list[i] > after })
	for _, pos := range list[i:] {
		if len(batch) == scanBatch {
			return batch, last, nil
		}
		order, key := splitPosition([]byte(pos))
		if !q.Until.IsZero() && order.After(q.Until) {
			break
		}
		batch = append(batch, cloneRecord(m.records[slot{q.Scope, key}], false))
		last = pos
	}
	return batch, "", nil
}

// Claim implements [keystore.Keystore].
func (m *Memory) Claim(ctx context.Context, id string, wait bool) (keystore.Claim, error) {
	return m.claims.take(ctx, id, wait)
}

// Clock implements [keystore.Keystore].
func (m *Memory) Clock(ctx context.Context, now time.Time, tolerance time.Duration) (keystore.Sighting, error) {
	if err := m.enter(ctx); err != nil {
		return keystore.Sighting{}, err
	}
	defer m.mu.Unlock()
	m.clock = m.clock.sight(now, tolerance)
	return m.clock.sighting(), nil
}

// Close implements [keystore.Keystore]. What the store held is gone.
func (m *Memory) Close() error {
	m.claims.close()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	m.records, m.names, m.lanes = nil, nil, nil
	return nil
}
