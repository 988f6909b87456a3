package model

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// fastDir is a directory in memory where the system has one: a commit syncs twice.
func fastDir(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "idem-proof-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func number(t testing.TB, env string, def uint64) uint64 {
	s := os.Getenv(env)
	if s == "" {
		return def
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", env, err)
	}
	return n
}

// TestRandomProgramsKeepThePromise runs IDEM_STEPS calls, by default enough for every
// change; a million and more take minutes.
func TestRandomProgramsKeepThePromise(t *testing.T) {
	steps := int(number(t, "IDEM_STEPS", 20_000))
	seed := number(t, "IDEM_SEED", rand.Uint64()>>1)
	t.Logf("IDEM_SEED=%d", seed)
	path := filepath.Join(fastDir(t), "journal.db")
	calls, programs := 0, 0
	story := "none broke a rule"
	defer func() { t.Logf("%d calls in %d programs: %s", calls, programs, story) }()
	for round := uint64(0); calls < steps && !t.Failed(); round++ {
		setFlag(t, "rapid.seed", strconv.FormatUint(seed+round, 10))
		setFlag(t, "rapid.checks", "100")
		setFlag(t, "rapid.nofailfile", "true")
		rapid.Check(t, func(rt *rapid.T) {
			p := genProgram().Draw(rt, "program")
			for _, s := range p.Steps {
				calls += len(s.Ops)
			}
			programs++
			if rule, broken := play(t, path, p); rule != "" {
				story = fmt.Sprintf("%s\n%v", strings.Join(broken, "\n"), p) // of the last that failed: the shrunk one
				rt.Fatalf("%s", rule)                                        // the same for all that break it, or none would shrink
			}
		})
	}
}

// FuzzPrograms lets the fuzzer choose the program.
func FuzzPrograms(f *testing.F) {
	path := filepath.Join(fastDir(f), "journal.db")
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, choice []byte) {
		rapid.MakeFuzz(func(rt *rapid.T) {
			p := genProgram().Draw(rt, "program")
			if rule, broken := play(t, fmt.Sprint(path, os.Getpid()), p); rule != "" {
				rt.Fatalf("%s\n%v", strings.Join(broken, "\n"), p)
			}
		})(t, choice)
	})
}

func setFlag(t testing.TB, name, value string) {
	if err := flag.Set(name, value); err != nil {
		t.Fatal(err)
	}
}
