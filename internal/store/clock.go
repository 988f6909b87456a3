package store

import (
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
}

// sight returns the clock after a sighting of now. A clock that lies at most
// tolerance below the mark changes nothing, so that sightings which arrive out
// of their order, as those of goroutines do, neither add age twice nor count
// as a setback.
func (c clock) sight(now time.Time, tolerance time.Duration) clock {
	// A monotonic reading would hide that the wall clock was set, or that the
	// machine slept.
	now = now.Round(0).UTC()
	switch {
	case !c.seen:
		c.seen, c.mark = true, now
	case now.After(c.mark):
		c.age += min(now.Sub(c.mark), maxGap)
		c.mark = now
	case c.mark.Sub(now) > tolerance:
		c.epoch++
		c.mark = now
	}
	return c
}

// sighting is what callers hear of the clock.
func (c clock) sighting(now time.Time) keystore.Sighting {
	return keystore.Sighting{Now: now.Round(0), Epoch: c.epoch, Age: c.age}
}
