package main

import (
	"encoding/json"
	"net/http"
	"strconv"
	"sync"

	"github.com/idem-go/idem/mockserver"
)

// bank makes the payments: the work behind the mock server's idempotency layer.
// It knows no keys, and pays as often as it is asked.
type bank struct {
	mu   sync.Mutex // guards what follows
	made []made
}

// made is one payment that the bank made.
type made struct {
	ID       string
	Cents    int64
	Currency string
}

func (b *bank) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	var p wire
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
		refuse(w, "not a payment: "+err.Error())
		return
	}
	cents, err := parseCents(p.Amount)
	if err != nil {
		refuse(w, err.Error())
		return
	}
	b.mu.Lock()
	b.made = append(b.made, made{p.ID, cents, p.Currency})
	n := len(b.made)
	b.mu.Unlock()
	w.WriteHeader(http.StatusCreated)
	json.NewEncoder(w).Encode(map[string]string{"id": p.ID, "resource": "txn_" + strconv.Itoa(n), "status": "paid"})
}

func refuse(w http.ResponseWriter, why string) {
	w.WriteHeader(http.StatusBadRequest)
	json.NewEncoder(w).Encode(map[string]string{"error": "invalid_payment", "message": why})
}

// ledger is what the provider knows at the end of a run. It alone says what
// happened; the audit never asks the client.
type ledger struct {
	Made    []made
	Effects map[string]int // times each payment took effect, counted apart from Made
	Keys    int            // distinct keys that arrived
	Arrived int            // requests
	Replays int            // requests answered with a stored answer
}

func (b *bank) ledger(srv *mockserver.Server) ledger {
	l := ledger{Effects: map[string]int{}}
	b.mu.Lock()
	l.Made = append(l.Made, b.made...)
	b.mu.Unlock()
	keys := map[string]bool{}
	for _, r := range srv.Requests() {
		l.Arrived++
		keys[r.Key] = true
		if r.Replayed {
			l.Replays++
		}
		if _, known := l.Effects[r.Value]; !known {
			l.Effects[r.Value] = 0
		}
		if r.Effect {
			l.Effects[r.Value]++
		}
	}
	l.Keys = len(keys)
	return l
}
