package idem_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
)

// resumeWorld is a provider, a journal and a client in one bubble. One attempt is
// one pass and the breaker is off, so that a scripted fault is a whole pass's fate.
type resumeWorld struct {
	*testing.T
	srv  *mockserver.Server
	path string
	ks   *idem.BoltKeystore
	c    *idem.Client
	opts idem.Options
}

func inResumeWorld(t *testing.T, opts idem.Options, f func(t *testing.T, w *resumeWorld)) {
	t.Helper()
	inResumeWorldAt(t, t.TempDir()+"/journal.db", opts, f)
}

// inResumeWorldAt uses a journal that an earlier bubble may have left. Each bubble
// starts at midnight UTC of 2000-01-01, so a second one is a clock that was set back.
func inResumeWorldAt(t *testing.T, path string, opts idem.Options, f func(t *testing.T, w *resumeWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &resumeWorld{T: t, srv: mockserver.New(nil), path: path, opts: opts}
		if w.opts.Retry == (idem.RetryPolicy{}) {
			w.opts.Retry = idem.RetryPolicy{MaxAttempts: 1}
		}
		w.opts.Breaker.Disabled = w.opts.Breaker.MinRequests == 0
		if w.opts.Base == nil {
			w.opts.Base = w.srv.Transport()
		}
		w.open()
		defer w.srv.Close()
		defer func() { w.close() }()
		f(t, w)
	})
}

func (w *resumeWorld) open() {
	w.Helper()
	var err error
	w.ks, err = idem.OpenKeystore(w.path, nil)
	require.NoError(w, err)
	w.c, err = idem.New(w.ks, &w.opts)
	if err != nil {
		w.ks.Close()
	}
	require.NoError(w, err)
}

func (w *resumeWorld) close() {
	w.Helper()
	require.NoError(w, w.c.Close())
	require.NoError(w, w.ks.Close())
}

// restart ends the client in good order and starts one with changed options.
func (w *resumeWorld) restart(change func(*idem.Options)) {
	w.Helper()
	w.close()
	if change != nil {
		change(&w.opts)
	}
	w.open()
}

// crash cuts the journal off first, so that calls under way write nothing more.
func (w *resumeWorld) crash() {
	w.Helper()
	require.NoError(w, w.ks.Close())
	w.c.Close()
	w.open()
}

func resumeNamed(name string) context.Context {
	return idem.WithIntent(context.Background(), name)
}

func resumeReq(ctx context.Context, id string) *http.Request {
	req, err := http.NewRequestWithContext(ctx, "POST", "http://api.example/v1/payments", strings.NewReader(`{"id":"`+id+`"}`))
	if err != nil {
		panic(err)
	}
	req.Header.Set("Content-Type", "application/json")
	return req
}

// do calls under the name, with the name as business value.
func (w *resumeWorld) do(name string) (*http.Response, error) {
	w.Helper()
	return w.c.Do(resumeReq(resumeNamed(name), name))
}

// lose leaves the name Pending after a request that was lost before its effect.
func (w *resumeWorld) lose(names ...string) {
	w.Helper()
	for _, name := range names {
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultReset})
		resp, err := w.do(name)
		require.Error(w, err)
		require.Equal(w, idem.FateUnknown, idem.FateOf(resp, err), "%v", err)
		require.Equal(w, idem.StatePending, w.entry(name).State)
		time.Sleep(time.Second) // so that entries differ in age
	}
}

func (w *resumeWorld) enqueue(name string) idem.Key {
	w.Helper()
	key, err := w.c.Enqueue(resumeReq(resumeNamed(name), name))
	require.NoError(w, err)
	return key
}

func (w *resumeWorld) entry(name string) idem.Entry {
	w.Helper()
	e, err := w.c.Lookup(context.Background(), name)
	require.NoError(w, err)
	return e
}

func (w *resumeWorld) resume() idem.Report {
	w.Helper()
	r, err := w.c.Resume(context.Background(), nil)
	require.NoError(w, err)
	return r
}

// run starts Run; stop ends it and returns its error.
func (w *resumeWorld) run() (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.c.Run(ctx) }()
	synctest.Wait()
	return func() error {
		cancel()
		return <-ended
	}
}

// values lists the business values of all requests, in the order of their arrival.
func (w *resumeWorld) values() []string {
	var out []string
	for _, r := range w.srv.Requests() {
		out = append(out, r.Value)
	}
	return out
}

func (w *resumeWorld) sent() int { return len(w.srv.Requests()) }

// resumeError is err as an *Error, which every failed call returns.
func resumeError(t testing.TB, err error) *idem.Error {
	t.Helper()
	var e *idem.Error
	require.ErrorAs(t, err, &e)
	return e
}

// resumeLog collects what hooks heard, from any goroutine.
type resumeLog struct {
	mu    sync.Mutex
	lines []string
}

func (l *resumeLog) add(s string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, s)
}

func (l *resumeLog) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.lines...)
}
