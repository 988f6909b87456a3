package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/idem-go/idem"
)

// demoScope is the demo's namespace in its journal.
const demoScope = "bank"

// bankDialect is what the mock bank's documentation says of its keys.
func bankDialect() idem.Dialect {
	return idem.Dialect{
		Name:     "mock-bank",
		InFlight: []idem.Match{{Status: http.StatusConflict, Path: "error", Value: "idempotency_key_in_use"}},
		Mismatch: []idem.Match{{Status: http.StatusUnprocessableEntity, Path: "error", Value: "idempotency_key_reused"}},
		Replay:   idem.Match{Header: "Idempotent-Replayed", Value: "true"},
	}
}

// idemPayer pays through the library. Its memory is the journal.
type idemPayer struct {
	client *idem.Client
	url    string
}

func newIdemPayer(cfg workerConfig) (payer, error) {
	client, err := idem.Open(cfg.memory, &idem.Options{
		Scope:   demoScope,
		Dialect: bankDialect(),
		Retry: idem.RetryPolicy{
			MaxAttempts: maxAttempts, AttemptTimeout: attemptTimeout,
			BaseDelay: baseDelay, MaxDelay: maxDelay, MaxRetryAfter: 2 * time.Second,
		},
		Breaker: idem.BreakerPolicy{FailureRate: 0.9, OpenFor: 250 * time.Millisecond},
		Resume:  idem.ResumeOptions{Concurrency: cfg.concurrency},
	})
	if err != nil {
		return nil, err
	}
	return &idemPayer{client, cfg.url + "/payments"}, nil
}

// pay names the payment by its id. After a crash the same name finds the same
// entry: one that is settled answers from the journal, one that was under way
// goes on under its first key.
func (p *idemPayer) pay(ctx context.Context, row payment) error {
	ctx = idem.WithIntent(ctx, row.ID)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(row.body()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := p.client.Do(req)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", errLater, err) // Unknown: settle finds out; NotDone: may be tried again
	case resp.StatusCode == http.StatusTooManyRequests:
		return fmt.Errorf("%w: status %d", errLater, resp.StatusCode) // turned away at the door each time; the name is free
	case idem.FateOf(resp, err) != idem.FateDone:
		return fmt.Errorf("payment %s was refused with status %d", row.ID, resp.StatusCode)
	}
	return nil
}

// settle resumes until nothing is pending. An entry for which the bank asked for
// patience isn't due before its RetryAt, so that a pass begins when one is.
func (p *idemPayer) settle(ctx context.Context) error {
	var stuck idem.Entry
	for range maxIdle {
		entry, open, err := p.nextDue(ctx)
		if err != nil || !open {
			return err
		}
		if !sleep(ctx, max(time.Until(entry.RetryAt), baseDelay)) {
			return ctx.Err()
		}
		if _, err := p.client.Resume(ctx, nil); err != nil {
			return err
		}
		stuck = entry
	}
	return fmt.Errorf("payment %s stays %s after %d passes: %s", stuck.Intent, stuck.State, maxIdle, stuck.LastError)
}

// nextDue returns the open entry that may be sent first; false if none is open.
func (p *idemPayer) nextDue(ctx context.Context) (next idem.Entry, open bool, err error) {
	for e, err := range p.client.Pending(ctx) {
		if err != nil {
			return next, open, err
		}
		if !open || e.RetryAt.Before(next.RetryAt) {
			next, open = e, true
		}
	}
	return next, open, nil
}

func (p *idemPayer) close() error { return p.client.Close() }
