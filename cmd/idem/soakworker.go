package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/codec"
)

// soakWorkerCommand is the hidden command that is a worker of the soak.
const soakWorkerCommand = "soak-worker"

// The window is short, so that results come of age and are swept while the soak runs.
const (
	soakWindow    = 20 * time.Second
	soakKeep      = 20 * time.Second
	soakFaultRate = 0.3
	soakBatch     = 4   // payments in a batch
	soakBehind    = 200 // a worker begins no payment that is further ahead of its oldest open one
	soakForget    = 400 // names so far behind are forgotten
	soakDrain     = 40 * time.Second
)

// soakKinds are the kinds of call, by turns.
var soakKinds = []string{"named", "keyed", "sdk", "anonymous", "queued", "batch", "reserved"}

// soakWorker makes payments without end: number n is of the kind n mod 7.
type soakWorker struct {
	client *idem.Client
	url    string
	prefix string
	events *events

	mu   sync.Mutex
	open map[int]bool // numbers under way
	next int
	seen int // the last number that an earlier worker began
}

func (w *soakWorker) id(n int) string {
	return fmt.Sprintf("%s-%s-%07d", w.prefix, soakKinds[n%len(soakKinds)], n)
}

func runSoakWorker(ctx context.Context, con console, args []string) error {
	fs := flag.NewFlagSet(soakWorkerCommand, flag.ContinueOnError)
	url, journal, prefix := fs.String("url", "", ""), fs.String("journal", "", ""), fs.String("prefix", "", "")
	from, seen, rate := fs.Int("from", 0, ""), fs.Int("seen", -1, ""), fs.Float64("rate", 50, "")
	if err := parse(fs, con, args, ""); err != nil {
		return err
	}
	w := &soakWorker{url: *url, prefix: *prefix, events: &events{out: con.out}, open: map[int]bool{}, next: *from, seen: *seen}
	var err error
	if w.client, err = idem.Open(*journal, w.options()); err != nil {
		return err
	}
	err = w.work(untilOrphaned(ctx, con.in), *rate)
	return errors.Join(err, w.client.Close())
}

func (w *soakWorker) options() *idem.Options {
	d := bankDialect()
	d.Window, d.Margin = soakWindow, 2*time.Second
	return &idem.Options{
		Scope: demoScope, Dialect: d, Keep: soakKeep,
		Retry: idem.RetryPolicy{
			MaxAttempts: maxAttempts, AttemptTimeout: attemptTimeout, BaseDelay: baseDelay, MaxDelay: maxDelay, MaxRetryAfter: 2 * time.Second, NoBudget: true,
		},
		Breaker:   idem.BreakerPolicy{FailureRate: 0.9, OpenFor: 250 * time.Millisecond},
		Codecs:    map[string]idem.BatchCodec{"json": codec.JSONArray{URL: w.url + "/batch", HonoursKeys: true}},
		Reconcile: w.lookUp,
		Settled:   func(_ context.Context, e idem.Entry) error { w.told(e); return nil },
	}
}

// lookUp asks the provider what became of a key past its window.
func (w *soakWorker) lookUp(ctx context.Context, e idem.Entry) (idem.Finding, error) {
	n, err := read[int](ctx, w.url+"/effects/"+string(e.Key))
	if err != nil || n == 0 {
		return idem.Finding{Fate: idem.FateNotDone}, err
	}
	return idem.Finding{Fate: idem.FateDone, Status: http.StatusOK, Body: []byte(`{}`)}, nil
}

// told passes on what no call returned: of the queue, and of what a crash left.
func (w *soakWorker) told(e idem.Entry) {
	if e.Batch != "" || e.Reserved || e.Method == "" {
		return
	}
	w.say(e.Intent, e.Fate)
}

func (w *soakWorker) say(id string, fate idem.Fate) {
	switch {
	case id == "":
	case fate == idem.FateDone:
		w.events.send(event{Paid: id})
	case fate == idem.FateNotDone:
		w.events.send(event{Refused: id})
	}
}

// work pays at the rate until ctx ends, and then finishes what is under way.
func (w *soakWorker) work(ctx context.Context, rate float64) error {
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ran := make(chan error, 1)
	go func() { ran <- w.client.Run(life) }()
	tick := time.NewTicker(time.Duration(float64(time.Second) / rate))
	defer tick.Stop()
	var calls sync.WaitGroup
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case err := <-ran:
			return fmt.Errorf("it stopped running: %w", err)
		case <-tick.C:
			if n, ok := w.begin(); ok {
				calls.Go(func() { w.pay(life, n) })
			}
		}
	}
	drained := time.AfterFunc(soakDrain, stop)
	calls.Wait()
	err := w.drain(life)
	drained.Stop()
	stop()
	return errors.Join(err, <-ran)
}

