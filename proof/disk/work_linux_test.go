//go:build linux && (amd64 || arm64)

package disk

import (
	"bytes"
	"context"
	"encoding/gob"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/codec"
	"github.com/idem-go/idem/mockserver"
	"github.com/idem-go/idem/proof/rig"
	"github.com/idem-go/idem/proof/syscalls"
)

// powerJobEnv says what a child process is to record, as JSON.
const powerJobEnv = "IDEM_POWER_JOB"

type powerJob struct {
	Dir    string // where the journal is
	Out    string // the log
	NoSync bool
}

// TestPowerChild is not a test: it is what a recorded child process runs.
func TestPowerChild(t *testing.T) {
	text := os.Getenv(powerJobEnv)
	if text == "" {
		t.Skip("runs only as a child process of other tests")
	}
	var job powerJob
	require.NoError(t, json.Unmarshal([]byte(text), &job))
	log := &powerLog{Notes: map[string]int{}}
	var st unix.Stat_t
	require.NoError(t, unix.Stat(job.Dir, &st))
	log.Dir = st.Ino
	if err := syscalls.Watch(job.Dir, log.op); err != nil {
		require.NoError(t, os.WriteFile(job.Out+".skip", []byte(err.Error()), 0o600))
		return
	}
	synctest.Test(t, func(t *testing.T) {
		w := &powerWork{T: t, log: log, job: job}
		w.run()
	})
	f, err := os.Create(job.Out)
	require.NoError(t, err)
	log.mu.Lock() // the journal is closed: what is still watched is over
	require.NoError(t, gob.NewEncoder(f).Encode(log))
	require.NoError(t, f.Close())
	os.Exit(0) // the goroutine that watches can't be stopped
}

// powerRecord lets a child work and returns what it did, or skips the test where the
// system doesn't let a process be watched.
func powerRecord(t *testing.T, noSync bool) *powerLog {
	t.Helper()
	// A directory of the disk, so that names and syncs are not those of a tmpfs.
	job := powerJob{Dir: t.TempDir(), Out: filepath.Join(t.TempDir(), "log"), NoSync: noSync}
	var err error
	job.Dir, err = filepath.EvalSymlinks(job.Dir)
	require.NoError(t, err)
	text, err := json.Marshal(job)
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0], "-test.run=^TestPowerChild$")
	cmd.Env = append(os.Environ(), powerJobEnv+"="+string(text))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	if why, err := os.ReadFile(job.Out + ".skip"); err == nil {
		t.Skipf("system calls can't be watched here: %s", why)
	}
	f, err := os.Open(job.Out)
	require.NoError(t, err)
	defer f.Close()
	log := new(powerLog)
	require.NoError(t, gob.NewDecoder(f).Decode(log))
	return log
}

// powerWork is the work that is recorded: every kind of call, and all that happens to
// the file in its life.
type powerWork struct {
	*testing.T
	log  *powerLog
	job  powerJob
	srv  *mockserver.Server
	bank *mockserver.Server
	ks   journal
	c    *idem.Client // of scope "pay"
	b    *idem.Client // of scope "batch"
}

const (
	powerScope = "pay"
	powerBatch = "batch"
)

func (w *powerWork) run() {
	w.srv = mockserver.New(nil)
	defer w.srv.Close()
	w.bank = mockserver.New(&mockserver.Config{Batch: &mockserver.Batch{}})
	defer w.bank.Close()
	w.part("creation", w.open)
	w.part("calls", func() {
		for i := range 6 {
			w.do(fmt.Sprintf("one-%d", i), 200)
		}
	})
	w.part("growth", func() { w.many("many", 16, 3000) })
	w.part("lost answers", w.lose)
	w.part("queue", w.queue)
	w.part("batch", w.payouts)
	w.part("people", w.people)
	w.part("compaction", w.compact)
	w.part("after compaction", func() { w.many("after", 8, 900) })
	w.part("reopening", func() { w.close(); w.open() })
	w.part("second life", func() { w.many("later", 8, 900) })
	w.part("sweep", w.sweep)
	w.part("compaction of what is left", w.compact)
	w.part("close", w.close)
}

func (w *powerWork) part(name string, f func()) {
	w.log.note(name)
	f()
}

// powerOptions keep results for hardly longer than the window.
func powerOptions(scope string, base http.RoundTripper) *idem.Options {
	opts := rig.Options()
	opts.Scope, opts.Base = scope, base
	opts.Retry.MaxAttempts = 3
	opts.Keep = 25 * time.Hour
	opts.Codecs = map[string]idem.BatchCodec{"payouts": codec.JSONArray{URL: "http://bank.example/payouts", HonoursKeys: true}}
	return opts
}

func (w *powerWork) open() {
	var err error
	w.ks, err = openWith(filepath.Join(w.job.Dir, "journal"), w.job.NoSync)
	require.NoError(w, err)
	w.c, err = idem.New(w.ks, powerOptions(powerScope, powerBase{w.srv.Transport(), w.mark}))
	require.NoError(w, err)
	opts := powerOptions(powerBatch, powerBatchBase{w.bank.Transport(), w.mark})
	w.b, err = idem.New(w.ks, opts)
	require.NoError(w, err)
}

func (w *powerWork) close() {
	require.NoError(w, w.c.Close())
	require.NoError(w, w.b.Close())
	require.NoError(w, w.ks.Close())
}

