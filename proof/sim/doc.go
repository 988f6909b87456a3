// Package sim runs random programs of concurrent calls against the library, over a
// simulated keystore that is slow, fails, loses leases and dies, and a simulated
// provider that keeps a ledger. Time is fake; a program is made from one number.
//
// IDEM_STEPS is how many calls to run, IDEM_SEED at which number to begin. A program
// that breaks a rule is cut down and printed with its seed.
package sim
