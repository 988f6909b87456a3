// Package keystore is what a store of entries implements: records that it need not
// understand, with unique keys and names, durable commits over the revision that was
// read, ordered scans, and one driver for each entry. Callers of package idem don't need
// it; who writes a store does, as a driver's author needs database/sql/driver. Package
// storetest is the suite that every store passes.
package keystore

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"iter"
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
// that is [ErrClosed] after Close, and one that is [ErrInvalid] for what makes no
// sense whatever the store holds. A method that ends because its context did returns
// context.Cause of it. [ErrUnavailable] means that the store can't be reached now.
//
// Scopes, keys and names are any bytes, NUL included, of at most 8 KiB each; no two
// pairs of scope and key, or scope and name, may be taken for one.
type Keystore interface {
	// Commit applies all changes in their order, or none, and returns nil
	// only when they are durable: a power cut right after the return loses
	// nothing. A change whose condition doesn't hold fails the whole commit
	// with [ErrConflict], one under a claim that isn't held with [ErrClaimLost];
	// no room is [ErrFull]. After these, ErrClosed, ErrInvalid, and an
	// ErrUnavailable that isn't [ErrUncertain] too, nothing was applied, and
	// nothing will be. After any other error the changes may or may not be there.
	//
	// An implementation should let commits that wait for the same sync share
	// it. When ctx ends before the commit starts, nothing is applied and the
	// error is its cause; afterwards ctx does nothing.
	Commit(ctx context.Context, changes ...Change) error

	// Read returns one record for each ref, in their order: the one with ref's
	// scope and key, or, where ref has no key, the one with its scope and name.
	// Bodies come only if ref asks for them. An absent record has Rev 0 and no
	// Damage; a damaged one has Damage and as much of the record as can be read,
	// its scope and key at least. With an error there are no records.
	Read(ctx context.Context, refs ...Ref) ([]Record, error)

	// Scan yields the records that q asks for, without bodies. No lock,
	// transaction or snapshot is held while the caller looks at a record, so
	// writers may go on: a record that exists unchanged throughout is yielded
	// exactly once; one that is created, moved or removed meanwhile may be
	// yielded or not. A damaged record is yielded with its scope, key and
	// cursor, and with its Damage as the error, which is [ErrCorrupt]; then the
	// scan goes on. Any other error ends it.
	Scan(ctx context.Context, q Query) iter.Seq2[Record, error]

	// Claim takes the one right that exists for scope and id. If another holder
	// has it, Claim waits until that one releases it or ctx ends; with wait
	// false it returns [ErrConflict] at once. The right ends by Release, by the
	// death of the process, or where a store works with leases, by the loss of
	// the lease. An id needs no record. The scope "" is also that of claims which
	// concern several scopes.
	Claim(ctx context.Context, scope, id string, wait bool) (Claim, error)

	// Clock tells the store a sighting of the wall clock and returns what
	// follows from all sightings so far, those of other processes and earlier
	// lives of the store included. A store that several hosts share goes by a
	// clock of its own, and by the one it is shown only to find that this host's
	// was set back; any other goes by now.
	//
	// The first sighting returns Epoch and Age as they are stored, or zero. The
	// store keeps the highest clock seen; if now lies below it by more than
	// tolerance, the mark drops to now and Epoch grows by one, durably, before
	// Clock returns. Age grows by the time that passed since the last sighting,
	// as the monotonic readings of both tell it if they have some, and by nothing
	// if the clock went back. A clock that was set ahead adds its step, but ground
	// that was counted once and left by a setback isn't counted again. No gap adds
	// more than a day. A store may keep mark and age in memory and write them with
	// its next commit.
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
	Read(ctx context.Context, refs ...Ref) ([]Record, error)
}

