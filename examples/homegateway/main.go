// Command homegateway is a hub that sends commands to a home's gateway, which is
// often not there.
//
//	go run ./examples/homegateway
//
// Commands are taken while the gateway is offline, survive the hub's own restart, and
// are delivered once: the front door is unlocked one time although the gateway restarts
// before it can say so. A command that comes too late isn't sent at all.
//
// Say what shall be, not what shall change. {"on":true} may be sent twice, for it
// leads to the same light; "toggle" sent twice is no command at all. The gateway takes
// no key on toggle, and so the dialect has none there: it is sent at most once, and
// after a lost answer nobody knows.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
)

// The commands, which are also what the mock counts effects of.
const (
	unlockDoor  = "/v1/locks/front-door/unlock"
	unlockGate  = "/v1/locks/garden-gate/unlock"
	setHeating  = "/v1/climate/hall/set_state"
	setLight    = "/v1/lights/hall/set_state"
	toggleLight = "/v1/lights/porch/toggle"
)

func main() {
	dir, err := os.MkdirTemp("", "homegateway")
	if err == nil {
		err = run(context.Background(), os.Stdout, dir)
		os.RemoveAll(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "homegateway:", err)
		os.Exit(1)
	}
}

// gateway is the dialect of the home's gateway, which remembers keys for an hour.
func gateway() idem.Dialect {
	return idem.Dialect{
		Name: "gateway", Methods: []string{"POST"}, Window: time.Hour,
		Routes: []idem.Dialect{{Placement: idem.PlaceNone, Paths: []string{"/v1/*/*/toggle"}, Methods: []string{"POST"}}},
	}
}

// hub is one life of the hub's process.
type hub struct {
	*idem.Client
	token string // today's; never journaled

	mu    sync.Mutex
	ended map[string]idem.Fate // guarded by mu
	all   chan struct{}        // closed when want commands have ended
	want  int
}

// network is the way to the gateway, with the faults that each command meets on it.
type network struct {
	api    *mockserver.Server
	faults map[string][]mockserver.Fault
}

// RoundTrip implements http.RoundTripper. Run delivers one command at a time here.
func (n *network) RoundTrip(req *http.Request) (*http.Response, error) {
	if f := n.faults[req.URL.Path]; len(f) > 0 {
		n.api.Script(f[0])
		n.faults[req.URL.Path] = f[1:]
	}
	return n.api.Transport().RoundTrip(req)
}

// open starts the hub over its journal.
func open(dir, token string, base *network, want int) (*hub, error) {
	h := &hub{token: token, ended: map[string]idem.Fate{}, all: make(chan struct{}), want: want}
	var err error
	h.Client, err = idem.Open(filepath.Join(dir, "commands.db"), &idem.Options{
		Scope: "gateway", Dialect: gateway(), Base: base,
		Retry: idem.RetryPolicy{MaxAttempts: 10, BaseDelay: 10 * time.Millisecond},
		Authorize: func(req *http.Request) error {
			req.Header.Set("Authorization", "Bearer "+h.token)
			return nil
		},
		Resume:  idem.ResumeOptions{Concurrency: 1},
		Settled: h.settled,
		Trace:   &idem.Trace{Ended: func(_ context.Context, e idem.Entry, err error) { h.end(e) }},
	})
	return h, err
}

// settled hears of every outcome that no call returned, over restarts.
func (h *hub) settled(_ context.Context, e idem.Entry) error {
	h.end(e)
	return nil
}

func (h *hub) end(e idem.Entry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, known := h.ended[e.Intent]; known || e.State == idem.StatePending {
		return
	}
	if h.ended[e.Intent] = e.Fate; len(h.ended) == h.want {
		close(h.all)
	}
}

// command enqueues one: durable now, delivered by Run.
func (h *hub) command(ctx context.Context, name, path, body string) error {
	req, err := http.NewRequestWithContext(idem.WithIntent(ctx, name), "POST", "https://gateway.local"+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+h.token)
	_, err = h.Enqueue(req)
	return err
}

func run(ctx context.Context, out io.Writer, dir string) error {
	api := mockserver.New(&mockserver.Config{Value: func(r *http.Request, _ []byte) string { return r.URL.Path }})
	defer api.Close()
	if err := offline(ctx, out, dir); err != nil {
		return err
	}
	time.Sleep(expiry) // the courier at the garden gate has gone

	fmt.Fprintln(out, "The hub starts again, with a new token. The gateway is still booting, and restarts once more after it has opened the door.")
	refused := mockserver.Fault{Kind: mockserver.FaultRefuse}
	restart := mockserver.Fault{Kind: mockserver.FaultRestart, After: true} // it happens, the answer is lost, the gateway keeps its keys
	h, err := open(dir, "token-of-today", &network{api, map[string][]mockserver.Fault{
		unlockDoor:  {refused, refused, refused, restart},
		setHeating:  {refused, restart},
		toggleLight: {restart},
	}}, 5)
	if err != nil {
		return err
	}
	if err := deliver(ctx, h); err != nil {
		return errors.Join(err, h.Close())
	}
	for _, name := range []string{"door", "gate", "heating", "light", "porch"} {
		fmt.Fprintf(out, "  %-8s %v\n", name, h.ended[name])
	}
	if err := h.Close(); err != nil {
		return err
	}
	return audit(out, dir, api)
}

const expiry = 50 * time.Millisecond

// offline takes commands while nothing can be delivered.
func offline(ctx context.Context, out io.Writer, dir string) error {
	h, err := open(dir, "token-of-yesterday", &network{}, 5)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "The gateway is offline. Five commands are taken, and the hub loses power.")
	soon := idem.WithExpiry(ctx, time.Now().Add(expiry))
	return errors.Join(
		h.command(ctx, "door", unlockDoor, `{}`),
		h.command(soon, "gate", unlockGate, `{}`),
		h.command(ctx, "heating", setHeating, `{"target":21}`),
		h.command(ctx, "light", setLight, `{"on":true}`),
		h.command(ctx, "porch", toggleLight, `{}`),
		h.Close(),
	)
}

// deliver runs the queue until each command has an end.
func deliver(ctx context.Context, h *hub) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	select {
	case <-h.all:
	case err := <-ended:
		return err
	case <-time.After(30 * time.Second):
		return errors.New("not all commands came to an end")
	}
	cancel()
	return <-ended
}

// audit asks the gateway's own ledger, and the journal's bytes.
func audit(out io.Writer, dir string, api *mockserver.Server) error {
	var failed []error
	want := func(ok bool, what string) {
		if !ok {
			failed = append(failed, fmt.Errorf("audit: %s", what))
		}
	}
	for _, command := range []string{unlockDoor, setHeating, setLight} {
		want(api.Effects(command) == 1 && len(api.Keys(command)) == 1, command+" took effect once, under one key")
	}
	want(len(api.Keys(unlockGate)) == 0, "the late unlock was never sent")
	sent := 0
	for _, r := range api.Requests() {
		want(r.Header.Get("Authorization") == "Bearer token-of-today", "each delivery had today's token")
		if r.Value == toggleLight {
			sent++
		}
	}
	want(sent == 1, "toggle was sent once")
	journal, err := os.ReadFile(filepath.Join(dir, "commands.db"))
	want(err == nil && !bytes.Contains(journal, []byte("token-of-")), "no token is in the journal")
	if len(failed) == 0 {
		fmt.Fprintln(out, "The door was unlocked once. The gate, too late, not at all. Whether the porch light was toggled nobody knows, so it isn't toggled again.")
	}
	return errors.Join(failed...)
}
