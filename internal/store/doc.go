// Package store has the two keystores of package idem: the journal, one bbolt file that
// one process has open at a time, and one in memory. A commit is worked out on a stage
// before anything is written; claims, and what is known of the clock, live in memory.
package store

import (
	"fmt"

	"github.com/idem-go/idem/keystore"
)

// invalid is the error for what no state of the store could make right.
func invalid(field, why string) error {
	return fmt.Errorf("%w %s: %s", keystore.ErrInvalid, field, why)
}
