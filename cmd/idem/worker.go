package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"sync"
	"time"
)

// workerCommand is the hidden command that is the worker's process.
const workerCommand = "demo-worker"

const (
	attemptTimeout = 300 * time.Millisecond // how long a worker waits for one answer
	baseDelay      = 10 * time.Millisecond
	maxDelay       = 150 * time.Millisecond
	maxAttempts    = 5 // in one call; what fails oftener is taken up again later

	// maxIdle is how many rounds in a row may settle nothing before the worker
	// says that it is stuck.
	maxIdle = 25
)

// payer pays through one kind of client. Both kinds work through the file in the
// same rounds; what differs is how they pay, and what they know after a crash.
type payer interface {
	// pay makes one payment. An error that is errLater leaves it for the next
	// round; any other ends the worker.
	pay(ctx context.Context, p payment) error
	// settle finishes what a round, or a crash, has left under way.
	settle(ctx context.Context) error
	close() error
}

// errLater says that a payment must be taken up again.
var errLater = errors.New("not known to be paid yet")

// workerConfig is what the demo tells a worker.
type workerConfig struct {
	url         string
	file        string // of payments
	memory      string // what outlives a crash: the journal, or the plain client's list
	plain       bool
	concurrency int
}

func (c *workerConfig) flags(fs *flag.FlagSet) {
	fs.StringVar(&c.url, "url", "", "")
	fs.StringVar(&c.file, "file", "", "")
	fs.StringVar(&c.memory, "memory", "", "")
	fs.BoolVar(&c.plain, "plain", false, "")
	fs.IntVar(&c.concurrency, "concurrency", 4, "")
}

func (c *workerConfig) args() []string {
	return []string{
		"--url=" + c.url, "--file=" + c.file, "--memory=" + c.memory,
		fmt.Sprintf("--plain=%v", c.plain), fmt.Sprintf("--concurrency=%d", c.concurrency),
	}
}

// runWorker pays the whole file, from its beginning, whatever was paid by the
// worker that was killed before: what was, only the payer's memory knows. Once
// all are paid it waits for the demo to let it go.
func runWorker(ctx context.Context, con console, args []string) error {
	fs := flag.NewFlagSet(workerCommand, flag.ContinueOnError)
	var cfg workerConfig
	cfg.flags(fs)
	if err := parse(fs, con, args, ""); err != nil {
		return err
	}
	ctx = untilOrphaned(ctx, con.in)
	rows, err := readPayments(cfg.file)
	if err != nil {
		return err
	}
	open := newIdemPayer
	if cfg.plain {
		open = newPlainPayer
	}
	payer, err := open(cfg)
	if err != nil {
		return err
	}
	w := &worker{payer: payer, concurrency: cfg.concurrency, events: &events{out: con.out}}
	err = w.run(ctx, rows)
	if err == nil {
		w.events.send(event{Over: true})
		<-ctx.Done()
	}
	return errors.Join(err, payer.close())
}

type worker struct {
	payer       payer
	concurrency int
	events      *events
}

// run pays in rounds until every payment is through.
func (w *worker) run(ctx context.Context, rows []payment) error {
	idle := 0
	for len(rows) > 0 {
		left, why := w.round(ctx, rows)
		if !errors.Is(why, errLater) && why != nil {
			return why
		}
		if err := w.payer.settle(ctx); err != nil {
			return err
		}
		idle++
		if len(left) < len(rows) {
			idle = 0
		}
		if idle == maxIdle {
			return fmt.Errorf("%d payments don't get through, %s among them: %w", len(left), left[0].ID, why)
		}
		rows = left
	}
	return w.payer.settle(ctx)
}

// round tries each payment once and returns those that are left, and why the
// last of them is.
func (w *worker) round(ctx context.Context, rows []payment) (left []payment, why error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	work := make(chan payment)
	var mu sync.Mutex // guards left and why
	var wg sync.WaitGroup
	for range w.concurrency {
		wg.Go(func() {
			for p := range work {
				err := w.payer.pay(ctx, p)
				if err == nil {
					w.events.send(event{Paid: p.ID})
					continue
				}
				mu.Lock()
				left = append(left, p)
				if why == nil || errors.Is(why, errLater) {
					why = err
				}
				mu.Unlock()
				if !errors.Is(err, errLater) {
					stop()
				}
			}
		})
	}
	for _, p := range rows {
		select {
		case work <- p:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(work)
	wg.Wait()
	if why == nil {
		why = ctx.Err()
	}
	return left, why
}

// sleep waits; false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
