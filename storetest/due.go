package storetest

import (
	"errors"
	"time"

	"github.com/idem-go/idem/keystore"
)

func dueRules() []rule {
	return []rule{
		{"a scan of what is due goes by that time, and leaves the rest out", testDue},
		{"what is due moves with its record", testDueMoves},
		{"a scan over all scopes keeps the order", testAllScopes},
		{"a scan stops at its limit, and goes on behind a cursor", testCursor},
		{"a query that makes no sense is ErrInvalid", func(h *harness) {
			for _, q := range []keystore.Query{
				{Scope: "scope"},
				{Scope: "scope", Lane: keystore.LaneOpen, Limit: -1},
				{Scope: "scope", Lane: keystore.LaneSettled, Due: base},
			} {
				n := 0
				for _, err := range h.ks.Scan(h.ctx(), q) {
					if n++; !errors.Is(err, keystore.ErrInvalid) {
						h.Errorf("Scan(%+v) yields %v, want ErrInvalid", q, err)
					}
				}
				if n != 1 {
					h.Errorf("Scan(%+v) yields %d times, want once", q, n)
				}
			}
		}},
	}
}

// due is a record that is due some seconds after base, created in reverse.
func due(scope, key string, seconds int) keystore.Change {
	c := create(scope, key)
	c.Record.Due = base.Add(time.Duration(seconds) * time.Second)
	c.Record.Order = base.Add(-time.Duration(seconds) * time.Second)
	return c
}

func dueBy(scope string, seconds int) keystore.Query {
	return keystore.Query{Scope: scope, Lane: keystore.LaneOpen, Due: base.Add(time.Duration(seconds) * time.Second)}
}

func testDue(h *harness) {
	settled := due("scope", "settled", 1)
	settled.Record.Lane = keystore.LaneSettled
	h.commit(due("scope", "c", 2), due("scope", "b", 2), due("scope", "z", 1), due("scope", "d", 3),
		create("scope", "never"), settled, due("other", "a", 1))
	h.wantKeys(h.scan(dueBy("scope", 2)), "z", "b", "c")
	h.wantKeys(h.scan(dueBy("scope", 0)))
	h.wantKeys(h.scan(keystore.Query{Scope: "scope", Lane: keystore.LaneOpen}), "d", "b", "c", "z", "never")
	h.same(h.key("scope", "b"), due("scope", "b", 2).Record, 1)
	if r := h.key("scope", "never"); !r.Due.IsZero() {
		h.Errorf("Due came back as %v, want zero", r.Due)
	}
}

func testDueMoves(h *harness) {
	h.commit(due("scope", "a", 1), due("scope", "b", 1), due("scope", "c", 1), due("scope", "d", 1))
	a, b, c := due("scope", "a", 9).Record, record("scope", "b"), due("scope", "c", 1).Record
	c.Lane = keystore.LaneAbandoned
	h.commit(replace(a), replace(b), replace(c), remove("scope", "d", 1))
	h.wantKeys(h.scan(dueBy("scope", 8)))
	h.wantKeys(h.scan(dueBy("scope", 9)), "a")
	c.Rev, c.Lane, c.Due = 2, keystore.LaneOpen, base
	h.commit(replace(c))
	h.wantKeys(h.scan(dueBy("scope", 9)), "c", "a")
}

func testAllScopes(h *harness) {
	h.commit(due("b", "1", 1), due("", "2", 2), due("a\x00", "3", 3),
		due("b", "4", 4), due("a", "4", 4), due("a", "5", 5))
	settled := create("c", "settled")
	settled.Record.Lane = keystore.LaneSettled
	h.commit(settled)
	h.wantKeys(h.scan(keystore.Query{AllScopes: true, Lane: keystore.LaneOpen}), "5", "4", "4", "3", "2", "1")
	early := keystore.Query{AllScopes: true, Scope: "a", Lane: keystore.LaneOpen, Until: base.Add(-4 * time.Second)}
	h.wantKeys(h.scan(early), "5", "4", "4")
	q := dueBy("", 4)
	q.AllScopes = true
	var scopes []string
	for r, err := range h.ks.Scan(h.ctx(), q) {
		if err != nil {
			h.Fatal(err)
		}
		scopes = append(scopes, r.Scope)
	}
	h.wantKeys(scopes, "b", "", "a\x00", "a", "b")
}

func testCursor(h *harness) {
	keys := numbered("key", 200)
	for i, k := range keys {
		h.commit(due([]string{"a", "b"}[i%2], k, i/3))
	}
	q := dueBy("", 1000)
	q.AllScopes = true
	for _, limit := range []int{1, 7, 64, 100, 128, 200, 500} {
		var seen []string
		q.Limit = limit
		for page := 0; page <= len(keys)/limit; page++ {
			q.After = h.page(q, &seen)
		}
		q.After = ""
		h.wantKeys(seen, keys...)
	}

	// A cursor outlives its record.
	q.Limit = 10
	var seen []string
	q.After = h.page(q, &seen)
	h.commit(remove("b", keys[9], 1))
	h.page(q, &seen)
	h.wantKeys(seen, keys[:20]...)
}

// page appends the keys of a scan and returns its last cursor.
func (h *harness) page(q keystore.Query, seen *[]string) keystore.Cursor {
	h.Helper()
	last, n := q.After, 0
	for r, err := range h.ks.Scan(h.ctx(), q) {
		if err != nil {
			h.Fatalf("Scan(%+v): %v", q, err)
		}
		if r.Cursor == "" {
			h.Fatalf("Scan yields %q without a cursor", r.Key)
		}
		*seen = append(*seen, r.Key)
		last, n = r.Cursor, n+1
	}
	if q.Limit > 0 && n > q.Limit {
		h.Fatalf("Scan(%+v) yields %d records", q, n)
	}
	return last
}
