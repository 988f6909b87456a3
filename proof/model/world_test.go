package model

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/codec"
	"github.com/idem-go/idem/mockserver"
)

// world is the library, a journal in a file and a provider, beside the model that
// watches them.
type world struct {
	t    *testing.T
	prog program
	path string

	srv  *mockserver.Server // one request, one intent
	bank *mockserver.Server // takes batches

	ks      *idem.BoltKeystore
	c       *idem.Client
	account string
	crashed atomic.Bool

	mu     sync.Mutex // guards what follows
	m      *model
	queue  []fault    // what the next requests meet
	values []string   // of items of batches
	lost   bool       // the bank forgot the keys of calls within their window, as it must not
	arrive sync.Mutex // held while a fault and its request reach the mock together
}

type opKey struct{}

// sending is a request on its way to the provider.
type sending struct {
	wire, bytes, account string
	expires              time.Time // of the call that sends it
	reaches              bool      // the provider may process it
	sticks               bool      // what it keeps of it can't be replaced by a resend
}

// hearing is what a caller was told.
type hearing struct {
	fate     idem.Fate
	err      error
	final    bool
	recalled bool
	began    int // when the call began, by model.moment
}

func (w *world) open() {
	var err error
	if w.ks, err = idem.OpenKeystore(w.path, nil); err != nil {
		w.t.Fatal(err)
	}
	if w.c, err = idem.New(w.ks, w.options()); err != nil {
		w.t.Fatal(err)
	}
	w.crashed.Store(false)
}

func (w *world) options() *idem.Options {
	d := providers[w.prog.Provider].dialect
	d.Window, d.Margin, d.Routes = window, margin, nil
	o := &idem.Options{
		Scope: "provider", Account: w.account, Base: w, Dialect: d, Keep: keep,
		Retry:     idem.RetryPolicy{MaxAttempts: 3, AttemptTimeout: 10 * time.Second, BaseDelay: 100 * time.Millisecond, MaxDelay: 2 * time.Second, MaxRetryAfter: 5 * time.Second, NoBudget: true},
		Breaker:   idem.BreakerPolicy{Disabled: !w.prog.Breaker},
		Authorize: authorize,
		Settled:   func(_ context.Context, e idem.Entry) error { w.told(e); return nil },
		Codecs:    map[string]idem.BatchCodec{"json": codec.JSONArray{URL: "http://batch.example/v1/batch", HonoursKeys: true}},
	}
	if w.prog.Reconcile != "" {
		o.Reconcile = w.reconcile
	}
	return o
}

// authorize adds the account's credential.
func authorize(req *http.Request) error {
	account, _ := idem.AccountFrom(req.Context())
	req.Header.Set("Authorization", "Bearer "+account)
	return nil
}

// reconcile is the provider's look-up, which waits for what is still under way there.
func (w *world) reconcile(_ context.Context, e idem.Entry) (idem.Finding, error) {
	switch w.prog.Reconcile {
	case "unknown":
		return idem.Finding{}, nil
	case "error":
		return idem.Finding{}, errors.New("the look-up fails")
	}
	w.srv.Wait()
	w.bank.Wait()
	return w.truth(e.Key), nil
}

func (w *world) truth(key idem.Key) idem.Finding {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l := w.m.of(key); l != nil && l.effects(w.m) > 0 || w.bank.EffectsOfKey(string(key)) > 0 {
		return idem.Finding{Fate: idem.FateDone, Status: 201, Body: []byte(`{"found":true}`)}
	}
	return idem.Finding{Fate: idem.FateNotDone}
}

// told is what the Settled hook hears.
func (w *world) told(e idem.Entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l := w.m.of(e.Key); l != nil {
		w.m.hear(l, hearing{fate: e.Fate, began: w.m.moment})
	}
}

// RoundTrip is Options.Base: the one way to the provider.
func (w *world) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	srv := w.srv
	if req.URL.Host == "batch.example" {
		srv = w.bank
	}
	w.arrive.Lock()
	met := false
	leave := sync.OnceFunc(func() { met = true; w.arrive.Unlock() })
	defer leave()
	f := w.meet()
	srv.Script(f.Fault)
	l := w.sending(req, body, f)
	ctx := httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{GetConn: func(string) { leave() }})
	out := req.Clone(ctx)
	out.Body = io.NopCloser(bytes.NewReader(body))
	resp, err := srv.Transport().RoundTrip(out)
	if !met {
		srv.Heal() // the request ended before it met its fault, which must not wait for the next
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	l.driven = false
	return resp, err
}

