// Package keystore is what a store of entries implements: records that it need not
// understand, with unique keys and names, durable commits over the revision that was
// read, ordered scans, and one driver for each entry. Callers of package idem don't need
// it; who writes a store does, as a driver's author needs database/sql/driver. Package
// storetest is the suite that every store passes.
package keystore

import (
	"context"
	"iter"
	"math/rand/v2"
	"time"
)

// Keystore is where entries live. The client gives it opaque records, so that an
// entry may grow and a store need not notice; the store gives back uniqueness,
// durability and one driver for each entry. Package idem has a bbolt one, and one in
// memory for tests; package storetest is the suite that both pass and that any other
// has to.
//
// All methods may be called at once from any goroutine. Clients of several
// processes may share a store that can be shared. Every method returns an error
// that is [ErrClosed] after Close.
type Keystore interface {
	// Commit applies all changes in their order, or none, and returns nil
	// only when they are durable: a power cut right after the return loses
	// nothing. A change whose condition doesn't hold fails the whole commit
	// with [ErrConflict]; no room is [ErrFull]; in both cases nothing was
	// applied. After any other error the changes may or may not be there.
	//
	// An implementation should let commits that wait for the same sync share
	// it. Canceling ctx before the commit starts may prevent it, afterwards it
	// does nothing.
	Commit(ctx context.Context, changes ...Change) error

	// Read returns the record with ref's scope and key, or, where ref has no
	// key, the one with its scope and name. Bodies come only if ref asks for
	// them. An absent record is [ErrNotFound]; a damaged one is [ErrCorrupt],
	// with as much of the record as can be read.
	Read(ctx context.Context, ref Ref) (Record, error)

	// Scan yields the records of one scope and lane whose Order is not after
	// q.Until, by Order and then by key, without bodies. No lock, transaction
	// or snapshot is held while the caller looks at a record, so writers may go
	// on: a record that exists unchanged throughout is yielded exactly once;
	// one that is created, moved or removed meanwhile may be yielded or not. A
	// damaged record is yielded with its scope, key and an error that is
	// ErrCorrupt, and the scan goes on; any other error ends it.
	Scan(ctx context.Context, q Query) iter.Seq2[Record, error]

	// Claim takes the one right that exists for id. If another holder has it,
	// Claim waits until that one releases it or ctx ends (then the error is
	// context.Cause(ctx)); with wait false it returns [ErrConflict] at once.
	// The right ends by Release, by the death of the process, or where a store
	// works with leases, by the loss of the lease. An id needs no record.
	Claim(ctx context.Context, id string, wait bool) (Claim, error)

	// Clock tells the store a sighting of the wall clock and returns what
	// follows from all sightings so far, those of other processes and earlier
	// lives of the store included. The first sighting returns Epoch and Age as
	// they are stored, or zero. The store keeps the highest clock seen; if now
	// lies below it by more than tolerance, the mark drops to now and Epoch
	// grows by one, durably, before Clock returns. Age grows by the time since
	// the last sighting, by nothing if the clock went back, and by a day if the
	// gap is longer than a day. A store may keep mark and age in memory and
	// write them with its next commit.
	Clock(ctx context.Context, now time.Time, tolerance time.Duration) (Sighting, error)

	// Close lets running commits finish, ends waiting Claims with ErrClosed,
	// and releases what the store holds. A second Close returns nil.
	Close() error
}

// KeystoreTx is a keystore within a database transaction of the caller's own: what it
// commits is durable, and seen by others, when that transaction is, and vanishes with
// it. A change whose condition doesn't hold is [ErrConflict] and leaves the transaction
// usable.
type KeystoreTx interface {
	Commit(ctx context.Context, changes ...Change) error
	Read(ctx context.Context, ref Ref) (Record, error)
}

// Record is one entry as a Keystore sees it.
type Record struct {
	Scope string // namespace; with Key it is unique
	Key   string // never empty
	Name  string // unique in the scope unless empty; not for display
	Lane  Lane   // the list in which Scan finds it
	Order time.Time

	// Rev is the revision. Whoever creates a record chooses the first one by NewRev,
	// and every replace makes it one more: so it never repeats for a key, in any life
	// of it, and a change meant for one life can't hit the next.
	Rev uint64

	// Head is the small part that changes; Request and Response are the bodies,
	// kept apart from it so that a change of state doesn't rewrite them. In a
	// Replace, a nil body leaves what is stored and an empty one removes it.
	Head, Request, Response []byte
}

// NewRev returns a first revision that no record has had: 62 random bits.
func NewRev() uint64 { return rand.Uint64()>>2 | 1<<61 }

// Lane is one of the ordered lists that Scan walks through.
type Lane uint8

// The lanes. Open entries are ordered by creation, settled ones by the age at
// which something is to be done with them.
const (
	LaneOpen      Lane = 1 // Pending and Ambiguous
	LaneSettled   Lane = 2
	LaneAbandoned Lane = 3
	LaneUntold    Lane = 4 // settled, and Options.Settled has not returned nil yet
)

// Op says what a Change does and on what condition.
type Op uint8

// The operations of a Change.
const (
	// OpCreate adds a record with the revision Rev, which is not 0. Its scope and key,
	// and its scope and name if it has a name, must not be taken.
	OpCreate Op = 1

	// OpReplace puts the record in place of the stored one with its scope and
	// key, which must have the revision Rev; the stored revision becomes Rev+1.
	// A new name must not be taken.
	OpReplace Op = 2

	// OpRemove removes the record with this scope and key, which must have the
	// revision Rev, its name and its bodies.
	OpRemove Op = 3
)

// Change is one step of a commit.
type Change struct {
	Op     Op
	Record Record // OpRemove reads only Scope, Key and Rev
}

// Ref says which record to read.
type Ref struct {
	Scope, Key, Name string
	Bodies           bool // Request and Response too
}

// Query says what to scan.
type Query struct {
	Scope string
	Lane  Lane
	Until time.Time // zero: no limit
}

// Claim is the right to drive one entry.
type Claim interface {
	// Contended tells whether another Claim waits for this one now. It may
	// overlook waiters of other processes.
	Contended() bool

	// Lost is closed when the right was lost before Release, in stores that
	// work with leases. It may be nil.
	Lost() <-chan struct{}

	// Release gives the right to the next waiter. A second Release does nothing.
	Release()
}

// Sighting is what a Keystore concludes from the clocks it has seen.
type Sighting struct {
	Epoch uint64        // how often the clock was set back
	Age   time.Duration // time the store has lived through; see Keystore.Clock
}
