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

	// Second returns a second live handle on the data of an open keystore, as
	// another process has it. The suite closes both. If nil, as for a store that
	// one process has alone, nothing is said of two.
	Second func(testing.TB, keystore.Keystore) keystore.Keystore

	// OwnClock says that the store goes by a clock of its own.
	OwnClock bool

	// Patience is how long one rule may take, zero a minute. A store that hangs
	// fails the rule by its name, and the next rule begins.
	Patience time.Duration
}

// Run tests every rule in a subtest of its own, each on a new store.
func (s Suite) Run(t *testing.T) {
	for _, c := range s.cases() {
		t.Run(c.rule, func(t *testing.T) {
			h := newHarness(t, s)
			h.within(c.rule, func() {
				h.open()
				c.test(h)
			})
		})
	}
	rule := "no goroutine is left after Close"
	t.Run(rule, func(t *testing.T) {
		before := runtime.NumGoroutine()
		h := newHarness(t, s)
		h.within(rule, func() { h.testGoroutines(before + 1) }) // its own
	})
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
	all = append(all, tokenRules()...)
	all = append(all, dueRules()...)
	if s.OwnClock {
		all = append(all, ownClockRules()...)
	} else {
		all = append(all, clockRules()...)
	}
	all = append(all, closeRules()...)
	if s.Reopen != nil {
		all = append(all, reopenRules()...)
	}
	if s.Second != nil {
		all = append(all, secondRules()...)
	}
	if s.Damage != nil {
		all = append(all, damageRules()...)
	}
	return all
}

// testGoroutines uses a store and counts what it leaves running.
func (h *harness) testGoroutines(before int) {
	h.ks = h.Open(h.T)
	h.commit(create("scope", "key"))
	h.claim("id").Release()
	h.scan(keystore.Query{Scope: "scope", Lane: keystore.LaneOpen})
	if err := h.ks.Close(); err != nil {
		h.Fatal(err)
	}
	var now int
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(pause) {
		if now = runtime.NumGoroutine(); now <= before {
			return
		}
	}
	h.Errorf("%d goroutines before Open, %d after Close", before, now)
}

// base is when the suite's records begin.
var base = time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)

// record returns an open record that knows its own key.
func record(scope, key string) keystore.Record {
	return keystore.Record{
		Scope: scope, Key: key, Lane: keystore.LaneOpen, Order: base, Rev: 1, Head: []byte("head of " + key),
	}
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
