package model

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dialect"
	"github.com/idem-go/idem/mockserver"
)

const (
	window = 24 * time.Hour
	margin = 30 * time.Minute
	keep   = 48 * time.Hour
)

// op is one call, or something that happens to the process or its clock.
type op struct {
	Do     string        // what: a word of world.perform
	Intent string        // order-n is named, keyed-n has a caller's key, sdk-n an SDK's, anonymous-n nothing
	Amount int           // 1 or 2: another payload
	Stored bool          // WithStoredPayload
	At     time.Duration // after the beginning of its step
	Limit  time.Duration // the caller's deadline, or how long Run runs or the clock jumps; 0 is none
	Expiry time.Duration // 0 is none
}

func (o op) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", o.Do, o.Intent)
	if o.Amount > 1 {
		fmt.Fprintf(&b, " amount=%d", o.Amount)
	}
	for name, d := range map[string]time.Duration{" at=": o.At, " limit=": o.Limit, " expiry=": o.Expiry} {
		if d != 0 {
			fmt.Fprint(&b, name, d)
		}
	}
	if o.Stored {
		b.WriteString(" stored")
	}
	return b.String()
}

// step is a few calls at once, and the faults that their requests meet in turn.
type step struct {
	Ops    []op
	Faults []fault
}

// program is a sequence of steps against one kind of provider.
type program struct {
	Provider  string
	Reconcile string // "", "truth", "unknown" or "error": what the hook answers
	Breaker   bool
	Steps     []step
}

