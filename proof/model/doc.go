// Package model runs random programs of calls, faults, clock jumps and crashes against
// the library and, beside it, against a small model of an intent's life.
//
// IDEM_STEPS is how many calls to run, IDEM_SEED which ones. A program that breaks a
// rule is shrunk and printed. IDEM_MUTANTS=all breaks the library in many ways, each of
// which a named test or the model must notice.
package model
