package model

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
)

// play runs a program in a bubble of its own, where time is fake and files are real,
// and returns the first rule that it broke, and the particulars.
func play(t *testing.T, path string, p program) (rule string, broken []string) {
	os.Remove(path)
	synctest.Test(t, func(t *testing.T) {
		profile := providers[p.Provider].profile
		w := &world{t: t, prog: p, path: path, account: "a"}
		w.srv = mockserver.New(&mockserver.Config{Profile: profile, Window: window})
		w.bank = mockserver.New(&mockserver.Config{Profile: profile, Window: window, Batch: &mockserver.Batch{
			Seed: 1, Outcomes: []mockserver.ItemOutcome{
				mockserver.ItemRefuse, mockserver.ItemThrottle, mockserver.ItemBreak, mockserver.ItemBreakAfter, mockserver.ItemSkip, mockserver.ItemLose, mockserver.ItemTwice, mockserver.ItemContradict,
			},
		}})
		w.m = &model{forgotten: map[string]int{}, effects: func(k idem.Key) int { return w.srv.EffectsOfKey(string(k)) }}
		w.open()
		for i, s := range p.Steps {
			w.m.step = i + 1
			w.step(s)
			if len(w.m.broken) > 0 {
				break
			}
		}
		if len(w.m.broken) == 0 {
			w.m.step++
			w.end()
		}
		w.srv.Close()
		w.bank.Close()
		w.c.Close()
		w.ks.Close()
		rule, broken = w.m.rule, append(w.m.broken, w.seen()...)
	})
	return rule, broken
}

// seen is what the provider saw of the keys that broke a rule.
func (w *world) seen() (lines []string) {
	said := strings.Join(w.m.broken, " ")
	for _, r := range w.srv.Requests() {
		if key := strings.Trim(r.Key, `"`); said != "" && key != "" && strings.Contains(said, key) {
			lines = append(lines, fmt.Sprintf("%s  %s  fault %q, status %d, replayed %v, effect %v", r.Time.Format(time.DateTime), key, r.Fault, r.Status, r.Replayed, r.Effect))
		}
	}
	return lines
}

// step makes its calls, at once, and holds the journal against the model.
func (w *world) step(s step) {
	w.queue, w.m.calls = slices.Clone(s.Faults), len(s.Ops)
	was := map[*life]idem.State{}
	sends := 0
	for _, l := range w.m.lives {
		was[l] = l.state
		sends += l.sends
	}
	var calls sync.WaitGroup
	for _, o := range s.Ops {
		calls.Go(func() {
			time.Sleep(o.At)
			h, key := w.perform(o, len(s.Ops) == 1)
			if len(s.Ops) == 1 && (o.Do == "do" || o.Do == "transport") {
				w.expected(o, h, w.m.of(key), was, sends)
			}
		})
	}
	calls.Wait()
	w.queue = nil
	if w.crashed.Load() {
		w.open()
	}
	w.lookUp()
	time.Sleep(time.Millisecond)
}

// expected is what a call that is alone must hear of an intent that is known.
func (w *world) expected(o op, h hearing, l *life, was map[*life]idem.State, sends int) {
	if l == nil || was[l] == 0 || l.account != w.account {
		return
	}
	for _, other := range w.m.lives {
		sends -= other.sends
	}
	same := strings.HasSuffix(l.bytes, fmt.Sprintf(`"amount":%d}`, o.Amount)) || l.bytes == ""
	switch state := was[l]; {
	case sends < 0 && state != idem.StatePending:
		w.m.breaks(l, "something was sent although it is %v", state)
	case sends < 0 && !same && !o.Stored:
		w.m.breaks(l, "something was sent although the payload differs")
	case !same && !o.Stored && state != idem.StateAbandoned && !strings.HasPrefix(o.Intent, "anonymous") && !errors.Is(h.err, idem.ErrMismatch):
		w.m.breaks(l, "another payload is not a mismatch but %v, %v", h.fate, h.err)
	case same && state == idem.StateSettled && !h.recalled && !strings.HasPrefix(o.Intent, "anonymous"):
		w.m.breaks(l, "settled, and not recalled: %v, %v", h.fate, h.err)
	case state == idem.StateAbandoned && !errors.Is(h.err, idem.ErrAbandoned) && !strings.HasPrefix(o.Intent, "anonymous"):
		w.m.breaks(l, "abandoned, and the call heard %v, %v", h.fate, h.err)
	}
}