// meet takes the next fault.
func (w *world) meet() fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		return fault{}
	}
	f := w.queue[0]
	w.queue = w.queue[1:]
	return f
}

// sending shows a request to the model.
func (w *world) sending(req *http.Request, body []byte, f fault) *life {
	w.mu.Lock()
	defer w.mu.Unlock()
	early := f.Kind == mockserver.FaultRefuse || f.Kind == mockserver.FaultInFlight || f.Kind == mockserver.FaultRateLimit ||
		!f.After && (f.Kind == mockserver.FaultReset || f.Kind == mockserver.FaultStatus || f.Kind == mockserver.FaultRestart)
	s := sending{
		wire:    req.Header.Get("Idempotency-Key"),
		bytes:   req.Method + " " + req.URL.String() + " " + string(body),
		account: strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer "),
		reaches: !early,
		sticks:  f.Kind == mockserver.FaultFail && f.Fault.Status/100 != 4,
	}
	if o, ok := req.Context().Value(opKey{}).(called); ok {
		s.expires = o.expires
	}
	key := idem.Key(strings.Trim(s.wire, `"`))
	if n := len(req.Header.Values("Idempotency-Key")); n != 1 {
		w.m.breaks(nil, "%d keys on %s", n, s.bytes)
	}
	var in struct{ ID string }
	_ = json.Unmarshal(body, &in) // a batch's call is an array
	l := w.m.open(key, identity(s.account, in.ID, body, key), s.account)
	w.m.send(l, s)
	switch {
	case f.Kind == mockserver.FaultForget:
		w.m.forgive(key)
		w.lost = w.lost || in.ID == ""
	case f.Kind == mockserver.FaultRestart && f.Keep == mockserver.KeepNothing:
		w.m.forgive("")
		w.lost = true
	}
	return l
}

// identity is whose call it is.
func identity(account, value string, body []byte, key idem.Key) string {
	switch kind, _, _ := strings.Cut(value, "-"); kind {
	case "order", "item":
		return "name " + account + "/" + value
	case "anonymous":
		return "anonymous " + account + "/" + string(body)
	case "":
		return "batch call " + string(key)
	}
	return string(key)
}

// called is what a request's context says of the call it comes from.
type called struct {
	expires time.Time
	began   int
}

// context is the one of a call.
func (w *world) context(o op) (context.Context, func()) {
	ctx, stop := context.Background(), func() {}
	if o.Limit > 0 {
		ctx, stop = context.WithTimeout(ctx, o.Limit)
	}
	w.mu.Lock()
	c := called{began: w.m.moment}
	w.mu.Unlock()
	if o.Expiry > 0 {
		c.expires = time.Now().Add(o.Expiry)
		ctx = idem.WithExpiry(ctx, c.expires)
	}
	if o.Stored {
		ctx = idem.WithStoredPayload(ctx)
	}
	switch {
	case strings.HasPrefix(o.Intent, "order"):
		ctx = idem.WithIntent(ctx, o.Intent)
	case strings.HasPrefix(o.Intent, "keyed"):
		ctx = idem.WithKey(ctx, idem.DeriveKey("proof", o.Intent))
	}
	return context.WithValue(ctx, opKey{}, c), stop
}

func (w *world) request(ctx context.Context, value string, amount int) *http.Request {
	body := fmt.Sprintf(`{"id":%q,"amount":%d}`, value, amount)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://api.example/v1/payments", strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if strings.HasPrefix(value, "sdk") {
		key := value
		if w.prog.Provider == "ietf" {
			key = `"` + key + `"`
		}
		req.Header.Set("Idempotency-Key", key)
	}
	return req
}

// lookUp shows the journal to the model.
func (w *world) lookUp() {
	w.mu.Lock()
	lives := w.m.lives
	w.mu.Unlock()
	for _, l := range lives {
		if strings.HasPrefix(l.id, "batch call") || w.m.of(l.key) != l {
			continue
		}
		e, err := w.c.LookupKey(context.Background(), l.key)
		switch {
		case err == nil:
			w.m.journaled(l, &e)
		case errors.Is(err, idem.ErrNotFound):
			w.m.journaled(l, nil)
		default:
			w.m.breaks(l, "can't be looked up: %v", err)
		}
	}
	w.m.oneKey()
	for _, v := range w.values {
		if n := w.bank.Effects(v); n > 1 {
			w.m.breaks(nil, "item %s of a batch has %d effects", v, n)
		}
	}
}