func (w *powerWork) mark(m powerMark) {
	if m.Scope == "" {
		m.Scope = powerScope
	}
	w.log.mark(m)
}

// powerBase marks an intent as held before its first byte leaves.
type powerBase struct {
	http.RoundTripper
	mark func(powerMark)
}

func (b powerBase) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	var value struct{ ID string }
	if err := json.Unmarshal(body, &value); err != nil {
		return nil, err
	}
	b.mark(powerMark{Name: value.ID, Key: req.Header.Get("Idempotency-Key")})
	req.Body = io.NopCloser(bytes.NewReader(body))
	return b.RoundTripper.RoundTrip(req)
}

// powerBatchBase marks the items of a call in the same way.
type powerBatchBase struct {
	http.RoundTripper
	mark func(powerMark)
}

func (b powerBatchBase) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	var lines []struct {
		ID  string `json:"id"`
		Key string `json:"idempotency_key"`
	}
	if err := json.Unmarshal(body, &lines); err != nil {
		return nil, err
	}
	for _, l := range lines {
		b.mark(powerMark{Scope: powerBatch, Name: idem.ItemName("run", l.ID), Key: l.Key})
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	return b.RoundTripper.RoundTrip(req)
}

// payday is n items to pay.
func payday(n int) iter.Seq2[idem.Item, error] {
	return func(yield func(idem.Item, error) bool) {
		for i := range n {
			if !yield(idem.Item{ID: fmt.Sprintf("p%03d", i), Body: fmt.Appendf(nil, `{"amount":%d}`, i+1)}, nil) {
				return
			}
		}
	}
}

// powerDo makes a call, and marks its result as soon as it has returned.
func powerDo(c *idem.Client, name string, size int, mark func(powerMark)) error {
	resp, err := c.Do(rig.Sized(name, size))
	if err != nil {
		return err
	}
	r, _ := idem.ResultOf(resp)
	body, err := io.ReadAll(resp.Body)
	if err == nil {
		mark(powerMark{Name: name, Key: string(r.Key), Done: true, Body: string(body)})
	}
	return err
}

// do makes a call that may be lost.
func (w *powerWork) do(name string, size int) { _ = powerDo(w.c, name, size, w.mark) }

// many makes calls of which several run at once, so that they share commits.
func (w *powerWork) many(prefix string, n, size int) {
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for i := worker; i < n; i += 4 {
				w.do(fmt.Sprintf("%s-%d", prefix, i), size)
			}
		})
	}
	wg.Wait()
}

// lose leaves some calls Pending and finds out about them later.
func (w *powerWork) lose() {
	for i := range 4 {
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultDrop, Times: 3})
		w.do(fmt.Sprintf("lost-%d", i), 300)
	}
	w.srv.Heal()
	w.resume()
	for i := range 4 {
		w.do(fmt.Sprintf("lost-%d", i), 300)
	}
}

// resume finds out about all that is open.
func (w *powerWork) resume() {
	_, err := w.c.Resume(context.Background(), nil)
	require.NoError(w, err)
}

func (w *powerWork) queue() {
	for i := range 5 {
		name := fmt.Sprintf("queued-%d", i)
		key, err := w.c.Enqueue(rig.Sized(name, 100))
		require.NoError(w, err)
		w.mark(powerMark{Name: name, Key: string(key)})
	}
	w.resume()
}

func (w *powerWork) payouts() {
	for r, err := range w.b.Batch(context.Background(), idem.Batch{Name: "run", Items: payday(16), Codec: "payouts", MaxItems: 6}) {
		require.NoError(w, err)
		require.Equal(w, idem.FateDone, r.Fate)
		w.mark(powerMark{Scope: powerBatch, Name: idem.ItemName("run", r.ID), Key: string(r.Key), Done: true, Body: string(r.Body)})
	}
}

// people reserve, settle, abandon and forget.
func (w *powerWork) people() {
	ctx := context.Background()
	for i := range 3 {
		name := fmt.Sprintf("reserved-%d", i)
		key, err := w.c.Reserve(ctx, name, []byte("payload"))
		require.NoError(w, err)
		w.mark(powerMark{Name: name, Key: string(key)})
		if i == 0 {
			require.NoError(w, w.c.Settle(ctx, key, idem.Finding{Fate: idem.FateDone, Status: 200, Body: []byte("found")}))
			w.mark(powerMark{Name: name, Key: string(key), Done: true, Body: "found"})
		}
	}
	w.mark(powerMark{Name: "one-0"}) // forgotten, or not yet
	require.NoError(w, w.c.Forget(ctx, "one-0"))
	w.do("one-0", 250)
}

func (w *powerWork) compact() { require.NoError(w, w.ks.Compact(context.Background())) }

// sweep lets what is settled come of age: it becomes a tombstone without a body.
func (w *powerWork) sweep() {
	trimmed := map[string]powerMark{}
	for _, m := range w.log.Marks {
		if m.Scope == powerScope {
			m.Body = ""
			trimmed[m.Name] = m
		}
	}
	for _, m := range trimmed {
		w.mark(m)
	}
	for day := range 3 { // the store counts a gap as a day at most
		time.Sleep(24 * time.Hour)
		_ = rig.Do(w.c, rig.Sized(fmt.Sprintf("day-%d", day), 100))
	}
}
