package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/crash"
	"github.com/idem-go/idem/proof/rig"
)

// jobEnv holds what a child process is to do, as JSON.
const jobEnv = "IDEM_CRASH_JOB"

// The ways in which a child dies. A panic runs the deferred functions first, an
// exit doesn't, a kill doesn't even let other goroutines know.
const (
	byKill  = "kill"
	byExit  = "exit"
	byPanic = "panic"
)

var allWays = []string{byKill, byExit, byPanic}

// task is what a child process does and where it dies.
type task struct {
	Kind    string // one of kinds, or workerKind
	Journal string
	URL     string
	Key     idem.Key // of Settle
	Point   crash.Point
	Nth     int // dies at the nth time that the point is passed
	Way     string

	Commit int  // dies at the nth commit instead
	After  bool // and then when it is durable
	Call   int  // dies in place of the nth call to the system that changes a file or makes it durable
}

// survived is the exit code of a child that reached its end.
const survived = 0

// callOf are the kinds of call, as a child and the recovery make them.
var callOf = map[string]func(c *idem.Client, url string) error{
	"Do named": func(c *idem.Client, url string) error {
		return rig.Do(c, rig.Request(idem.WithIntent(context.Background(), rig.Name), url, rig.Body))
	},
	"Do anonymous": func(c *idem.Client, url string) error {
		return rig.Do(c, rig.Request(context.Background(), url, rig.Body))
	},
	"Do with key": func(c *idem.Client, url string) error {
		return rig.Do(c, rig.Request(idem.WithKey(context.Background(), rig.Key), url, rig.Body))
	},
	"Transport with an SDK's key": func(c *idem.Client, url string) error {
		req := rig.Request(context.Background(), url, rig.Body)
		req.Header.Set("Idempotency-Key", string(rig.Key))
		resp, err := c.HTTPClient().Do(req)
		return rig.Read(resp, err)
	},
	"Enqueue": func(c *idem.Client, url string) error {
		_, err := c.Enqueue(rig.Request(idem.WithIntent(context.Background(), rig.Name), url, rig.Body))
		return err
	},
	"Enqueue, Run": func(c *idem.Client, url string) error {
		_, err := c.Enqueue(rig.Request(idem.WithIntent(context.Background(), rig.Name), url, rig.Body))
		if err != nil {
			return err
		}
		return runAll(c)
	},
	"Resume": func(c *idem.Client, _ string) error {
		_, err := c.Resume(context.Background(), nil)
		return err
	},
	"Run": func(c *idem.Client, _ string) error { return runAll(c) },
	"Batch with a codec": func(c *idem.Client, _ string) error {
		return makeBatch(c, idem.Batch{Codec: "json", MaxItems: 2, Concurrency: 1})
	},
	"Batch of requests": func(c *idem.Client, url string) error {
		return makeBatch(c, idem.Batch{Concurrency: 1, Request: func(ctx context.Context, it idem.Item) (*http.Request, error) {
			return rig.Request(ctx, url, string(it.Body)), nil
		}})
	},
	"Reserve": func(c *idem.Client, _ string) error {
		_, err := c.Reserve(context.Background(), rig.Name, []byte(rig.Body))
		return err
	},
}

// runAll runs until nothing is pending.
func runAll(c *idem.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	ran := make(chan error, 1)
	go func() { ran <- c.Run(ctx) }()
	for ctx.Err() == nil && rig.Pending(c) > 0 {
		time.Sleep(2 * time.Millisecond)
	}
	late := ctx.Err()
	cancel()
	return errors.Join(late, <-ran)
}

// childLife is the life of a child process; it returns the exit code.
const workerKind = "worker"

func childLife(text string) int {
	var job task
	if err := json.Unmarshal([]byte(text), &job); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	switch job.Kind {
	case workerKind:
		return workerLife(job)
	case batchKind:
		return batchLife(job)
	}
	c, err := start(job)
	if err == nil {
		if job.Kind == "Settle" {
			err = c.Settle(context.Background(), job.Key, finding())
		} else {
			err = callOf[job.Kind](c, job.URL)
		}
		err = errors.Join(err, c.Close())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 4
	}
	return survived
}

func finding() idem.Finding {
	return idem.Finding{Fate: idem.FateDone, Status: http.StatusCreated, Header: http.Header{}, Body: []byte(`{"id":"order-1"}`)}
}

// start opens the client of a child, with what will kill it.
func start(job task) (*idem.Client, error) {
	opts := rig.Options()
	opts.Codecs = codecs(job.URL)
	switch {
	case job.Commit > 0:
		return dieAtCommit(job, opts)
	case job.Call > 0:
		if err := dieAtCall(job); err != nil {
			return nil, err
		}
	default:
		arm(job)
	}
	return rig.Open(job.Journal, opts)
}

// arm makes this process die at the job's point.
func arm(job task) {
	var passed atomic.Int32
	crash.SetHook(func(p crash.Point) {
		if p != job.Point || int(passed.Add(1)) != job.Nth {
			return
		}
		die(job.Way)
	})
}

func die(way string) {
	switch way {
	case byKill:
		if p, err := os.FindProcess(os.Getpid()); err == nil {
			_ = p.Kill()
		}
		select {} // it dies here, whatever the scheduler thinks
	case byExit:
		os.Exit(9)
	}
	panic("crash test: dies here")
}

// spawn starts this test binary as a child.
func spawn(t *testing.T, job task) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(job)
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), jobEnv+"="+string(text))
	return cmd
}

// runToDeath lets a child run to its death, and fails the test if it survives.
func runToDeath(t *testing.T, job task) {
	t.Helper()
	cmd := spawn(t, job)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, "the child survived: %s", out)
	switch job.Way {
	case byKill:
		require.Contains(t, []int{-1, 1}, exit.ExitCode(), "%s", out) // by signal, or as Windows does
	case byExit:
		require.Equal(t, 9, exit.ExitCode(), "%s", out)
	default:
		require.Contains(t, string(out), "crash test: dies here")
	}
	require.NotContains(t, string(out), "DATA RACE")
}
