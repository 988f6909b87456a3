package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/idem-go/idem"
)

// How the parent tells a child what to do.
const (
	journalEnv = "FAILOVER_JOURNAL"
	banksEnv   = "FAILOVER_BANKS"
	dieEnv     = "FAILOVER_DIE_AT"
)

func isChild() bool { return os.Getenv(journalEnv) != "" }

// child is the program proper: it pays the rent at one of the banks.
func child(ctx context.Context, out io.Writer) (code int) {
	fate, err := payRent(ctx, out)
	fmt.Fprintf(out, "rent-may: %v\n", fate)
	if err != nil {
		fmt.Fprintln(out, err)
		return 1
	}
	return 0
}

func payRent(ctx context.Context, out io.Writer) (idem.Fate, error) {
	ks, err := idem.OpenKeystore(os.Getenv(journalEnv), nil)
	if err != nil {
		return idem.FateUnknown, err
	}
	defer ks.Close()
	var tries []idem.Try
	for i, url := range strings.Fields(os.Getenv(banksEnv)) {
		scope := []string{"north", "south"}[i]
		t, err := try(ks, scope, url, deadly(out, scope))
		if err != nil {
			return idem.FateUnknown, err
		}
		defer t.Client.Close()
		tries = append(tries, t)
	}
	resp, err := idem.Failover(ctx, "rent-may", tries...)
	if resp != nil {
		resp.Body.Close()
	}
	return idem.FateOf(resp, err), err
}

// deadly tells what happens at a bank, and kills the process where the parent wants
// it to die: no deferred call runs, nothing more is written.
func deadly(out io.Writer, scope string) *idem.Trace {
	at := func(moment string) {
		if os.Getenv(dieEnv) != moment {
			return
		}
		fmt.Fprintln(out, "killed")
		if self, err := os.FindProcess(os.Getpid()); err == nil {
			self.Kill()
		}
		select {} // until the signal comes
	}
	return &idem.Trace{
		Attempt: func(_ context.Context, i idem.AttemptInfo) {
			fmt.Fprintf(out, "%s answered %d: %v\n", scope, i.Status, i.Fate)
			at(scope + " answered")
		},
		Ended: func(context.Context, idem.Entry, error) { at(scope + " ended") },
	}
}
