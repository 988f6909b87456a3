package idem_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
)

// crashJobEnv holds what a child process is to do, as JSON.
const crashJobEnv = "IDEM_CRASH_JOB"

// The ways in which a child dies. A panic runs the deferred functions first, an
// exit doesn't, a kill doesn't even let other goroutines know.
const (
	crashKill  = "kill"
	crashExit  = "exit"
	crashPanic = "panic"
)

var crashWays = []string{crashKill, crashExit, crashPanic}

// crashJob is what a child process does and where it dies.
type crashJob struct {
	Kind    string // one of crashKinds, or crashWorker
	Journal string
	URL     string
	Key     idem.Key // of Settle
	Point   int
	Nth     int // dies at the nth time that the point is passed
	Way     string

	Commit int  // dies at the nth commit instead
	After  bool // and then when it is durable
	Call   int  // dies in place of the nth call to the system that changes a file or makes it durable
}

// crashSurvived is the exit code of a child that reached its end.
const crashSurvived = 0

// crashName, crashKey and crashBody are the one intent of all kinds. The body's id
// is the business value that the mock counts.
const (
	crashName  = "order-1"
	crashKey   = idem.Key("0190b6a0-0000-7000-8000-00000000c4a5")
	crashValue = "order-1"
	crashBody  = `{"id":"order-1","amount":500}`
)

func crashRequest(ctx context.Context, url, body string) *http.Request {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/payments", strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	req.Header.Set("Content-Type", "application/json")
	return req
}

func crashOptions() *idem.Options {
	return &idem.Options{
		Retry:   idem.RetryPolicy{BaseDelay: 5 * time.Millisecond, MaxDelay: 50 * time.Millisecond, MaxAttempts: 50, NoBudget: true},
		Breaker: idem.BreakerPolicy{Disabled: true},
	}
}

// crashOpen waits for the lock of a process that has died but is not yet gone.
func crashOpen(path string, opts *idem.Options) (*idem.Client, error) {
	for range 50 {
		c, err := idem.Open(path, opts)
		if !errors.Is(err, idem.ErrLocked) {
			return c, err
		}
	}
	return nil, idem.ErrLocked
}

// crashCalls are the kinds of call, as a child and the recovery make them.
var crashCalls = map[string]func(c *idem.Client, url string) error{
	"Do named": func(c *idem.Client, url string) error {
		return crashDo(c, crashRequest(idem.WithIntent(context.Background(), crashName), url, crashBody))
	},
	"Do anonymous": func(c *idem.Client, url string) error {
		return crashDo(c, crashRequest(context.Background(), url, crashBody))
	},
	"Do with key": func(c *idem.Client, url string) error {
		return crashDo(c, crashRequest(idem.WithKey(context.Background(), crashKey), url, crashBody))
	},
	"Transport with an SDK's key": func(c *idem.Client, url string) error {
		req := crashRequest(context.Background(), url, crashBody)
		req.Header.Set("Idempotency-Key", string(crashKey))
		resp, err := c.HTTPClient().Do(req)
		return crashRead(resp, err)
	},
	"Enqueue": func(c *idem.Client, url string) error {
		_, err := c.Enqueue(crashRequest(idem.WithIntent(context.Background(), crashName), url, crashBody))
		return err
	},
	"Enqueue, Run": func(c *idem.Client, url string) error {
		_, err := c.Enqueue(crashRequest(idem.WithIntent(context.Background(), crashName), url, crashBody))
		if err != nil {
			return err
		}
		return crashRun(c)
	},
	"Resume": func(c *idem.Client, _ string) error {
		_, err := c.Resume(context.Background(), nil)
		return err
	},
	"Run": func(c *idem.Client, _ string) error { return crashRun(c) },
	"Batch with a codec": func(c *idem.Client, _ string) error {
		return crashBatch(c, idem.Batch{Codec: "json", MaxItems: 2, Concurrency: 1})
	},
	"Batch of requests": func(c *idem.Client, url string) error {
		return crashBatch(c, idem.Batch{Concurrency: 1, Request: func(ctx context.Context, it idem.Item) (*http.Request, error) {
			return crashRequest(ctx, url, string(it.Body)), nil
		}})
	},
	"Reserve": func(c *idem.Client, _ string) error {
		_, err := c.Reserve(context.Background(), crashName, []byte(crashBody))
		return err
	},
}

func crashDo(c *idem.Client, req *http.Request) error { return crashRead(c.Do(req)) }

