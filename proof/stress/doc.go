// Package stress has only tests: all calls of a client at once, through faults and Close,
// of which none may happen twice, and nothing may be left behind. With IDEM_STRESS=all
// there are more of them.
package stress
