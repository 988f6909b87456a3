package storetest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/keystore"
)

func claimRules() []rule {
	return []rule{
		{"a claim has one holder", func(h *harness) {
			var holders, most atomic.Int32
			h.together(16, func(int) {
				c := h.claim("id")
				most.Store(max(most.Load(), holders.Add(1)))
				time.Sleep(time.Millisecond)
				holders.Add(-1)
				c.Release()
			})
			if most.Load() != 1 {
				h.Errorf("%d held the claim at once", most.Load())
			}
		}},
		{"claims on other ids don't wait, and need no record", func(h *harness) {
			a, b := h.claim("a"), h.claim("b")
			a.Release()
			b.Release()
		}},
		{"who won't wait gets ErrConflict", func(h *harness) {
			c := h.claim("id")
			if _, err := h.ks.Claim(h.ctx(), "scope", "id", false); !errors.Is(err, keystore.ErrConflict) {
				h.Errorf("Claim returned %v, want ErrConflict", err)
			}
			c.Release()
			c, err := h.ks.Claim(h.ctx(), "scope", "id", false)
			if err != nil {
				h.Fatalf("the claim is free, but: %v", err)
			}
			c.Release()
		}},
		{"a release lets the next one in, in turn", testClaimTurns},
		{"a holder learns that somebody waits", func(h *harness) {
			c := h.claim("id")
			if c.Contended() {
				h.Error("nobody waits, but the claim is contended")
			}
			next := h.waiter(h.ctx(), "id")
			h.eventually("the claim is contended", c.Contended)
			c.Release()
			n := got(h, "the waiter", next)
			if n.err != nil {
				h.Fatal(n.err)
			}
			if n.claim.Contended() {
				h.Error("nobody waits any more, but the claim is contended")
			}
			n.claim.Release()
		}},
		{"who is canceled stops waiting, with the cause", func(h *harness) {
			c := h.claim("id")
			cause := errors.New("the cause")
			ctx, cancel := context.WithCancelCause(h.ctx())
			next := h.waiter(ctx, "id")
			h.eventually("the claim is contended", c.Contended)
			cancel(cause)
			if n := got(h, "the canceled waiter", next); !errors.Is(n.err, cause) {
				h.Errorf("Claim returned %v, want the cause of the cancel", n.err)
			}
			h.eventually("nobody waits", func() bool { return !c.Contended() })
			c.Release()
			h.claim("id").Release()
		}},
		{"a second release does nothing", func(h *harness) {
			c := h.claim("id")
			c.Release()
			second := h.claim("id")
			c.Release()
			if _, err := h.ks.Claim(h.ctx(), "scope", "id", false); !errors.Is(err, keystore.ErrConflict) {
				h.Errorf("the second release freed another's claim: %v", err)
			}
			second.Release()
		}},
		{"a claim that is held isn't lost", func(h *harness) {
			c := h.claim("id")
			select {
			case <-c.Lost():
				h.Error("the claim is lost")
			case <-time.After(pause):
			}
			c.Release()
		}},
	}
}

// outcome is what Claim returned.
type outcome struct {
	claim keystore.Claim
	err   error
}

// waiter claims in the background.
func (h *harness) waiter(ctx context.Context, id string) <-chan outcome {
	ch := make(chan outcome, 1)
	go func() {
		c, err := h.ks.Claim(ctx, "scope", id, true)
		ch <- outcome{c, err}
	}()
	return ch
}

func testClaimTurns(h *harness) {
	held := h.claim("id")
	first := h.waiter(h.ctx(), "id")
	h.eventually("the claim is contended", held.Contended)
	second := h.waiter(h.ctx(), "id")
	time.Sleep(pause) // nothing tells that the second waits too
	select {
	case <-first:
		h.Fatal("a second holder")
	case <-second:
		h.Fatal("a second holder")
	default:
	}

	held.Release()
	one := got(h, "the first waiter", first)
	if one.err != nil {
		h.Fatal(one.err)
	}
	if !one.claim.Contended() {
		h.Error("one waits, but the claim isn't contended")
	}
	select {
	case <-second:
		h.Fatal("a second holder")
	case <-time.After(pause):
	}
	one.claim.Release()
	two := got(h, "the second waiter", second)
	if two.err != nil {
		h.Fatal(two.err)
	}
	two.claim.Release()
}