// Watcher is a keystore that tells of work which other processes commit. Without it
// they are asked for now and then.
type Watcher interface {
	// Watch returns a channel that receives after another process has committed
	// open records of the scope, perhaps once for many, and perhaps in vain. It is
	// closed when ctx ends or the store can't tell any more.
	Watch(ctx context.Context, scope string) (<-chan struct{}, error)
}

// Record is one entry as a Keystore sees it.
type Record struct {
	Scope string    // namespace; with Key it is unique
	Key   string    // never empty
	Name  string    // unique in the scope unless empty; not for display
	Lane  Lane      // the list in which Scan finds it
	Order time.Time // in the years 1 to 9999 of UTC, to the nanosecond

	// Rev is the revision. The creator chooses the first one with [NewRev] and the
	// store keeps it as given; every replace makes it one more. So no revision comes
	// back for a key that was removed and created anew, and no store has to remember
	// what it removed. Zero is that of a record that isn't there.
	Rev uint64

	// Due is when work is to be done for a record of LaneOpen; zero means that none
	// is by time. Other lanes keep it and don't look at it. It has Order's range.
	Due time.Time

	// Head is the small part that changes; Request and Response are the bodies,
	// kept apart from it so that a change of state doesn't rewrite them. In a
	// Replace, a nil body leaves what is stored and an empty one removes it.
	Head, Request, Response []byte

	// Damage is what is wrong with a stored record; it is [ErrCorrupt]. Only stores
	// set it.
	Damage error

	// Cursor is where a scan goes on behind this record. Only Scan sets it.
	Cursor Cursor
}

// Found tells whether there is such a record, damaged or not.
func (r Record) Found() bool { return r.Rev != 0 || r.Damage != nil }

// NewRev returns the revision for a record that is to be created: a random number of
// 62 bits, never 0.
func NewRev() uint64 {
	for {
		var b [8]byte
		rand.Read(b[:]) // never fails
		if rev := binary.BigEndian.Uint64(b[:]) >> 2; rev != 0 {
			return rev
		}
	}
}

// Cursor is a place between the records of a scan, in a form of the store's own. The
// empty one is before the first.
type Cursor string

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
	// OpCreate adds a record with the revision Rev, which must not be zero. Its
	// scope and key, and its scope and name if it has a name, must not be taken.
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

	// Token is that of the claim under which the change is made, "" for none. If
	// the claim isn't held any more, the whole commit is [ErrClaimLost].
	Token string
}

// Ref says which record to read.
type Ref struct {
	Scope, Key, Name string
	Bodies           bool // Request and Response too
}

// Query says what to scan: the records of one lane, of one scope or of all, by Order,
// then by key, then by scope; or those that are due, by Due, key and scope.
type Query struct {
	Scope     string
	AllScopes bool // whatever Scope says
	Lane      Lane
	Until     time.Time // by Order: the last one wanted; zero: no limit

	// Due, if not zero, asks for the records of LaneOpen whose Due is set and not
	// after it. Lane must be LaneOpen then, and Until isn't looked at.
	Due time.Time

	After Cursor // of a record of an earlier scan by the same query, to go on behind it
	Limit int    // the most records to yield; zero: no limit; less is ErrInvalid
}

// Claim is the right to drive one entry.
type Claim interface {
	// Token names this claim among all that the store ever gave. It is never "".
	Token() string

	// Contended tells whether another Claim waits for this one now. It may
	// overlook waiters of other processes.
	Contended() bool

	// Lost is closed when the right was lost before Release, in stores that
	// work with leases. It may be nil. From then on commits under Token are
	// ErrClaimLost.
	Lost() <-chan struct{}

	// Release gives the right to the next waiter. A second Release does nothing.
	// From then on commits under Token are ErrClaimLost.
	Release()
}

// Sighting is what a Keystore concludes from the clocks it has seen.
type Sighting struct {
	Now   time.Time     // the time by which windows, ages and waits run; see Keystore.Clock
	Epoch uint64        // how often the clock was set back
	Age   time.Duration // time the store has lived through; see Keystore.Clock
}
