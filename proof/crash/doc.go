// Package crash has only tests: child processes that die, by a kill, an exit or a panic,
// at each of the five points of a call, at each commit, and in place of each write and
// sync; then another process finds out, and the provider's ledger must show one effect.
//
// With IDEM_CRASH=all each place is died at in each way; otherwise the ways take turns.
package crash
