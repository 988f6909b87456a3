package sim

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/storetest"
)

// The simulated store is a proper one as long as it isn't told to fail.
func TestTheSimulatedStoreConforms(t *testing.T) {
	open := func(s *store) idem.Keystore {
		return &handle{store: s, proc: &proc{w: s.w, gone: make(chan struct{})}}
	}
	storetest.Suite{
		Open: func(testing.TB) idem.Keystore {
			w := &world{}
			w.calm.Store(true)
			return open(newStore(w))
		},
		Reopen: func(_ testing.TB, ks idem.Keystore) idem.Keystore { return open(ks.(*handle).store) },
		Second: func(_ testing.TB, ks idem.Keystore) idem.Keystore { return open(ks.(*handle).store) },
	}.Run(t)
}

func envInt(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

// Random programs break no rule. IDEM_SIM_KEEP_GOING=1 reports each rule once, with a
// program cut down to what breaks it, and goes on; IDEM_SIM_THEME takes one theme.
func TestRandomConcurrentProgramsBreakNoRule(t *testing.T) {
	steps, seed := envInt("IDEM_STEPS", 20_000), uint64(envInt("IDEM_SEED", 1))
	only, goOn := os.Getenv("IDEM_SIM_THEME"), os.Getenv("IDEM_SIM_KEEP_GOING") != ""
	began, done, programs := time.Now(), 0, 0
	seen := map[string]int{}
	for ; done < steps; seed++ {
		p := generate(seed, only)
		res := play(t, p, false)
		done += res.ops
		programs++
		if len(res.broken) == 0 {
			continue
		}
		for rule := range res.rules {
			id := rule
			if seen[id]++; seen[id] == 1 {
				report(t, p, res, rule)
			}
		}
		if !goOn {
			t.FailNow()
		}
	}
	for id, n := range seen {
		t.Logf("%5d programs: %s", n, id)
	}
	took := time.Since(began)
	t.Logf("%d calls in %d programs, %.0f a second", done, programs, float64(done)/took.Seconds())
}

// report prints a program cut down to what breaks the rule.
func report(t *testing.T, p program, res result, rule string) {
	t.Helper()
	p = shrink(t, p, rule)
	for range 5 {
		if again := play(t, p, true); again.rules[rule] {
			res = again
			break
		}
	}
	text, _ := json.Marshal(p)
	t.Logf("SUMMARY %d %s %q: %s", p.Seed, p.Theme, rule, summary(p))
	broken, trace := strings.Join(res.broken, "\n"), strings.Join(res.trace, "\n")
	t.Errorf("IDEM_SEED=%d breaks %q:\n%s\n\nprogram: %s\n\n%s", p.Seed, rule, broken, text, trace)
}

// shrink leaves out calls and faults without which the same rule is broken.
func shrink(t *testing.T, p program, rule string) program {
	breaks := func(q program) bool {
		for _, o := range q.Ops {
			if o.Intent >= len(q.Intents) {
				return false
			}
		}
		return play(t, q, false).rules[rule]
	}
	for again := true; again; {
		again = false
		for i := len(p.Ops) - 1; i >= 0; i-- {
			q := p
			q.Ops = append(p.Ops[:i:i], p.Ops[i+1:]...)
			if breaks(q) {
				p, again = q, true
			}
		}
	}
	for i := len(p.Faults) - 1; i >= 0; i-- {
		q := p
		q.Faults = slices.Clone(p.Faults)
		q.Faults[i].Odds = 0
		if breaks(q) {
			p = q
		}
	}
	for _, calm := range calmer {
		q := p
		calm(&q)
		if breaks(q) {
			p = q
		}
	}
	p.Faults = slices.DeleteFunc(slices.Clone(p.Faults), func(f weight) bool { return f.Odds == 0 })
	return p
}

// calmer are ways to leave something out.
var calmer = []func(*program){
	func(p *program) { p.Lies = 0 },
	func(p *program) { p.Fails = 0 },
	func(p *program) { p.ReadFails = 0 },
	func(p *program) { p.Unsynced = 0 },
	func(p *program) { p.Slow = 0 },
	func(p *program) { p.Declines = 0 },
	func(p *program) { p.Accepts = 0 },
	func(p *program) { p.Reconcile = false },
	func(p *program) { p.Settled = false },
	func(p *program) { p.Breaker = false },
	func(p *program) { p.Padded = false },
	func(p *program) { p.Silent = false },
	func(p *program) { p.Loose = false },
	func(p *program) { p.KeyFirst = false },
	func(p *program) { p.Failed200 = false },
	func(p *program) { p.Intents = p.Intents[:1] },
}

// summary is a program in a line.
func summary(p program) string {
	var b strings.Builder
	for _, f := range p.Faults {
		if f.Odds == 0 {
			continue
		}
		fmt.Fprintf(&b, "%s; ", f.Kind)
	}
	for _, o := range p.Ops {
		fmt.Fprintf(&b, "%s(%s) ", o.Do, p.Intents[o.Intent].Kind)
	}
	text, _ := json.Marshal(p) // what is left of its failures
	for _, what := range []string{"KeyFirst", "Lies", "ReadFails", "Unsynced", "Padded", "Silent", "Loose"} {
		if strings.Contains(string(text), `"`+what+`"`) {
			b.WriteString(what + " ")
		}
	}
	return b.String()
}
