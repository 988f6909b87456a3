package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/idem-go/idem/mockserver"
)

// providerCommand is the hidden command that is the provider's process.
const providerCommand = "demo-provider"

// runProvider serves the mock on loopback until the demo ends. Its first line of
// output says where.
func runProvider(ctx context.Context, con console, args []string) error {
	fs := flag.NewFlagSet(providerCommand, flag.ContinueOnError)
	seed := fs.Uint64("seed", 1, "")
	if err := parse(fs, con, args, ""); err != nil {
		return err
	}
	ctx = untilOrphaned(ctx, con.in)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	bank := &bank{}
	srv := mockserver.New(&mockserver.Config{Handler: bank, Faults: faults(), Seed: *seed, Rate: faultRate})
	mux := http.NewServeMux()
	mux.Handle("/payments", srv)
	mux.HandleFunc("GET /ledger", func(w http.ResponseWriter, _ *http.Request) {
		srv.Wait() // a payment whose worker was killed may still be under way
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(bank.ledger(srv))
	})
	web := &http.Server{Handler: mux}
	context.AfterFunc(ctx, func() { web.Close() })
	fmt.Fprintf(con.out, "http://%s\n", ln.Addr())
	if err := web.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// provider is the demo's side of that process.
type provider struct {
	url   string
	child *child
	over  chan struct{} // closed when the process is gone
}

// startProvider starts the process; cancel is called if it ends by itself.
func startProvider(ctx context.Context, command string, seed uint64, cancel context.CancelCauseFunc) (*provider, error) {
	c, err := startChild(ctx, command, fmt.Sprintf("--seed=%d", seed))
	if err != nil {
		return nil, err
	}
	url, ok := c.line()
	if !ok {
		return nil, fmt.Errorf("the provider didn't start: %w", errors.Join(c.wait(), io.ErrUnexpectedEOF))
	}
	p := &provider{url, c, make(chan struct{})}
	go func() {
		defer close(p.over)
		c.drain()
		cancel(fmt.Errorf("the provider's process ended: %w", errors.Join(c.wait(), io.ErrUnexpectedEOF)))
	}()
	return p, nil
}

// stop ends the process and returns when it is gone.
func (p *provider) stop(cancel context.CancelCauseFunc) {
	cancel(nil)
	<-p.over
}

func (p *provider) ledger(ctx context.Context) (ledger, error) {
	return read[ledger](ctx, p.url+"/ledger")
}

// read asks the provider's process for one of its books.
func read[T any](ctx context.Context, url string) (book T, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return book, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return book, fmt.Errorf("read the provider's ledger: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return book, fmt.Errorf("read the provider's ledger: status %d", resp.StatusCode)
	}
	return book, json.NewDecoder(resp.Body).Decode(&book)
}
