package storetest_test

import (
	"context"
	"iter"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/storetest"
)

// faults are what a store under test may do wrong, each with the rule that has to say so.
var faults = map[string]struct {
	rule string
	open func() keystore.Keystore
}{
	"hangs in Commit": {"hangs: an empty commit is fine", func() keystore.Keystore { return hanging{store.NewMemory()} }},
	"takes any token": {"a_commit_under_a_claim_that_isn't_held_is_ErrClaimLost_and_writes_nothing",
		func() keystore.Keystore { return tokenless{store.NewMemory()} }},
	"counts revisions by itself": {"the_creator_chooses_the_first_revision,_and_that_of_another_life_is_refused",
		func() keystore.Keystore { return counting{store.NewMemory()} }},
	"has no limit": {"a_scan_stops_at_its_limit,_and_goes_on_behind_a_cursor",
		func() keystore.Keystore { return endless{store.NewMemory()} }},
	"keeps its time to itself": {"the_first_sighting_is_of_no_age", func() keystore.Keystore { return timeless{store.NewMemory()} }},
}

type hanging struct{ keystore.Keystore }

func (h hanging) Commit(context.Context, ...keystore.Change) error { select {} }

type tokenless struct{ keystore.Keystore }

func (s tokenless) Commit(ctx context.Context, changes ...keystore.Change) error {
	for i := range changes {
		changes[i].Token = ""
	}
	return s.Keystore.Commit(ctx, changes...)
}

type counting struct{ keystore.Keystore }

func (s counting) Commit(ctx context.Context, changes ...keystore.Change) error {
	for i := range changes {
		if changes[i].Op == keystore.OpCreate {
			changes[i].Record.Rev = 1
		}
	}
	return s.Keystore.Commit(ctx, changes...)
}

type endless struct{ keystore.Keystore }

func (s endless) Scan(ctx context.Context, q keystore.Query) iter.Seq2[keystore.Record, error] {
	q.Limit = max(q.Limit, 0) * 2
	return s.Keystore.Scan(ctx, q)
}

type timeless struct{ keystore.Keystore }

func (s timeless) Clock(ctx context.Context, now time.Time, tolerance time.Duration) (keystore.Sighting, error) {
	sight, err := s.Keystore.Clock(ctx, now, tolerance)
	sight.Now = time.Time{}
	return sight, err
}

// faultEnv names the fault that this process tests.
const faultEnv = "STORETEST_FAULT"

func TestAFaultyStoreFailsByTheNameOfTheRule(t *testing.T) {
	if f, ok := faults[os.Getenv(faultEnv)]; ok {
		storetest.Suite{Open: func(testing.TB) keystore.Keystore { return f.open() }, Patience: time.Second / 2}.Run(t)
		return
	}
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			run := "^TestAFaultyStoreFailsByTheNameOfTheRule$"
			if name == "hangs in Commit" {
				run += "/empty_commit"
			}
			c := exec.Command(os.Args[0], "-test.run", run)
			c.Env = append(os.Environ(), faultEnv+"="+name)
			out, err := c.CombinedOutput()
			require.Error(t, err, "the suite passes the store")
			require.Contains(t, string(out), f.rule)
			require.NotContains(t, string(out), "panic:")
		})
	}
}

func TestTheMemoryKeystoreConforms(t *testing.T) {
	storetest.Suite{Open: func(testing.TB) keystore.Keystore { return store.NewMemory() }}.Run(t)
}
