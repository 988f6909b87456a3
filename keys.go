package idem

// Key is an intent's identity at the provider. It is opaque and never carries
// personal data; within a scope it is unique.
type Key string

// Fate is what is known of an intent's effect.
type Fate int

// The fates. The zero value claims nothing.
const (
	FateUnknown Fate = iota // it may have happened
	FateNotDone             // it did not happen, and nothing sent so far can make it happen
	FateDone                // it happened
)

// String returns "Unknown", "NotDone" or "Done".
func (f Fate) String() string {
	switch f {
	case FateNotDone:
		return "NotDone"
	case FateDone:
		return "Done"
	}
	return "Unknown"
}
