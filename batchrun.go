package idem

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

// batchRun is one walk over a batch's items. Items are read, and results yielded, by
// the caller's goroutine; workers make the calls.
type batchRun struct {
	client *Client
	batch  Batch
	codec  BatchCodec
	yield  func(ItemResult, error) bool

	ctx     context.Context
	jobs    chan batchJob
	results chan ItemResult

	seen        map[[16]byte][16]byte // hash of ID to hash of body
	group       []newItem
	done, total int
	stopped     bool  // the caller left the loop
	failed      error // the batch's own failure

	driven onceEach // calls of earlier runs that this run has driven
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
	ctx, cancel := context.WithCancel(ctx)
	r.ctx = ctx
	r.jobs, r.results = make(chan batchJob), make(chan ItemResult)
	var workers sync.WaitGroup
	for range r.batch.Concurrency {
		workers.Go(func() {
			for job := range r.jobs {
				r.work(job)
			}
		})
	}
	go func() { workers.Wait(); close(r.results) }()
	end := sync.OnceFunc(func() { close(r.jobs) })
	defer func() { // also if the caller's loop panics: a waiting worker holds a claim
		cancel()
		end()
		for range r.results {
		}
	}()
	r.read()
	end()
	if r.stopped {
		cancel()
	}
	for res := range r.results {
		r.emit(res)
	}
	if r.failed == nil {
		r.failed = endOf(ctx)
	}
	if r.failed != nil && !r.stopped {
		r.yield(ItemResult{}, &Error{Op: "Batch", Intent: r.batch.Name, Err: r.failed})
	}
}

// read takes items in as calls leave, until the caller or the batch is at its end.
func (r *batchRun) read() {
	for it := range r.batch.Items {
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
	f, err := r.client.find(r.intentOf(it))
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
	account, gift := AccountFrom(r.ctx)
	if !gift {
		account = c.opts.Account
	}
	return &intent{
		op: "Batch", ctx: r.itemContext(), req: noRequest, name: ItemName(r.batch.Name, it.ID),
		account: account, gift: gift, sum: itemSum(r.batch.Codec, it.Body),
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
	return State(f.head.State) == StateSettled && Fate(f.head.Fate) == FateNotDone &&
		!bytes.Equal(f.head.Fingerprint, itemSum(r.batch.Codec, it.Body))
}

// itemKey derives an item's key, the same in every run. A changed item after a
// refusal gets the next one.
func (c *Client) itemKey(account, batch, id string, parent Key) Key {
	key := DeriveKey(storeName(c.opts.Scope, account), storeName(batch, id)+string(parent))
	if c.opts.Dialect.KeyForm == KeyUUIDv4 {
		u := uuid.MustParse(string(key))
		u[6] = u[6]&0x0f | 0x40 // the version that the provider checks for
		key = Key(u.String())
	}
	return key
}

func shortSum(b []byte) (sum [16]byte) {
	copy(sum[:], sumOf(b))
	return sum
}

// work does one job.
func (r *batchRun) work(job batchJob) {
	switch {
	case job.known != nil:
		r.continueItem(*job.known)
	case r.codec == nil:
		r.results <- r.single(job.items[0].Item)
	default:
		r.callFor(job.items)
	}
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
		forced := itemIntent{name: in.name, key: func(parent Key) Key {
			return r.client.itemKey(in.account, r.batch.Name, it.ID, parent)
		}}
		ctx, release := r.join(req)
		defer release()
		o = r.client.serve("Batch", req.WithContext(context.WithValue(ctx, itemKeyKey, forced)))
	}
	res := o.itemResult(it.ID)
	res.Err = o.itemError()
	return res
}

// itemResult is the outcome as an item's. A body that isn't there as a whole is left
// out: its beginning would look like all of it.
func (o outcome) itemResult(id string) ItemResult {
	res := ItemResult{ID: id, Key: o.key, Fate: o.fate, Recalled: o.recalled, Trimmed: o.trimmed}
	if o.answer == nil {
		return res
	}
	o.answer.closeRest()
	res.Status, res.Body = o.answer.status, o.answer.body
	if o.answer.lost != nil {
		res.Body, res.Trimmed = nil, true
	}
	return res
}

// itemError is why an item isn't Done.
func (o outcome) itemError() error {
	if o.final && o.fate == FateDone {
		return nil
	}
	if o.why == nil {
		o.why = fmt.Errorf("idem: refused with status %d", o.answer.status)
	}
	o.in = nil
	return o.failure()
}

// join lets a request's context end with the run. The release keeps what a million
// items leave at the run's context from adding up.
func (r *batchRun) join(req *http.Request) (ctx context.Context, release func()) {
	if req.Context() == context.Background() {
		return r.itemContext(), func() {}
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	unhook := context.AfterFunc(r.ctx, func() { cancel(context.Cause(r.ctx)) })
	return ctx, func() { unhook(); cancel(nil) }
}

// itemIntent is what a batch forces on the request of an item.
type itemIntent struct {
	name string
	key  func(parent Key) Key
}

// onceEach runs something once for each key, and lets the others wait for it.
type onceEach struct {
	mu sync.Mutex
	of map[Key]chan struct{} // closed when it was run
}

func (o *onceEach) do(key Key, f func()) {
	o.mu.Lock()
	done, begun := o.of[key]
	if !begun {
		if o.of == nil {
			o.of = map[Key]chan struct{}{}
		}
		done = make(chan struct{})
		o.of[key] = done
	}
	o.mu.Unlock()
	if begun {
		<-done
		return
	}
	defer close(done)
	f()
}