// perform does one op and tells the model what its caller heard.
func (w *world) perform(o op, alone bool) (hearing, idem.Key) {
	ctx, stop := w.context(o)
	defer stop()
	switch o.Do {
	case "do", "transport":
		return w.call(ctx, o)
	case "enqueue":
		w.enqueue(ctx, o)
	case "run":
		_ = w.c.Run(ctx) // an error is the journal's, after a crash
	case "resume":
		_, _ = w.c.Resume(context.Background(), nil) // the same
	case "reserve":
		w.reserve(o)
	case "settle":
		w.person(o, func(l *life) {
			if found := w.truth(l.key); found.Fate == idem.FateDone || alone {
				_ = w.c.Settle(context.Background(), l.key, found) // refused where it has a driver, or is settled
			}
		})
	case "abandon":
		w.person(o, func(l *life) { _ = w.c.Abandon(context.Background(), l.key, "given up") })
	case "forget":
		w.forget(o)
	case "batch", "items":
		w.batch(ctx, o)
	case "crash":
		w.crashed.Store(true)
		w.ks.Close() // first, so that nothing that is under way can be written
		w.c.Close()
	case "restart", "account":
		if alone {
			w.restart(o)
		}
	case "sleep":
		time.Sleep(o.Limit)
	case "setback":
		if alone { // a clock that was ahead, and is right again
			_, _ = w.ks.Clock(context.Background(), time.Now().Add(1000*time.Hour), margin)
			_, _ = w.ks.Clock(context.Background(), time.Now(), margin)
			w.m.epoch++ // alone, so unlocked
		}
	}
	return hearing{}, ""
}

func (w *world) restart(o op) {
	w.c.Close()
	w.ks.Close()
	if o.Do == "account" {
		w.account = map[string]string{"a": "b", "b": "a"}[w.account]
	}
	w.open()
}

// call is one Do, or one call of an SDK over Transport.
func (w *world) call(ctx context.Context, o op) (hearing, idem.Key) {
	var r idem.Result
	ctx = idem.WithResult(ctx, &r)
	req := w.request(ctx, o.Intent, o.Amount)
	var resp *http.Response
	var err error
	if o.Do == "do" {
		if resp, err = w.c.Do(req); idem.FateOf(resp, err) != r.Fate {
			w.mu.Lock()
			w.m.breaks(nil, "%v: FateOf says %v, WithResult %v", o, idem.FateOf(resp, err), r.Fate)
			w.mu.Unlock()
		}
	} else {
		resp, err = w.c.Transport().RoundTrip(req)
	}
	if resp != nil {
		resp.Body.Close()
	}
	if err == nil {
		err = r.Err
	}
	h := hearing{fate: r.Fate, err: err, final: err == nil, recalled: r.Recalled, began: beganOf(ctx)}
	w.hear(o, r.Key, h)
	return h, r.Key
}

func beganOf(ctx context.Context) int { return ctx.Value(opKey{}).(called).began }

