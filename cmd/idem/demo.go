package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"
)

const demoHelp = `Usage: idem demo [flags]

Pays a file of payments through a provider that loses requests and answers, by a
worker that is killed (SIGKILL) on the way and starts again on the same journal.
Then it audits the provider's ledger against the file. Everything stays on this
machine: the provider is a mock server in a process of its own, on loopback.

The exit code is 1 if a payment was applied twice, lost, or changed.

Flags:
`

// demoConfig is what the demo's flags say.
type demoConfig struct {
	seed    uint64
	rows    int
	kills   int
	file    string
	keep    bool
	compare bool
}

func (c *demoConfig) flags(fs *flag.FlagSet) {
	fs.Uint64Var(&c.seed, "seed", 0, "`number` from which faults and kills are drawn; 0 draws one, and prints it.\nThe interleaving of processes isn't drawn, so figures vary a little")
	fs.IntVar(&c.rows, "rows", 0, "`number` of payments; 0 is the whole file, and more than it has repeats it\nunder other ids")
	fs.IntVar(&c.kills, "kills", 6, "`number` of times that the worker is killed")
	fs.StringVar(&c.file, "file", "", "payments `file`, with the columns id,payee,amount,currency;\ndefault examples/payments/payments.csv of the repository")
	fs.BoolVar(&c.keep, "keep", false, "leave the journal in place and print where it is")
	fs.BoolVar(&c.compare, "compare", false, "do the same again with a plain retrying client, to see what goes wrong\nwithout the library; its failures don't change the exit code")
}

func (c *demoConfig) check() error {
	switch {
	case c.rows < 0:
		return &usageError{fmt.Errorf("demo: --rows %d: must not be negative", c.rows), "demo -h"}
	case c.kills < 0:
		return &usageError{fmt.Errorf("demo: --kills %d: must not be negative", c.kills), "demo -h"}
	}
	return nil
}

func runDemo(ctx context.Context, con console, args []string) error {
	fs := flag.NewFlagSet("demo", flag.ContinueOnError)
	var cfg demoConfig
	cfg.flags(fs)
	if err := parse(fs, con, args, demoHelp); err != nil {
		return err
	}
	if err := cfg.check(); err != nil {
		return err
	}
	rows, err := cfg.payments()
	if err != nil {
		return err
	}
	for cfg.seed == 0 {
		cfg.seed = rand.Uint64() >> 32 // short enough to be typed again
	}
	dir, err := os.MkdirTemp("", "idem-demo-")
	if err != nil {
		return err
	}
	if !cfg.keep {
		defer os.RemoveAll(dir)
	}
	d := &demo{cfg, con, rows, dir}
	return d.run(ctx)
}

func (c *demoConfig) payments() ([]payment, error) {
	path, err := findPayments(c.file)
	if err != nil {
		return nil, err
	}
	rows, err := readPayments(path)
	if err != nil {
		return nil, err
	}
	return take(rows, c.rows), nil
}

// demo is one run of the command.
type demo struct {
	demoConfig
	con  console
	list []payment
	dir  string // journal and payments, for as long as the demo runs
}

func (d *demo) run(ctx context.Context) error {
	fmt.Fprintf(d.con.out, "%d payments, %d kills, seed %d (again with --seed %d)\n", len(d.list), d.kills, d.seed, d.seed)
	if err := writePayments(d.paymentsFile(), d.list); err != nil {
		return err
	}
	ours, err := d.pay(ctx, "idem", workerConfig{memory: d.journal()})
	if err != nil {
		return err
	}
	cols := []column{ours}
	if d.compare {
		plain, err := d.pay(ctx, "plain client", workerConfig{memory: filepath.Join(d.dir, "paid.txt"), plain: true})
		if err != nil {
			return err
		}
		cols = append(cols, plain)
	}
	fmt.Fprintln(d.con.out)
	printTable(d.con.out, cols)
	fmt.Fprintln(d.con.out)
	printVerdict(d.con.out, cols)
	if d.keep {
		fmt.Fprintf(d.con.out, "\nThe journal is %s\nLook into it with: go run ./cmd/idem show --scope %s %s %s\n", d.journal(), demoScope, d.journal(), d.list[0].ID)
	}
	if !ours.audit.clean() {
		return errAudit
	}
	return nil
}

func (d *demo) paymentsFile() string { return filepath.Join(d.dir, "payments.csv") }
func (d *demo) journal() string      { return filepath.Join(d.dir, "journal.db") }

// pay lets one kind of client pay the file, against a provider of its own, and
// audits it.
func (d *demo) pay(ctx context.Context, title string, w workerConfig) (column, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	prov, err := startProvider(ctx, providerCommand, d.seed, cancel)
	if err != nil {
		return column{}, err
	}
	defer prov.stop(cancel)
	w.url, w.file, w.concurrency = prov.url, d.paymentsFile(), 4
	show := newProgress(d.con.err, title, len(d.list))
	c := &crew{worker: w, plan: planKills(d.seed, d.kills, len(d.list)), progress: show}
	began := time.Now()
	err = c.run(ctx)
	show.end()
	took := time.Since(began)
	if err != nil {
		return column{}, fmt.Errorf("%s: %w", title, err)
	}
	l, err := prov.ledger(ctx)
	if err != nil {
		return column{}, errors.Join(err, context.Cause(ctx))
	}
	a, err := check(d.list, l)
	return column{title, a, c.kills, took}, err
}
