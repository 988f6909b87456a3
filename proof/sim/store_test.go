package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idem"
	ks "github.com/idem-go/idem/keystore"
)

// The words of a keystore stand in this file alone.
type (
	keystore = idem.Keystore
	record   = ks.Record
	change   = ks.Change
	ref      = ks.Ref
	query    = ks.Query
	claim    = ks.Claim
	sighting = ks.Sighting
)

const (
	opCreate  = ks.OpCreate
	opReplace = ks.OpReplace
	opRemove  = ks.OpRemove
	laneOpen  = ks.LaneOpen
)

var (
	errConflict = idem.ErrConflict
	errNotFound = idem.ErrNotFound
	errClosed   = idem.ErrClosed
	errInvalid  = idem.ErrInvalid
)

// errStore is a failure of the simulated store, errDead what a process meets that
// isn't there any more.
var (
	errStore = errors.New("sim: the store failed")
	errDead  = errors.New("sim: the process died")
)

// slot is where a record or a name stands.
type slot struct{ scope, word string }

// table is what the store holds.
type table struct {
	rows  map[slot]record
	names map[slot]string
}

func (t table) clone() table { return table{maps.Clone(t.rows), maps.Clone(t.names)} }

// store is the data that all processes share.
type store struct {
	w *world

	mu     sync.Mutex
	now    table            // guarded by mu
	synced *table           // guarded by mu: what a power cut brings back; nil: all of it
	unsure map[slot]bool    // guarded by mu: records of a commit whose sync failed
	lines  map[string]*line // guarded by mu: who holds and awaits each claim
	mark   time.Time        // guarded by mu: the highest clock seen
	epoch  uint64           // guarded by mu: how often the clock was set back
	age    time.Duration    // guarded by mu
}

func newStore(w *world) *store {
	empty := table{map[slot]record{}, map[slot]string{}}
	return &store{w: w, now: empty, unsure: map[slot]bool{}, lines: map[string]*line{}}
}

// handle is one process's access to the store.
type handle struct {
	*store
	proc   *proc
	closed bool // guarded by store.mu
}

var _ keystore = (*handle)(nil)

// trip is the way to the store or back.
func (h *handle) trip(o *opState) error {
	d := h.w.latency(o)
	if d > 0 {
		time.Sleep(d)
	}
	switch {
	case h.proc.dead.Load():
		return errDead
	case h.over():
		return errClosed
	}
	return nil
}

// Commit applies all changes or none, and may lie about it.
func (h *handle) Commit(ctx context.Context, changes ...change) error {
	o := opOf(ctx)
	if err := h.trip(o); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, c := range changes {
		if c.Record.Key == "" || c.Op < opCreate || c.Op > opRemove {
			return errInvalid
		}
	}
	fault := h.w.commitFault(o)
	err := h.apply(o, fault, changes)
	h.w.logf("%v commit %v: %s %v", o, spell(changes), fault, err)
	if back := h.trip(o); back != nil {
		return back
	}
	return err
}

func (h *handle) apply(o *opState, fault string, changes []change) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.synced != nil || fault == "fails" {
		return errStore
	}
	was := h.now
	if len(changes) > 1 || fault == "unsynced" {
		h.now = was.clone()
	}
	for _, c := range changes {
		if err := h.now.apply(c); err != nil {
			h.now = was
			return err
		}
	}
	if fault == "unsynced" {
		h.synced = &was
	}
	for _, c := range changes {
		h.unsure[slot{c.Record.Scope, c.Record.Key}] = fault == "unsynced"
		h.w.committed(o, h.proc, c)
	}
	if fault != "" {
		return errStore
	}
	return nil
}

// apply makes a change, or none.
func (t table) apply(c change) error {
	at := slot{c.Record.Scope, c.Record.Key}
	old, found := t.rows[at]
	name := slot{c.Record.Scope, c.Record.Name}
	holder, taken := t.names[name]
	switch {
	case c.Op == opCreate && found, c.Op != opCreate && (!found || old.Rev != c.Record.Rev):
		return fmt.Errorf("%w: record %q", errConflict, at.word)
	case c.Op != opRemove && name.word != "" && taken && holder != at.word:
		return fmt.Errorf("%w: the name of %q", errConflict, at.word)
	}
	if found && old.Name != "" {
		delete(t.names, slot{at.scope, old.Name})
	}
	if c.Op == opRemove {
		delete(t.rows, at)
		return nil
	}
	r := c.Record
	if found {
		r.Rev = old.Rev + 1
	}
	r.Head, r.Request, r.Response = bytes.Clone(r.Head), body(r.Request, old.Request), body(r.Response, old.Response)
	t.rows[at] = r
	if r.Name != "" {
		t.names[name] = r.Key
	}
	return nil
}

