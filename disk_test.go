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
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
)

// diskGate holds the requests of slow calls until it is opened.
type diskGate struct {
	http.RoundTripper
	arrived chan struct{}
	open    chan struct{}
}

func (g *diskGate) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	if bytes.Contains(body, []byte(`"slow-`)) {
		select {
		case g.arrived <- struct{}{}:
			<-g.open
		case <-g.open:
		}
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	return g.RoundTripper.RoundTrip(req)
}

// diskFill enqueues until the journal is full, and returns the names.
func diskFill(t *testing.T, c *idem.Client) (names []string) {
	t.Helper()
	for i := range 20_000 {
		name := fmt.Sprintf("fill-%d", i)
		_, err := c.Enqueue(diskRequest(name, 2000))
		if err != nil {
			require.ErrorIs(t, err, idem.ErrFull)
			return names
		}
		names = append(names, name)
	}
	t.Fatal("the journal is never full")
	return nil
}

// diskIsFull lets calls be under way while the disk fills up: new intents are refused
// before a send, those under way settle or stay Pending, and with room again all goes on.
func diskIsFull(t *testing.T, ks *idem.BoltKeystore, fill func(*idem.Client) []string, room func(c *idem.Client, filled []string)) {
	t.Helper()
	const slow = 6
	srv := mockserver.New(nil)
	defer srv.Close()
	gate := &diskGate{srv.Transport(), make(chan struct{}), make(chan struct{})}
	opts := crashOptions()
	opts.Base = gate
	c, err := idem.New(ks, opts)
	require.NoError(t, err)
	defer c.Close()

	results := make([]idem.Result, slow)
	var calls sync.WaitGroup
	for i := range slow {
		calls.Go(func() {
			req := diskRequest(fmt.Sprintf("slow-%d", i), 500)
			_ = crashDo(c, req.WithContext(idem.WithResult(req.Context(), &results[i])))
		})
	}
	for range slow {
		<-gate.arrived
	}
	filled := fill(c)
	for _, ctx := range []context.Context{context.Background(), idem.WithIntent(context.Background(), "late")} {
		resp, err := c.Do(crashRequest(ctx, "http://api.example", `{"id":"late","note":"`+strings.Repeat("x", 2000)+`"}`))
		require.ErrorIs(t, err, idem.ErrFull)
		require.NotEqual(t, idem.FateDone, idem.FateOf(resp, err))
	}
	require.Empty(t, srv.Keys("late"), "refused before a send")
	close(gate.open)
	calls.Wait()
	for i, r := range results {
		require.NotEqual(t, idem.FateNotDone, r.Fate, "slow-%d: %v", i, r.Err)
	}

	room(c, filled)
	_, err = c.Resume(context.Background(), nil)
	require.NoError(t, err)
	require.Zero(t, crashPending(c))
	for i := range slow {
		err := crashDo(c, diskRequest(fmt.Sprintf("slow-%d", i), 500))
		if !errors.Is(err, idem.ErrBodyTooLarge) { // the fate was kept, the answer had no room
			require.NoError(t, err)
		}
		crashLedger(t, srv, fmt.Sprintf("slow-%d", i), 1)
	}
	require.NoError(t, crashDo(c, diskRequest("late", 2000)))
	crashLedger(t, srv, "late", 1)
	for _, name := range filled {
		crashLedger(t, srv, name, 1)
	}
}

func TestCallsUnderWayEndWellInAJournalAtItsLimit(t *testing.T) {
	ks := openJournal(t, journalPath(t), &idem.KeystoreOptions{MaxSize: 1 << 20})
	diskIsFull(t, ks,
		func(c *idem.Client) []string { return diskFill(t, c) },
		func(c *idem.Client, filled []string) {
			// What is queued is delivered, and its names are given up: that gives space back.
			_, err := c.Resume(context.Background(), nil)
			require.NoError(t, err)
			for _, name := range filled {
				require.NoError(t, c.Forget(context.Background(), name))
			}
		})
}

// diskReplacements are what people do to a file that is in use.
var diskReplacements = map[string]func(path string) error{
	"removed":    os.Remove,
	"moved away": func(path string) error { return os.Rename(path, path+".old") },
	"replaced by a backup": func(path string) error {
		data, err := os.ReadFile(path)
		return errors.Join(err, os.WriteFile(path+".backup", data, 0o600), os.Rename(path+".backup", path))
	},
}

// What a journal says is durable must be where the next process looks for it.
func TestAJournalWhoseFileIsReplacedSendsNothingMore(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a file that is open can't be replaced there")
	}
	for how, replace := range diskReplacements {
		t.Run(how, func(t *testing.T) {
			srv := mockserver.New(nil)
			defer srv.Close()
			opts := crashOptions()
			opts.Base = srv.Transport()
			path := journalPath(t)
			c, err := idem.Open(path, opts)
			require.NoError(t, err)
			defer c.Close()
			require.NoError(t, crashDo(c, diskRequest("before", 10)))
			require.NoError(t, replace(path))

			err = crashDo(c, diskRequest("after", 10))
			require.ErrorContains(t, err, "takes no writes until it is opened anew")
			require.Empty(t, srv.Keys("after"), "nothing is sent")
			require.NoError(t, c.Close())

			// A new process finds what is under the path, and nothing is paid twice.
			c, err = idem.Open(path, opts)
			require.NoError(t, err)
			defer c.Close()
			require.NoError(t, crashDo(c, diskRequest("after", 10)))
			crashLedger(t, srv, "after", 1)
		})
	}
}

