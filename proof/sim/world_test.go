package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
)

// world is one program at work.
type world struct {
	prog  program
	store *store
	bank  *bank
	calm  atomic.Bool // the faults have stopped
	began time.Time

	mu      sync.Mutex
	intents []*intent       // guarded by mu
	procs   []*proc         // guarded by mu: who is alive, by place
	closing []*proc         // guarded by mu: all that ever were
	keys    int             // guarded by mu: minted so far
	rules   map[string]bool // guarded by mu: what was broken
	broken  []string        // guarded by mu
	trace   []string        // guarded by mu
	tracing bool
	common  *opState // draws for whoever comes without an op
}

// proc is one life of one process, with a client for each scope.
type proc struct {
	w       *world
	place   int
	account string
	ks      *handle
	ctx     context.Context
	cancel  context.CancelCauseFunc
	gone    chan struct{}
	dead    atomic.Bool
	clients map[string]*idem.Client
}

// opState is an op that runs.
type opState struct {
	op
	n     int
	proc  *proc
	in    *intent
	began time.Time

	mu     sync.Mutex
	rng    *rand.Rand // guarded by mu
	last   time.Time  // guarded by mu: when the journal last told it something
	missed bool       // guarded by mu: it found nothing then
	waited bool       // guarded by mu: that was the end of its wait for a claim
	robbed bool       // guarded by mu: a lease of its was lost
	asked  bool       // guarded by mu: it has read the journal
	tardy  bool       // guarded by mu: there was nothing when it first did

	expires time.Time // guarded by mu
}

func (o *opState) String() string {
	if o.n < 0 {
		return "nobody's"
	}
	return fmt.Sprintf("op %d (%s i%d)", o.n, o.Do, o.Intent)
}

type opKey struct{}

// nobody is whose call it is where a context doesn't say.
var nobody = &opState{n: -1}

func opOf(ctx context.Context) *opState {
	if o, ok := ctx.Value(opKey{}).(*opState); ok {
		return o
	}
	return nobody
}

// looked notes that the journal has answered. Who looks a name up in two places and
// finds it in neither has been told when it looked at the first.
func (o *opState) looked(found, inVain bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if found || inVain || !o.missed {
		o.last = time.Now()
	}
	o.missed, o.waited = !found && !inVain, inVain
}

// read notes what the journal said to a read.
func (o *opState) read(found bool) {
	o.mu.Lock()
	o.tardy = o.tardy || !o.asked && !found
	o.asked = true
	o.mu.Unlock()
	o.looked(found, false)
}