// body is the new body, or the old one where the new one is nil.
func body(b, old []byte) []byte {
	switch {
	case b == nil:
		return old
	case len(b) == 0:
		return nil
	}
	return bytes.Clone(b)
}

// Read returns a record as it is in the middle of the call.
func (h *handle) Read(ctx context.Context, at ref) (record, error) {
	o := opOf(ctx)
	if err := h.trip(o); err != nil {
		return record{}, err
	}
	if at.Key == "" && at.Name == "" {
		return record{}, errInvalid
	}
	r, err := h.read(at)
	if h.w.draw(o, h.w.prog.ReadFails) {
		r, err = record{}, errStore
	}
	o.looked(err == nil, false)
	h.w.logf("%v read %q %q: rev %d, %v", o, at.Key, at.Name, r.Rev, err)
	if back := h.trip(o); back != nil {
		return record{}, back
	}
	return r, err
}

func (h *handle) read(at ref) (record, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if at.Key == "" {
		at.Key = h.now.names[slot{at.Scope, at.Name}]
	}
	r, found := h.now.rows[slot{at.Scope, at.Key}]
	switch {
	case h.unsure[slot{at.Scope, at.Key}] && !h.w.prog.Lying:
		return record{}, errStore
	case !found:
		return record{}, errNotFound
	}
	return shown(r, at.Bodies), nil
}

// shown is a copy that the caller may write to.
func shown(r record, bodies bool) record {
	r.Head = bytes.Clone(r.Head)
	if !bodies {
		r.Request, r.Response = nil, nil
	}
	r.Request, r.Response = bytes.Clone(r.Request), bytes.Clone(r.Response)
	return r
}

// Scan yields what there was when it began.
func (h *handle) Scan(ctx context.Context, q query) iter.Seq2[record, error] {
	return func(yield func(record, error) bool) {
		err := h.trip(opOf(ctx))
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			yield(record{}, err)
			return
		}
		for _, r := range h.list(q) {
			if !yield(r, nil) {
				return
			}
		}
	}
}

func (h *handle) list(q query) (list []record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for at, r := range h.now.rows {
		late := !q.Until.IsZero() && r.Order.After(q.Until)
		if at.scope == q.Scope && r.Lane == q.Lane && !late {
			list = append(list, shown(r, false))
		}
	}
	slices.SortFunc(list, func(a, b record) int {
		if c := a.Order.Compare(b.Order); c != 0 {
			return c
		}
		return strings.Compare(a.Key, b.Key)
	})
	return list
}

// Clock keeps the highest clock and the age, as every store must.
func (h *handle) Clock(ctx context.Context, now time.Time, tolerance time.Duration) (sighting, error) {
	if h.proc.dead.Load() {
		return sighting{}, errDead
	}
	if h.over() {
		return sighting{}, errClosed
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mark.Sub(now) > tolerance {
		h.epoch, h.mark = h.epoch+1, now
	}
	if !h.mark.IsZero() && now.After(h.mark) {
		h.age += min(now.Sub(h.mark), 24*time.Hour)
	}
	if now.After(h.mark) {
		h.mark = now
	}
	return sighting{Epoch: h.epoch, Age: h.age}, nil
}

// Close ends a process's access, and nothing else: the store outlives it.
func (h *handle) Close() error {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.bury(h.proc, errClosed)
	return nil
}

func (h *handle) over() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.closed
}

// open tells whether the record of a key may be sent for.
func (s *store) open(key string) (found, open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.find(key)
}

// find is open under the lock.
func (s *store) find(key string) (found, open bool) {
	for at, r := range s.now.rows {
		if at.word == key {
			return true, r.Lane == laneOpen
		}
	}
	return false, false
}

// restart is what a power cut leaves, or the same after a mere restart.
func (s *store) restart(cut bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.synced != nil && cut {
		s.now = *s.synced
	}
	s.synced = nil
	clear(s.unsure)
}

// spell is for the log.
func spell(changes []change) string {
	words := map[ks.Op]string{opCreate: "create", opReplace: "replace", opRemove: "remove"}
	var b strings.Builder
	for _, c := range changes {
		fmt.Fprintf(&b, "%s %s (rev %d, lane %d) ", words[c.Op], c.Record.Key, c.Record.Rev, c.Record.Lane)
	}
	return b.String()
}
