package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/idem-go/idem"
)

// standIn makes the test's binary behave as the command, so that the demo, which
// starts its own executable again, runs as it does outside of tests.
const standIn = "IDEM_TEST_STAND_IN"

func TestMain(m *testing.M) {
	if os.Getenv(standIn) != "" {
		os.Exit(mainWith(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// result is how a run of the command ended.
type result struct {
	code     int
	out, err string
}

func start(t *testing.T, dir string, args ...string) (*exec.Cmd, *bytes.Buffer, *bytes.Buffer) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), standIn+"=1", "TMPDIR="+t.TempDir())
	var out, err bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &err
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, &out, &err
}

func invoke(t *testing.T, args ...string) result {
	t.Helper()
	cmd, out, said := start(t, "", args...)
	err := cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), said.String()}
}

// cells are the numbers of a row of the table.
func (r result) cells(label string) []string {
	for line := range strings.Lines(r.out) {
		if rest, ok := strings.CutPrefix(line, label+"  "); ok {
			return strings.Fields(rest)
		}
	}
	return nil
}

func (r result) wantRow(t *testing.T, label string, want ...string) {
	t.Helper()
	if got := r.cells(label); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("row %q has %v, want %v; the output was:\n%s%s", label, got, want, r.out, r.err)
	}
}

// Ensure that the demo pays once through kills and faults, and says so.
func TestDemo(t *testing.T) {
	r := invoke(t, "demo", "--rows=30", "--kills=2", "--seed=1")
	if r.code != exitOK {
		t.Fatalf("exit code %d; it said:\n%s%s", r.code, r.out, r.err)
	}
	r.wantRow(t, "payments in the file", "30")
	r.wantRow(t, "sent", "30")
	r.wantRow(t, "applied once", "30")
	r.wantRow(t, "applied twice", "0")
	r.wantRow(t, "lost", "0")
	r.wantRow(t, "kills", "2")
	r.wantRow(t, "EUR applied", r.cells("EUR in the file")...)
	if !strings.Contains(r.out, "--seed 1)") || !strings.Contains(r.out, "every payment was applied exactly once") {
		t.Errorf("it said:\n%s", r.out)
	}
	if !strings.Contains(r.err, "idem: 15 of 30 paid") || strings.Contains(r.err, "\r") {
		t.Errorf("progress in a pipe was:\n%s", r.err)
	}
}

// Ensure that more kills than payments all happen, on a live worker.
func TestDemoMoreKillsThanRows(t *testing.T) {
	r := invoke(t, "demo", "--rows=2", "--kills=5", "--seed=3")
	if r.code != exitOK {
		t.Fatalf("exit code %d; it said:\n%s%s", r.code, r.out, r.err)
	}
	r.wantRow(t, "applied once", "2")
	r.wantRow(t, "kills", "5")
}

// Ensure that the plain client stands beside ours, pays some of it twice, and
// doesn't decide over the exit code.
func TestDemoCompare(t *testing.T) {
	r := invoke(t, "demo", "--rows=60", "--kills=6", "--seed=7", "--compare")
	if r.code != exitOK {
		t.Fatalf("exit code %d; it said:\n%s%s", r.code, r.out, r.err)
	}
	twice, lost := r.cells("applied twice"), r.cells("lost")
	if len(twice) != 2 || twice[0] != "0" || twice[1] == "0" && lost[1] == "0" {
		t.Errorf("applied twice %v, lost %v; it said:\n%s", twice, lost, r.out)
	}
	r.wantRow(t, "kills", "6", "6")
}

// Ensure that a kept journal can be looked into, and that an unkept one is gone.
func TestDemoKeep(t *testing.T) {
	r := invoke(t, "demo", "--rows=5", "--kills=1", "--seed=2", "--keep")
	m := regexp.MustCompile(`(?m)^The journal is (.*)$`).FindStringSubmatch(r.out)
	if r.code != exitOK || m == nil {
		t.Fatalf("exit code %d; it said:\n%s%s", r.code, r.out, r.err)
	}
	show := invoke(t, "show", "--scope", demoScope, m[1], "pay-0003")
	if show.code != exitOK || !regexp.MustCompile(`(?m)^fate +Done$`).MatchString(show.out) {
		t.Errorf("show: exit code %d; it said:\n%s%s", show.code, show.out, show.err)
	}
	pending := invoke(t, "pending", "--scope", demoScope, m[1])
	if pending.code != exitOK || strings.Count(pending.out, "\n") != 1 {
		t.Errorf("pending: exit code %d; it said:\n%s%s", pending.code, pending.out, pending.err)
	}
	if missing := invoke(t, "show", "--scope", demoScope, m[1], "pay-0009"); missing.code != exitFailed || !strings.Contains(missing.err, "not found") {
		t.Errorf("show of nothing: exit code %d; it said:\n%s%s", missing.code, missing.out, missing.err)
	}
}

