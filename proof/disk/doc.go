// Package disk has only tests: what a process did to its journal is recorded and cut off
// after every operation, in each way in which a disk may lose what wasn't synced; real
// file systems are cut off, fill up and fail. Whatever had been said must be there.
//
// IDEM_POWER is how often each operation is cut off in each way; without it the ways take
// turns. Mounting file systems takes root on Linux; elsewhere those tests skip.
package disk
