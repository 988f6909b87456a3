package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/mockserver"
)

// soakProviderCommand is the hidden command that is the soak's provider.
const soakProviderCommand = "soak-provider"

// soakBook is what the provider says of a soak.
type soakBook struct {
	Effects  map[string]int // how often each payment was made
	Requests int64
}

// runSoakProvider takes payments one by one and in batches, each with the faults of
// the demo, and answers look-ups.
func runSoakProvider(ctx context.Context, con console, args []string) error {
	fs := flag.NewFlagSet(soakProviderCommand, flag.ContinueOnError)
	seed := fs.Uint64("seed", 1, "")
	if err := parse(fs, con, args, ""); err != nil {
		return err
	}
	ctx = untilOrphaned(ctx, con.in)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	single := mockserver.New(&mockserver.Config{Faults: faults(), Seed: *seed, Rate: soakFaultRate})
	batch := mockserver.New(&mockserver.Config{Faults: faults(), Seed: *seed + 1, Rate: soakFaultRate, Batch: &mockserver.Batch{
		Seed: *seed, Rate: 0.2, Outcomes: []mockserver.ItemOutcome{mockserver.ItemThrottle, mockserver.ItemBreak, mockserver.ItemBreakAfter, mockserver.ItemSkip, mockserver.ItemLose},
	}})
	var requests atomic.Int64
	counted := func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { requests.Add(1); h.ServeHTTP(w, r) })
	}
	mux := http.NewServeMux()
	mux.Handle("/payments", counted(single))
	mux.Handle("/batch", counted(batch))
	mux.HandleFunc("GET /effects/{id}", func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(time.Second) // longer than a request of a worker may still be under way
		json.NewEncoder(w).Encode(single.EffectsOfKey(r.PathValue("id")) + batch.EffectsOfKey(r.PathValue("id")))
	})
	mux.HandleFunc("GET /requests", func(w http.ResponseWriter, _ *http.Request) { json.NewEncoder(w).Encode(requests.Load()) })
	mux.HandleFunc("GET /book", func(w http.ResponseWriter, _ *http.Request) {
		single.Wait()
		batch.Wait()
		b := soakBook{Effects: map[string]int{}, Requests: requests.Load()}
		for _, r := range single.Requests() {
			if r.Effect {
				b.Effects[r.Value]++
			}
		}
		for _, it := range batch.Items() {
			if it.Effect {
				b.Effects[it.Value]++
			}
		}
		json.NewEncoder(w).Encode(b)
	})
	web := &http.Server{Handler: mux}
	context.AfterFunc(ctx, func() { web.Close() })
	fmt.Fprintf(con.out, "http://%s\n", ln.Addr())
	if err := web.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