// drain waits until nothing is open in the journal.
func (w *soakWorker) drain(ctx context.Context) error {
	for {
		var left idem.Entry
		for e, err := range w.client.Pending(ctx) {
			if err != nil {
				return err
			}
			left = e
		}
		if left.Key == "" {
			return nil
		}
		if _, err := w.client.Resume(ctx, nil); err != nil {
			return fmt.Errorf("%s stays %v (%s): %w", left.Intent, left.State, left.LastError, err)
		}
		sleep(ctx, 50*time.Millisecond)
	}
}

// begin takes the next number, unless too much is open.
func (w *soakWorker) begin() (int, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for n := range w.open {
		if n < w.next-soakBehind {
			return 0, false
		}
	}
	n := w.next
	w.next++
	w.open[n] = true
	return n, true
}

// pay makes one payment, however often that has to be tried.
func (w *soakWorker) pay(ctx context.Context, n int) {
	kind, id := soakKinds[n%len(soakKinds)], w.id(n)
	again := true
	if kind == "anonymous" { // it has no name under which it could be begun again
		again = n > w.seen
		w.events.send(event{Begun: id})
	}
	for again && ctx.Err() == nil && !w.over(ctx, kind, id) {
		sleep(ctx, 20*time.Millisecond)
	}
	w.mu.Lock()
	delete(w.open, n)
	w.mu.Unlock()
	if old := n - soakForget; old >= 0 {
		w.forget(old)
	}
}

// forget lets go of a name that nobody will ask for again. One that is still open is
// refused, and stays.
func (w *soakWorker) forget(n int) {
	ctx, id := context.Background(), w.id(n)
	_ = w.client.Forget(ctx, id)
	for _, item := range soakItems(id) {
		_ = w.client.Forget(ctx, idem.ItemName(id, item.ID))
	}
}

// over makes one try, and tells whether none is needed any more.
func (w *soakWorker) over(ctx context.Context, kind, id string) bool {
	switch kind {
	case "batch":
		return w.batch(ctx, id)
	case "reserved":
		return w.reserved(ctx, id)
	}
	var r idem.Result
	ctx = idem.WithResult(ctx, &r)
	if kind == "named" || kind == "keyed" || kind == "queued" {
		ctx = idem.WithIntent(ctx, id)
	}
	if kind == "keyed" {
		ctx = idem.WithKey(ctx, idem.DeriveKey("soak", id))
	}
	req := w.request(ctx, id)
	switch kind {
	case "queued":
		_, err := w.client.Enqueue(req)
		if !errors.Is(err, idem.ErrSettled) {
			return err == nil || errors.Is(err, idem.ErrWindowClosed) // Run finds out, or Reconcile
		}
		r.Fate, r.Recalled = idem.FateOf(nil, err), true
	case "sdk":
		req.Header.Set("Idempotency-Key", string(idem.DeriveKey("sdk", id)))
		if resp, err := w.client.HTTPClient().Do(req); err == nil {
			resp.Body.Close()
		}
	default:
		_, _ = w.client.Do(req) // r says all
	}
	if r.Fate == idem.FateDone || r.Fate == idem.FateNotDone && r.Recalled {
		w.say(id, r.Fate)
		return true
	}
	return kind == "anonymous" && r.Fate == idem.FateUnknown // Run finds out; again, it would be another
}

func (w *soakWorker) request(ctx context.Context, id string) *http.Request {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+"/payments", bytes.NewReader(payment{ID: id, Payee: "p", Cents: 100, Currency: "EUR"}.body()))
	if err != nil {
		panic("idem: internal error: " + err.Error()) // the URL is our own
	}
	req.Header.Set("Content-Type", "application/json")
	return req
}

func soakItems(id string) []idem.Item {
	var items []idem.Item
	for i := range soakBatch {
		item := fmt.Sprintf("%s.%d", id, i)
		items = append(items, idem.Item{ID: item, Body: payment{ID: item, Payee: "p", Cents: 100, Currency: "EUR"}.body()})
	}
	return items
}

// batch is over when each of its items is Done, or NotDone for good.
func (w *soakWorker) batch(ctx context.Context, id string) bool {
	all := true
	for r, err := range w.client.Batch(ctx, idem.Batch{Name: id, Codec: "json", Items: idem.Items(soakItems(id)...)}) {
		if err == nil && (r.Fate == idem.FateDone || r.Fate == idem.FateNotDone && r.Recalled) {
			w.say(r.ID, r.Fate)
			continue
		}
		all = false
	}
	return all
}

// reserved makes the call itself, under a key that the journal keeps.
func (w *soakWorker) reserved(ctx context.Context, id string) bool {
	key, err := w.client.Reserve(ctx, id, []byte(id))
	if errors.Is(err, idem.ErrSettled) {
		w.say(id, idem.FateOf(nil, err))
		return true
	}
	if err != nil {
		return false // past its window: Reconcile finds out
	}
	ctx, stop := context.WithTimeout(ctx, attemptTimeout)
	defer stop()
	req := w.request(ctx, id)
	req.Header.Set("Idempotency-Key", string(key))
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	if resp.StatusCode == http.StatusCreated {
		_ = w.client.Settle(context.WithoutCancel(ctx), key, idem.Finding{Fate: idem.FateDone}) // the next try hears of it
	}
	return false
}
