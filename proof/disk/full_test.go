package disk

import (
	"bytes"
	"context"
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

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
	"github.com/idem-go/idem/proof/rig"
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
		_, err := c.Enqueue(rig.Sized(name, 2000))
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
	opts := rig.Options()
	opts.Base = gate
	c, err := idem.New(ks, opts)
	require.NoError(t, err)
	defer c.Close()

	results := make([]idem.Result, slow)
	var calls sync.WaitGroup
	for i := range slow {
		calls.Go(func() {
			req := rig.Sized(fmt.Sprintf("slow-%d", i), 500)
			_ = rig.Do(c, req.WithContext(idem.WithResult(req.Context(), &results[i])))
		})
	}
	for range slow {
		<-gate.arrived
	}
	filled := fill(c)
	for _, ctx := range []context.Context{context.Background(), idem.WithIntent(context.Background(), "late")} {
		resp, err := c.Do(rig.Request(ctx, "http://api.example", `{"id":"late","note":"`+strings.Repeat("x", 2000)+`"}`))
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
	require.Zero(t, rig.Pending(c))
	for i := range slow {
		err := rig.Do(c, rig.Sized(fmt.Sprintf("slow-%d", i), 500))
		if !errors.Is(err, idem.ErrBodyTooLarge) { // the fate was kept, the answer had no room
			require.NoError(t, err)
		}
		rig.Ledger(t, srv, fmt.Sprintf("slow-%d", i), 1)
	}
	require.NoError(t, rig.Do(c, rig.Sized("late", 2000)))
	rig.Ledger(t, srv, "late", 1)
	for _, name := range filled {
		rig.Ledger(t, srv, name, 1)
	}
}

func TestCallsUnderWayEndWellInAJournalAtItsLimit(t *testing.T) {
	ks := openJournal(t, filepath.Join(t.TempDir(), "journal"), &idem.KeystoreOptions{MaxSize: 1 << 20})
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
			opts := rig.Options()
			opts.Base = srv.Transport()
			path := filepath.Join(t.TempDir(), "journal")
			c, err := idem.Open(path, opts)
			require.NoError(t, err)
			defer c.Close()
			require.NoError(t, rig.Do(c, rig.Sized("before", 10)))
			require.NoError(t, replace(path))

			err = rig.Do(c, rig.Sized("after", 10))
			require.ErrorContains(t, err, "takes no writes until it is opened anew")
			require.Empty(t, srv.Keys("after"), "nothing is sent")
			require.NoError(t, c.Close())

			// A new process finds what is under the path, and nothing is paid twice.
			c, err = idem.Open(path, opts)
			require.NoError(t, err)
			defer c.Close()
			require.NoError(t, rig.Do(c, rig.Sized("after", 10)))
			rig.Ledger(t, srv, "after", 1)
		})
	}
}
