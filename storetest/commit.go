package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/idem-go/idem/keystore"
)

func commitRules() []rule {
	return []rule{
		{"a created record is found by key and by name", func(h *harness) {
			c := named(create("scope", "key"), "name")
			c.Record.Request = []byte("request")
			h.commit(c)
			h.same(h.key("scope", "key"), c.Record, 1)
			h.same(h.read(keystore.Ref{Scope: "scope", Name: "name", Bodies: true}), c.Record, 1)
		}},
		{"a key or name that is taken can't be created", func(h *harness) {
			h.commit(named(create("scope", "key"), "name"))
			h.refused(keystore.ErrConflict, create("scope", "key"))
			h.refused(keystore.ErrConflict, named(create("scope", "other"), "name"))
			h.absent(keystore.Ref{Scope: "scope", Key: "other"})
		}},
		{"records without a name don't collide", func(h *harness) {
			h.commit(create("scope", "a"), create("scope", "b"))
		}},
		{"scopes know nothing of each other", func(h *harness) {
			h.commit(named(create("one", "key"), "name"), named(create("two", "key"), "name"))
			h.absent(keystore.Ref{Scope: "", Key: "key"})
			h.commit(remove("one", "key", 1))
			h.absent(keystore.Ref{Scope: "one", Name: "name"})
			h.read(keystore.Ref{Scope: "two", Name: "name"})
		}},
		{"words of any bytes stay apart", testAnyBytes},
		{"a replace needs the revision, and counts it up", func(h *harness) {
			h.commit(create("scope", "key"))
			r := record("scope", "key")
			r.Head = []byte("new")
			r.Rev = 2
			h.refused(keystore.ErrConflict, replace(r))
			r.Rev = 1
			h.commit(replace(r))
			h.same(h.key("scope", "key"), r, 2)
			h.refused(keystore.ErrConflict, replace(r))
			r.Key = "absent"
			h.refused(keystore.ErrConflict, replace(r))
		}},
		{"a replace may change the name, but not to one that is taken", func(h *harness) {
			h.commit(named(create("scope", "a"), "one"), named(create("scope", "b"), "two"))
			r := h.key("scope", "a")
			r.Name = "two"
			h.refused(keystore.ErrConflict, replace(r))
			r.Name = "three"
			h.commit(replace(r))
			h.absent(keystore.Ref{Scope: "scope", Name: "one"})
			h.read(keystore.Ref{Scope: "scope", Name: "three"})
			h.commit(named(create("scope", "c"), "one"))
		}},
		{"a remove needs the revision, and leaves nothing", testRemove},
		{"the creator chooses the first revision, and that of another life is refused", testRevisions},
		{"a commit applies all of its changes or none", func(h *harness) {
			h.commit(named(create("scope", "a"), "name"))
			r := record("scope", "a")
			r.Rev, r.Lane = 1, keystore.LaneSettled
			h.refused(keystore.ErrConflict, create("scope", "b"), replace(r), create("scope", "a"))
			h.absent(keystore.Ref{Scope: "scope", Key: "b"})
			h.same(h.key("scope", "a"), named(create("scope", "a"), "name").Record, 1)
			h.wantKeys(h.scan(keystore.Query{Scope: "scope", Lane: keystore.LaneOpen}), "a")
			h.wantKeys(h.scan(keystore.Query{Scope: "scope", Lane: keystore.LaneSettled}))
		}},
		{"each change sees those before it", testOrderOfChanges},
		{"a nil body stays and an empty one goes", testBodies},
		{"what a caller does with its slices afterwards doesn't matter", func(h *harness) {
			c := create("scope", "key")
			c.Record.Request = []byte("request")
			h.commit(c)
			c.Record.Head[0], c.Record.Request[0] = 'X', 'X'
			r := h.key("scope", "key")
			r.Head[0], r.Request[0] = 'Y', 'Y'
			want := record("scope", "key")
			want.Request = []byte("request")
			h.same(h.key("scope", "key"), want, 1)
		}},
		{"nonsense is ErrInvalid", func(h *harness) {
			h.refused(keystore.ErrInvalid, create("scope", ""))
			for _, spoil := range []func(*keystore.Record){
				func(r *keystore.Record) { r.Rev = 0 },
				func(r *keystore.Record) { r.Lane = 0 },
				func(r *keystore.Record) { r.Order = time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC) },
				func(r *keystore.Record) { r.Order = time.Time{}.Add(-1) },
				func(r *keystore.Record) { r.Due = time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC) },
			} {
				c := create("scope", "key")
				spoil(&c.Record)
				h.refused(keystore.ErrInvalid, c)
			}
			h.refused(keystore.ErrInvalid, keystore.Change{Record: record("scope", "key")})
			h.refused(keystore.ErrInvalid, create("scope", "key"), keystore.Change{Op: 99, Record: record("scope", "b")})
			h.absent(keystore.Ref{Scope: "scope", Key: "key"})
		}},
		{"an empty commit is fine", func(h *harness) { h.commit() }},
		{"a canceled commit says why, or happened", func(h *harness) {
			cause := errors.New("the cause")
			ctx, cancel := context.WithCancelCause(h.ctx())
			cancel(cause)
			err := h.ks.Commit(ctx, create("scope", "key"))
			if err == nil {
				h.key("scope", "key")
				return
			}
			if !errors.Is(err, cause) {
				h.Errorf("Commit returned %v, want the cause of the cancel", err)
			}
			h.absent(keystore.Ref{Scope: "scope", Key: "key"})
		}},
		{"of many who create one name exactly one wins", func(h *harness) {
			h.oneWins(32, func(i int) keystore.Change {
				return named(create("scope", fmt.Sprint("key", i)), "name")
			})
		}},
		{"of many who replace one revision exactly one wins", func(h *harness) {
			h.commit(create("scope", "key"))
			r := h.key("scope", "key")
			h.oneWins(32, func(int) keystore.Change { return replace(r) })
		}},
		{"commits that fail don't take others with them", testMixedCommits},
	}
}

