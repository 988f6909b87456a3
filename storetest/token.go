package storetest

import (
	"errors"

	"github.com/idem-go/idem/keystore"
)

// under returns the change as one made under a claim.
func under(c keystore.Claim, change keystore.Change) keystore.Change {
	change.Token = c.Token()
	return change
}

func tokenRules() []rule {
	return []rule{
		{"every claim has a token of its own", func(h *harness) {
			seen := map[string]bool{"": true}
			for range 3 {
				for _, id := range []string{"a", "b"} {
					c := h.claim(id)
					if seen[c.Token()] {
						h.Errorf("the token %q comes again", c.Token())
					}
					seen[c.Token()] = true
					c.Release()
				}
			}
		}},
		{"claims of one id in two scopes don't meet", func(h *harness) {
			h.claim("id")
			for _, scope := range []string{"", "other"} {
				if _, err := h.ks.Claim(h.ctx(), scope, "id", false); err != nil {
					h.Errorf("Claim in scope %q: %v", scope, err)
				}
			}
		}},
		{"a commit under a claim that is held goes through", func(h *harness) {
			c := h.claim("id")
			h.commit(under(c, create("scope", "a")), create("scope", "b"))
			h.commit(under(c, replace(record("scope", "a"))))
			c.Release()
		}},
		{"a commit under a claim that isn't held is ErrClaimLost and writes nothing", func(h *harness) {
			h.commit(create("scope", "key"))
			c := h.claim("id")
			c.Release()
			next := h.claim("id")
			foreign := create("scope", "a")
			foreign.Token = "a token that nobody gave"
			r := record("scope", "key")
			r.Head = []byte("late")
			for _, changes := range [][]keystore.Change{
				{create("scope", "a"), under(c, replace(r))},
				{under(next, create("scope", "a")), under(c, remove("scope", "key", 1))},
				{foreign},
			} {
				h.refused(keystore.ErrClaimLost, changes...)
				h.absent(keystore.Ref{Scope: "scope", Key: "a"})
				h.same(h.key("scope", "key"), record("scope", "key"), 1)
			}
			next.Release()
		}},
	}
}

func secondRules() []rule {
	return []rule{
		{"two handles see each other's commits", func(h *harness) {
			other := h.second()
			h.commit(named(create("scope", "key"), "name"))
			list, err := other.Read(h.ctx(), keystore.Ref{Scope: "scope", Name: "name"})
			if err != nil || len(list) != 1 || list[0].Key != "key" {
				h.Fatalf("the second handle reads %+v, %v", list, err)
			}
			if err := other.Commit(h.ctx(), create("scope", "key")); !errors.Is(err, keystore.ErrConflict) {
				h.Errorf("Commit returned %v, want ErrConflict", err)
			}
			if err := other.Commit(h.ctx(), remove("scope", "key", 1)); err != nil {
				h.Fatal(err)
			}
			h.absent(keystore.Ref{Scope: "scope", Key: "key"})
		}},
		{"a claim has one holder over two handles, whose token both know", func(h *harness) {
			other := h.second()
			c := h.claim("id")
			if _, err := other.Claim(h.ctx(), "scope", "id", false); !errors.Is(err, keystore.ErrConflict) {
				h.Errorf("Claim returned %v, want ErrConflict", err)
			}
			if err := other.Commit(h.ctx(), under(c, create("scope", "key"))); err != nil {
				h.Errorf("Commit on the second handle: %v", err)
			}
			c.Release()
			next, err := other.Claim(h.ctx(), "scope", "id", true)
			if err != nil {
				h.Fatal(err)
			}
			h.refused(keystore.ErrClaimLost, under(c, create("scope", "late")))
			next.Release()
		}},
	}
}

// second opens one more handle on the store.
func (h *harness) second() keystore.Keystore {
	h.Helper()
	other := h.Second(h.T, h.ks)
	h.closeAtEnd(other)
	return other
}
