package main

import (
	"context"
	"os"
	"strings"
	"testing"
)

// TestMain is also the child's main.
func TestMain(m *testing.M) {
	if isChild() {
		os.Exit(child(context.Background(), os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// Ensure that a file is paid once though the program is killed twice.
func TestKilledTwicePaidOnce(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), &out, t.TempDir(), plan{rows: 120, size: 10, kills: 2, seed: 3}); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{"killed with", "120 payouts: ", " 0 open"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("said %q, want %q in it", out.String(), want)
		}
	}
}

// Ensure that the audit finds what was paid twice, lost, or said wrongly.
func TestAudit(t *testing.T) {
	b, err := openBank(1)
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	b.Apply("k1", "twice")
	b.Apply("k2", "twice")
	b.Apply("k3", "denied")
	rows := [][]string{{"twice"}, {"lost"}, {"denied"}, {"silent"}}
	err = audit(&strings.Builder{}, b, rows, &said{fate: map[string]string{"twice": "done", "lost": "done", "denied": "refused"}})
	for _, want := range []string{"twice was paid 2 times", "lost is lost", "denied was paid", "nothing was said of silent"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("audit = %v, want %q in it", err, want)
		}
	}
}
