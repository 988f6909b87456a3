package model

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// mutant is one way to break the library: a text of a file that stands there once, and
// what takes its place.
type mutant struct {
	name     string
	file     string
	old, new string
	test     string // a named test that notices, behind its directory
	model    bool   // whether random programs notice too
}

const root = "../.."

var mutants = []mutant{
	{"skip the sync", "internal/store/file.go", "OpenFile:     func(string", "NoSync: true, OpenFile: func(string", "proof/disk/TestAPowerCutLosesNothingThatWasSaid", false},
	{"drop the window guard", "window.go", "	return o.head.FirstSent.Add(open), open != Forever", "	return o.head.FirstSent.Add(open), false", "TestNothingIsSentPastTheWindow", true},
	{"mint a new key on resume", "call.go", "	d.expectCredentials()\n", "	_ = d.client.opts.Dialect.place(d.wire, NewKey())\n	d.expectCredentials()\n", "TestANameLeftPendingGoesOnUnderItsKey", true},
	{"return the result before it is committed", "settle.go", "	err := d.commitEnd(fate, a, cause)", "	var err error", "TestASettledNameAnswersWithoutNetwork", true},
	{"send before the first send is committed", "call.go", "	if err := d.save(func(h *head) { h.FirstSent, h.Epoch = sight.Now, sight.Epoch }, nil); err != nil {", "	if d.head.FirstSent, d.head.Epoch, err = sight.Now, sight.Epoch, nil; err != nil {", "TestResumeSendsNothingWhenTheFirstSendCantBeWritten", true},
	{"drop the claim", "hold.go", "	claim, err := d.client.ks.Claim(d.ctx, scope, string(key), wait)", "	claim, err := d.client.ks.Claim(d.ctx, scope, string(NewKey()), wait)", "TestManyCallsOfOneNameAreOneEffectAndAllGetItsAnswer", true},
	{"forget that something was sent before", "call.go", "	case v.fate == FateUnknown:\n		d.before.attempt = true", "	case v.fate == FateUnknown:\n		d.before.attempt = false", "TestDoTellsTheFateOfTheTable", true},
	{"forget it over a restart", "call.go", "	d.before.attempt = !d.head.FirstSent.IsZero() || d.head.Fate", "	d.before.attempt = d.head.Fate", "TestTheNextDoGoesOnWithWhatTheTableLeft", true},
	{"take every provider for key-first", "call.go", "keyFirst: d.dialect.KeyFirst", "keyFirst: true", "TestDoTellsTheFateOfTheTable", true},
	{"withdraw without asking who waits", "settle.go", "	return !d.background && !d.head.Queued && d.client.life.Err() == nil && !d.contended()", "	return true", "TestADoNeverWithdrawsWhatEnqueueTook", true},
	{"clear the first send of what may have been processed", "settle.go", "		if !d.before.any() {\n			h.unsend()", "		if true {\n			h.unsend()", "TestFirstSentIsKeptOverPassesAndRestarts", true},
	{"resend other bytes", "call.go", "	hop := *d.wire\n", "	hop := *d.wire\n	if d.tries > 0 {\n		hop.Body = append(append([]byte{}, hop.Body...), ' ')\n	}\n", "TestEveryAttemptSendsTheSameBytes", true},
	{"keep part of a body", "read.go", "		a.cut = fmt.Errorf(\"%w: %w\", io.ErrUnexpectedEOF, p.scrub(err))", "		a.cut = nil", "TestABodyCutShortIsFetchedByReplay", false},
	{"ignore that the payload differs", "intent.go", "	if !same && h.State != StateAbandoned {", "	if false && !same {", "TestAMismatchIsToldBeforeAnyByteAndNamesTheHolder", true},
	{"send what is in doubt", "doubt.go", "	for key, was := range doubtsOf(s.doubt(in)) {", "	for key, was := range doubtsOf(doubt{}) {", "TestALoopAroundAnAnonymousRequestNeverDoubles", true},
	{"ignore a clock that was set back", "window.go", "	if sight.Epoch != o.head.Epoch {", "	if false && sight.Epoch != o.head.Epoch {", "TestAClockSetBackClosesTheWindowsOfWhatWasSent", true},
	{"ignore the expiry", "window.go", "	if passed(o.expires()) {", "	if false && passed(o.expires()) {", "TestNothingIsSentAfterTheExpiry", true},
	{"believe a refusal at the door after a lost answer", "verdict.go", "	case v.door:\n		return false\n	case v.replayed, f.quiet:", "	case v.door:\n		return true\n	case v.replayed, f.quiet:", "proof/network/TestFaultsOverRealSocketsEndInTheTruth", true},
}

