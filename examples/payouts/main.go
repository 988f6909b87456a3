// Command payouts pays a file of a thousand payouts in calls of fifty, and is killed on
// the way.
//
//	go run ./examples/payouts
//
// The bank loses calls and answers, leaves items out of its answers, throttles some and
// refuses a few. The program starts itself as a child that pays the file as one batch,
// kills it three times, and lets the fourth one come to its end: what was settled is
// recalled, what was under way goes on under its first keys. Then the bank's own ledger
// is held against the file. A payout that was paid twice, or that nobody can account
// for, is exit code 1.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
)

//go:embed payouts.csv
var payouts []byte

// plan is what a run does.
type plan struct {
	rows  int // of the file, from its top
	size  int // payouts in a call
	kills int
	seed  uint64
}

func main() {
	if isChild() {
		os.Exit(child(context.Background(), os.Stdout, os.Stderr))
	}
	p := plan{}
	flag.IntVar(&p.rows, "rows", 1000, "payouts of the file")
	flag.IntVar(&p.size, "size", 50, "payouts in a call")
	flag.IntVar(&p.kills, "kills", 3, "how often the program is killed")
	flag.Uint64Var(&p.seed, "seed", 1, "of what goes wrong, and when")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	dir, err := os.MkdirTemp("", "payouts")
	if err == nil {
		err = run(ctx, os.Stdout, dir, p)
		err = errors.Join(err, os.RemoveAll(dir))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "payouts:", err)
		os.Exit(1)
	}
}

// run pays the file, with kills, and audits.
func run(ctx context.Context, out io.Writer, dir string, p plan) error {
	rows, err := read(p.rows)
	if err != nil {
		return err
	}
	bank, err := openBank(p.seed)
	if err != nil {
		return err
	}
	defer bank.close()
	random := rand.New(rand.NewPCG(p.seed, 0))
	w := worker{journal: filepath.Join(dir, "payouts.db"), url: bank.url, plan: p}
	bar := newProgress(out, len(rows))
	var last *said
	for life := 0; life <= p.kills; life++ {
		limit := -1
		if life < p.kills {
			limit = (life*len(rows) + random.IntN(len(rows))) / (p.kills + 1)
		}
		if last, err = w.live(ctx, bar, limit); err != nil {
			return err
		}
		if limit >= 0 && last.killed {
			bar.note(fmt.Sprintf("killed with %d of %d settled", last.settled, len(rows)))
		}
	}
	bar.end()
	return audit(out, bank, rows, last)
}

// read returns the first n rows, each an id, a payee, an amount and a currency.
func read(n int) ([][]string, error) {
	in := csv.NewReader(bytes.NewReader(payouts))
	in.FieldsPerRecord = 4
	rows, err := in.ReadAll()
	if err != nil {
		return nil, err
	}
	if n < 1 || n >= len(rows) {
		n = len(rows) - 1
	}
	return rows[1 : n+1], nil
}
