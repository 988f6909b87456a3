package sim

import (
	"math/rand/v2"
	"time"
)

// program is all that a run depends on. It is made from one number, and can be kept as
// JSON, so that it stays the same when the generator learns more.
type program struct {
	Seed  uint64
	Theme string

	Procs   int           // processes over the store
	Latency time.Duration // of the store, at most, each way
	Slow    float64       // how often it is a hundred times that

	Fails    float64 // commits that fail and change nothing
	Lies     float64 `json:",omitzero"` // commits that fail and are durable all the same
	Unsynced float64 `json:",omitzero"` // commits that fail, and last until the power is cut
	Lying    bool    `json:",omitzero"` // what such a commit left is read as if it were durable

	ReadFails float64 `json:",omitzero"`

	Dense     bool    `json:",omitzero"` // all happens within seconds
	Leases    bool    `json:",omitzero"` // claims can be lost
	KeyFirst  bool    `json:",omitzero"` // the provider looks the key up first
	Accepts   float64 `json:",omitzero"` // answers of 202 with a job to poll
	Declines  float64 `json:",omitzero"` // refusals by the provider itself
	Failed200 bool    `json:",omitzero"` // they are a 200 that says "failed"
	Loose     bool    `json:",omitzero"` // the dialect's NotDone is a bare 404
	Padded    bool    `json:",omitzero"` // answers are longer than MaxResult
	Silent    bool    `json:",omitzero"` // Options.Base fires no GotConn
	Reconcile bool    `json:",omitzero"`
	Settled   bool    `json:",omitzero"`
	Breaker   bool    `json:",omitzero"`
	Account   string  `json:",omitzero"` // what a deploy sets Options.Account to

	Faults   []weight
	Patience time.Duration // of one attempt
	Intents  []thing
	Ops      []op
}

// weight is how often a fault is met.
type weight struct {
	Kind string
	Odds float64
}

// thing is what somebody wants once.
type thing struct {
	Kind    string // named, keyed, both, sdk, anonymous, unkeyed, put
	Account string `json:",omitzero"`
	Odd     bool   `json:",omitzero"` // its request has bytes that aren't UTF-8
	Guard   string `json:",omitzero"` // its precondition
	Exists  bool   `json:",omitzero"` // somebody else has made it
	Token   bool   `json:",omitzero"` // its URL bears a credential
}

// garbled stands for an account that isn't UTF-8, which JSON can't keep.
const garbled = "garbled"

// account is what Options and contexts get of an account.
func (t thing) account() string {
	if t.Account == garbled {
		return "z\xff"
	}
	return t.Account
}

// op is one call, or one thing that happens.
type op struct {
	Do     string
	At     time.Duration
	Proc   int           `json:",omitzero"`
	Intent int           `json:",omitzero"`
	Limit  time.Duration `json:",omitzero"` // the caller's deadline; 0: none
	Expiry time.Duration `json:",omitzero"`
	Amount int           `json:",omitzero"` // 1 is another payload
	Blank  bool          `json:",omitzero"` // WithAccount(ctx, "")
	Seed   uint64
}

// generate makes a program; only chooses a theme by name, "" takes any.
func generate(seed uint64, only string) program {
	r := rand.New(rand.NewPCG(seed, 9))
	th := themes[r.IntN(len(themes))]
	for _, t := range append(themes, untrue) {
		if t.name == only {
			th = t
		}
	}
	p := program{
		Seed: seed, Theme: th.name, Procs: 1 + r.IntN(3), KeyFirst: r.IntN(2) == 0,
		Latency: span(r, time.Microsecond, 100*time.Millisecond), Patience: span(r, time.Second, 40*time.Second),
	}
	if th.tune != nil {
		th.tune(&p, r)
	}
	for range 1 + r.IntN(3) {
		k := draw(r, th.faults, ", ")
		p.Faults = append(p.Faults, weight{k, r.Float64() / 3})
		if p.Dense {
			p.Faults[0].Odds = 0.5 + r.Float64()/2
		}
	}
	for range 1 + r.IntN(3) {
		if p.Dense && len(p.Intents) > 0 {
			break
		}
		p.Intents = append(p.Intents, th.thing(r, &p))
	}
	horizon, step := span(r, time.Second, 3*time.Minute), 5*time.Second
	if p.Dense {
		horizon, step = 4*p.Latency, p.Latency
	}
	at := time.Duration(0)
	for range 6 + r.IntN(14) {
		if r.IntN(3) == 0 {
			at = time.Duration(r.Int64N(int64(horizon)))
		}
		at += time.Duration(r.Int64N(int64(span(r, time.Microsecond, step))))
		p.Ops = append(p.Ops, th.op(r, &p, at))
	}
	if r.IntN(25) == 0 { // the window closes on what the first half left
		for i := len(p.Ops) / 2; i < len(p.Ops); i++ {
			p.Ops[i].At += 25 * time.Hour
		}
	}
	return p
}

// thing draws what is wanted.
func (th theme) thing(r *rand.Rand, p *program) thing {
	t := thing{Kind: draw(r, th.intents, " ")}
	switch t.Kind {
	case "odd":
		t.Kind, t.Odd = "named", true
	case "put":
		t.Guard = []string{"", "If-Match: *", `If-None-Match: "old"`, `If-Match: "v0"`}[r.IntN(4)]
	case "unkeyed":
		t.Guard = []string{"", "", `If-None-Match: "old"`}[r.IntN(3)]
		t.Exists = r.IntN(4) == 0
	}
	t.Token = th.name == "statuses" && r.IntN(4) == 0
	switch {
	case th.name == "accounts" && r.IntN(8) == 0:
		t.Account = garbled
	case th.name != "accounts" && r.IntN(4) == 0:
		t.Account = []string{"x", "y"}[r.IntN(2)]
	}
	return t
}

// op draws a call.
func (th theme) op(r *rand.Rand, p *program, at time.Duration) op {
	o := op{Do: draw(r, th.ops, ", "), At: at}
	o.Proc, o.Intent, o.Seed = r.IntN(p.Procs), r.IntN(len(p.Intents)), r.Uint64()
	if r.IntN(5) > 0 {
		o.Limit = span(r, 5*time.Millisecond, time.Minute)
	}
	switch o.Do {
	case "run":
		o.Limit = span(r, time.Second, 5*time.Minute)
	case "expiring":
		o.Do, o.Expiry = "do", span(r, 5*time.Millisecond, time.Minute)
	case "changed":
		o.Do, o.Amount = "do", 1
	case "enqueue other":
		o.Do, o.Amount = "enqueue", 1
	case "wall":
		o.Do, o.Expiry = "enqueue", span(r, time.Second, time.Minute)
	}
	o.Blank = p.Account != "" && o.Do == "do" && r.IntN(8) == 0
	o.Do = fitting(o.Do, p.Intents[o.Intent].Kind)
	return o
}

// fitting is what a call becomes where its kind of intent doesn't suit it: without a name
// or a key people can only ask in a loop.
func fitting(do, kind string) string {
	anonymous := kind == "anonymous"
	switch do {
	case "loop":
		if !anonymous {
			return "do"
		}
	case "do", "transport":
		if anonymous {
			return "loop"
		}
	case "enqueue", "abandon":
		if anonymous {
			return "resume"
		}
	}
	return do
}

// span draws a duration, each order of magnitude alike.
func span(r *rand.Rand, from, to time.Duration) time.Duration {
	d := from
	for d < to && r.IntN(3) > 0 {
		d = d*3 + time.Duration(r.Int64N(int64(d)))
	}
	return min(d, to)
}
