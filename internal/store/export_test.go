package store

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/idem-go/idem/internal/store/pagecheck"
	"github.com/idem-go/idem/keystore"
	bolt "go.etcd.io/bbolt"
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

// LinkFiles makes journals with a function in place of os.Link, until the returned one
// is called.
func LinkFiles(link func(from, to string) error) (restore func()) {
	old := linkFile
	linkFile = link
	return func() { linkFile = old }
}

// WriteCopy leaves the file that a Compact which died would leave.
func WriteCopy(t testing.TB, name, path string) {
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	db, err := openBolt(f, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Update(func(tx *bolt.Tx) error { return claimCopy(tx, path) }), db.Close()); err != nil {
		t.Fatal(err)
	}
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

// Unclean takes the note of a clean close away, as a crash does.
func Unclean(t testing.TB, path string) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err == nil {
		var meta pagecheck.Meta
		if meta, _, err = newestMeta(f); err == nil {
			_, err = f.WriteAt(make([]byte, noteSize), meta.End())
		}
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// ClosedClean tells whether an open takes the short way.
func ClosedClean(t testing.TB, path string) bool {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return closedClean(f)
}
