package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/codec"
)

// How the parent tells a child what to do.
const (
	journalEnv = "PAYOUTS_JOURNAL"
	bankEnv    = "PAYOUTS_BANK"
	planEnv    = "PAYOUTS_PLAN"
)

func isChild() bool { return os.Getenv(journalEnv) != "" }

// child is the program proper: one batch, from the file. It tells the parent a line for
// each payout, "done", "refused" or "open" and the id.
func child(ctx context.Context, out, errs io.Writer) (code int) {
	if err := pay(ctx, out); err != nil {
		fmt.Fprintln(errs, err)
		return 1
	}
	return 0
}

func pay(ctx context.Context, out io.Writer) error {
	var rows, size int
	if _, err := fmt.Sscan(os.Getenv(planEnv), &rows, &size); err != nil {
		return err
	}
	client, err := idem.Open(os.Getenv(journalEnv), &idem.Options{
		Scope:   "bank",
		Dialect: idem.Dialect{KeyFirst: true}, // the bank looks a key up before it judges, so that its refusals are proof
		Codecs: map[string]idem.BatchCodec{
			"payouts": codec.JSONArray{URL: os.Getenv(bankEnv), HonoursKeys: true},
		},
		Retry: idem.RetryPolicy{BaseDelay: 10 * time.Millisecond, MaxDelay: 200 * time.Millisecond, MaxAttempts: 20, NoBudget: true},
	})
	if err != nil {
		return err
	}
	defer client.Close()
	list, err := read(rows)
	if err != nil {
		return err
	}
	for r, err := range client.Batch(ctx, idem.Batch{Name: "may-2026", Items: items(list), Codec: "payouts", MaxItems: size}) {
		if err != nil {
			return err
		}
		word := map[idem.Fate]string{idem.FateDone: "done", idem.FateNotDone: "refused", idem.FateUnknown: "open"}[r.Fate]
		fmt.Fprintln(out, word, r.ID)
	}
	return nil
}

// items are the rows as the bank wants them; it gets id and key from the codec.
func items(rows [][]string) iter.Seq2[idem.Item, error] {
	return func(yield func(idem.Item, error) bool) {
		for _, row := range rows {
			body, err := json.Marshal(map[string]string{"payee": row[1], "amount": row[2], "currency": row[3]})
			if !yield(idem.Item{ID: row[0], Body: body}, err) {
				return
			}
		}
	}
}

// worker starts children.
type worker struct {
	journal, url string
	plan         plan
}

// said is what one child told of the payouts.
type said struct {
	fate    map[string]string // the child's word, by id
	settled int
	killed  bool
}

// live runs a child until it ends, or kills it when limit payouts are settled and
// some of the next call is under way; limit -1 is never.
func (w worker) live(ctx context.Context, bar progress, limit int) (*said, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), journalEnv+"="+w.journal, bankEnv+"="+w.url, fmt.Sprintf("%s=%d %d", planEnv, w.plan.rows, w.plan.size))
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	s := &said{fate: map[string]string{}}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		word, id, ok := strings.Cut(lines.Text(), " ")
		if !ok {
			continue // the kill cut it
		}
		if s.fate[id] = word; word != "open" {
			s.settled++
		}
		bar.settled(s.settled)
		if !s.killed && limit >= 0 && s.settled >= limit {
			s.killed = true
			cmd.Process.Kill() // SIGKILL: no deferred call runs, nothing more is written
		}
	}
	if err := cmd.Wait(); err != nil && !s.killed {
		return nil, fmt.Errorf("the child failed: %w: %s", err, errs.String())
	}
	return s, nil
}
