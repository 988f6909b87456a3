package main

import (
	"strings"
	"testing"
)

// Ensure that redeliveries make one invoice.
func TestOneInvoiceForEachMessage(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), &out, t.TempDir()); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{"recalled from the journal", "replayed by the provider", "refused"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("said %q, want %q in it", out.String(), want)
		}
	}
}
