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
		os.Exit(child(context.Background(), os.Stdout))
	}
	os.Exit(m.Run())
}

// Ensure that the rent is paid once though the program is killed twice.
func TestKilledTwicePaidOnce(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), &out, t.TempDir()); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if want := "The rent is paid once."; !strings.Contains(out.String(), want) {
		t.Errorf("said %q, want %q in it", out.String(), want)
	}
	if got := strings.Count(out.String(), "killed"); got != 2 {
		t.Errorf("killed %d times, want 2", got)
	}
}