// Ensure that an interrupted demo leaves nothing behind.
func TestDemoInterrupted(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no SIGINT to send")
	}
	cmd, _, said := start(t, "", "demo", "--rows=5000", "--seed=1")
	temp := strings.TrimPrefix(cmd.Env[len(cmd.Env)-1], "TMPDIR=")
	for { // until it is under way
		if list, _ := filepath.Glob(filepath.Join(temp, "*", "journal.db")); list != nil {
			break
		}
		if !sleep(t.Context(), 5*time.Millisecond) {
			t.Fatal("no journal appeared")
		}
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitInterrupted {
		t.Errorf("exit code %d, want %d; it said:\n%s", code, exitInterrupted, said)
	}
	if list, _ := filepath.Glob(filepath.Join(temp, "*")); list != nil {
		t.Errorf("left behind: %v", list)
	}
}

// Ensure that mistakes on the command line are told with the way to the help.
func TestUsage(t *testing.T) {
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "p.csv")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const head = "id,payee,amount,currency\n"
	tests := []struct {
		name string
		args []string
		code int
		want string
	}{
		{"no command", nil, exitUsage, "a command is missing"},
		{"unknown command", []string{"dance"}, exitUsage, `unknown command "dance"`},
		{"unknown flag", []string{"demo", "--fast"}, exitUsage, "-fast"},
		{"negative rows", []string{"demo", "--rows=-1"}, exitUsage, "--rows -1"},
		{"negative kills", []string{"demo", "--kills=-1"}, exitUsage, "--kills -1"},
		{"extra argument", []string{"demo", "now"}, exitUsage, `unexpected argument "now"`},
		{"no journal named", []string{"pending"}, exitUsage, "JOURNAL is missing"},
		{"no key named", []string{"show", "j.db"}, exitUsage, "KEY is missing"},
		{"no such journal", []string{"pending", "nowhere.db"}, exitFailed, "nowhere.db"},
		{"no such file", []string{"demo", "--file=nowhere.csv"}, exitFailed, "nowhere.csv"},
		{"empty file", []string{"demo", "--file", file("")}, exitFailed, "is empty"},
		{"no rows", []string{"demo", "--file", file(head)}, exitFailed, "has no payments"},
		{"no header", []string{"demo", "--file", file("a,b,1.00,EUR\n")}, exitFailed, "line 1: want the header"},
		{"short row", []string{"demo", "--file", file(head + "a,b\n")}, exitFailed, "line 2"},
		{"bad amount", []string{"demo", "--file", file(head + "a,b,1.5,EUR\n")}, exitFailed, `line 2: amount "1.5"`},
		{"bad currency", []string{"demo", "--file", file(head + "a,b,1.50,eur\n")}, exitFailed, `line 2: currency "eur"`},
		{"no id", []string{"demo", "--file", file(head + ",b,1.50,EUR\n")}, exitFailed, "line 2: the id is empty"},
		{"id twice", []string{"demo", "--file", file(head + "a,b,1.50,EUR\na,b,1.50,EUR\n")}, exitFailed, `line 3: id "a" stands on line 2`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out, said bytes.Buffer
			code := run(t.Context(), console{strings.NewReader(""), &out, &said}, tt.args)
			if code != tt.code || !strings.Contains(said.String(), tt.want) {
				t.Errorf("exit code %d, want %d; it said %q, want %q in it", code, tt.code, said.String(), tt.want)
			}
		})
	}
}

// Ensure that help goes to the output and is no failure.
func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"-h"}, {"help"}, {"demo", "-h"}, {"pending", "--help"}, {"show", "-h"}} {
		var out, said bytes.Buffer
		code := run(t.Context(), console{strings.NewReader(""), &out, &said}, args)
		if code != exitOK || !strings.Contains(out.String(), "Usage:") || said.Len() > 0 {
			t.Errorf("%v: exit code %d, output %q, said %q", args, code, out.String(), said.String())
		}
	}
}

// Ensure that the file is found from below the repository's root, and that
// somebody elsewhere is told what to do.
func TestFindPayments(t *testing.T) {
	if path, err := findPayments(""); err != nil || filepath.Base(path) != "payments.csv" {
		t.Errorf("findPayments = %q, %v", path, err)
	}
	t.Chdir(t.TempDir())
	if path, err := findPayments(""); err == nil || !strings.Contains(err.Error(), "--file") {
		t.Errorf("findPayments = %q, %v", path, err)
	}
}

// Ensure that a journal which another process holds is told apart from others.
func TestPendingOfLockedJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j.db")
	c, err := idem.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if r := invoke(t, "pending", path); r.code != exitFailed || !strings.Contains(r.err, "journal locked") {
		t.Errorf("exit code %d; it said:\n%s%s", r.code, r.out, r.err)
	}
}

// Ensure that a soak pays each payment once through kills, and ends in time.
func TestSoak(t *testing.T) {
	r := invoke(t, "soak", "--for=4s", "--rate=20", "--seed=4")
	if r.code != exitOK {
		t.Fatalf("exit code %d; it said:\n%s%s", r.code, r.out, r.err)
	}
	if !regexp.MustCompile(`(?m)^audit: [1-9][0-9]* payments, [0-9]+ applied once, 0 twice, 0 lost, .* [1-9][0-9]* kills$`).MatchString(r.out) {
		t.Errorf("it said:\n%s", r.out)
	}
}
