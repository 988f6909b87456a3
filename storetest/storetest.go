// Package storetest is the conformance suite for implementations of
// [keystore.Keystore]. A store that passes it keeps the promises that package idem
// builds on:
//
//	func TestKeystore(t *testing.T) {
//		storetest.Suite{
//			Open: func(t testing.TB) keystore.Keystore { return openEmpty(t) },
//		}.Run(t)
//	}
//
// Run it with the race detector. What it can't test is a power cut.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/idem-go/idem/keystore"
)

// patience is how long the suite waits for what must happen, and pause how long
// for what must not.
const (
	patience = 10 * time.Second
	pause    = 20 * time.Millisecond
)

// Suite says how to get at the store under test. Only Open is required.
type Suite struct {
	// Open returns a keystore that holds nothing, for instance one with a
	// schema of its own. The suite closes it.
	Open func(testing.TB) keystore.Keystore

	// Reopen ends the life of a keystore, or begins a second one beside it,
	// and returns one over the same data. The suite closes both. If nil, as for
	// a store that forgets, nothing is said of durability.
	Reopen func(testing.TB, keystore.Keystore) keystore.Keystore

	// Damage changes a byte of what is stored of one record, behind the
	// store's back. If nil, nothing is said of damaged records.
	Damage func(t testing.TB, ks keystore.Keystore, scope, key string)
}

// Run tests every rule in a subtest of its own, each on a new store.
func (s Suite) Run(t *testing.T) {
	for _, c := range s.cases() {
		t.Run(c.rule, func(t *testing.T) {
			ks := s.Open(t)
			t.Cleanup(func() {
				if err := ks.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
			c.test(&harness{T: t, Suite: s, ks: ks})
		})
	}
	t.Run("no goroutine is left after Close", s.testGoroutines)
}

// rule is one thing that a keystore has to do.
type rule struct {
	rule string
	test func(*harness)
}

func (s Suite) cases() []rule {
	all := append(commitRules(), readRules()...)
	all = append(all, scanRules()...)
	all = append(all, claimRules()...)
	all = append(all, clockRules()...)
	all = append(all, closeRules()...)
	if s.Reopen != nil {
		all = append(all, reopenRules()...)
	}
	if s.Damage != nil {
		all = append(all, damageRules()...)
	}
	return all
}

// testGoroutines uses a store and counts what it leaves running.
func (s Suite) testGoroutines(t *testing.T) {
	before := runtime.NumGoroutine()
	h := &harness{T: t, Suite: s, ks: s.Open(t)}
	h.commit(create("scope", "key"))
	h.claim("id").Release()
	h.scan(keystore.Query{Scope: "scope", Lane: keystore.LaneOpen})
	if err := h.ks.Close(); err != nil {
		t.Fatal(err)
	}
	var now int
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(pause) {
		if now = runtime.NumGoroutine(); now <= before {
			return
		}
	}
	t.Errorf("%d goroutines before Open, %d after Close", before, now)
}

// harness is one store under one test, with steps that fail it.
type harness struct {
	*testing.T
	Suite
	ks keystore.Keystore
}

// base is when the suite's records begin.
var base = time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)

// record returns an open record that knows its own key.
func record(scope, key string) keystore.Record {
	return keystore.Record{Scope: scope, Key: key, Lane: keystore.LaneOpen, Order: base, Head: []byte("head of " + key)}
}

func create(scope, key string) keystore.Change {
	return keystore.Change{Op: keystore.OpCreate, Record: record(scope, key)}
}

func replace(r keystore.Record) keystore.Change {
	return keystore.Change{Op: keystore.OpReplace, Record: r}
}

func remove(scope, key string, rev uint64) keystore.Change {
	return keystore.Change{Op: keystore.OpRemove, Record: keystore.Record{Scope: scope, Key: key, Rev: rev}}
}

// named returns the change with another name.
func named(c keystore.Change, name string) keystore.Change {
	c.Record.Name = name
	return c
}

func (h *harness) ctx() context.Context { return h.Context() }

func (h *harness) commit(changes ...keystore.Change) {
	h.Helper()
	if err := h.ks.Commit(h.ctx(), changes...); err != nil {
		h.Fatalf("Commit: %v", err)
	}
}

// refused commits changes that must fail with want.
func (h *harness) refused(want error, changes ...keystore.Change) {
	h.Helper()
	if err := h.ks.Commit(h.ctx(), changes...); !errors.Is(err, want) {
		h.Fatalf("Commit returned %v, want %v", err, want)
	}
}

func (h *harness) read(ref keystore.Ref) keystore.Record {
	h.Helper()
	r, err := h.ks.Read(h.ctx(), ref)
	if err != nil {
		h.Fatalf("Read(%+v): %v", ref, err)
	}
	return r
}

// key reads a record with its bodies.
func (h *harness) key(scope, key string) keystore.Record {
	h.Helper()
	return h.read(keystore.Ref{Scope: scope, Key: key, Bodies: true})
}

// absent fails if there is such a record.
func (h *harness) absent(ref keystore.Ref) {
	h.Helper()
	if r, err := h.ks.Read(h.ctx(), ref); !errors.Is(err, keystore.ErrNotFound) {
		h.Fatalf("Read(%+v) returned %+v, %v, want ErrNotFound", ref, r, err)
	}
}

// same fails unless the record is what was stored, at this revision.
func (h *harness) same(got, want keystore.Record, rev uint64) {
	h.Helper()
	if !got.Order.Equal(want.Order) {
		h.Errorf("Order is %v, want %v", got.Order, want.Order)
	}
	want.Rev, want.Order, got.Order = rev, time.Time{}, time.Time{}
	if !reflect.DeepEqual(got, want) {
		h.Fatalf("the record is\n%+v, want\n%+v", got, want)
	}
}

// scan returns the keys in the order in which they come.
func (h *harness) scan(q keystore.Query) []string {
	h.Helper()
	keys := []string{}
	for r, err := range h.ks.Scan(h.ctx(), q) {
		if err != nil {
			h.Fatalf("Scan(%+v): %v", q, err)
		}
		keys = append(keys, r.Key)
	}
	return keys
}

func (h *harness) wantKeys(got []string, want ...string) {
	h.Helper()
	if !reflect.DeepEqual(got, append([]string{}, want...)) {
		h.Fatalf("the keys are %q, want %q", got, want)
	}
}

func (h *harness) claim(id string) keystore.Claim {
	h.Helper()
	ctx, cancel := context.WithTimeout(h.ctx(), patience)
	defer cancel()
	c, err := h.ks.Claim(ctx, id, true)
	if err != nil {
		h.Fatalf("Claim(%q): %v", id, err)
	}
	return c
}

// eventually waits until a condition holds.
func (h *harness) eventually(what string, ok func() bool) {
	h.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			h.Fatalf("still not: %s", what)
		}
	}
}

// got receives what must come.
func got[T any](h *harness, what string, ch <-chan T) T {
	h.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		h.Fatalf("waited in vain: %s", what)
		panic("unreachable")
	}
}

func numbered(prefix string, n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("%s%04d", prefix, i)
	}
	return keys
}
