package store_test

import (
	"testing"
	"time"
	"unsafe"

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

// A clock that swings makes nothing old: its first step counts, and then what passes.
func TestASwingingClockIsCountedOnce(t *testing.T) {
	path := journalPath(t)
	ks := openJournal(t, path, nil)
	now := time.Now() // with a monotonic reading
	var last keystore.Sighting
	for i := range 1000 {
		now = now.Add(time.Second)
		wall := time.Duration(i%2) * 6 * time.Minute
		var err error
		last, err = ks.Clock(t.Context(), stepped(t, now, wall), 5*time.Minute)
		require.NoError(t, err)
		if i%100 == 50 { // and its next life goes on
			require.NoError(t, ks.Close())
			ks = openJournal(t, path, nil)
		}
	}
	require.Equal(t, uint64(499), last.Epoch)
	require.Less(t, last.Age, 1000*time.Second+10*7*time.Minute)
	require.Greater(t, last.Age, 900*time.Second)
}

// stepped moves a time's wall clock in whole seconds, but not its monotonic reading, as
// setting the system's clock does and no function of package time.
func stepped(t *testing.T, now time.Time, by time.Duration) time.Time {
	moved := now
	(*[3]uint64)(unsafe.Pointer(&moved))[0] += uint64(by/time.Second) << 30
	require.Equal(t, by, moved.Round(0).Sub(now.Round(0)))
	require.Zero(t, moved.Sub(now))
	return moved
}

func TestTheClockIgnoresMonotonicReadings(t *testing.T) {
	_, mark := store.SightClock(time.Hour, time.Now())
	require.NotContains(t, mark.String(), "m=")
}