func testAnyBytes(h *harness) {
	scopes := []string{"", "a", "ab", "a\x00", "a/", "\x00", "\xff\xfe", "ä"}
	words := []string{"b", "bc", "\x00", "\x00b", "/b", "c", "\xff", string(bytes.Repeat([]byte("x"), 1000))}
	for _, s := range scopes {
		for _, w := range words {
			h.commit(named(create(s, w), w))
		}
	}
	for _, s := range scopes {
		for _, w := range words {
			h.same(h.key(s, w), named(create(s, w), w).Record, 1)
			h.same(h.read(keystore.Ref{Scope: s, Name: w}), named(create(s, w), w).Record, 1)
		}
		if n := len(h.scan(keystore.Query{Scope: s, Lane: keystore.LaneOpen})); n != len(words) {
			h.Errorf("scope %q has %d records, want %d", s, n, len(words))
		}
	}
}

func testRemove(h *harness) {
	c := named(create("scope", "key"), "name")
	c.Record.Request, c.Record.Response = []byte("request"), []byte("response")
	h.commit(c)
	h.refused(keystore.ErrConflict, remove("scope", "key", 2))
	h.refused(keystore.ErrConflict, remove("scope", "absent", 1))
	h.commit(remove("scope", "key", 1))
	h.absent(keystore.Ref{Scope: "scope", Key: "key"})
	h.absent(keystore.Ref{Scope: "scope", Name: "name"})
	h.wantKeys(h.scan(keystore.Query{Scope: "scope", Lane: keystore.LaneOpen}))

	// The next record with the same key has nothing of the old one.
	h.commit(create("scope", "key"))
	h.same(h.key("scope", "key"), record("scope", "key"), 1)
}

func testRevisions(h *harness) {
	first := record("scope", "key")
	first.Rev = keystore.NewRev()
	h.commit(keystore.Change{Op: keystore.OpCreate, Record: first})
	h.same(h.key("scope", "key"), first, first.Rev)
	h.commit(replace(first))
	h.same(h.key("scope", "key"), first, first.Rev+1)
	h.commit(remove("scope", "key", first.Rev+1))

	second := first
	second.Rev = keystore.NewRev()
	h.commit(keystore.Change{Op: keystore.OpCreate, Record: second})
	h.refused(keystore.ErrConflict, remove("scope", "key", first.Rev))
	h.refused(keystore.ErrConflict, remove("scope", "key", first.Rev+1))
	h.refused(keystore.ErrConflict, replace(first))
	h.same(h.key("scope", "key"), second, second.Rev)
}

