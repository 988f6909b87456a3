package sim

import (
	"math/rand/v2"
	"strings"
	"time"
)

// theme is a kind of program, aimed at one part of the promise.
type theme struct {
	name    string
	intents string // kinds of intents; here and below, what stands twice is drawn twice as often
	ops     string // calls and events
	faults  string // what requests meet
	tune    func(*program, *rand.Rand)
}

// draw takes one of a list.
func draw(r *rand.Rand, list, between string) string {
	words := strings.Split(list, between)
	return words[r.IntN(len(words))]
}

const losses = "lost, lost, reset, refuse, late, behind 502, front 503, door 429"

var themes = []theme{
	{
		name: "crowd", intents: "keyed both",
		ops:    "do, do, do, transport",
		faults: losses,
		tune: func(p *program, r *rand.Rand) {
			p.Latency, p.Slow = span(r, time.Millisecond, time.Second), r.Float64()/10
		},
	},
	{
		name: "loop", intents: "anonymous",
		ops:    "loop, loop, resume",
		faults: losses,
		tune: func(p *program, r *rand.Rand) {
			p.Lies, p.Fails = r.Float64()/4, r.Float64()/10
		},
	},
	{
		name: "accounts", intents: "named keyed",
		ops:    "do, do, resume, deploy, do",
		faults: losses,
		tune: func(p *program, _ *rand.Rand) {
			p.Account, p.Procs = "a", 2
		},
	},
	{
		name: "polls", intents: "named keyed",
		ops:    "do, do, resume, crash",
		faults: "lost, poll login, poll 404, poll 503, reset",
		tune: func(p *program, r *rand.Rand) {
			p.Accepts, p.Loose = 0.5+r.Float64()/2, r.IntN(2) == 0
		},
	},
	{
		name: "leases", intents: "named keyed",
		ops:    "do, do, lose, lose, transport, resume",
		faults: losses,
		tune: func(p *program, _ *rand.Rand) {
			p.Procs, p.Leases = 3, true
		},
	},
	{
		name: "disk", intents: "named keyed",
		ops:    "do, do, power, resume",
		faults: "lost, behind 502, reset",
		tune: func(p *program, r *rand.Rand) {
			p.Unsynced, p.Declines = r.Float64()/4, r.Float64()
		},
	},
	{
		name: "unkeyed", intents: "unkeyed put unkeyed",
		ops:    "do, do, resume, write, crash",
		faults: "lost, reset, refuse, late, behind 502, other address",
		tune: func(p *program, r *rand.Rand) {
			p.Silent = r.IntN(2) == 0
		},
	},
	{
		name: "addresses", intents: "named keyed anonymous",
		ops:    "do, loop, resume",
		faults: "other address, lost, refuse",
		tune: func(p *program, _ *rand.Rand) {
			p.Silent = true
		},
	},
	{
		name: "statuses", intents: "named keyed",
		ops: "do, do, resume, transport",
		faults: "behind 408, behind 425, behind 499, behind 500, behind 502, behind 504, " +
			"behind 520, behind 529, front 401, " +
			"front 403, front 413, front 429, moved, redirect, cut, lost, drops query",
		tune: func(p *program, r *rand.Rand) {
			p.Declines, p.Failed200 = r.Float64()/3, r.IntN(3) == 0
			p.Padded = r.IntN(4) == 0
		},
	},
	{
		name: "queue", intents: "named keyed",
		ops:    "enqueue, enqueue, run, do, expiring, resume, wall",
		faults: "wait 403, slow dial, " + losses,
	},
	{
		name: "failover", intents: "named",
		ops:    "failover, failover, crash, failover",
		faults: losses,
		tune: func(p *program, r *rand.Rand) {
			p.Declines = r.Float64()
		},
	},
	{
		name: "crash", intents: "named keyed both sdk odd",
		ops:    "do, crash, resume, transport, loop, run",
		faults: "cut, " + losses,
		tune: func(p *program, r *rand.Rand) {
			p.Lies, p.Declines = r.Float64()/20, r.Float64()/3
		},
	},
	{
		name: "reuse", intents: "keyed both named",
		ops:    "do, do, changed, resume, expiring, enqueue, enqueue other, crash",
		faults: "door 401, refuse, refuse, " + losses,
		tune: func(p *program, r *rand.Rand) {
			p.Latency = span(r, time.Millisecond, time.Second)
		},
	},
	{
		name: "successors", intents: "keyed",
		ops:    "do, changed, enqueue, enqueue other, do, changed, resume",
		faults: "door 401, door 401, refuse, lost",
		tune: func(p *program, r *rand.Rand) {
			p.Latency, p.Dense = span(r, 10*time.Millisecond, time.Second), true
		},
	},
	{
		name: "mix", intents: "named keyed both sdk anonymous unkeyed put odd",
		ops:    "do, do, transport, loop, enqueue, run, resume, crash, expiring, do, abandon",
		faults: "cut, redirect, behind 425, other address, " + losses,
		tune: func(p *program, r *rand.Rand) {
			p.Lies, p.Fails, p.ReadFails = r.Float64()/30, r.Float64()/30, r.Float64()/50
			p.Declines, p.Accepts = r.Float64()/4, r.Float64()/4
			p.Reconcile, p.Settled, p.Breaker = r.IntN(2) == 0, r.IntN(2) == 0, r.IntN(4) == 0
		},
	},
	{
		name: "joiners", intents: "anonymous",
		ops:    "loop, join, join, resume",
		faults: losses,
		tune: func(p *program, r *rand.Rand) {
			p.Latency, p.Dense = span(r, time.Millisecond, 300*time.Millisecond), true
		},
	},
}

// untrue is a theme that breaks the store's own promise, to see that the rules notice: a
// commit whose sync failed is shown as if it were durable, and gone after a power cut.
var untrue = theme{
	name: "untrue", intents: "named keyed",
	ops:    "do, do, power, do",
	faults: "door 401, refuse",
	tune: func(p *program, r *rand.Rand) {
		p.Unsynced, p.Declines, p.Lying = r.Float64()/4, r.Float64(), true
	},
}
