package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/idem-go/idem/mockserver"
)

// Ensure that a second run, with the first one's journal, pays nothing again.
func TestSecondRunRecalls(t *testing.T) {
	srv := mockserver.Start(t, nil)
	journal := filepath.Join(t.TempDir(), "payments.db")
	for i, want := range []string{"300 paid, 0 of them", "300 paid, 300 of them"} {
		var out strings.Builder
		if err := run(t.Context(), &out, srv.URL+"/payments", "", journal); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), want) {
			t.Errorf("run %d said %q, want %q", i+1, out.String(), want)
		}
	}
	if got := srv.Total(); got != 300 {
		t.Errorf("%d effects, want 300", got)
	}
	if got := len(srv.Requests()); got != 300 {
		t.Errorf("%d requests, want 300", got)
	}
}

// Ensure that a payment which is refused is told, and the program says so.
func TestRefusal(t *testing.T) {
	srv := mockserver.Start(t, &mockserver.Config{Faults: []mockserver.Fault{{Kind: mockserver.FaultFail, Status: 402}}})
	file := filepath.Join(t.TempDir(), "two.csv")
	text := "id,payee,amount,currency\npay-0001,A Ltd,1.00,GBP\npay-0002,B Ltd,2.00,GBP\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	err := run(t.Context(), &out, srv.URL+"/payments", file, filepath.Join(t.TempDir(), "payments.db"))
	if err == nil || !strings.Contains(out.String(), "pay-0001: not paid: 402") {
		t.Errorf("run = %v, said %q", err, out.String())
	}
}