func testOrderOfChanges(h *harness) {
	// A record may be created and changed at once.
	r := named(create("scope", "a"), "x").Record
	first := keystore.Change{Op: keystore.OpCreate, Record: r}
	first.Record.Request = []byte("request")
	r.Rev, r.Lane = 1, keystore.LaneSettled
	h.commit(first, replace(r))
	want := r
	want.Request = []byte("request")
	h.same(h.key("scope", "a"), want, 2)

	// A name moves from one record to another, if it is given up first.
	h.commit(create("scope", "b"))
	a, b := h.read(keystore.Ref{Scope: "scope", Key: "a"}), h.read(keystore.Ref{Scope: "scope", Key: "b"})
	a.Name, b.Name = "", "x"
	h.refused(keystore.ErrConflict, replace(b), replace(a))
	h.commit(replace(a), replace(b))
	if r := h.read(keystore.Ref{Scope: "scope", Name: "x"}); r.Key != "b" {
		h.Fatalf("the name leads to %q, want b", r.Key)
	}

	// So it does when its holder goes.
	h.commit(remove("scope", "b", 2), named(create("scope", "c"), "x"))
	if r := h.read(keystore.Ref{Scope: "scope", Name: "x"}); r.Key != "c" {
		h.Fatalf("the name leads to %q, want c", r.Key)
	}

	// What is created and removed at once was never there.
	h.commit(named(create("scope", "d"), "y"), remove("scope", "d", 1))
	h.absent(keystore.Ref{Scope: "scope", Key: "d"})
	h.absent(keystore.Ref{Scope: "scope", Name: "y"})
}

func testBodies(h *harness) {
	c := create("scope", "key")
	c.Record.Request = bytes.Repeat([]byte("long request "), 10_000)
	h.commit(c)
	want := c.Record
	h.same(h.key("scope", "key"), want, 1)

	r := record("scope", "key")
	r.Rev, r.Response = 1, []byte("response")
	want.Response = r.Response
	h.commit(replace(r))
	h.same(h.key("scope", "key"), want, 2)

	r.Rev, r.Request, r.Response = 2, []byte{}, nil
	want.Request = nil
	h.commit(replace(r))
	h.same(h.key("scope", "key"), want, 3)

	r.Rev, r.Request = 3, []byte("another")
	want.Request = r.Request
	h.commit(replace(r))
	h.same(h.key("scope", "key"), want, 4)

	r = h.read(keystore.Ref{Scope: "scope", Key: "key"})
	if r.Request != nil || r.Response != nil {
		h.Errorf("bodies came unasked: %q, %q", r.Request, r.Response)
	}
}

// oneWins commits n changes at once, of which the store may take only one.
func (h *harness) oneWins(n int, change func(i int) keystore.Change) {
	h.Helper()
	errs := make([]error, n)
	h.together(n, func(i int) { errs[i] = h.ks.Commit(h.ctx(), change(i)) })
	won := 0
	for i, err := range errs {
		switch {
		case err == nil:
			won++
		case !errors.Is(err, keystore.ErrConflict):
			h.Errorf("commit %d: %v, want nil or ErrConflict", i, err)
		}
	}
	if won != 1 {
		h.Errorf("%d commits succeeded, want 1", won)
	}
}

// together runs f in n goroutines and waits for them.
func (h *harness) together(n int, f func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	wg.Wait()
}

func testMixedCommits(h *harness) {
	h.commit(create("scope", "taken"))
	const n = 48
	errs := make([]error, n)
	h.together(n, func(i int) {
		changes := []keystore.Change{create("scope", fmt.Sprint("key", i))}
		if i%3 == 0 {
			changes = append(changes, create("scope", "taken"))
		}
		errs[i] = h.ks.Commit(h.ctx(), changes...)
	})
	for i, err := range errs {
		ref := keystore.Ref{Scope: "scope", Key: fmt.Sprint("key", i)}
		if i%3 == 0 {
			if !errors.Is(err, keystore.ErrConflict) {
				h.Errorf("commit %d: %v, want ErrConflict", i, err)
			}
			h.absent(ref)
			continue
		}
		if err != nil {
			h.Errorf("commit %d: %v", i, err)
		}
		h.read(ref)
	}
}
