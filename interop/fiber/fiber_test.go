// Package fiber_test has gofiber/fiber's idempotency middleware (v3) as the server, its
// answers lost by a proxy in front of it.
//
// What works. dialect.json is all that it takes: the header X-Idempotency-Key of exactly
// 36 characters, 30 minutes. Fiber replays 2xx and 4xx, and makes a repeat wait for the
// first; an error that the handler returns is not stored, so a retry runs it again. It
// compares nothing, neither path nor body: the client's own fingerprint is what notices
// another payload. It marks no replay, so a refusal after a lost answer is Unknown: the
// lost attempt may have acted and then failed, which Fiber forgets.
//
// Attempts: there is no other retry loop, 3 of 3 arrive. net/http, which resends
// X-Idempotency-Key by itself, is kept from it.
package fiber_test

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/idempotency"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/interop/internal/wire"
)

//go:embed dialect.json
var dialect []byte

// shop is a Fiber server behind a proxy that loses answers.
type shop struct {
	*wire.Proxy
	orders atomic.Int64 // placed
	broken atomic.Int64 // requests to fail with an error of the handler
	slow   atomic.Int64 // milliseconds
}

func start(t *testing.T) *shop {
	s := &shop{}
	app := fiber.New()
	app.Use(idempotency.New())
	app.Post("/*", func(c fiber.Ctx) error {
		time.Sleep(time.Duration(s.slow.Load()) * time.Millisecond)
		if s.broken.Add(-1) >= 0 {
			return fiber.NewError(503, "out of order")
		}
		n := s.orders.Add(1)
		if c.Path() == "/refused" {
			return c.Status(422).SendString("refused")
		}
		return c.Status(201).JSON(fiber.Map{"order": n, "path": c.Path()})
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go app.Listener(l, fiber.ListenConfig{DisableStartupMessage: true})
	t.Cleanup(func() { require.NoError(t, app.Shutdown()) })
	s.Proxy = wire.Start(t, wire.To(t, "http://"+l.Addr().String()))
	return s
}

func open(t *testing.T, path string, retry idem.RetryPolicy) *idem.Client {
	d, err := idem.ParseDialect(dialect)
	require.NoError(t, err)
	retry.BaseDelay, retry.NoBudget = time.Millisecond, true
	c, err := idem.Open(path, &idem.Options{Scope: "shop", Dialect: d, Retry: retry})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func journal(t *testing.T) string { return filepath.Join(t.TempDir(), "orders.db") }

func place(ctx context.Context, c *idem.Client, url, body string) (string, idem.Result, error) {
	var r idem.Result
	req, err := http.NewRequestWithContext(idem.WithResult(ctx, &r), "POST", url, strings.NewReader(body))
	if err != nil {
		return "", r, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.Do(req)
	if err != nil {
		return "", r, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return fmt.Sprintf("%d %s", resp.StatusCode, b), r, err
}

var keyHeader = wire.Header("X-Idempotency-Key")

func TestALostAnswerIsReplayedByFiberWithoutAMarker(t *testing.T) {
	s := start(t)
	c := open(t, journal(t), idem.RetryPolicy{})
	_, _, err := place(t.Context(), c, s.URL+"/orders", `{"id":0}`) // the connection has been used before
	require.NoError(t, err)
	s.Lose(2)
	got, r, err := place(t.Context(), c, s.URL+"/orders", `{"id":1}`)
	require.NoError(t, err)
	require.Equal(t, `201 {"order":2,"path":"/orders"}`, got)
	require.Equal(t, 3, r.Attempts)
	require.False(t, r.Replayed)
	require.Equal(t, idem.FateDone, r.Fate)
	require.EqualValues(t, 2, s.orders.Load())
	require.Len(t, s.Requests(), 4, "net/http adds none of its own")
	keys := s.Distinct(keyHeader)
	require.Len(t, keys, 2)
	require.Len(t, keys[1], 36)
}

func TestANameKeepsItsKeyOverARestart(t *testing.T) {
	s, path := start(t), journal(t)
	run := func() (idem.Result, error) {
		c := open(t, path, idem.RetryPolicy{MaxAttempts: 1})
		defer c.Close()
		_, r, err := place(idem.WithIntent(t.Context(), "order-1"), c, s.URL+"/orders", `{"id":1}`)
		return r, err
	}
	s.Lose(1)
	_, err := run()
	require.Equal(t, idem.FateUnknown, idem.FateOf(nil, err))
	r, err := run()
	require.NoError(t, err)
	require.Equal(t, idem.FateDone, r.Fate)
	r, err = run()
	require.NoError(t, err)
	require.True(t, r.Recalled)
	require.Len(t, s.Distinct(keyHeader), 1)
	require.EqualValues(t, 1, s.orders.Load())
}

func TestAnErrorOfTheHandlerIsNotStoredSoTheRetryRunsItAgain(t *testing.T) {
	s := start(t)
	s.broken.Store(2)
	_, r, err := place(t.Context(), open(t, journal(t), idem.RetryPolicy{}), s.URL+"/orders", `{"id":1}`)
	require.NoError(t, err)
	require.Equal(t, 3, r.Attempts)
	require.EqualValues(t, 1, s.orders.Load())
	require.Len(t, s.Distinct(keyHeader), 1)
}

func TestARepeatWaitsInFiberForTheFirstThatStillRuns(t *testing.T) {
	s := start(t)
	s.slow.Store(300)
	c := open(t, journal(t), idem.RetryPolicy{AttemptTimeout: 200 * time.Millisecond})
	_, r, err := place(t.Context(), c, s.URL+"/orders", `{"id":1}`)
	require.NoError(t, err)
	require.Greater(t, r.Attempts, 1)
	require.EqualValues(t, 1, s.orders.Load())
}

func TestFiberComparesNothingSoTheClientDoes(t *testing.T) {
	s := start(t)
	c := open(t, journal(t), idem.RetryPolicy{})
	key := idem.NewKey()
	first, _, err := place(idem.WithKey(t.Context(), key), c, s.URL+"/orders", `{"id":1}`)
	require.NoError(t, err)

	req, err := http.NewRequestWithContext(t.Context(), "POST", s.URL+"/elsewhere", strings.NewReader(`{"id":2}`))
	require.NoError(t, err)
	req.Header.Set("X-Idempotency-Key", string(key))
	resp, err := http.DefaultClient.Do(req) // past the client
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, first, fmt.Sprintf("%d %s", resp.StatusCode, b), "another path, another body: the first answer")

	sent := len(s.Requests())
	_, _, err = place(idem.WithKey(t.Context(), key), c, s.URL+"/elsewhere", `{"id":2}`)
	require.ErrorIs(t, err, idem.ErrMismatch)
	require.Len(t, s.Requests(), sent)
}

func TestAKeyThatFiberWouldAnswerWith500IsRefusedBeforeItIsSent(t *testing.T) {
	s := start(t)
	_, _, err := place(idem.WithKey(t.Context(), "order-1"), open(t, journal(t), idem.RetryPolicy{}), s.URL+"/orders", `{"id":1}`)
	require.ErrorIs(t, err, idem.ErrInvalid)
	require.Empty(t, s.Requests())

	req, err := http.NewRequestWithContext(t.Context(), "POST", s.URL+"/orders", nil)
	require.NoError(t, err)
	req.Header.Set("X-Idempotency-Key", "order-1")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, 500, resp.StatusCode)
}

func TestARefusalIsNotDoneButAfterALostAnswerUnmarkedAndSoUnknown(t *testing.T) {
	s := start(t)
	c := open(t, journal(t), idem.RetryPolicy{})
	got, r, err := place(t.Context(), c, s.URL+"/refused", `{"id":1}`)
	require.NoError(t, err)
	require.Equal(t, "422 refused", got)
	require.Equal(t, idem.FateNotDone, r.Fate)

	s.Lose(1)
	_, r, err = place(t.Context(), c, s.URL+"/refused", `{"id":2}`)
	require.ErrorIs(t, err, idem.ErrInDoubt)
	require.Equal(t, idem.FateUnknown, r.Fate)
	require.Equal(t, 422, r.Status)
}

func TestAttemptsAreTheClients(t *testing.T) {
	s := start(t)
	s.Lose(100)
	_, r, err := place(t.Context(), open(t, journal(t), idem.RetryPolicy{MaxAttempts: 3}), s.URL+"/orders", `{"id":1}`)
	require.ErrorIs(t, err, idem.ErrExhausted)
	require.Equal(t, 3, r.Attempts)
	require.Len(t, s.Requests(), 3)
	require.EqualValues(t, 1, s.orders.Load())
}
