// Package filelock locks a journal's file as bbolt does, tells who holds the lock where
// the system says, and makes names in a directory durable.
package filelock
