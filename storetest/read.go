package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idem/keystore"
)

func readRules() []rule {
	return []rule{
		{"what isn't there has no revision", func(h *harness) {
			h.absent(keystore.Ref{Scope: "scope", Key: "key"})
			h.absent(keystore.Ref{Scope: "scope", Name: "name"})
		}},
		{"a reference to nothing is ErrInvalid", func(h *harness) {
			h.commit(create("scope", "key"))
			list, err := h.ks.Read(h.ctx(), keystore.Ref{Scope: "scope", Key: "key"}, keystore.Ref{Scope: "scope"})
			if !errors.Is(err, keystore.ErrInvalid) || list != nil {
				h.Errorf("Read returned %v and %v, want ErrInvalid alone", list, err)
			}
		}},
		{"a read of many brings one record each, in their order", func(h *harness) {
			c := named(create("scope", "a"), "x")
			c.Record.Request = []byte("request")
			h.commit(c, create("scope", "b"), create("other", "a"))
			list := h.readAll(
				keystore.Ref{Scope: "scope", Key: "b"},
				keystore.Ref{Scope: "scope", Key: "absent"},
				keystore.Ref{Scope: "scope", Name: "x", Bodies: true},
				keystore.Ref{Scope: "other", Key: "a"},
				keystore.Ref{Scope: "scope", Key: "b"},
				keystore.Ref{Scope: "other", Name: "x"},
			)
			want := []keystore.Record{record("scope", "b"), {}, c.Record, record("other", "a"), record("scope", "b"), {}}
			for i := range want {
				h.same(list[i], want[i], want[i].Rev)
			}
			if none := h.readAll(); len(none) != 0 {
				h.Errorf("a read of nothing brings %v", none)
			}
		}},
		{"a key goes before a name", func(h *harness) {
			h.commit(named(create("scope", "a"), "x"), named(create("scope", "b"), "y"))
			if r := h.read(keystore.Ref{Scope: "scope", Key: "a", Name: "y"}); r.Key != "a" {
				h.Errorf("Read returned %q, want a", r.Key)
			}
		}},
	}
}

func scanRules() []rule {
	return []rule{
		{"a scan goes by order and then by key, through one scope and lane", testScanOrder},
		{"a scan stops behind its limit", testScanUntil},
		{"a scan finds all of many records once", func(h *harness) {
			keys := numbered("key", 300)
			h.commitAll(keys)
			h.wantKeys(h.scan(keystore.Query{Scope: "scope", Lane: keystore.LaneOpen}), keys...)
		}},
		{"a scan brings no bodies", func(h *harness) {
			c := create("scope", "key")
			c.Record.Request, c.Record.Response = []byte("request"), []byte("response")
			h.commit(c)
			for r, err := range h.ks.Scan(h.ctx(), keystore.Query{Scope: "scope", Lane: keystore.LaneOpen}) {
				if err != nil {
					h.Fatal(err)
				}
				r.Cursor = "" // the scan's own
				h.same(r, record("scope", "key"), 1)
			}
		}},
		{"the same scan can be run again", func(h *harness) {
			h.commit(create("scope", "a"))
			scan := h.ks.Scan(h.ctx(), keystore.Query{Scope: "scope", Lane: keystore.LaneOpen})
			for range 2 {
				n := 0
				for range scan {
					n++
				}
				if n != 1 {
					h.Errorf("the scan yields %d records, want 1", n)
				}
			}
		}},
		{"the body of a loop may write what it scans", testScanAndMove},
		{"a scan that is left early holds nothing", func(h *harness) {
			h.commitAll(numbered("key", 100))
			for range h.ks.Scan(h.ctx(), keystore.Query{Scope: "scope", Lane: keystore.LaneOpen}) {
				break
			}
			h.commit(create("scope", "after"))
		}},
		{"a scan beside writers yields what doesn't change exactly once", testScanBesideWriters},
		{"a scan ends with the cause of its context", testScanCanceled},
	}
}

// commitAll creates open records, a second apart.
func (h *harness) commitAll(keys []string) {
	h.Helper()
	var changes []keystore.Change
	for i, k := range keys {
		c := create("scope", k)
		c.Record.Order = base.Add(time.Duration(i) * time.Second)
		changes = append(changes, c)
	}
	h.commit(changes...)
}

