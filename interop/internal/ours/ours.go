// Package ours opens the client under test and the server that it calls.
package ours

import (
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
)

// Journal is the path of a journal that isn't there yet.
func Journal(t testing.TB) string { return filepath.Join(t.TempDir(), "idem.db") }

// Open opens a client of at most so many attempts a pass, with short waits, until the
// test ends. What else it is comes from opts.
func Open(t testing.TB, path string, attempts int, opts idem.Options) *idem.Client {
	opts.Retry = idem.RetryPolicy{MaxAttempts: attempts, BaseDelay: time.Millisecond, NoBudget: true}
	c, err := idem.Open(path, &opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// Client is Open with a journal of its own.
func Client(t testing.TB, attempts int) *idem.Client {
	return Open(t, Journal(t), attempts, idem.Options{})
}

// Lost is a fault of every request: it takes effect, its answer is lost.
func Lost() mockserver.Fault { return mockserver.Fault{Kind: mockserver.FaultDrop, Times: -1} }

// Busy is a fault of every request: an answer of 503 with this body, nothing done.
func Busy(body string) mockserver.Fault {
	return mockserver.Fault{
		Kind: mockserver.FaultStatus, Status: http.StatusServiceUnavailable, Body: body, Times: -1,
		Header: http.Header{"Content-Type": {"application/json"}},
	}
}
