package storetest

import (
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/keystore"
)

// tolerance is the one that the suite's clocks have.
const tolerance = 5 * time.Minute

// sight fails unless a sighting of the clock leads to what is wanted.
func (h *harness) sight(now time.Time, epoch uint64, age time.Duration) {
	h.Helper()
	s, err := h.ks.Clock(h.ctx(), now, tolerance)
	if err != nil {
		h.Fatalf("Clock: %v", err)
	}
	if !s.Now.Equal(now) {
		h.Errorf("Clock(%v) returned the time %v", now, s.Now)
	}
	if want := (keystore.Sighting{Now: s.Now, Epoch: epoch, Age: age}); s != want {
		h.Fatalf("Clock(%v) returned %+v, want %+v", now, s, want)
	}
}

func clockRules() []rule {
	return []rule{
		{"the first sighting is of no age", func(h *harness) { h.sight(base, 0, 0) }},
		{"the age grows with the clock", func(h *harness) {
			h.sight(base, 0, 0)
			h.sight(base.Add(time.Hour), 0, time.Hour)
			h.sight(base.Add(time.Hour), 0, time.Hour)
			h.sight(base.Add(25*time.Hour), 0, 25*time.Hour)
		}},
		{"a gap counts for a day at most", func(h *harness) {
			h.sight(base, 0, 0)
			h.sight(base.AddDate(70, 0, 0), 0, 24*time.Hour)
		}},
		{"a clock that goes back a little changes nothing", func(h *harness) {
			h.sight(base, 0, 0)
			h.sight(base.Add(-tolerance), 0, 0)
		}},
		{"sightings out of order add no age", func(h *harness) {
			h.sight(base, 0, 0)
			for range 10 {
				h.sight(base.Add(time.Second), 0, time.Second)
				h.sight(base, 0, time.Second)
			}
		}},
		{"a clock that is set back begins an epoch", func(h *harness) {
			h.sight(base, 0, 0)
			h.sight(base.Add(time.Hour), 0, time.Hour)
			back := base.Add(time.Hour - tolerance - 1)
			h.sight(back, 1, time.Hour)
			h.sight(back, 1, time.Hour)
			h.sight(back.Add(time.Minute), 1, time.Hour+time.Minute)
		}},
		{"a minute in 2099 is forgotten when the clock is right again", func(h *harness) {
			h.sight(base, 0, 0)
			h.sight(base.AddDate(73, 0, 0), 0, 24*time.Hour)
			h.sight(base.Add(time.Minute), 1, 24*time.Hour)
			h.sight(base.Add(2*time.Minute), 1, 24*time.Hour+time.Minute)
		}},
	}
}

// ownClockRules are those of a store that supplies the time itself.
func ownClockRules() []rule {
	return []rule{
		{"of two clocks that differ neither counts as set back, nor makes the store older", func(h *harness) {
			begin := time.Now()
			first := h.clock(begin)
			for range 3 {
				ahead, behind := h.clock(time.Now().Add(10*time.Minute)), h.clock(time.Now().Add(-10*time.Minute))
				for _, s := range []keystore.Sighting{ahead, behind} {
					spent := time.Since(begin) + time.Second
					if s.Epoch != first.Epoch || s.Age-first.Age > spent || s.Now.Sub(first.Now) > spent {
						h.Errorf("after %+v the store tells %+v", first, s)
					}
				}
			}
		}},
	}
}

func (h *harness) clock(now time.Time) keystore.Sighting {
	h.Helper()
	s, err := h.ks.Clock(h.ctx(), now, tolerance)
	if err != nil {
		h.Fatalf("Clock: %v", err)
	}
	return s
}

func closeRules() []rule {
	return []rule{
		{"after Close every method returns ErrClosed", func(h *harness) {
			h.commit(create("scope", "key"))
			for range 2 {
				if err := h.ks.Close(); err != nil {
					h.Fatalf("Close: %v", err)
				}
			}
			_, readErr := h.ks.Read(h.ctx(), keystore.Ref{Scope: "scope", Key: "key"})
			_, claimErr := h.ks.Claim(h.ctx(), "scope", "id", true)
			_, clockErr := h.ks.Clock(h.ctx(), base, tolerance)
			var scanErr error
			for _, err := range h.ks.Scan(h.ctx(), keystore.Query{Scope: "scope", Lane: keystore.LaneOpen}) {
				scanErr = err
			}
			for method, err := range map[string]error{
				"Commit": h.ks.Commit(h.ctx(), create("scope", "b")),
				"Read":   readErr, "Scan": scanErr, "Claim": claimErr, "Clock": clockErr,
			} {
				if !errors.Is(err, keystore.ErrClosed) {
					h.Errorf("%s returned %v, want ErrClosed", method, err)
				}
			}
		}},
		{"Close ends those who wait for a claim", func(h *harness) {
			c := h.claim("id")
			next := h.waiter(h.ctx(), "id")
			h.eventually("the claim is contended", c.Contended)
			if err := h.ks.Close(); err != nil {
				h.Fatalf("Close: %v", err)
			}
			if n := got(h, "the waiter", next); !errors.Is(n.err, keystore.ErrClosed) {
				h.Errorf("Claim returned %v, want ErrClosed", n.err)
			}
			c.Release() // harmless
		}},
		{"a scan that meets Close ends with ErrClosed", func(h *harness) {
			h.commitAll(numbered("key", 300))
			var last error
			n := 0
			for _, err := range h.ks.Scan(h.ctx(), keystore.Query{Scope: "scope", Lane: keystore.LaneOpen}) {
				if n++; n == 1 {
					if err := h.ks.Close(); err != nil {
						h.Fatalf("Close: %v", err)
					}
				}
				last = err
			}
			if n < 300 && !errors.Is(last, keystore.ErrClosed) {
				h.Errorf("%d records, then %v, want ErrClosed", n, last)
			}
		}},
	}
}

