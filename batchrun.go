package idem

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"runtime/debug"
	"sync"
	"time"
	"unicode/utf8"
)

// batchRun is one walk over a batch's items. Items are read, and results yielded, by
// the caller's goroutine; workers make the calls.
type batchRun struct {
	client *Client
	batch  Batch
	codec  BatchCodec
	yield  func(ItemResult, error) bool

	ctx     context.Context
	cancel  context.CancelFunc
	jobs    chan batchJob
	results chan ItemResult
	workers sync.WaitGroup
	over    bool // jobs is closed

	seen        map[[16]byte][16]byte // hash of ID to hash of body
	group       []newItem
	done, total int
	stopped     bool  // the caller left the loop
	failed      error // the batch's own failure

	driven  onceEach // calls of earlier runs that this run has driven
	foreign foreignIDs

	mu     sync.Mutex    // guards broken
	broken error         // the journal's failure, or a worker's panic
	broke  chan struct{} // closed with it
}

// batchJob is a call of new items, or one item that the journal knows.
type batchJob struct {
	items []newItem
	known *Item
}

// newItem is an item to be sent, with the NotDone intent that had its name before.
type newItem struct {
	Item
	old *held
}

func (r *batchRun) run(ctx context.Context) {
	ctx, done := r.client.within(ctx)
	defer done()
	r.ctx, r.cancel = context.WithCancel(ctx)
	defer r.cancel()
	r.start()
	left := true // by a panic, or by a test that ends its goroutine
	defer func() {
		if left {
			r.stopped = true
			r.cancel()
			r.windUp()
		}
	}()
	r.read()
	if r.stopped {
		r.cancel()
	}
	r.windUp()
	left = false
	if p, ok := r.broken.(*workerPanic); ok {
		panic(p)
	}
	for _, err := range []error{r.broken, endOf(ctx), r.foreign.err()} {
		if r.failed == nil {
			r.failed = err
		}
	}
	if r.failed != nil && !r.stopped {
		r.yield(ItemResult{}, &Error{Op: "Batch", Intent: r.batch.Name, Err: r.failed})
	}
}

func (r *batchRun) start() {
	r.jobs, r.results, r.broke = make(chan batchJob), make(chan ItemResult), make(chan struct{})
	for range r.batch.Concurrency {
		r.workers.Go(func() {
			for job := range r.jobs {
				r.work(job)
			}
		})
	}
}

// windUp lets the workers finish, and emits what they still have to say.
func (r *batchRun) windUp() {
	if !r.over {
		r.over = true
		close(r.jobs)
		go func() { r.workers.Wait(); close(r.results) }()
	}
	for res := range r.results {
		r.emit(res)
	}
}

// fail ends the run: the journal is the whole batch's.
func (r *batchRun) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken == nil {
		r.broken = err
		r.cancel() // first: dispatch drops its job for broke, and nothing more may be read then
		close(r.broke)
	}
}

// workerPanic is a panic of the codec, of Request or of a hook, on its way to the
// goroutine that ranges over the results, where it can be recovered.
type workerPanic struct {
	value any
	stack []byte
}

func (p *workerPanic) Error() string { return fmt.Sprintf("%v\n\n%s", p.value, p.stack) }

// Unwrap lets errors.Is find what was panicked with.
func (p *workerPanic) Unwrap() error {
	err, _ := p.value.(error)
	return err
}

// read takes items in as calls leave, until the caller or the batch is at its end.
func (r *batchRun) read() {
	for it, err := range r.batch.Items {
		if err != nil {
			r.flush() // what came before goes out
			r.failed = fmt.Errorf("idem: the items end with an error: %w", err)
			return
		}
		if err := r.take(it); err != nil {
			r.failed = err
			return
		}
		if r.stopped || r.ctx.Err() != nil {
			return
		}
	}
	r.flush()
}

// take places one item: into the next call, or with a worker that knows it.
func (r *batchRun) take(it Item) error {
	if it.ID == "" || len(it.ID) > maxItemID || !utf8.ValidString(it.ID) {
		return &InvalidError{"Item.ID", it.ID, "must be 1 to 255 bytes of UTF-8"}
	}
	id, body := shortSum([]byte(it.ID)), shortSum(it.Body)
	if before, twice := r.seen[id]; twice {
		if before != body {
			return fmt.Errorf("%w: the batch has item %q twice, with different bodies", ErrMismatch, it.ID)
		}
		return nil
	}
	r.seen[id] = body
	r.total++
	r.progress()
	it.Body = bytes.Clone(it.Body)
	if r.codec == nil {
		r.dispatch(batchJob{items: []newItem{{Item: it}}})
		return nil
	}
	f, err := r.client.entries.find(r.intentOf(it))
	followUp := err == nil && r.followUp(it, f)
	switch {
	case err == nil && !followUp:
		r.dispatch(batchJob{known: &it})
		return nil
	case err != nil && !errors.Is(err, ErrNotFound):
		return &storeError{err}
	}
	n := newItem{Item: it}
	if followUp {
		n.old = &f
	}
	if r.group = append(r.group, n); len(r.group) == r.batch.MaxItems {
		r.flush()
	}
	return nil
}

