package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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
	errLost     = idem.ErrClaimLost
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
	unsure [2]map[slot]bool // guarded by mu: keys and names of a commit whose sync failed
	lines  map[slot]*line   // guarded by mu: who holds and awaits each claim
	held   map[string]bool  // guarded by mu: the tokens of the claims that are held
	rights int              // guarded by mu: claims asked for so far
	mark   time.Time        // guarded by mu: the highest clock seen
	epoch  uint64           // guarded by mu: how often the clock was set back
	age    time.Duration    // guarded by mu
}

func newStore(w *world) *store {
	empty := table{map[slot]record{}, map[slot]string{}}
	return &store{w: w, now: empty, unsure: [2]map[slot]bool{{}, {}}, lines: map[slot]*line{}, held: map[string]bool{}}
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
	if slices.ContainsFunc(changes, senseless) {
		return errInvalid
	}
	fault := h.w.commitFault(o)
	err := h.apply(o, fault, changes)
	h.w.logf("%v commit %v: %s %v", o, spell(changes), fault, err)
	if back := h.trip(o); back != nil {
		return back
	}
	return err
}

// senseless tells a change that no state of the store could make right.
func senseless(c change) bool {
	r := c.Record
	if r.Key == "" || r.Rev == 0 || c.Op < opCreate || c.Op > opRemove {
		return true
	}
	return c.Op != opRemove && (r.Lane == 0 || timeless(r.Order) || timeless(r.Due))
}

// timeless tells a time that no record may have.
func timeless(t time.Time) bool { return t.UTC().Year() < 1 || t.UTC().Year() > 9999 }

func (h *handle) apply(o *opState, fault string, changes []change) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.synced != nil || fault == "fails" {
		return errStore
	}
	for _, c := range changes {
		if c.Token != "" && !h.held[c.Token] {
			return fmt.Errorf("%w: that of record %q", errLost, c.Record.Key)
		}
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
		if fault == "unsynced" {
			h.doubt(was, c.Record)
		}
		h.w.committed(o, h.proc, c)
	}
	if fault != "" {
		return errStore
	}
	return nil
}

// doubt marks what a commit leaves open: the record, and the names that it had and has.
func (s *store) doubt(was table, r record) {
	at := slot{r.Scope, r.Key}
	s.unsure[0][at] = true
	s.unsure[1][slot{r.Scope, r.Name}] = true
	s.unsure[1][slot{r.Scope, was.rows[at].Name}] = true
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
	r := c.Record // with the creator's revision
	if found {
		r.Rev = old.Rev + 1
	}
	r.Order, r.Due, r.Cursor = r.Order.Round(0).UTC(), r.Due.Round(0).UTC(), ""
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

// Read returns the records as they are in the middle of the call.
func (h *handle) Read(ctx context.Context, refs ...ref) ([]record, error) {
	o := opOf(ctx)
	if err := h.trip(o); err != nil {
		return nil, err
	}
	for _, at := range refs {
		if at.Key == "" && at.Name == "" {
			return nil, errInvalid
		}
	}
	list, err := h.read(refs)
	if h.w.draw(o, h.w.prog.ReadFails) {
		list, err = nil, errStore
	}
	o.read(slices.ContainsFunc(list, record.Found))
	h.w.logf("%v read %s: %v", o, spellRead(refs, list), err)
	if back := h.trip(o); back != nil {
		return nil, back
	}
	return list, err
}

func (h *handle) read(refs []ref) ([]record, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := make([]record, len(refs))
	for i, at := range refs {
		unsure := at.Key == "" && h.unsure[1][slot{at.Scope, at.Name}]
		if at.Key == "" {
			at.Key = h.now.names[slot{at.Scope, at.Name}]
		}
		unsure = unsure || h.unsure[0][slot{at.Scope, at.Key}]
		if unsure && !h.w.prog.Lying {
			return nil, errStore
		}
		if r, found := h.now.rows[slot{at.Scope, at.Key}]; found {
			list[i] = shown(r, at.Bodies)
		}
	}
	return list, nil
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
	return sighting{Now: now, Epoch: h.epoch, Age: h.age}, nil
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
	s.unsure = [2]map[slot]bool{{}, {}}
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

// spellRead is for the log too.
func spellRead(refs []ref, list []record) string {
	var b strings.Builder
	for i, at := range refs {
		rev := uint64(0)
		if i < len(list) {
			rev = list[i].Rev
		}
		fmt.Fprintf(&b, "%q %q (rev %d) ", at.Key, at.Name, rev)
	}
	return b.String()
}
