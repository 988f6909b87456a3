package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/idem-go/idem"
)

// context is the one that an op's caller has.
func (w *world) context(o *opState) (context.Context, context.CancelFunc) {
	ctx := context.WithValue(o.proc.ctx, opKey{}, o)
	if o.Expiry > 0 {
		o.mu.Lock()
		o.expires = time.Now().Add(o.Expiry)
		ctx = idem.WithExpiry(ctx, o.expires)
		o.mu.Unlock()
	}
	switch {
	case o.in.Account != "":
		ctx = idem.WithAccount(ctx, o.in.account())
	case o.Blank:
		ctx = idem.WithAccount(ctx, "")
	}
	switch o.in.Kind {
	case "named", "unkeyed", "put":
		ctx = idem.WithIntent(ctx, o.in.id)
	case "both":
		ctx = idem.WithKey(idem.WithIntent(ctx, o.in.id), idem.DeriveKey("sim", o.in.id))
	case "anonymous":
		if o.Do == "join" {
			ctx = idem.WithKey(ctx, w.newest(o.in))
		}
	case "keyed":
		ctx = idem.WithKey(ctx, idem.DeriveKey("sim", o.in.id))
	}
	if o.Limit > 0 {
		return context.WithTimeout(ctx, o.Limit)
	}
	return ctx, func() {}
}

// newest is the key that an intent has had last.
func (w *world) newest(in *intent) idem.Key {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(in.lives) == 0 {
		return ""
	}
	return idem.Key(in.lives[len(in.lives)-1].key)
}

// joins tells whether there is an anonymous entry that somebody else may continue by its
// key. Whoever began it then leaves it to them.
func (w *world) joins(in *intent) bool {
	_, open := w.store.open(string(w.newest(in)))
	w.mu.Lock()
	defer w.mu.Unlock()
	in.joined = in.joined || open
	return open
}

// perform makes a call, or lets happen what isn't one.
func (w *world) perform(o *opState) {
	w.logf("%v begins at process %d, limit %v", o, o.Proc, o.Limit)
	switch o.Do {
	case "crash":
		w.kill(o.proc)
		time.Sleep(w.between(o, time.Millisecond, time.Minute))
		w.replace(o.proc, o.proc.account)
	case "power":
		w.power()
	case "deploy":
		w.deploy(o)
	case "lose":
		w.store.lose(w.odd(o))
	case "write":
		w.steal(o.in)
	case "loop":
		w.loop(o)
	case "join":
		if w.joins(o.in) {
			w.call(o)
		}
	default:
		w.call(o)
	}
	w.logf("%v ends", o)
}

// replace starts a process in the place of a dead one, unless another op did.
func (w *world) replace(old *proc, account string) {
	w.mu.Lock()
	gone := w.procs[old.place] != old
	w.mu.Unlock()
	if !gone {
		w.birth(old.place, account)
	}
}

// deploy changes the account of all processes, who must agree on it, or takes it back.
func (w *world) deploy(o *opState) {
	account := w.prog.Account
	if o.proc.account != "" {
		account = ""
	}
	w.mu.Lock()
	procs := slices.Clone(w.procs)
	w.mu.Unlock()
	for _, q := range procs {
		w.kill(q)
	}
	for _, q := range procs {
		w.replace(q, account)
	}
}

// power cuts it: all processes die, and what wasn't synced is lost or not.
func (w *world) power() {
	w.mu.Lock()
	procs := slices.Clone(w.procs)
	w.mu.Unlock()
	for _, q := range procs {
		w.kill(q)
	}
	w.store.restart(w.float(nobody) < 0.7)
	for _, q := range procs {
		w.replace(q, q.account)
	}
}

// call is one call, and what it says.
func (w *world) call(o *opState) {
	ctx, stop := w.context(o)
	defer stop()
	began := time.Now()
	c := o.proc.clients["p1"]
	h := hearing{o: o, began: began, deadline: deadline(ctx)}
	switch o.Do {
	case "do", "join":
		h.hear(c.Do(w.request(ctx, o.in, o.Amount)))
	case "transport":
		h.hear(w.transport(ctx, c, o))
	case "failover":
		h.hear(w.failover(ctx, o))
	case "enqueue":
		var key idem.Key
		key, h.err = c.Enqueue(w.request(ctx, o.in, o.Amount))
		h.fate, h.took = idem.FateOf(nil, h.err), h.err == nil
		w.logf("%v: key %s", o, key)
	case "resume":
		_, h.err = c.Resume(ctx, nil)
	case "run":
		h.err = c.Run(ctx)
	case "abandon":
		if e, err := c.Lookup(ctx, o.in.id); err == nil {
			h.err = c.Abandon(ctx, e.Key, "sim")
		}
	}
	w.heard(h)
}

func deadline(ctx context.Context) time.Time {
	d, _ := ctx.Deadline()
	return d
}