func (p program) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "provider %s, reconcile %q, breaker %v\n", p.Provider, p.Reconcile, p.Breaker)
	for i, s := range p.Steps {
		fmt.Fprintf(&b, "%3d  %v", i+1, s.Ops)
		for _, f := range s.Faults {
			fmt.Fprintf(&b, "; %s", f.name)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// GoString is what rapid prints.
func (p program) GoString() string { return fmt.Sprintf("of %d steps", len(p.Steps)) }

// provider is a dialect and the mock that behaves so.
type provider struct {
	dialect idem.Dialect
	profile mockserver.Profile
}

var providers = map[string]provider{
	"zero":   {idem.Dialect{}, mockserver.Standard()},
	"ietf":   {dialect.IETF(), mockserver.IETF()},
	"stripe": {dialect.Stripe(), mockserver.StripeV1()},
}

// fault is what one request meets.
type fault struct {
	name string
	mockserver.Fault
	weight int
	blind  bool // a refusal before the provider looks at the key, which a key-first one doesn't give
}

// faults are all that the mock can do, but for lies: a refusal after the effect.
func faults() []fault {
	list := []fault{
		{name: "ok", weight: 12},
		{name: "delay 3s", Fault: mockserver.Fault{Kind: mockserver.FaultDelay, Delay: 3 * time.Second}, weight: 3},
		{name: "delay 15s", Fault: mockserver.Fault{Kind: mockserver.FaultDelay, Delay: 15 * time.Second}, weight: 3},
		{name: "delay answer 15s", Fault: mockserver.Fault{Kind: mockserver.FaultNone, After: true, Delay: 15 * time.Second}, weight: 2},
		{name: "late 15s", Fault: mockserver.Fault{Kind: mockserver.FaultLate, Delay: 15 * time.Second}, weight: 2},
		{name: "refuse", Fault: mockserver.Fault{Kind: mockserver.FaultRefuse}, weight: 5},
		{name: "reset", Fault: mockserver.Fault{Kind: mockserver.FaultReset}, weight: 4},
		{name: "reset after", Fault: mockserver.Fault{Kind: mockserver.FaultReset, After: true}, weight: 4},
		{name: "drop", Fault: mockserver.Fault{Kind: mockserver.FaultDrop}, weight: 5},
		{name: "hang", Fault: mockserver.Fault{Kind: mockserver.FaultHang}, weight: 3},
		{name: "cut", Fault: mockserver.Fault{Kind: mockserver.FaultCut}, weight: 3},
		{name: "cut chunked", Fault: mockserver.Fault{Kind: mockserver.FaultCut, Framing: mockserver.FramingChunked}, weight: 1},
		{name: "cut close", Fault: mockserver.Fault{Kind: mockserver.FaultCut, Framing: mockserver.FramingClose}, weight: 1},
		{name: "cut head", Fault: mockserver.Fault{Kind: mockserver.FaultCutHead}, weight: 1},
		{name: "in flight", Fault: mockserver.Fault{Kind: mockserver.FaultInFlight}, weight: 2},
		{name: "limit 1s", Fault: mockserver.Fault{Kind: mockserver.FaultRateLimit}, weight: 2},
		{name: "limit 1h", Fault: mockserver.Fault{Kind: mockserver.FaultRateLimit, RetryAfter: time.Hour}, weight: 2},
		{name: "503 in 48h", Fault: mockserver.Fault{Kind: mockserver.FaultStatus, RetryAfter: 48 * time.Hour}, weight: 1},
		{name: "declined 402", Fault: mockserver.Fault{Kind: mockserver.FaultFail, Status: 402}, weight: 4},
		{name: "failed 500", Fault: mockserver.Fault{Kind: mockserver.FaultFail}, weight: 2},
		{name: "failed 500 after", Fault: mockserver.Fault{Kind: mockserver.FaultFail, After: true, Keep: mockserver.KeepAnswer}, weight: 1},
		{name: "locked 500 after", Fault: mockserver.Fault{Kind: mockserver.FaultFail, After: true, Keep: mockserver.KeepLock}, weight: 1},
		{name: "restart", Fault: mockserver.Fault{Kind: mockserver.FaultRestart}, weight: 2},
		{name: "restart after", Fault: mockserver.Fault{Kind: mockserver.FaultRestart, After: true}, weight: 2},
		{name: "restart, keys lost", Fault: mockserver.Fault{Kind: mockserver.FaultRestart, After: true, Keep: mockserver.KeepNothing}, weight: 1},
		{name: "forget", Fault: mockserver.Fault{Kind: mockserver.FaultForget}, weight: 1},
	}
	for _, status := range []int{401, 403, 413, 429, 400, 402, 404, 412, 423} {
		door := status == 401 || status == 403 || status == 413 || status == 429
		list = append(list, fault{name: fmt.Sprint(status), Fault: mockserver.Fault{Kind: mockserver.FaultStatus, Status: status}, weight: 1, blind: !door})
	}
	for _, status := range []int{302, 303, 408, 500, 502, 503, 504} {
		h := http.Header{"Location": {"https://login.example/"}}
		list = append(list,
			fault{name: fmt.Sprint(status), Fault: mockserver.Fault{Kind: mockserver.FaultStatus, Status: status, Header: h}, weight: 1},
			fault{name: fmt.Sprint(status, " after"), Fault: mockserver.Fault{Kind: mockserver.FaultStatus, Status: status, Header: h, After: true}, weight: 1})
	}
	return list
}

// words are what a step may do, by weight.
var words = map[string]int{
	"do": 14, "transport": 4, "enqueue": 4, "run": 3, "resume": 5, "reserve": 1, "settle": 2, "abandon": 1,
	"forget": 2, "batch": 1, "items": 1, "crash": 2, "restart": 1, "account": 1, "sleep": 3, "setback": 1,
}

// intents are few, so that calls meet.
var intents = []string{
	"order-0", "order-1", "order-2", "order-0", "order-1", "keyed-0", "keyed-1", "sdk-0", "sdk-1", "anonymous-0", "anonymous-1",
}

func weighted[T any](of map[string]int, value func(string) T) []T {
	var names []string
	for name := range of {
		names = append(names, name)
	}
	slices.Sort(names)
	var list []T
	for _, name := range names {
		for range of[name] {
			list = append(list, value(name))
		}
	}
	return list
}

func genOp(first bool) *rapid.Generator[op] {
	choice := weighted(words, func(s string) string { return s })
	return rapid.Custom(func(t *rapid.T) op {
		o := op{Do: rapid.SampledFrom(choice).Draw(t, "do"), Amount: 1}
		o.Intent = rapid.SampledFrom(intents).Draw(t, "intent")
		if rapid.IntRange(0, 7).Draw(t, "other") == 7 {
			o.Amount, o.Stored = 2, rapid.Bool().Draw(t, "stored")
		}
		switch o.Do {
		case "do", "transport", "enqueue":
			o.Expiry = rapid.SampledFrom([]time.Duration{0, 0, 0, 0, 0, 0, 0, 2 * time.Second, time.Minute, time.Hour}).Draw(t, "expiry")
			o.Limit = rapid.SampledFrom([]time.Duration{0, 0, 0, 0, 0, time.Second, 12 * time.Second}).Draw(t, "limit")
		case "run":
			o.Limit = rapid.SampledFrom([]time.Duration{time.Second, time.Minute, 3 * time.Hour}).Draw(t, "limit")
		case "sleep":
			o.Limit = rapid.SampledFrom([]time.Duration{time.Second, time.Minute, time.Hour, 5 * time.Hour, 23 * time.Hour, 25 * time.Hour, 60 * time.Hour}).Draw(t, "limit")
		}
		if !first {
			o.At = rapid.SampledFrom([]time.Duration{0, time.Millisecond, time.Second, 11 * time.Second, 20 * time.Second}).Draw(t, "at")
		}
		return o
	})
}

func genStep(of []fault) *rapid.Generator[step] {
	return rapid.Custom(func(t *rapid.T) step {
		s := step{Ops: []op{genOp(true).Draw(t, "op")}}
		for range max(0, rapid.IntRange(-5, 2).Draw(t, "beside")) {
			s.Ops = append(s.Ops, genOp(false).Draw(t, "op"))
		}
		s.Faults = rapid.SliceOfN(rapid.SampledFrom(of), 0, 6).Draw(t, "faults")
		return s
	})
}

func genProgram() *rapid.Generator[program] {
	all := map[bool][]fault{}
	for _, f := range faults() {
		for range f.weight {
			all[false] = append(all[false], f)
			if !f.blind {
				all[true] = append(all[true], f)
			}
		}
	}
	return rapid.Custom(func(t *rapid.T) program {
		p := program{
			Provider:  rapid.SampledFrom([]string{"zero", "ietf", "stripe"}).Draw(t, "provider"),
			Reconcile: rapid.SampledFrom([]string{"", "truth", "unknown", "error"}).Draw(t, "reconcile"),
			Breaker:   rapid.IntRange(0, 3).Draw(t, "breaker") == 3,
		}
		of := all[providers[p.Provider].dialect.KeyFirst]
		for range 3 { // a slice by itself is mostly short, and one of a drawn length doesn't shrink well
			p.Steps = append(p.Steps, rapid.SliceOfN(genStep(of), 0, 20).Draw(t, "steps")...)
		}
		return p
	})
}
