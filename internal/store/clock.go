package store

import (
	"math"
	"time"

	"github.com/idem-go/idem/keystore"
)

// maxGap is the most that the time between two sightings adds to an age: a
// clock that was once years ahead, or a machine that was off for a month, must
// not make everything old at once.
const maxGap = 24 * time.Hour

// clock is what a keystore knows of the wall clock. Its zero value has seen
// nothing.
type clock struct {
	seen  bool
	mark  time.Time     // the highest clock since the last setback
	epoch uint64        // how many setbacks there were
	age   time.Duration // see Keystore.Clock

	// last is the latest sighting, with its monotonic reading if it has one, and
	// high how far the age is counted on the axis of the wall clock: a clock that
	// swings is counted once.
	last, high time.Time
}

// sight returns the clock after a sighting of now. A clock that lies at most
// tolerance below the mark changes nothing, so that sightings which arrive out
// of their order, as those of goroutines do, neither add age twice nor count
// as a setback.
func (c clock) sight(now time.Time, tolerance time.Duration) clock {
	// A monotonic reading would hide that the wall clock was set, or that the
	// machine slept.
	wall := now.Round(0).UTC()
	if !c.seen {
		c.seen, c.mark, c.last, c.high = true, wall, now, wall
		return c
	}
	c.grow(now, wall)
	switch {
	case wall.After(c.mark):
		c.mark = wall
	case c.mark.Sub(wall) > tolerance:
		c.epoch++
		c.mark, c.last = wall, now
	}
	return c
}

// grow adds to the age what has passed since the last sighting, and what the clock was
// set ahead by, beyond where it was before.
func (c *clock) grow(now, wall time.Time) {
	passed := max(now.Sub(c.last), 0)
	if passed > 0 {
		c.last = now
	}
	passed = min(passed, maxGap)
	high := c.high.Add(passed)
	if wall.After(high) {
		passed += min(wall.Sub(high), maxGap-passed)
		high = wall
	}
	c.high = high
	c.age += min(passed, math.MaxInt64-c.age)
}

// saved is what of the clock is written down.
func (c clock) saved() clock {
	c.last = time.Time{}
	return c
}

// sighting is what callers hear of the clock.
func (c clock) sighting(now time.Time) keystore.Sighting {
	return keystore.Sighting{Now: now.Round(0), Epoch: c.epoch, Age: c.age}
}