// hear tells the model, and looks for the entry where the fate is Unknown.
func (w *world) hear(o op, key idem.Key, h hearing) {
	if h.fate == idem.FateUnknown && !w.crashed.Load() && !errors.Is(h.err, idem.ErrClosed) {
		if _, err := w.c.LookupKey(context.Background(), key); err != nil && !errors.Is(err, idem.ErrClosed) {
			w.mu.Lock()
			w.m.breaks(nil, "%v is Unknown (%v), and its entry %q can't be found: %v", o, h.err, key, err)
			w.mu.Unlock()
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if l := w.m.of(key); l != nil {
		w.m.hear(l, h)
	}
}

func (w *world) enqueue(ctx context.Context, o op) {
	req := w.request(ctx, o.Intent, o.Amount)
	key, err := w.c.Enqueue(req)
	var e *idem.Error
	if errors.As(err, &e) {
		w.hear(o, e.Key, hearing{fate: e.Fate, err: err, began: beganOf(ctx)})
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	body := fmt.Sprintf(`{"id":%q,"amount":%d}`, o.Intent, o.Amount)
	fresh := w.m.of(key) == nil
	l := w.m.open(key, identity(w.account, o.Intent, []byte(body), key), w.account)
	l.bytes = cmp.Or(l.bytes, req.Method+" "+req.URL.String()+" "+body)
	expires := ctx.Value(opKey{}).(called).expires
	longer := !l.expires.IsZero() && (expires.IsZero() || expires.After(l.expires))
	if l.queued = true; fresh || longer { // who joins the queue may give more time
		l.expires = expires
	}
}

// reserve counts as a first send: the call itself is made elsewhere.
func (w *world) reserve(o op) {
	ctx := idem.WithIntent(context.Background(), "")
	_, err := w.c.Reserve(ctx, "reserved-"+o.Intent, []byte{byte(o.Amount)})
	_ = err // the name may hold another payload, or be settled
}

// person finds the newest entry of an intent.
func (w *world) person(o op, act func(*life)) {
	w.mu.Lock()
	var found *life
	for _, l := range w.m.lives {
		if strings.Contains(l.id, o.Intent) || strings.Contains(l.bytes, o.Intent) {
			found = l
		}
	}
	w.mu.Unlock()
	if found == nil {
		return
	}
	w.srv.Wait() // a person waits until the provider is through with it
	act(found)
}

func (w *world) forget(o op) {
	if !strings.HasPrefix(o.Intent, "order") || w.c.Forget(context.Background(), o.Intent) != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.m.forgotten["name "+w.account+"/"+o.Intent] = w.m.step
}

// batch pays three items, over a codec or as requests of their own.
func (w *world) batch(ctx context.Context, o op) {
	b := idem.Batch{Name: o.Do + o.Intent, Codec: "json"}
	if o.Do == "items" {
		b.Codec, b.Request = "", func(ctx context.Context, it idem.Item) (*http.Request, error) {
			return w.request(ctx, it.ID, 1), nil
		}
	}
	var items []idem.Item
	for i := range 3 {
		id := fmt.Sprintf("item-%s-%s-%d", w.account, o.Intent, i)
		items = append(items, idem.Item{ID: id, Body: fmt.Appendf(nil, `{"id":%q,"amount":1}`, id)})
		if o.Do == "batch" {
			w.mu.Lock()
			w.values = append(w.values, id)
			w.mu.Unlock()
		}
	}
	b.Items = idem.Items(items...)
	for r, err := range w.c.Batch(ctx, b) {
		if err != nil {
			continue // the batch's own end: a crash, a deadline
		}
		if o.Do == "items" {
			w.hear(o, r.Key, hearing{fate: r.Fate, err: r.Err, began: beganOf(ctx)})
			continue
		}
		if n := w.bank.Effects(r.ID); r.Fate == idem.FateDone && n != 1 || r.Fate == idem.FateNotDone && n != 0 && !w.forgot() {
			w.mu.Lock()
			w.m.breaks(nil, "item %s is %v, and has %d effects", r.ID, r.Fate, n)
			w.mu.Unlock()
		}
	}
}

func (w *world) forgot() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost
}

// end heals the provider and resumes for each account: now everything that a resend
// can tell must be settled, and as the ledger has it.
func (w *world) end() {
	w.srv.Heal()
	w.bank.Heal()
	for range 2 {
		w.restart(op{Do: "account"})
		time.Sleep(2 * time.Minute) // for the breaker, and what is still under way
		sure := map[*life]bool{}
		for _, l := range w.m.lives {
			sure[l] = l.account == w.account && l.sure(w.m, time.Now()) && w.due(l)
		}
		for range 3 {
			if _, err := w.c.Resume(context.Background(), nil); err != nil {
				w.m.breaks(nil, "the last Resume: %v", err)
			}
			time.Sleep(time.Second)
		}
		w.lookUp()
		for l := range maps.Keys(sure) {
			if sure[l] && w.m.of(l.key) == l && l.state != idem.StateSettled {
				e, _ := w.c.LookupKey(context.Background(), l.key)
				w.m.breaks(l, "not settled by a Resume with a healthy provider: %v, %s", l.state, e.LastError)
			}
		}
	}
	w.srv.Wait()
	w.lookUp()
}

// due tells whether nobody asked to wait, or to stop.
func (w *world) due(l *life) bool {
	e, err := w.c.LookupKey(context.Background(), l.key)
	open := e.FirstSent.IsZero() || time.Now().Before(e.FirstSent.Add(window-margin)) // also of a 303 from a gateway, which the model knows didn't count
	return err == nil && open && e.Call == "" && !e.RetryAt.After(time.Now()) && (e.Expires.IsZero() || time.Now().Before(e.Expires))
}
