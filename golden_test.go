package idem_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
)

// goldenFile are journals as earlier releases left them: one more for each version of
// the records. IDEM_GOLDEN=write makes the one of this release where it is missing.
const goldenFile = "testdata/journal-1.gz"

func TestAJournalOfEachRecordVersionOpensAndResumes(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("bbolt's numbers are in the machine's order")
	}
	if os.Getenv("IDEM_GOLDEN") == "write" {
		synctest.Test(t, writeGolden)
	}
	golden, err := filepath.Glob("testdata/journal-*.gz")
	require.NoError(t, err)
	require.Contains(t, golden, filepath.FromSlash(goldenFile))
	for _, file := range golden {
		t.Run(filepath.Base(file), func(t *testing.T) {
			path := journalPath(t)
			require.NoError(t, os.WriteFile(path, unzip(t, file), 0o600))
			synctest.Test(t, func(t *testing.T) { openGolden(t, path) })
		})
	}
}

func unzip(t *testing.T, file string) []byte {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	data, err := io.ReadAll(z)
	require.NoError(t, err)
	return data
}

// goldenKeys are the keys under which the golden journal holds its names.
var goldenKeys = map[string]idem.Key{
	"done": "golden-done", "refused": "golden-refused", "lost": "golden-lost", "queued": "golden-queued",
	"reserved": "golden-reserved", "abandoned": "golden-abandoned",
}

func goldenContext(name string) context.Context {
	return idem.WithKey(idem.WithIntent(context.Background(), name), goldenKeys[name])
}

func goldenRequest(name string) *http.Request {
	return post(goldenContext(name), fmt.Sprintf(`{"id":%q}`, name))
}

func goldenOptions(srv *mockserver.Server) *idem.Options {
	return &idem.Options{
		Scope: "golden", Account: "acct-1", Base: srv.Transport(),
		Retry: idem.RetryPolicy{MaxAttempts: 1}, Breaker: idem.BreakerPolicy{Disabled: true},
	}
}

// writeGolden leaves one entry of each kind.
func writeGolden(t *testing.T) {
	srv := mockserver.New(nil)
	defer srv.Close()
	path := journalPath(t)
	c, err := idem.Open(path, goldenOptions(srv))
	require.NoError(t, err)
	_, err = c.Do(goldenRequest("done"))
	require.NoError(t, err)
	for name, fault := range map[string]mockserver.Fault{
		"refused": {Kind: mockserver.FaultStatus, Status: 422}, "lost": {Kind: mockserver.FaultReset}, "abandoned": {Kind: mockserver.FaultReset},
	} {
		srv.Script(fault)
		resp, err := c.Do(goldenRequest(name))
		require.NotEqual(t, idem.FateDone, idem.FateOf(resp, err))
	}
	require.NoError(t, c.Abandon(context.Background(), goldenKeys["abandoned"], "a test"))
	_, err = c.Enqueue(goldenRequest("queued"))
	require.NoError(t, err)
	_, err = c.Reserve(goldenContext("reserved"), "reserved", []byte("payload"))
	require.NoError(t, err)
	require.NoError(t, c.Close())

	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var z bytes.Buffer
	w, err := gzip.NewWriterLevel(&z, gzip.BestCompression)
	require.NoError(t, err)
	_, err = w.Write(data)
	require.NoError(t, errors.Join(err, w.Close(), os.MkdirAll("testdata", 0o755)))
	if _, err := os.Stat(goldenFile); err == nil {
		return // it is what an earlier release left, and stays
	}
	require.NoError(t, os.WriteFile(goldenFile, z.Bytes(), 0o644))
}

// openGolden finds every entry as it was left, a minute later, and goes on with what
// is open under the keys of then.
func openGolden(t *testing.T, path string) {
	time.Sleep(time.Minute)
	srv := mockserver.New(nil)
	defer srv.Close()
	c, err := idem.Open(path, goldenOptions(srv))
	require.NoError(t, err)
	defer c.Close()
	for name, want := range map[string]struct {
		state idem.State
		fate  idem.Fate
	}{
		"done": {idem.StateSettled, idem.FateDone}, "refused": {idem.StateSettled, idem.FateNotDone},
		"lost": {idem.StatePending, idem.FateUnknown}, "queued": {idem.StatePending, idem.FateUnknown},
		"reserved": {idem.StatePending, idem.FateUnknown},
	} {
		e, err := c.Lookup(context.Background(), name)
		require.NoError(t, err, name)
		require.Equal(t, goldenKeys[name], e.Key)
		require.Equal(t, want.state, e.State, name)
		require.Equal(t, want.fate, e.Fate, name)
	}
	e, err := c.LookupKey(context.Background(), goldenKeys["abandoned"])
	require.NoError(t, err)
	require.Equal(t, idem.StateAbandoned, e.State)

	resp, err := c.Do(goldenRequest("done"))
	require.NoError(t, err)
	require.Contains(t, bodyOf(t, resp), `"id":"done"`)
	require.Zero(t, len(srv.Requests()), "recalled")
	report, err := c.Resume(context.Background(), nil)
	require.NoError(t, err)
	require.Equal(t, idem.Report{Done: 2, Unknown: 1}, report) // the reservation is made elsewhere
	for _, name := range []string{"lost", "queued"} {
		require.Equal(t, []string{string(goldenKeys[name])}, srv.Keys(name))
	}
}
