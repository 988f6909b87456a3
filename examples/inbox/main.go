// Command inbox is a consumer of a queue that delivers messages at least once.
//
//	go run ./examples/inbox
//
// Each message asks for an invoice at somebody else's API. The queue delivers it again
// whenever the consumer dies before it acknowledges. Its key is derived from the message's
// id, so that every delivery has the same one: on this machine, on another, and after the
// journal is lost.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
)

// message is what the queue delivers. Its ID is the same in every delivery.
type message struct {
	ID     string `json:"id"`
	Amount int    `json:"amount"`
}

func main() {
	dir, err := os.MkdirTemp("", "inbox")
	if err == nil {
		err = run(context.Background(), os.Stdout, dir)
		os.RemoveAll(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "inbox:", err)
		os.Exit(1)
	}
}

// consumer is one life of the program that works on messages.
type consumer struct{ *idem.Client }

func open(journal string, api *mockserver.Server) (*consumer, error) {
	c, err := idem.Open(journal, &idem.Options{
		Scope: "invoices", Base: api.Transport(),
		Retry: idem.RetryPolicy{MaxAttempts: 2, BaseDelay: time.Millisecond},
	})
	return &consumer{c}, err
}

// handle makes the message's invoice. A message may be acknowledged once this says
// that it is known whether it happened.
func (c *consumer) handle(ctx context.Context, m message) (idem.Result, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return idem.Result{}, err
	}
	var r idem.Result
	ctx = idem.WithResult(idem.WithKey(ctx, idem.DeriveKey("invoices", m.ID)), &r)
	req, err := http.NewRequestWithContext(ctx, "POST", "https://billing.example/invoices", strings.NewReader(string(body)))
	if err != nil {
		return r, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.Do(req)
	if resp != nil {
		resp.Body.Close()
	}
	return r, err
}

// delivery is one delivery of a message, and what is to come of it.
type delivery struct {
	story   string
	journal string
	message message
	fault   mockserver.Fault
	fate    idem.Fate
	err     error
}

func deliveries(dir string) []delivery {
	here, there := filepath.Join(dir, "here.db"), filepath.Join(dir, "there.db")
	seven := message{"msg-7", 1999}
	lost := mockserver.Fault{Kind: mockserver.FaultDrop, Times: 2}
	none := mockserver.Fault{}
	return []delivery{
		{"first delivery, both answers are lost, the consumer dies", here, seven, lost, idem.FateUnknown, idem.ErrExhausted},
		{"second delivery, after a restart", here, seven, none, idem.FateDone, nil},
		{"third delivery: the acknowledgement was lost", here, seven, none, idem.FateDone, nil},
		{"fourth delivery, on a machine without the journal", there, seven, none, idem.FateDone, nil},
		{"a bug: the same id with another amount", here, message{"msg-7", 2999}, none, idem.FateDone, idem.ErrMismatch},
		{"another message", here, message{"msg-8", 500}, none, idem.FateDone, nil},
	}
}

func run(ctx context.Context, out io.Writer, dir string) error {
	api := mockserver.New(nil)
	defer api.Close()
	for _, d := range deliveries(dir) {
		if err := deliver(ctx, out, api, d); err != nil {
			return err
		}
	}
	return audit(out, api)
}

// deliver is a whole life of the consumer: it starts, gets one message, and ends.
func deliver(ctx context.Context, out io.Writer, api *mockserver.Server, d delivery) error {
	c, err := open(d.journal, api)
	if err != nil {
		return err
	}
	before := len(api.Requests())
	if d.fault.Kind != mockserver.FaultNone {
		api.Script(d.fault)
	}
	r, err := c.handle(ctx, d.message)
	fmt.Fprintf(out, "%s\n  %s: %v, %d request(s)%s\n", d.story, d.message.ID, r.Fate, len(api.Requests())-before, how(r, err))
	if r.Fate != d.fate || !errors.Is(err, d.err) {
		return errors.Join(fmt.Errorf("audit: %s: %v, %w; want %v, %v", d.story, r.Fate, err, d.fate, d.err), c.Close())
	}
	return c.Close()
}

func how(r idem.Result, err error) string {
	switch {
	case errors.Is(err, idem.ErrMismatch):
		return ", refused: that key has another payload"
	case err != nil:
		return ", not acknowledged"
	case r.Recalled:
		return ", recalled from the journal"
	case r.Replayed:
		return ", replayed by the provider"
	}
	return ""
}

// audit asks the API's own ledger.
func audit(out io.Writer, api *mockserver.Server) error {
	for _, id := range []string{"msg-7", "msg-8"} {
		if api.Effects(id) != 1 || len(api.Keys(id)) != 1 {
			return fmt.Errorf("audit: %s made %d invoices under %d keys", id, api.Effects(id), len(api.Keys(id)))
		}
	}
	fmt.Fprintln(out, "One invoice for each message.")
	return nil
}
