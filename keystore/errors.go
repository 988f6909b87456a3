package keystore

import "errors"

// The errors of a store. Their texts are those of package idem, whose variables of the
// same names they are.
var (
	// ErrInvalid means that what was asked for makes no sense, whatever the store holds.
	ErrInvalid = errors.New("idem: invalid")

	// ErrNotFound means that there is no such record.
	ErrNotFound = errors.New("idem: not found")

	// ErrConflict means that a change's condition doesn't hold, or that somebody else
	// has the claim. Nothing was applied.
	ErrConflict = errors.New("idem: conflict")

	// ErrClosed means that the store was closed.
	ErrClosed = errors.New("idem: closed")

	// ErrLocked means that another process holds the store.
	ErrLocked = errors.New("idem: journal locked")

	// ErrCorrupt means that the store, or a record in it, is damaged.
	ErrCorrupt = errors.New("idem: journal corrupt")

	// ErrFull means that there is no room. Nothing was written.
	ErrFull = errors.New("idem: journal full")

	// ErrUnavailable means that the store can't be reached now, and may be again
	// later. Of a commit nothing was applied, unless it is ErrUncertain too.
	ErrUnavailable = errors.New("idem: keystore unavailable")

	// ErrUncertain means that nobody knows whether a commit was applied.
	ErrUncertain = errors.New("idem: commit uncertain")

	// ErrClaimLost means that the claim under which a change was to be made isn't
	// held any more. Nothing was applied.
	ErrClaimLost = errors.New("idem: claim lost")
)