func crashRead(resp *http.Response, err error) error {
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.ReadAll(resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusCreated {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil
}

// crashRun runs until nothing is pending.
func crashRun(c *idem.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	ran := make(chan error, 1)
	go func() { ran <- c.Run(ctx) }()
	for ctx.Err() == nil && crashPending(c) > 0 {
		time.Sleep(2 * time.Millisecond)
	}
	late := ctx.Err()
	cancel()
	return errors.Join(late, <-ran)
}

func crashPending(c *idem.Client) int {
	n := 0
	for range c.Pending(context.Background()) {
		n++
	}
	return n
}

// crashChild is the life of a child process; it returns the exit code.
const crashWorker = "worker"

func crashChild(text string) int {
	var job crashJob
	if err := json.Unmarshal([]byte(text), &job); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	switch job.Kind {
	case crashWorker:
		return crashWork(job)
	case crashBatchKind:
		return crashBatchLife(job)
	}
	c, err := crashStart(job)
	if err == nil {
		if job.Kind == "Settle" {
			err = c.Settle(context.Background(), job.Key, crashFinding())
		} else {
			err = crashCalls[job.Kind](c, job.URL)
		}
		err = errors.Join(err, c.Close())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 4
	}
	return crashSurvived
}

func crashFinding() idem.Finding {
	return idem.Finding{Fate: idem.FateDone, Status: http.StatusCreated, Header: http.Header{}, Body: []byte(`{"id":"order-1"}`)}
}

// crashStart opens the client of a child, with what will kill it.
func crashStart(job crashJob) (*idem.Client, error) {
	opts := crashOptions()
	opts.Codecs = crashCodecs(job.URL)
	switch {
	case job.Commit > 0:
		return crashAtCommit(job, opts)
	case job.Call > 0:
		if err := crashAtCall(job); err != nil {
			return nil, err
		}
	default:
		crashArm(job)
	}
	return crashOpen(job.Journal, opts)
}

// crashArm makes this process die at the job's point.
func crashArm(job crashJob) {
	var passed atomic.Int32
	idem.AtPoint(func(p int) {
		if p != job.Point || int(passed.Add(1)) != job.Nth {
			return
		}
		crashDie(job.Way)
	})
}

func crashDie(way string) {
	switch way {
	case crashKill:
		if p, err := os.FindProcess(os.Getpid()); err == nil {
			_ = p.Kill()
		}
		select {} // it dies here, whatever the scheduler thinks
	case crashExit:
		os.Exit(9)
	}
	panic("crash test: dies here")
}

// crashSpawn starts this test binary as a child.
func crashSpawn(t *testing.T, job crashJob) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(job)
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashJobEnv+"="+string(text))
	return cmd
}

// crashRunChild lets a child run to its death, and fails the test if it survives.
func crashRunChild(t *testing.T, job crashJob) {
	t.Helper()
	cmd := crashSpawn(t, job)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, "the child survived: %s", out)
	switch job.Way {
	case crashKill:
		require.Contains(t, []int{-1, 1}, exit.ExitCode(), "%s", out) // by signal, or as Windows does
	case crashExit:
		require.Equal(t, 9, exit.ExitCode(), "%s", out)
	default:
		require.Contains(t, string(out), "crash test: dies here")
	}
	require.NotContains(t, string(out), "DATA RACE")
}

// crashLedger checks what the provider saw of a business value: one key, one body,
// and this many effects.
func crashLedger(t *testing.T, srv *mockserver.Server, value string, effects int) {
	t.Helper()
	srv.Wait()
	require.Equal(t, effects, srv.Effects(value), "effects of %s: %s", value, crashStory(srv, value))
	if effects > 0 {
		require.Len(t, srv.Keys(value), 1, "keys of %s: %s", value, crashStory(srv, value))
		require.NotEqual(t, "", srv.Keys(value)[0])
		require.Len(t, srv.Bodies(value), 1, "bodies of %s", value)
	}
}

func crashStory(srv *mockserver.Server, value string) string {
	var b strings.Builder
	for _, r := range srv.Requests() {
		if r.Value == value {
			fmt.Fprintf(&b, "\n%s key=%s fault=%q status=%d effect=%v replayed=%v", r.Time.Format("05.000"), r.Key, r.Fault, r.Status, r.Effect, r.Replayed)
		}
	}
	return b.String()
}

// post is a JSON request to a provider that isn't there but in memory.
func post(ctx context.Context, body string) *http.Request {
	req, err := http.NewRequestWithContext(ctx, "POST", "http://api.example/v1/payments", strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	req.Header.Set("Content-Type", "application/json")
	return req
}
