package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// plainPayer is the client that careful people write when they write it
// themselves: timeouts, backoff with jitter, an idempotency key that is kept over
// the retries of a call, and a synced list of what is paid. What it lacks is that
// the key is durable before the first send: a crash, or giving up, forgets it, and
// the next call for the same payment mints another.
type plainPayer struct {
	url    string
	client *http.Client

	mu   sync.Mutex // guards what follows
	list *os.File
	paid map[string]bool
}

func newPlainPayer(cfg workerConfig) (payer, error) {
	known, err := os.ReadFile(cfg.memory)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	list, err := os.OpenFile(cfg.memory, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	p := &plainPayer{
		url: cfg.url + "/payments", client: &http.Client{Timeout: attemptTimeout},
		list: list, paid: map[string]bool{},
	}
	for _, id := range strings.Fields(string(known)) {
		p.paid[id] = true
	}
	return p, nil
}

func (p *plainPayer) pay(ctx context.Context, row payment) error {
	if p.isPaid(row.ID) {
		return nil
	}
	key := rand.Text() // minted inside the call: here is the mistake
	var err error
	for n := range maxAttempts {
		if err = p.send(ctx, key, row); err == nil || !errors.Is(err, errLater) {
			break
		}
		spread := 0.5 + mathrand.Float64()/2
		pause := time.Duration(spread * float64(baseDelay) * math.Pow(2, float64(n)))
		if !sleep(ctx, min(pause, maxDelay)) {
			return ctx.Err()
		}
	}
	if err != nil {
		return err
	}
	return p.note(row.ID)
}

// send makes one attempt.
func (p *plainPayer) send(ctx context.Context, key string, row payment) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(row.body()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	resp, err := p.client.Do(req)
	if err != nil {
		return fmt.Errorf("%w: %w", errLater, err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return fmt.Errorf("%w: %w", errLater, err)
	}
	switch s := resp.StatusCode; {
	case s/100 == 2:
		return nil
	case s == http.StatusConflict, s == http.StatusTooManyRequests, s >= 500:
		return fmt.Errorf("%w: status %d", errLater, s)
	}
	return fmt.Errorf("payment %s was refused with status %d", row.ID, resp.StatusCode)
}

func (p *plainPayer) isPaid(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.paid[id]
}

// note writes down that a payment is made, durably.
func (p *plainPayer) note(id string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paid[id] = true
	if _, err := p.list.WriteString(id + "\n"); err != nil {
		return err
	}
	return p.list.Sync()
}

// settle has nothing to go by: what was under way is in no list.
func (p *plainPayer) settle(context.Context) error { return nil }

func (p *plainPayer) close() error { return p.list.Close() }
