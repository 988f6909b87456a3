package store

import (
	"fmt"
	"time"

	"github.com/idem-go/idem/keystore"
)

// Limits that both keystores set, so that what works in a test with one works
// with the other. They follow from the longest key and value that bbolt takes.
const (
	maxWord  = 8 << 10       // bytes of a scope, key or name
	maxValue = 1<<31 - 1<<20 // bytes of a head or body
)

// row is a stored record without its bodies.
type row struct {
	keystore.Record
	hasRequest, hasResponse bool
}

// slot is where a record or a name stands.
type slot struct{ scope, word string }

// table is what the conditions of a commit are checked against.
type table interface {
	// row returns the record with this scope and key, or nil if there is none.
	// The error is ErrCorrupt if there is one that can't be read.
	row(at slot) (*row, error)

	// owner returns the key of the record that has the name, "" if none has.
	owner(name slot) string
}

// stage works out what a list of changes leads to without writing anything, so
// that a list which fails midway leaves nothing to undo.
type stage struct {
	table table
	moves map[slot]*move
	names map[slot]string // owners that differ from table's; "" is nobody
}

// move is one record's way from what is stored to what the changes leave.
type move struct {
	at       slot
	old, new *row // nil: no record

	// The bodies to store: nil leaves what is there, an empty one removes it.
	request, response []byte
}

func newStage(t table) *stage {
	return &stage{table: t, moves: make(map[slot]*move), names: make(map[slot]string)}
}

// apply takes the next change. After an error the stage is of no use.
func (s *stage) apply(c keystore.Change) error {
	at := slot{c.Record.Scope, c.Record.Key}
	m := s.moves[at]
	if m == nil {
		old, err := s.table.row(at)
		if err != nil && c.Op != keystore.OpCreate {
			return err
		}
		// A damaged record still takes its key, so a create below fails.
		m = &move{at: at, old: old, new: old}
		s.moves[at] = m
	}
	if err := m.check(c); err != nil {
		return err
	}
	if c.Op == keystore.OpRemove {
		s.rename(m, "")
		m.new, m.request, m.response = nil, []byte{}, []byte{}
		return nil
	}
	return s.put(m, c.Record)
}

// check tests the condition that a change sets on its own record.
func (m *move) check(c keystore.Change) error {
	switch {
	case c.Op == keystore.OpCreate && m.new != nil:
		return fmt.Errorf("%w: record %q exists", keystore.ErrConflict, m.at.word)
	case c.Op != keystore.OpCreate && m.new == nil:
		return fmt.Errorf("%w: record %q is gone", keystore.ErrConflict, m.at.word)
	case c.Op != keystore.OpCreate && m.new.Rev != c.Record.Rev:
		return fmt.Errorf("%w: record %q has revision %d, not %d", keystore.ErrConflict, m.at.word, m.new.Rev, c.Record.Rev)
	}
	return nil
}

// put lets m end in r, whose name must be free or m's own.
func (s *stage) put(m *move, r keystore.Record) error {
	if r.Name != "" && (m.new == nil || m.new.Name != r.Name) {
		if owner := s.owner(slot{r.Scope, r.Name}); owner != "" {
			return fmt.Errorf("%w: the name of record %q belongs to record %q", keystore.ErrConflict, r.Key, owner)
		}
	}
	s.rename(m, r.Name)

	next := &row{Record: r}
	if m.new != nil {
		next.hasRequest, next.hasResponse = m.new.hasRequest, m.new.hasResponse
		next.Rev = m.new.Rev + 1
	}
	if r.Request != nil {
		m.request, next.hasRequest = r.Request, len(r.Request) > 0
	}
	if r.Response != nil {
		m.response, next.hasResponse = r.Response, len(r.Response) > 0
	}
	next.Request, next.Response, next.Damage, next.Cursor = nil, nil, nil, ""
	next.Order, next.Due = r.Order.Round(0).UTC(), r.Due.Round(0).UTC()
	m.new = next
	return nil
}

// owner is who has the name after the changes so far.
func (s *stage) owner(name slot) string {
	if key, ok := s.names[name]; ok {
		return key
	}
	return s.table.owner(name)
}

// rename frees m's name, if it has one, and takes the new one.
func (s *stage) rename(m *move, name string) {
	if m.new != nil && m.new.Name != "" {
		s.names[slot{m.at.scope, m.new.Name}] = ""
	}
	if name != "" {
		s.names[slot{m.at.scope, name}] = m.at.word
	}
}

// checkChange refuses a change that no state of the store could make right.
func checkChange(c keystore.Change) error {
	if c.Op < keystore.OpCreate || c.Op > keystore.OpRemove {
		return invalid("Change.Op", "must be OpCreate, OpReplace or OpRemove")
	}
	if c.Record.Key == "" {
		return invalid("Record.Key", "must not be empty")
	}
	if c.Record.Rev == 0 {
		return invalid("Record.Rev", "must not be zero")
	}
	if c.Op != keystore.OpRemove {
		if err := checkPlace(&c.Record); err != nil {
			return err
		}
	}
	for _, w := range []struct{ field, word string }{
		{"Record.Scope", c.Record.Scope}, {"Record.Key", c.Record.Key}, {"Record.Name", c.Record.Name},
	} {
		if len(w.word) > maxWord {
			return invalid(w.field, fmt.Sprintf("has %d bytes, at most %d", len(w.word), maxWord))
		}
	}
	for _, v := range []struct {
		field string
		value []byte
	}{
		{"Record.Head", c.Record.Head}, {"Record.Request", c.Record.Request}, {"Record.Response", c.Record.Response},
	} {
		if len(v.value) > maxValue {
			return invalid(v.field, fmt.Sprintf("has %d bytes, at most %d", len(v.value), maxValue))
		}
	}
	return nil
}

// checkPlace refuses a record that could stand nowhere.
func checkPlace(r *keystore.Record) error {
	if r.Lane == 0 {
		return invalid("Record.Lane", "must be set")
	}
	for _, t := range []struct {
		field string
		time  time.Time
	}{{"Record.Order", r.Order}, {"Record.Due", r.Due}} {
		if year := t.time.UTC().Year(); year < 1 || year > 9999 {
			return invalid(t.field, fmt.Sprintf("lies in the year %d, not in 1 to 9999", year))
		}
	}
	return nil
}

// checkChanges is checkChange for each.
func checkChanges(changes []keystore.Change) error {
	for _, c := range changes {
		if err := checkChange(c); err != nil {
			return err
		}
	}
	return nil
}

// checkRefs refuses a Ref that names nothing.
func checkRefs(refs []keystore.Ref) error {
	for _, ref := range refs {
		if ref.Key == "" && ref.Name == "" {
			return invalid("Ref", "must have a key or a name")
		}
	}
	return nil
}