func (r *batchRun) flush() {
	if len(r.group) > 0 && r.failed == nil {
		r.dispatch(batchJob{items: r.group})
	}
	r.group = nil
}

// dispatch waits for a worker, yielding results meanwhile.
func (r *batchRun) dispatch(job batchJob) {
	for !r.stopped {
		select {
		case r.jobs <- job:
			return
		case res := <-r.results:
			r.emit(res)
		case <-r.broke:
			return
		}
	}
}

func (r *batchRun) emit(res ItemResult) {
	if res.Fate != FateUnknown {
		r.done++
	}
	if !r.stopped && !r.yield(res, nil) {
		r.stopped = true
		return
	}
	r.progress()
}

func (r *batchRun) progress() {
	if r.batch.OnProgress != nil && !r.stopped {
		r.batch.OnProgress(r.done, r.total)
	}
}

// intentOf is what the journal is asked for an item.
func (r *batchRun) intentOf(it Item) *intent {
	c := r.client
	account, perCall := c.opts.accountOf(r.ctx)
	return &intent{
		op: "Batch", ctx: r.itemContext(), req: noRequest, name: ItemName(r.batch.Name, it.ID),
		account: account, perCall: perCall, sum: itemSum(r.batch.Codec, it.Body),
	}
}

// itemContext is the batch's context for one of its items: what names or reports a
// single call stays behind.
func (r *batchRun) itemContext() context.Context {
	ctx := context.Context(belowContext{r.ctx})
	if t, ok := r.ctx.Value(expiryKey).(time.Time); ok {
		ctx = WithExpiry(ctx, t)
	}
	return ctx
}

// noRequest stands where an intent has no HTTP request of its own.
var noRequest = &http.Request{URL: new(url.URL)}

func itemSum(codec string, body []byte) []byte {
	return sumOf(append([]byte("item\x00"+codec+"\x00"), body...))
}

// followUp tells an item whose earlier form is NotDone and which has changed since.
func (r *batchRun) followUp(it Item, f held) bool {
	return f.head.settledNotDone() &&
		!bytes.Equal(f.head.Fingerprint, itemSum(r.batch.Codec, it.Body))
}

func shortSum(b []byte) (sum [16]byte) {
	copy(sum[:], sumOf(b))
	return sum
}

// work does one job. A panic, and a Goexit, end the run.
func (r *batchRun) work(job batchJob) {
	ended := false
	defer func() {
		if !ended {
			v := recover()
			if v == nil {
				v = "idem: a hook of a batch ended its goroutine"
			}
			r.fail(&workerPanic{v, debug.Stack()})
		}
	}()
	switch {
	case job.known != nil:
		r.continueItem(*job.known)
	case r.codec == nil:
		r.results <- r.single(job.items[0].Item)
	default:
		r.callFor(job.items)
	}
	ended = true
}

// single sends an item as a request of its own, under its own name and key.
func (r *batchRun) single(it Item) ItemResult {
	in := r.intentOf(it)
	req, err := r.batch.Request(in.ctx, it)
	if err == nil && req == nil {
		err = &InvalidError{"Batch.Request", nil, "returned no request"}
	}
	var o outcome
	if err != nil {
		o = r.client.refuse(in, err)
	} else {
		forced := itemIntent{name: in.name, batch: r.batch.Name, item: it.ID, key: func(parent Key) Key {
			return r.freeKey(in, it.ID, parent)
		}}
		ctx, stop := r.join(req)
		defer stop()
		o = r.client.serve("Batch", req.WithContext(context.WithValue(ctx, itemKeyKey, forced)))
	}
	return o.itemResult(it.ID)
}

// itemResult is what a request of its own, or the journal, taught of an item. A body
// that isn't there as a whole is left out: its beginning would look like all of it.
func (o outcome) itemResult(id string) ItemResult {
	res := ItemResult{ID: id, Key: o.key, Fate: o.fate, Recalled: o.recalled, Trimmed: o.trimmed}
	if o.answer != nil {
		o.answer.closeRest()
		res.Status, res.Body = o.answer.status, o.answer.body
		if !o.answer.keepable() || o.answer.lost != nil || o.answer.cut != nil {
			res.Body, res.Trimmed = nil, true
		}
	}
	res.Err = o.itemError()
	return res
}

// itemError is why an item isn't Done.
func (o outcome) itemError() error {
	if o.fate == FateDone && (o.final || o.recalled) {
		return nil
	}
	if o.why == nil {
		o.why = fmt.Errorf("idem: refused with status %d", o.answer.status)
	}
	o.in = nil
	return o.failure()
}

// join lets a request end with the run, also if it was made under another context.
func (r *batchRun) join(req *http.Request) (context.Context, func()) {
	if req.Context() == context.Background() {
		return r.itemContext(), func() {}
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	unhook := context.AfterFunc(r.ctx, func() { cancel(context.Cause(r.ctx)) })
	return ctx, func() { unhook(); cancel(nil) }
}

// itemIntent is what a batch forces on the request of an item, or of a call.
type itemIntent struct {
	name, batch, item string
	key               func(parent Key) Key
}
