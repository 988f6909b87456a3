package store

import (
	"bytes"
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/idem-go/idem/keystore"
)

// Memory is a [keystore.Keystore] that forgets everything with the process. It
// is for tests, and for programs that want the retries but no memory of them.
type Memory struct {
	claims claims

	mu      sync.Mutex
	closed  bool                      // guarded by mu
	clock   clock                     // guarded by mu
	records map[slot]*keystore.Record // guarded by mu
	names   map[slot]string           // guarded by mu: keys by name
	lanes   map[shelf][]string        // guarded by mu: sorted places
}

var _ keystore.Keystore = (*Memory)(nil)

// shelf names a sorted list of places: a lane of a scope, or, as lane 0, what is due.
type shelf struct {
	scope string
	lane  keystore.Lane
}

// NewMemory returns an empty keystore.
func NewMemory() *Memory {
	return &Memory{
		records: make(map[slot]*keystore.Record),
		names:   make(map[slot]string),
		lanes:   make(map[shelf][]string),
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
	if err := m.claims.check(changes); err != nil {
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
	m.drop(shelf{mv.old.Scope, mv.old.Lane}, mv.old.Order, mv.old.Key)
	if due, ok := indexed(&mv.old.Record); ok {
		m.drop(shelf{mv.old.Scope, 0}, due, mv.old.Key)
	}
}

// drop takes a place out of a list.
func (m *Memory) drop(l shelf, at time.Time, key string) {
	places := m.lanes[l]
	i, _ := slices.BinarySearch(places, string(position(at, key)))
	if places = slices.Delete(places, i, i+1); len(places) == 0 {
		delete(m.lanes, l)
		return
	}
	m.lanes[l] = places
}

// add puts a place into a list.
func (m *Memory) add(l shelf, at time.Time, key string) {
	places, place := m.lanes[l], string(position(at, key))
	i, _ := slices.BinarySearch(places, place)
	m.lanes[l] = slices.Insert(places, i, place)
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
	m.add(shelf{r.Scope, r.Lane}, r.Order, r.Key)
	if due, ok := indexed(&r); ok {
		m.add(shelf{r.Scope, 0}, due, r.Key)
	}
}

// Read implements [keystore.Keystore].
func (m *Memory) Read(ctx context.Context, refs ...keystore.Ref) ([]keystore.Record, error) {
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	if err := checkRefs(refs); err != nil {
		return nil, err
	}
	found := make([]keystore.Record, len(refs))
	for i, ref := range refs {
		key := ref.Key
		if key == "" {
			key = m.names[slot{ref.Scope, ref.Name}]
		}
		if r := m.records[slot{ref.Scope, key}]; r != nil {
			found[i] = cloneRecord(r, ref.Bodies)
		}
	}
	return found, nil
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
	return fetch(m.fetch).scan(ctx, q)
}

func (m *Memory) fetch(ctx context.Context, q keystore.Query, after *spot, n int) ([]keystore.Record, bool, error) {
	if err := m.enter(ctx); err != nil {
		return nil, false, err
	}
	defer m.mu.Unlock()
	x := memIndex{m, q.Lane}
	if !q.Due.IsZero() {
		x.lane = 0
	}
	list, last := spots(x, q, after, n)
	batch := make([]keystore.Record, len(list))
	for i, s := range list {
		batch[i] = cloneRecord(m.records[s.at()], false)
		batch[i].Cursor = s.cursor()
	}
	return batch, last, nil
}

// memIndex shows the lists of one lane to a scan.
type memIndex struct {
	m    *Memory
	lane keystore.Lane
}

func (x memIndex) scopes() (scopes []string) {
	for l := range x.m.lanes {
		if l.lane == x.lane {
			scopes = append(scopes, l.scope)
		}
	}
	return scopes
}

func (x memIndex) walk(scope string, from []byte) func() []byte {
	places := x.m.lanes[shelf{scope, x.lane}]
	i, _ := slices.BinarySearch(places, string(from))
	return func() []byte {
		if i == len(places) {
			return nil
		}
		i++
		return []byte(places[i-1])
	}
}

// Claim implements [keystore.Keystore].
func (m *Memory) Claim(ctx context.Context, scope, id string, wait bool) (keystore.Claim, error) {
	return m.claims.take(ctx, slot{scope, id}, wait)
}

// Clock implements [keystore.Keystore].
func (m *Memory) Clock(ctx context.Context, now time.Time, tolerance time.Duration) (keystore.Sighting, error) {
	if err := m.enter(ctx); err != nil {
		return keystore.Sighting{}, err
	}
	defer m.mu.Unlock()
	m.clock = m.clock.sight(now, tolerance)
	return m.clock.sighting(now), nil
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
