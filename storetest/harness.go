package storetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem/keystore"
)

// harness is one store under one test, with steps that fail it.
type harness struct {
	*testing.T
	Suite
	ks keystore.Keystore

	mu   sync.Mutex
	over bool // guarded by mu: nothing may be reported any more
}

func newHarness(t *testing.T, s Suite) *harness {
	if s.Patience == 0 {
		s.Patience = time.Minute
	}
	return &harness{T: t, Suite: s}
}

// within runs a test in a goroutine that is left behind if it hangs.
func (h *harness) within(what string, test func()) {
	h.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done) // Fatal ends the goroutine
		test()
	}()
	select {
	case <-done:
	case <-time.After(h.Patience):
		h.T.Errorf("hangs: %s", what)
		h.mu.Lock()
		h.over = true
		h.mu.Unlock()
	}
}

// open gives the harness a new store.
func (h *harness) open() {
	h.ks = h.Open(h.T)
	h.closeAtEnd(h.ks)
}

// closeAtEnd closes a store after the test.
func (h *harness) closeAtEnd(ks keystore.Keystore) {
	h.Cleanup(func() {
		h.within("Close", func() {
			if err := ks.Close(); err != nil {
				h.Errorf("Close: %v", err)
			}
		})
	})
}

// report fails the test, unless it is over and only a goroutine of it goes on.
func (h *harness) report(text string) {
	h.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		runtime.Goexit()
	}
	h.T.Error(text)
}

// Error is that of testing.T for a goroutine that may be left behind, as are the others.
func (h *harness) Error(args ...any) {
	h.Helper()
	h.report(fmt.Sprint(args...))
}

func (h *harness) Errorf(format string, args ...any) {
	h.Helper()
	h.report(fmt.Sprintf(format, args...))
}

func (h *harness) Fatal(args ...any) {
	h.Helper()
	h.report(fmt.Sprint(args...))
	runtime.Goexit()
}

func (h *harness) Fatalf(format string, args ...any) {
	h.Helper()
	h.report(fmt.Sprintf(format, args...))
	runtime.Goexit()
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
	r := h.readAll(ref)[0]
	if !r.Found() || r.Damage != nil {
		h.Fatalf("Read(%+v) returned %+v", ref, r)
	}
	return r
}

// readAll fails unless there is one record for each ref, sound or not.
func (h *harness) readAll(refs ...keystore.Ref) []keystore.Record {
	h.Helper()
	list, err := h.ks.Read(h.ctx(), refs...)
	if err != nil || len(list) != len(refs) {
		h.Fatalf("Read(%+v) returned %d records and %v", refs, len(list), err)
	}
	return list
}

// key reads a record with its bodies.
func (h *harness) key(scope, key string) keystore.Record {
	h.Helper()
	return h.read(keystore.Ref{Scope: scope, Key: key, Bodies: true})
}

// absent fails if there is such a record.
func (h *harness) absent(ref keystore.Ref) {
	h.Helper()
	if r := h.readAll(ref)[0]; r.Found() || r.Rev != 0 {
		h.Fatalf("Read(%+v) returned %+v, want nothing", ref, r)
	}
}

// same fails unless the record is what was stored, at this revision.
func (h *harness) same(got, want keystore.Record, rev uint64) {
	h.Helper()
	if !got.Order.Equal(want.Order) {
		h.Errorf("Order is %v, want %v", got.Order, want.Order)
	}
	if !got.Due.Equal(want.Due) {
		h.Errorf("Due is %v, want %v", got.Due, want.Due)
	}
	want.Order, want.Due, want.Rev = got.Order, got.Due, rev
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
	c, err := h.ks.Claim(ctx, "scope", id, true)
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
