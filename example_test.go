package idem_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dialect"
	"github.com/idem-go/idem/mockserver"
)

// readme is the code of the README's first screen, so that it compiles.
func readme(ctx context.Context, secret string, charged, refused func(*http.Response) error) error {
	client, err := idem.Open("payments.db", &idem.Options{
		Scope:   "stripe",
		Dialect: dialect.Stripe(),
		Authorize: func(req *http.Request) error {
			req.SetBasicAuth(secret, "") // credentials are never journaled; this adds them to what is sent after a crash
			return nil
		},
	})
	if err != nil {
		return err
	}
	defer client.Close()
	go client.Run(ctx) // finds out what a crash or a lost answer left Unknown

	req, err := http.NewRequestWithContext(idem.WithIntent(ctx, "order-1017"), // your own name for it
		"POST", "https://api.stripe.com/v1/charges", strings.NewReader("amount=1999&currency=eur"))
	if err != nil {
		return err
	}
	req.SetBasicAuth(secret, "")
	resp, err := client.Do(req)
	switch {
	case errors.Is(err, idem.ErrMismatch):
		return err // order-1017 stands for another amount; this one wasn't sent
	case err != nil && idem.FateOf(resp, err) == idem.FateUnknown:
		return nil // it may have happened: Run, or the next Do of order-1017, finds out
	case err != nil && idem.FateOf(resp, err) == idem.FateNotDone:
		return err // it didn't, and nothing sent so far can make it happen
	case err != nil:
		return err // it happened, and its answer couldn't be kept or read
	}
	defer resp.Body.Close()
	if idem.FateOf(resp, nil) != idem.FateDone {
		return refused(resp) // the provider's own no, as it came
	}
	return charged(resp) // it happened; asking again answers from the journal
}

var _ = readme

// openExample opens a client over a fresh journal and a mock provider.
func openExample(opts *idem.Options) (*idem.Client, *mockserver.Server, func()) {
	dir, err := os.MkdirTemp("", "idem")
	if err != nil {
		panic(err)
	}
	srv := mockserver.New(nil)
	opts.Base = srv.Transport()
	client, err := idem.Open(filepath.Join(dir, "journal.db"), opts)
	if err != nil {
		panic(err)
	}
	return client, srv, func() { client.Close(); srv.Close(); os.RemoveAll(dir) }
}

func order(ctx context.Context, id string) *http.Request {
	req, err := http.NewRequestWithContext(ctx, "POST", "https://api.example/orders", strings.NewReader(`{"id":"`+id+`","qty":1}`))
	if err != nil {
		panic(err)
	}
	req.Header.Set("Content-Type", "application/json")
	return req
}

func ExampleClient_Do() {
	client, provider, done := openExample(&idem.Options{})
	defer done()
	provider.Script(mockserver.Fault{Kind: mockserver.FaultDrop}) // the first answer is lost

	for range 2 {
		ctx := idem.WithIntent(context.Background(), "order-1017")
		resp, err := client.Do(order(ctx, "1017"))
		if err != nil {
			fmt.Println(err)
			return
		}
		r, _ := idem.ResultOf(resp)
		fmt.Println(r.Fate, resp.StatusCode, "attempts:", r.Attempts, "recalled:", r.Recalled)
	}
	fmt.Println("effects:", provider.Effects("1017"))
	// Output:
	// Done 201 attempts: 2 recalled: false
	// Done 201 attempts: 2 recalled: true
	// effects: 1
}

func ExampleJSON() {
	type Order struct {
		ID       string `json:"id"`
		Resource string `json:"resource"`
	}
	client, _, done := openExample(&idem.Options{})
	defer done()

	ctx := idem.WithIntent(context.Background(), "order-7")
	placed, err := idem.JSON[Order](client.Do(order(ctx, "7")))
	fmt.Println(placed.ID, placed.Resource, err)
	// Output: 7 res_1 <nil>
}

func ExampleClient_Resume() {
	client, provider, done := openExample(&idem.Options{Retry: idem.RetryPolicy{MaxAttempts: 1}})
	defer done()
	provider.Script(mockserver.Fault{Kind: mockserver.FaultDrop})

	ctx := idem.WithIntent(context.Background(), "order-8")
	_, err := client.Do(order(ctx, "8"))
	fmt.Println(idem.FateOf(nil, err))

	report, err := client.Resume(context.Background(), nil)
	fmt.Printf("%+v %v\n", report, err)
	// Output:
	// Unknown
	// {Done:1 NotDone:0 Unknown:0 Skipped:0} <nil>
}

func ExampleWithResult() {
	client, _, done := openExample(&idem.Options{})
	defer done()

	var result idem.Result
	ctx := idem.WithIntent(context.Background(), "order-9")
	ctx = idem.WithResult(ctx, &result)
	sdk := &http.Client{Transport: client.Transport()} // somebody else's code
	resp, err := sdk.Do(order(ctx, "9"))
	if err == nil {
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	fmt.Println(result.Fate, result.Status)
	// Output: Done 201
}

func ExampleClient_Enqueue() {
	delivered := make(chan idem.Entry, 1)
	client, _, done := openExample(&idem.Options{
		Settled: func(_ context.Context, e idem.Entry) error { delivered <- e; return nil },
	})
	defer done()
	ctx, stop := context.WithCancel(context.Background())
	finished := make(chan error)
	go func() { finished <- client.Run(ctx) }()

	if _, err := client.Enqueue(order(idem.WithIntent(ctx, "unlock-1"), "unlock-1")); err != nil {
		fmt.Println(err)
	}
	e := <-delivered
	fmt.Println(e.Intent, e.Fate, e.Status)
	stop()
	fmt.Println(<-finished)
	// Output:
	// unlock-1 Done 201
	// <nil>
}
