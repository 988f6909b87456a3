package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/keystore"
)

func TestTheClockKeepsItsHighestMarkAndItsAge(t *testing.T) {
	at := func(d time.Duration) time.Time { return storeTime.Add(d) }
	const h, day = time.Hour, 24 * time.Hour
	for name, c := range map[string]struct {
		seen  []time.Duration // after the first sighting, at 0; the tolerance is an hour
		epoch uint64
		age   time.Duration
		mark  time.Duration
	}{
		"one sighting":                 {nil, 0, 0, 0},
		"it grows":                     {[]time.Duration{h, 3 * h}, 0, 3 * h, 3 * h},
		"exactly a day":                {[]time.Duration{day}, 0, day, day},
		"more than a day":              {[]time.Duration{9 * day}, 0, day, 9 * day},
		"back within the tolerance":    {[]time.Duration{2 * h, h}, 0, 2 * h, 2 * h},
		"back and forth":               {[]time.Duration{h, 0, h, 0, h}, 0, h, h},
		"back beyond it":               {[]time.Duration{2 * h, h - 1}, 1, 2 * h, h - 1},
		"it grows after a setback":     {[]time.Duration{-2 * h, -h}, 1, h, -h},
		"two setbacks":                 {[]time.Duration{-2 * h, -4 * h}, 2, 0, -4 * h},
		"a leap and back":              {[]time.Duration{9000 * day, 0, h}, 1, day + h, h},
		"further than a duration goes": {[]time.Duration{1<<63 - 1, -(1<<63 - 1)}, 1, day, -(1<<63 - 1)},
	} {
		t.Run(name, func(t *testing.T) {
			times := []time.Time{at(0)}
			for _, d := range c.seen {
				times = append(times, at(d))
			}
			s, mark := store.SightClock(h, times...)
			require.Equal(t, keystore.Sighting{Now: times[len(times)-1], Epoch: c.epoch, Age: c.age}, s)
			require.True(t, mark.Equal(at(c.mark)), "mark %v", mark)
		})
	}
}

func TestTheClockIgnoresMonotonicReadings(t *testing.T) {
	_, mark := store.SightClock(time.Hour, time.Now())
	require.NotContains(t, mark.String(), "m=")
}
