// Package limit keeps a client from doing harm to a provider that is in trouble. It has
// three parts. Circuits stop all attempts at an origin that fails most of them, until a
// probe succeeds. Budgets bound how many retries an origin gets, whoever makes them.
// Delays space out the retries of one intent, at random, so that many clients don't
// come back at once.
//
// The package decides nothing about an intent and knows no policy's defaults: it gets
// numbers and tells whether to go on, or when. It starts no goroutine, and its memory is
// bounded however many origins there are. It holds all use of gobreaker and backoff.
package limit
