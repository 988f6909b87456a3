package main

import (
	"strings"
	"testing"
)

// Ensure that each command happens once, and the late one never.
func TestCommandsSurviveRestarts(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), &out, t.TempDir()); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{"door     Done", "gate     NotDone", "heating  Done", "light    Done", "porch    Unknown"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("said %q, want %q in it", out.String(), want)
		}
	}
}