// The texts that are to be replaced stand where the table says.
func TestMutantsAreOfTodaysSource(t *testing.T) {
	for _, m := range mutants {
		source, err := os.ReadFile(filepath.Join(root, m.file))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(source), m.old); n != 1 {
			t.Errorf("%s: %q stands %d times in %s", m.name, m.old, n, m.file)
		}
	}
}

// The tests that are to notice are there.
func TestTheTestsThatMutantsNameExist(t *testing.T) {
	for _, m := range mutants {
		dir, name := path.Split(m.test)
		files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			found = found || strings.Contains(string(source), "\nfunc "+name+"(t *testing.T) {")
		}
		if !found {
			t.Errorf("%s: there is no %s", m.name, m.test)
		}
	}
}

// TestMutantsAreNoticed builds the library anew for each mutant, so it runs only with
// IDEM_MUTANTS=all or the name of one.
func TestMutantsAreNoticed(t *testing.T) {
	only := os.Getenv("IDEM_MUTANTS")
	if only == "" {
		t.Skip("IDEM_MUTANTS=all breaks the library in many ways")
	}
	tree := copyTree(t)
	for _, m := range mutants {
		if only != "all" && only != m.name {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			file := filepath.Join(tree, m.file)
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(strings.Replace(string(source), m.old, m.new, 1)), 0o644); err != nil {
				t.Fatal(err)
			}
			defer os.WriteFile(file, source, 0o644)
			byTest := noticed(t, tree, m.test)
			byModel := noticed(t, tree, "proof/model/TestRandomProgramsKeepThePromise")
			fmt.Printf("| %s | `%s`: %s | %s |\n", m.name, path.Base(m.test), byTest, byModel)
			if byTest != "caught" || m.model && byModel != "caught" {
				t.Errorf("%s: %s; the model: %s", m.test, byTest, byModel)
			}
		})
	}
}

// noticed runs a test of a broken library.
func noticed(t *testing.T, tree, test string) string {
	t.Helper()
	dir, name := path.Split(test)
	cmd := exec.Command("go", "test", "-count=1", "-timeout=5m", "-run", "^"+name+"$", ".")
	cmd.Dir = filepath.Join(tree, dir)
	cmd.Env = append(os.Environ(), "GOWORK=off", "IDEM_MUTANTS=", "IDEM_STEPS=20000", "IDEM_SEED=1", "IDEM_CRASH=all")
	out, err := cmd.CombinedOutput()
	switch text := string(out); {
	case strings.Contains(text, "no tests to run"):
		return "no such test"
	case strings.Contains(text, "[build failed]"):
		t.Fatalf("the mutant doesn't build:\n%s", text)
	case err != nil && (strings.Contains(text, "--- FAIL: "+name) || strings.Contains(text, "panic:") || strings.Contains(text, "deadlock")):
		return "caught"
	case err != nil:
		t.Fatalf("%v:\n%s", err, text)
	}
	return "not caught"
}

// copyTree copies what git knows, or would add, and returns the copy's root.
func copyTree(t *testing.T) string {
	t.Helper()
	cmd := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	list, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name := range strings.Lines(string(list)) {
		name = strings.TrimSpace(name)
		b, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // removed, and git doesn't know yet
		}
		if err == nil {
			err = os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
