package idem

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// DamageRecord flips a bit of a stored record.
func DamageRecord(t testing.TB, s *BoltKeystore, scope, key string) {
	require.NoError(t, s.journal.DamageRecord(scope, key))
}

// Transactions returns how many transactions the journal has written.
func Transactions(t testing.TB, s *BoltKeystore) int {
	n, err := s.journal.Transactions()
	require.NoError(t, err)
	return n
}

// FailCommits lets every later commit fail as if the disk did. With written it
// is on the disk all the same.
func FailCommits(s *BoltKeystore, err error, written bool) { s.journal.FailCommits(err, written) }

// SlowCommits calls f before every later commit reaches the disk.
func SlowCommits(s *BoltKeystore, f func()) { s.journal.SlowCommits(f) }