// float draws from the op's own numbers, so that they don't depend on others.
func (w *world) float(o *opState) float64 {
	if o == nobody {
		o = w.common
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.rng.Float64()
}

func (w *world) odds(o *opState, p float64) bool { return p > 0 && !w.calm.Load() && w.float(o) < p }

func (w *world) draw(o *opState, p float64) bool { return w.odds(o, p) }

func (w *world) odd(o *opState) uint64 { return uint64(w.float(o) * 1e9) }

// between draws a duration; each is a number of nanoseconds that hardly comes twice.
func (w *world) between(o *opState, from, to time.Duration) time.Duration {
	f := w.float(o)
	return from + time.Duration(f*f*f*float64(to-from))
}

func (w *world) latency(o *opState) time.Duration {
	if w.calm.Load() {
		return time.Microsecond
	}
	d := w.between(o, time.Nanosecond, w.prog.Latency)
	if w.odds(o, w.prog.Slow) {
		d *= 100
	}
	return d
}

// commitFault draws what becomes of a commit.
func (w *world) commitFault(o *opState) string {
	switch {
	case w.odds(o, w.prog.Fails):
		return "fails"
	case w.odds(o, w.prog.Lies):
		return "lies"
	case w.odds(o, w.prog.Unsynced):
		return "unsynced"
	}
	return ""
}

// fault draws what a request meets.
func (w *world) fault(o *opState) string {
	for _, f := range w.prog.Faults {
		if w.odds(o, f.Odds) {
			return f.Kind
		}
	}
	return ""
}

func (w *world) logf(format string, args ...any) {
	if !w.tracing {
		return
	}
	line := fmt.Sprintf("%12v  %s", time.Since(w.began).Round(time.Microsecond), fmt.Sprintf(format, args...))
	traces.Lock()
	defer traces.Unlock()
	w.trace = append(w.trace, line)
}

// traces guards world.trace, which is also written under the other locks.
var traces sync.Mutex

// result is how a program ended.
type result struct {
	rules  map[string]bool
	broken []string
	trace  []string
	ops    int
}

// play runs a program in a bubble of its own.
func play(t *testing.T, p program, tracing bool) (res result) {
	w := &world{prog: p, tracing: tracing}
	defer func() {
		if r := recover(); r != nil {
			w.breaks(nil, "a call or a goroutine never ended: %v", r)
			res = result{w.rules, w.broken, w.trace, len(p.Ops)}
		}
	}()
	synctest.Test(t, func(*testing.T) {
		w.began = time.Now()
		w.common = &opState{n: -1, rng: rand.New(rand.NewPCG(p.Seed, 1))}
		w.store = newStore(w)
		w.bank = newBank(w)
		for i, t := range p.Intents {
			w.intents = append(w.intents, &intent{thing: t, id: fmt.Sprintf("i%d", i), scopes: map[string]bool{}})
		}
		w.procs = make([]*proc, p.Procs)
		for i := range w.procs {
			w.birth(i, "")
		}
		w.run()
		w.recover()
		for _, q := range w.closing {
			for _, c := range q.clients {
				c.Close()
			}
			if q.dead.Load() {
				q.cancel(errDead)
			}
		}
		time.Sleep(2 * time.Minute) // time stands still when this returns
	})
	return result{w.rules, w.broken, w.trace, len(p.Ops)}
}

// run begins all ops at their times and waits for them.
func (w *world) run() {
	var calls sync.WaitGroup
	for i, o := range w.prog.Ops {
		calls.Go(func() {
			time.Sleep(o.At + time.Duration(i+1))
			st := &opState{op: o, n: i, began: time.Now(), rng: rand.New(rand.NewPCG(o.Seed, 2))}
			w.mu.Lock()
			st.proc, st.in = w.procs[o.Proc], w.intents[o.Intent]
			w.mu.Unlock()
			w.perform(st)
		})
	}
	calls.Wait()
}

// birth puts a new process in a place.
func (w *world) birth(place int, account string) {
	q := &proc{w: w, place: place, account: account, gone: make(chan struct{}), clients: map[string]*idem.Client{}}
	q.ctx, q.cancel = context.WithCancelCause(context.Background())
	q.ks = &handle{store: w.store, proc: q}
	scopes := []string{"p1"}
	if w.prog.Theme == "failover" {
		scopes = []string{"p1", "p2"}
	}
	for _, scope := range scopes {
		c, err := idem.New(q.ks, w.options(q, scope))
		if err != nil {
			panic(err)
		}
		q.clients[scope] = c
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.procs[place] = q
	w.closing = append(w.closing, q)
}

// kill ends a process in the middle of whatever it does.
func (w *world) kill(q *proc) {
	if q.dead.Swap(true) {
		return
	}
	w.logf("process %d dies", q.place)
	close(q.gone)
	q.cancel(errDead)
	w.store.bury(q, errDead)
}

func (w *world) options(q *proc, scope string) *idem.Options {
	o := &idem.Options{
		Scope: scope, Account: q.account, Base: &port{w, q}, Dialect: w.dialect(scope),
		Retry: idem.RetryPolicy{BaseDelay: time.Nanosecond, MaxDelay: time.Nanosecond, AttemptTimeout: w.prog.Patience},
		Authorize: func(r *http.Request) error {
			account, _ := idem.AccountFrom(r.Context())
			r.Header.Set("Authorization", "Bearer "+account)
			if r.Header.Get("X-Wants-Token") != "" {
				r.URL.RawQuery = "token=secret"
			}
			return nil
		},
		Breaker: idem.BreakerPolicy{Disabled: !w.prog.Breaker},
	}
	if w.prog.Padded {
		o.MaxResult = 64
	}
	if w.prog.Reconcile {
		o.Reconcile = w.found
	}
	if w.prog.Settled {
		o.Settled = func(ctx context.Context, e idem.Entry) error {
			if w.draw(opOf(ctx), 0.2) {
				return errStore
			}
			w.toldHook(q, e)
			return nil
		}
	}
	return o
}

func (w *world) dialect(scope string) idem.Dialect {
	d := idem.Dialect{
		Name: "sim " + scope, Paths: []string{"/v1/charges"}, KeyFirst: w.prog.KeyFirst, Window: window,
		NewKey: func() idem.Key {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.keys++
			return idem.Key(fmt.Sprintf("key-%04d", w.keys))
		},
		InFlight:    []idem.Match{{Path: "code", Value: "in_flight"}},
		Mismatch:    []idem.Match{{Path: "code", Value: "mismatch"}},
		NotDone:     []idem.Match{{Path: "status", Value: "failed"}},
		AlreadyDone: []idem.Match{{Header: "X-State", Value: "exists"}},
	}
	if w.prog.Accepts > 0 {
		d.Accepted = idem.AcceptedPoll
	}
	if w.prog.Loose {
		d.NotDone = append(d.NotDone, idem.Match{Status: 404})
	}
	return d
}

// request builds what an op asks for.
func (w *world) request(ctx context.Context, in *intent, amount int) *http.Request {
	method, url := http.MethodPost, "https://api.example/v1/charges"
	switch in.Kind {
	case "put":
		method, url = http.MethodPut, "https://api.example/v1/docs/"+in.id
	case "unkeyed":
		url = "https://api.example/v1/plain"
	}
	if in.Odd {
		url += "?q=\xff%"
	}
	body := fmt.Sprintf(`{"id":%q,"amount":%d}`, in.id, amount)
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if in.Token {
		req.URL.RawQuery = "token=secret"
		req.Header.Set("X-Wants-Token", "1")
	}
	if in.Odd {
		req.Header.Set("X-Note", "caf\xe9")
	}
	if name, value, ok := strings.Cut(in.Guard, ": "); ok {
		req.Header.Set(name, value)
	}
	if in.Kind == "sdk" {
		req.Header.Set("Idempotency-Key", "sdk-"+in.id)
	}
	return req
}
