package main

import (
	"math/rand/v2"
	"time"
)

// kill is the moment of one SIGKILL: so many payments are through, and then a
// little later, so that it falls anywhere within a call.
type kill struct {
	after int
	delay time.Duration
}

// maxKillDelay is longer than most calls take.
const maxKillDelay = 40 * time.Millisecond

// planKills draws n kills, spread over the progress through rows payments: one in
// each of n equal stretches. The same seed draws the same.
func planKills(seed uint64, n, rows int) []kill {
	r := rand.New(rand.NewPCG(seed, 0x6b696c6c))
	plan := make([]kill, n)
	for i := range plan {
		from, to := i*rows/n, (i+1)*rows/n
		plan[i] = kill{
			after: from + r.IntN(max(to-from, 1)),
			delay: time.Duration(r.Int64N(int64(maxKillDelay))),
		}
	}
	return plan
}