func testScanOrder(h *harness) {
	times := []struct {
		key   string
		order time.Time
	}{
		{"zero", time.Time{}},
		{"old", time.Date(1969, 12, 31, 23, 59, 59, 999999999, time.UTC)},
		{"epoch", time.Unix(0, 0)},
		{"nano", time.Unix(0, 1)},
		{"a", base},
		{"b", base},
		{"later", base.Add(1).In(time.FixedZone("", 3600))},
		{"far", time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)},
	}
	var want []string
	for _, t := range times {
		want = append(want, t.key)
	}
	for i := range times {
		t := times[(i*5+3)%len(times)] // in no order
		c := create("scope", t.key)
		c.Record.Order = t.order
		other, settled := c, c
		other.Record.Scope = "scope2"
		settled.Record.Key, settled.Record.Lane = t.key+" settled", keystore.LaneSettled
		h.commit(c, other, settled)
		if got := h.key("scope", t.key).Order; !got.Equal(t.order) {
			h.Errorf("Order came back as %v, want %v", got, t.order)
		}
	}
	h.wantKeys(h.scan(keystore.Query{Scope: "scope", Lane: keystore.LaneOpen}), want...)
	h.wantKeys(h.scan(keystore.Query{Scope: "scope", Lane: keystore.LaneAbandoned}))
	h.wantKeys(h.scan(keystore.Query{Scope: "scop", Lane: keystore.LaneOpen}))
}

func testScanUntil(h *harness) {
	h.commitAll(numbered("key", 10))
	q := keystore.Query{Scope: "scope", Lane: keystore.LaneOpen, Until: base.Add(3 * time.Second)}
	h.wantKeys(h.scan(q), numbered("key", 4)...)
	q.Until = q.Until.Add(-1)
	h.wantKeys(h.scan(q), numbered("key", 3)...)
	q.Until = base.Add(-1)
	h.wantKeys(h.scan(q))
}

func testScanAndMove(h *harness) {
	keys := numbered("key", 200)
	h.commitAll(keys)
	var seen []string
	for r, err := range h.ks.Scan(h.ctx(), keystore.Query{Scope: "scope", Lane: keystore.LaneOpen}) {
		if err != nil {
			h.Fatal(err)
		}
		seen = append(seen, r.Key)
		r.Lane = keystore.LaneSettled
		h.commit(replace(r))
	}
	h.wantKeys(seen, keys...)
	h.wantKeys(h.scan(keystore.Query{Scope: "scope", Lane: keystore.LaneOpen}))
	h.wantKeys(h.scan(keystore.Query{Scope: "scope", Lane: keystore.LaneSettled}), keys...)
}

func testScanBesideWriters(h *harness) {
	keys := numbered("key", 200)
	h.commitAll(keys)
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			c := create("scope", fmt.Sprint("passing", i))
			c.Record.Order = base.Add(time.Duration(i*7%200) * time.Second)
			err := h.ks.Commit(h.ctx(), c)
			if err == nil {
				err = h.ks.Commit(h.ctx(), remove("scope", c.Record.Key, 1))
			}
			if err != nil {
				done <- err
				return
			}
		}
	}()
	for range 5 {
		seen := slices.DeleteFunc(h.scan(keystore.Query{Scope: "scope", Lane: keystore.LaneOpen}), func(k string) bool {
			return k[:3] != "key"
		})
		h.wantKeys(seen, keys...)
	}
	close(stop)
	if err := got(h, "the writer", done); err != nil {
		h.Errorf("beside the scan: %v", err)
	}
}

func testScanCanceled(h *harness) {
	h.commitAll(numbered("key", 300))
	cause := errors.New("the cause")
	ctx, cancel := context.WithCancelCause(h.ctx())
	defer cancel(nil)
	var last error
	n := 0
	for _, err := range h.ks.Scan(ctx, keystore.Query{Scope: "scope", Lane: keystore.LaneOpen}) {
		if last != nil {
			h.Fatal("the scan goes on after an error")
		}
		if err != nil {
			last = err
			continue
		}
		n++
		cancel(cause)
	}
	// A store may fetch everything at once, and then has nothing to cancel.
	if last == nil && n != 300 || last != nil && !errors.Is(last, cause) {
		h.Errorf("%d records, then %v, want the cause of the cancel", n, last)
	}
}
