// Package wire has a request as bytes: where a key stands in it, how one is put there
// without changing any other byte, how it becomes an http.Request again, and what the
// headers of an answer say about waiting.
package wire

import "fmt"

// Invalid names a part of a request that can't be what it has to be.
type Invalid struct {
	Field string
	Value any // nil: not shown
	Why   string
}

func (e *Invalid) Error() string { return fmt.Sprintf("%s: %s", e.Field, e.Why) }

func invalid(field string, value any, why string) error { return &Invalid{field, value, why} }