// reopen gives the harness the next life of its store.
func (h *harness) reopen() {
	h.Helper()
	h.ks = h.Reopen(h, h.ks)
	h.closeAtEnd(h.ks)
}

func reopenRules() []rule {
	return []rule{
		{"what was committed is there in the next life", func(h *harness) {
			c := named(create("scope", "key"), "name")
			c.Record.Request, c.Record.Response = []byte("request"), []byte("response")
			h.commit(c, create("scope", "gone"))
			h.commit(remove("scope", "gone", 1))
			h.refused(keystore.ErrConflict, create("scope", "never"), create("scope", "key"))
			h.reopen()
			h.same(h.key("scope", "key"), c.Record, 1)
			h.read(keystore.Ref{Scope: "scope", Name: "name"})
			h.absent(keystore.Ref{Scope: "scope", Key: "gone"})
			h.absent(keystore.Ref{Scope: "scope", Key: "never"})
			h.refused(keystore.ErrConflict, named(create("scope", "b"), "name"))
			h.wantKeys(h.scan(keystore.Query{Scope: "scope", Lane: keystore.LaneOpen}), "key")
		}},
		{"many commits at once are all there in the next life", func(h *harness) {
			keys := numbered("key", 64)
			h.together(len(keys), func(i int) {
				if err := h.ks.Commit(h.ctx(), create("scope", keys[i])); err != nil {
					h.Errorf("Commit: %v", err)
				}
			})
			h.reopen()
			h.wantKeys(h.scan(keystore.Query{Scope: "scope", Lane: keystore.LaneOpen}), keys...)
		}},
		{"the clock goes on in the next life", func(h *harness) {
			if h.OwnClock {
				return
			}
			h.sight(base, 0, 0)
			h.sight(base.Add(time.Hour), 0, time.Hour)
			h.sight(base, 1, time.Hour)
			h.commit(create("scope", "key"))
			h.reopen()
			h.sight(base.Add(time.Minute), 1, time.Hour+time.Minute)
			h.sight(base.Add(-time.Hour), 2, time.Hour+time.Minute)
		}},
		{"claims end with their life", func(h *harness) {
			h.claim("id")
			if err := h.ks.Close(); err != nil {
				h.Fatal(err)
			}
			h.reopen()
			h.claim("id").Release()
		}},
	}
}

func damageRules() []rule {
	return []rule{
		{"a damaged record is told apart and blocks nothing", func(h *harness) {
			keys := numbered("key", 5)
			for i, k := range keys {
				c := named(create("scope", k), "name of "+k)
				c.Record.Order = base.Add(time.Duration(i))
				h.commit(c)
			}
			h.Damage(h, h.ks, "scope", keys[2])

			list := h.readAll(keystore.Ref{Scope: "scope", Key: keys[1]}, keystore.Ref{Scope: "scope", Key: keys[2]},
				keystore.Ref{Scope: "scope", Name: "name of " + keys[2]}, keystore.Ref{Scope: "scope", Key: keys[3]})
			for i, key := range []string{keys[1], keys[2], keys[2], keys[3]} {
				r, damaged := list[i], key == keys[2]
				if errors.Is(r.Damage, keystore.ErrCorrupt) != damaged || r.Key != key || !r.Found() {
					h.Errorf("Read returned %+v for %s", r, key)
				}
			}
			var seen []string
			for r, err := range h.ks.Scan(h.ctx(), keystore.Query{Scope: "scope", Lane: keystore.LaneOpen}) {
				if damaged := errors.Is(err, keystore.ErrCorrupt); damaged != (r.Key == keys[2]) || r.Scope != "scope" {
					h.Errorf("Scan yields %q of %q with %v", r.Key, r.Scope, err)
				}
				seen = append(seen, r.Key)
			}
			h.wantKeys(seen, keys...)

			// Its key and name stay taken, and nobody writes over it.
			h.refused(keystore.ErrConflict, create("scope", keys[2]))
			h.refused(keystore.ErrConflict, named(create("scope", "b"), "name of "+keys[2]))
			for _, c := range []keystore.Change{replace(h.revised(keys[2])), remove("scope", keys[2], 1)} {
				if err := h.ks.Commit(h.ctx(), c); err == nil {
					h.Errorf("op %d went through on a damaged record", c.Op)
				}
			}
			h.commit(replace(h.revised(keys[1])), create("scope", "next"))
		}},
	}
}

// revised returns the first revision of a record with another head.
func (h *harness) revised(key string) keystore.Record {
	r := named(create("scope", key), "name of "+key).Record
	r.Rev, r.Head = 1, fmt.Append(nil, "revised ", key)
	return r
}
