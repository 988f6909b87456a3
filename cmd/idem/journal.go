package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/idem-go/idem"
)

const pendingHelp = `Usage: idem pending [flags] JOURNAL

Lists what is Pending or Ambiguous in a journal, oldest first. Nothing is sent. A
journal that a running program holds is locked; stop the program or copy the file.

Flags:
`

const showHelp = `Usage: idem show [flags] JOURNAL KEY

Shows one entry of a journal, found by its key or by its intent's name. Bodies
are not shown. Nothing is sent.

Flags:
`

// journalFlags say which entries of a journal are meant.
type journalFlags struct{ scope, account string }

func (j *journalFlags) flags(fs *flag.FlagSet) {
	fs.StringVar(&j.scope, "scope", "", "the `scope` that the journal's client was opened with")
	fs.StringVar(&j.account, "account", "", "the provider `account` under which a name was used")
}

// open opens a journal that is there. The library would create one.
func (j *journalFlags) open(path string) (*idem.Client, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, err
	}
	return idem.Open(path, &idem.Options{Scope: j.scope, Account: j.account})
}

func runPending(ctx context.Context, con console, args []string) (err error) {
	fs := flag.NewFlagSet("pending", flag.ContinueOnError)
	var j journalFlags
	j.flags(fs)
	if err := parse(fs, con, args, pendingHelp, "JOURNAL"); err != nil {
		return err
	}
	client, err := j.open(fs.Arg(0))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	t := tabwriter.NewWriter(con.out, 0, 0, 3, ' ', 0)
	defer t.Flush()
	fmt.Fprintln(t, "KEY\tINTENT\tSTATE\tFATE\tATTEMPTS\tFIRST SENT\tLAST ERROR")
	var damaged []error
	for e, err := range client.Pending(ctx) {
		if err != nil {
			damaged = append(damaged, err)
			continue
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n", e.Key, e.Intent, e.State, e.Fate, e.Attempts, stamp(e.FirstSent), e.LastError)
	}
	return errors.Join(damaged...)
}

func runShow(ctx context.Context, con console, args []string) (err error) {
	fs := flag.NewFlagSet("show", flag.ContinueOnError)
	var j journalFlags
	j.flags(fs)
	if err := parse(fs, con, args, showHelp, "JOURNAL", "KEY"); err != nil {
		return err
	}
	client, err := j.open(fs.Arg(0))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	e, err := client.LookupKey(ctx, idem.Key(fs.Arg(1)))
	if errors.Is(err, idem.ErrNotFound) || errors.Is(err, idem.ErrInvalid) {
		e, err = client.Lookup(ctx, fs.Arg(1))
	}
	if err != nil {
		return err
	}
	printEntry(con.out, e)
	return nil
}

// printEntry leaves out what the entry doesn't have.
func printEntry(w io.Writer, e idem.Entry) {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	defer t.Flush()
	line := func(label, value string) {
		if value != "" {
			fmt.Fprintf(t, "%s\t%s\n", label, value)
		}
	}
	line("intent", e.Intent)
	line("key", string(e.Key))
	line("scope", e.Scope)
	line("account", e.Account)
	line("dialect", e.Dialect)
	line("state", e.State.String())
	line("fate", e.Fate.String())
	if e.Status != 0 {
		line("status", fmt.Sprint(e.Status))
	}
	line("request", e.Method+" "+e.URL)
	line("attempts", fmt.Sprint(e.Attempts))
	line("created", stamp(e.Created))
	line("first sent", stamp(e.FirstSent))
	line("retry at", stamp(e.RetryAt))
	line("settled", stamp(e.Settled))
	line("expires", stamp(e.Expires))
	line("follows", string(e.Parent))
	line("reason", e.Reason)
	line("last error", e.LastError)
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05.000Z")
}
