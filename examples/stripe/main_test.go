package main

import (
	"strings"
	"testing"
)

// Ensure that the example's own audit finds one charge.
func TestOneChargeOverARestart(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), &out, t.TempDir()); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if want := "the SDK says charge ch_1; the journal says Done"; !strings.Contains(out.String(), want) {
		t.Errorf("said %q, want %q in it", out.String(), want)
	}
}
