package store

import (
	"os"
	"time"

	"github.com/idem-go/idem/keystore"
)

// SightClock lets a new clock see several times and returns what it concludes.
func SightClock(tolerance time.Duration, times ...time.Time) (s keystore.Sighting, mark time.Time) {
	var c clock
	for _, now := range times {
		c = c.sight(now, tolerance)
	}
	return c.sighting(times[len(times)-1]), c.mark
}

// SyncAtOpen runs a function in place of the sync of what an open reads, until the
// returned one is called.
func SyncAtOpen(sync func(*os.File) error) (restore func()) {
	old := syncFile
	syncFile = sync
	return func() { syncFile = old }
}

// EncodeRecord returns the key and the value under which the journal keeps a
// record, and the key of its place in its lane.
func EncodeRecord(r keystore.Record, hasRequest, hasResponse bool) (key, value, place []byte) {
	key = slotKey(slot{r.Scope, r.Key})
	return key, encodeRow(key, &row{r, hasRequest, hasResponse}), laneKey(&r)
}

// DecodeRecord undoes EncodeRecord.
func DecodeRecord(key, value []byte) (keystore.Record, error) {
	r, err := decodeRow(key, value)
	return r.Record, err
}