// transport makes the call as an SDK would.
func (w *world) transport(ctx context.Context, c *idem.Client, o *opState) (*http.Response, error) {
	var r idem.Result
	resp, err := c.Transport().RoundTrip(w.request(idem.WithResult(ctx, &r), o.in, o.Amount))
	if err == nil && resp != nil && r.Fate != idem.FateOf(resp, nil) {
		w.breaks(o.in, "the result says %v, and the answer %v", r.Fate, idem.FateOf(resp, nil))
	}
	return resp, err
}

func (w *world) failover(ctx context.Context, o *opState) (*http.Response, error) {
	ask := func(ctx context.Context) (*http.Request, error) { return w.request(ctx, o.in, 0), nil }
	one := idem.Try{Client: o.proc.clients["p1"], Request: ask}
	two := idem.Try{Client: o.proc.clients["p2"], Request: ask}
	return idem.Failover(ctx, o.in.id, one, two)
}

// loop asks for an anonymous intent again and again until it is Done, or until there is
// no error, as people do who haven't read about names.
func (w *world) loop(o *opState) {
	w.mu.Lock()
	taken := o.in.loops > 0
	o.in.loops++
	w.mu.Unlock()
	if taken {
		return
	}
	var key idem.Key
	for range 8 {
		ctx, stop := w.context(o)
		if key != "" && w.draw(o, 0.2) {
			ctx = idem.WithKey(ctx, key)
		}
		h := hearing{o: o, began: time.Now(), deadline: deadline(ctx)}
		h.hear(o.proc.clients["p1"].Do(w.request(ctx, o.in, 0)))
		stop()
		w.heard(h)
		enough := h.fate == idem.FateDone && (h.err == nil || o.Seed%2 == 0)
		if enough || o.proc.dead.Load() {
			return
		}
		var e *idem.Error
		switch {
		case h.fate == idem.FateNotDone: // what the key stood for is over
			key = ""
		case errors.As(h.err, &e): // the key that the last answer spoke of
			key = e.Key
		}
		time.Sleep(w.between(o, time.Millisecond, 30*time.Second))
		if w.left(o.in) {
			return
		}
	}
}

func (w *world) left(in *intent) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return in.joined
}

// steal is somebody else's write to what a PUT has written.
func (w *world) steal(in *intent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if in.Kind == "put" && in.sends > 0 {
		w.bank.docs[in.id]++
		w.bank.theft[in.id] = true
	}
}

// quiet waits until what is on its way has arrived, and been seen.
func (w *world) quiet() {
	time.Sleep(2 * time.Minute)
	w.mu.Lock()
	defer w.mu.Unlock()
}

// recover stops all faults, begins a new life, lets it finish what is open, asks for
// everything again, and holds the journal against the ledger.
func (w *world) recover() {
	w.quiet()
	w.calm.Store(true)
	w.mu.Lock()
	procs := slices.Clone(w.procs)
	w.mu.Unlock()
	for _, q := range procs {
		w.kill(q)
	}
	w.store.restart(false)
	w.birth(0, procs[0].account)
	q := w.procs[0]
	for range 4 {
		for _, c := range q.clients {
			o := &opState{n: -2, began: time.Now(), proc: q, rng: w.dice(99)}
			ctx := context.WithValue(context.Background(), opKey{}, o)
			if _, err := c.Resume(ctx, nil); err != nil {
				w.breaks(nil, "the healthy journal can't be resumed: %v", err)
			}
		}
		time.Sleep(5 * time.Minute)
	}
	w.quiet()
	for _, in := range w.intents {
		w.journal(q, in)
	}
	for i, in := range w.intents {
		if in.Kind == "anonymous" {
			continue
		}
		o := &opState{op: op{Do: "do", Intent: i}, n: 1000 + i, proc: q, in: in}
		o.began, o.rng = time.Now(), w.dice(100+uint64(i))
		if w.prog.Theme == "failover" {
			o.Do = "failover"
		}
		w.call(o)
	}
	w.quiet()
	for _, in := range w.intents {
		w.atEnd(in)
	}
}

// found is what somebody at the provider would tell.
func (w *world) found(ctx context.Context, e idem.Entry) (idem.Finding, error) {
	if w.draw(opOf(ctx), 0.2) {
		return idem.Finding{}, fmt.Errorf("sim: nobody answers")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, in := range w.intents {
		if k := in.key(string(e.Key)); k != nil {
			switch {
			case k.effects > 0 || in.effects > 0:
				return idem.Finding{Fate: idem.FateDone, Status: 201}, nil
			case k.flying == 0 && w.bank.jobs[in.id] == nil:
				in.refusals++
				return idem.Finding{Fate: idem.FateNotDone}, nil
			}
		}
	}
	return idem.Finding{}, nil
}

func (w *world) dice(n uint64) *rand.Rand { return rand.New(rand.NewPCG(w.prog.Seed, n)) }
