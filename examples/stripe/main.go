// Command stripe puts idem under an SDK.
//
//	go run ./examples/stripe
//
// The SDK below is a small one of the usual kind: it mints a key for each call, posts
// forms, and makes errors of its own of what comes back. It isn't changed; it is given
// an http.Client over [idem.Client.Transport]. The API is a mock inside the program,
// which keeps and replays answers as Stripe's version 1 does.
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
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dialect"
	"github.com/idem-go/idem/mockserver"
)

func main() {
	dir, err := os.MkdirTemp("", "stripe")
	if err == nil {
		err = run(context.Background(), os.Stdout, dir)
		os.RemoveAll(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "stripe:", err)
		os.Exit(1)
	}
}

// shop is one life of a program that charges its customers through the SDK.
type shop struct {
	*idem.Client
	sdk sdk
}

func open(dir string, api *mockserver.Server) (*shop, error) {
	c, err := idem.Open(filepath.Join(dir, "charges.db"), &idem.Options{
		Scope: "stripe", Dialect: dialect.Stripe(), Base: api.Transport(),
		Retry: idem.RetryPolicy{MaxAttempts: 2, BaseDelay: time.Millisecond},
	})
	if err != nil {
		return nil, err
	}
	return &shop{c, sdk{http: c.HTTPClient(), secret: "sk_test_123"}}, nil
}

// charge names the call after the order, and learns its fate whatever the SDK makes
// of the answer.
func (s *shop) charge(ctx context.Context, out io.Writer, order string) idem.Result {
	var r idem.Result
	ctx = idem.WithResult(idem.WithIntent(ctx, order), &r)
	id, err := s.sdk.charge(ctx, order, 1999)
	said := "charge " + id
	if err != nil {
		said = "error: " + err.Error()
	}
	fmt.Fprintf(out, "  %-10s the SDK says %s; the journal says %v\n", order, said, r.Fate)
	return r
}

func run(ctx context.Context, out io.Writer, dir string) error {
	api := mockserver.New(&mockserver.Config{Profile: mockserver.StripeV1(), Handler: http.HandlerFunc(charges)})
	defer api.Close()

	fmt.Fprintln(out, "First run. Of order-1 both answers are lost; the card of order-2 is declined; order-3 meets a 500 that Stripe keeps.")
	s, err := open(dir, api)
	if err != nil {
		return err
	}
	api.Script(mockserver.Fault{Kind: mockserver.FaultDrop, Times: 2})
	results := []idem.Result{s.charge(ctx, out, "order-1"), s.charge(ctx, out, "order-2"), s.charge(ctx, out, "order-3")}
	if err := s.Close(); err != nil {
		return err
	}

	fmt.Fprintln(out, "The program starts again and charges all three again, under new keys of the SDK.")
	if s, err = open(dir, api); err != nil {
		return err
	}
	results = append(results, s.charge(ctx, out, "order-1"), s.charge(ctx, out, "order-2"), s.charge(ctx, out, "order-3"))
	return errors.Join(s.Close(), audit(out, api, results))
}

// charges is the API behind the key: one order after the other has its trouble.
func charges(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch body, _ := io.ReadAll(r.Body); {
	case bytes.Contains(body, []byte("order-2")):
		w.WriteHeader(http.StatusPaymentRequired)
		io.WriteString(w, `{"error":{"type":"card_error","message":"Your card was declined."}}`)
	case bytes.Contains(body, []byte("order-3")):
		w.WriteHeader(http.StatusInternalServerError)
		io.WriteString(w, `{"error":{"type":"api_error","message":"Something went wrong."}}`)
	default:
		io.WriteString(w, `{"id":"ch_1"}`)
	}
}

// audit asks the API's own ledger.
func audit(out io.Writer, api *mockserver.Server, results []idem.Result) error {
	want := []idem.Fate{
		idem.FateUnknown, idem.FateNotDone, idem.FateUnknown, // first run
		idem.FateDone, idem.FateNotDone, idem.FateUnknown, // second run
	}
	for i, r := range results {
		if r.Fate != want[i] {
			return fmt.Errorf("audit: %s is %v in call %d, want %v", r.Intent, r.Fate, i+1, want[i])
		}
	}
	switch {
	case api.Effects("order-1") != 1:
		return fmt.Errorf("audit: order-1 was charged %d times", api.Effects("order-1"))
	case results[0].Key != results[3].Key:
		return errors.New("audit: order-1 went out under two keys")
	}
	for order, sends := range map[string]int{"order-1": 3, "order-2": 1, "order-3": 1} {
		if len(api.Keys(order)) != 1 || count(api, order) != sends {
			return fmt.Errorf("audit: %s was sent %d times under %d keys", order, count(api, order), len(api.Keys(order)))
		}
	}
	fmt.Fprintln(out, "order-1 was charged once, under one key. order-2 is recalled. order-3 waits for a look at the dashboard: the same key can't tell, and no new one is taken by itself.")
	return nil
}

func count(api *mockserver.Server, order string) (n int) {
	for _, r := range api.Requests() {
		if r.Value == order {
			n++
		}
	}
	return n
}
