package mockserver_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/idem-go/idem/mockserver"
)

// A client that gets no answer can't know that it happened, and asks again.
func Example() {
	api := mockserver.New(nil)
	defer api.Close()
	api.Script(mockserver.Fault{Kind: mockserver.FaultReset, After: true})

	client := http.Client{Transport: api.Transport()}
	for range 2 {
		req, _ := http.NewRequest("POST", "https://api.example.com/charges", strings.NewReader(`{"id":"order-7"}`))
		req.Header.Set("Idempotency-Key", "8e03978e")
		resp, err := client.Do(req)
		if err != nil {
			fmt.Println("no answer")
			continue
		}
		resp.Body.Close()
		fmt.Println(resp.Status, "replayed:", resp.Header.Get("Idempotent-Replayed"))
	}
	fmt.Println("requests:", len(api.Requests()), "effects:", api.Effects("order-7"))
	// Output:
	// no answer
	// 201 Created replayed: true
	// requests: 2 effects: 1
}

// One item is refused, and one happens but is missing in the answer: only the
// ledger knows.
func ExampleBatch() {
	api := mockserver.New(&mockserver.Config{Batch: &mockserver.Batch{
		Script: map[string][]mockserver.ItemOutcome{"p-2": {mockserver.ItemRefuse}, "p-3": {mockserver.ItemLose}},
	}})
	defer api.Close()

	client := http.Client{Transport: api.Transport()}
	call := `[{"id":"p-1","idempotency_key":"k1"},{"id":"p-2","idempotency_key":"k2"},{"id":"p-3","idempotency_key":"k3"}]`
	resp, err := client.Post(api.URL+"/payouts/batch", "application/json", strings.NewReader(call))
	if err != nil {
		fmt.Println(err)
		return
	}
	io.Copy(os.Stdout, resp.Body)
	resp.Body.Close()
	fmt.Println("\neffects:", api.Effects("p-1"), api.Effects("p-2"), api.Effects("p-3"))
	// Output:
	// [{"id":"p-1","status":201},{"error":{"code":"refuse","message":"the mock server says refuse"},"id":"p-2","status":422}]
	// effects: 1 0 1
}
