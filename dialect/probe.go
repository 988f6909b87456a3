package dialect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/idem-go/idem"
)

// Probe tells whether a provider honours keys where d says it does, by sending one
// request twice under one key and once more under another: use it in a sandbox, with a
// request that may happen three times. Some endpoints take the header, answer 201, and
// do nothing with it; there a client must not send again.
//
// It is true if the second answer is marked as a repeat, or equals the first while the
// third, under the other key, doesn't. It is false if the second answer is a new one,
// also where that only shows a newer state of the first. An error says that one of the
// three did not succeed, or that all answers are alike, so that nothing can be told.
//
// Base is as in idem.Options. The request carries its own credentials.
func Probe(ctx context.Context, d idem.Dialect, base http.RoundTripper, request func(context.Context) (*http.Request, error)) (honoured bool, err error) {
	first, err := probe(ctx, d, base, request)
	if err != nil {
		return false, err
	}
	second, err := probe(idem.WithKey(ctx, first.key), d, base, request)
	if err != nil {
		return false, err
	}
	if second.repeat {
		return true, nil
	}
	if !bytes.Equal(first.body, second.body) {
		return false, nil
	}
	third, err := probe(ctx, d, base, request)
	if err == nil && bytes.Equal(first.body, third.body) {
		err = errors.New("dialect: Probe: the answers are alike under any key, so that they tell nothing")
	}
	return err == nil, err
}

// probed is one answer of a Probe.
type probed struct {
	key    idem.Key
	body   []byte
	repeat bool // marked as one, or "already done"
}

// probe sends the request once, from a journal that knows of no other send.
func probe(ctx context.Context, d idem.Dialect, base http.RoundTripper, request func(context.Context) (*http.Request, error)) (p probed, err error) {
	client, err := idem.New(idem.NewMemoryKeystore(), &idem.Options{
		Dialect: d, Base: base, Retry: idem.RetryPolicy{MaxAttempts: 1},
		Trace: &idem.Trace{Attempt: func(_ context.Context, i idem.AttemptInfo) { p.repeat = p.repeat || i.Verdict == "already done" }},
	})
	if err != nil {
		return p, err
	}
	defer client.Close()
	req, err := request(ctx)
	if err != nil {
		return p, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return p, fmt.Errorf("dialect: Probe: %w", err)
	}
	defer resp.Body.Close()
	r, _ := idem.ResultOf(resp)
	p.key, p.repeat = r.Key, p.repeat || r.Replayed
	if p.body, err = io.ReadAll(resp.Body); err == nil && r.Fate != idem.FateDone {
		err = fmt.Errorf("dialect: Probe: refused with status %d", resp.StatusCode)
	}
	return p, err
}