// diskGolden are journals as earlier releases left them: one more for each version of
// the records. IDEM_GOLDEN=write makes the one of this release where it is missing.
const diskGolden = "testdata/journal-1.gz"

func TestAJournalOfEachRecordVersionOpensAndResumes(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("bbolt's numbers are in the machine's order")
	}
	if os.Getenv("IDEM_GOLDEN") == "write" {
		synctest.Test(t, diskWriteGolden)
	}
	golden, err := filepath.Glob("testdata/journal-*.gz")
	require.NoError(t, err)
	require.Contains(t, golden, filepath.FromSlash(diskGolden))
	for _, file := range golden {
		t.Run(filepath.Base(file), func(t *testing.T) {
			path := journalPath(t)
			require.NoError(t, os.WriteFile(path, diskUnzip(t, file), 0o600))
			synctest.Test(t, func(t *testing.T) { diskOpenGolden(t, path) })
		})
	}
}

func diskUnzip(t *testing.T, file string) []byte {
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

// diskGoldenKeys are the keys under which the golden journal holds its names.
var diskGoldenKeys = map[string]idem.Key{
	"done": "golden-done", "refused": "golden-refused", "lost": "golden-lost", "queued": "golden-queued",
	"reserved": "golden-reserved", "abandoned": "golden-abandoned",
}

func diskGoldenContext(name string) context.Context {
	return idem.WithKey(idem.WithIntent(context.Background(), name), diskGoldenKeys[name])
}

func diskGoldenRequest(name string) *http.Request {
	return crashRequest(diskGoldenContext(name), "http://api.example", fmt.Sprintf(`{"id":%q}`, name))
}

func diskGoldenOptions(srv *mockserver.Server) *idem.Options {
	opts := crashOptions()
	opts.Scope, opts.Account, opts.Base = "golden", "acct-1", srv.Transport()
	opts.Retry.MaxAttempts = 1
	return opts
}

// diskWriteGolden leaves one entry of each kind.
func diskWriteGolden(t *testing.T) {
	srv := mockserver.New(nil)
	defer srv.Close()
	path := journalPath(t)
	c, err := idem.Open(path, diskGoldenOptions(srv))
	require.NoError(t, err)
	require.NoError(t, crashDo(c, diskGoldenRequest("done")))
	for name, fault := range map[string]mockserver.Fault{
		"refused": {Kind: mockserver.FaultStatus, Status: 422}, "lost": {Kind: mockserver.FaultReset}, "abandoned": {Kind: mockserver.FaultReset},
	} {
		srv.Script(fault)
		require.Error(t, crashDo(c, diskGoldenRequest(name)))
	}
	require.NoError(t, c.Abandon(context.Background(), diskGoldenKeys["abandoned"], "a test"))
	_, err = c.Enqueue(diskGoldenRequest("queued"))
	require.NoError(t, err)
	_, err = c.Reserve(diskGoldenContext("reserved"), "reserved", []byte("payload"))
	require.NoError(t, err)
	require.NoError(t, c.Close())

	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var z bytes.Buffer
	w, err := gzip.NewWriterLevel(&z, gzip.BestCompression)
	require.NoError(t, err)
	_, err = w.Write(data)
	require.NoError(t, errors.Join(err, w.Close(), os.MkdirAll("testdata", 0o755)))
	if _, err := os.Stat(diskGolden); err == nil {
		return // it is what an earlier release left, and stays
	}
	require.NoError(t, os.WriteFile(diskGolden, z.Bytes(), 0o644))
}

// diskOpenGolden finds every entry as it was left, a minute later, and goes on with what
// is open under the keys of then.
func diskOpenGolden(t *testing.T, path string) {
	time.Sleep(time.Minute)
	srv := mockserver.New(nil)
	defer srv.Close()
	c, err := idem.Open(path, diskGoldenOptions(srv))
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
		require.Equal(t, diskGoldenKeys[name], e.Key)
		require.Equal(t, want.state, e.State, name)
		require.Equal(t, want.fate, e.Fate, name)
	}
	e, err := c.LookupKey(context.Background(), diskGoldenKeys["abandoned"])
	require.NoError(t, err)
	require.Equal(t, idem.StateAbandoned, e.State)

	resp, err := c.Do(diskGoldenRequest("done"))
	require.NoError(t, err)
	require.Contains(t, resumeBody(t, resp), `"id":"done"`)
	require.Zero(t, len(srv.Requests()), "recalled")
	report, err := c.Resume(context.Background(), nil)
	require.NoError(t, err)
	require.Equal(t, idem.Report{Done: 2, Unknown: 1}, report) // the reservation is made elsewhere
	for _, name := range []string{"lost", "queued"} {
		require.Equal(t, []string{string(diskGoldenKeys[name])}, srv.Keys(name))
	}
}
