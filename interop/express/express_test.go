// Package express_test has express-idempotency (npm), in a Node process, as the server.
// It is skipped where node or npm is absent.
//
// What works. dialect.json says all: 409 while the first request runs, 417 for another
// payload. The middleware stores 2xx only, so a 503 is executed again by the retry; it
// marks no replay. 417 comes as an HTML page with a stack trace, which is why the
// client's own fingerprint, which sends nothing, is worth having.
//
// Attempts: there is no other retry loop, 3 of 3 arrive.
package express_test

import (
	"bufio"
	"context"
	_ "embed"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/interop/internal/wire"
)

//go:embed dialect.json
var dialect []byte

// shop is testdata/server.js behind a proxy that loses answers.
type shop struct {
	*wire.Proxy
	direct string
}

// start installs and runs the server until the test ends.
func start(t *testing.T) *shop {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	install := exec.CommandContext(ctx, "npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--prefer-offline", "--fetch-retries=0")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		t.Skipf("needs node and npm: npm install: %v %s", err, lines[len(lines)-1])
	}
	node := exec.Command("node", "server.js")
	node.Dir = dir
	stdin, err := node.StdinPipe()
	require.NoError(t, err)
	stdout, err := node.StdoutPipe()
	require.NoError(t, err)
	if err := node.Start(); err != nil {
		t.Skipf("needs node and npm: %v", err)
	}
	t.Cleanup(func() { stdin.Close(); _ = node.Wait() })
	port, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	go io.Copy(io.Discard, stdout)
	s := &shop{direct: "http://127.0.0.1:" + strings.TrimSpace(port)}
	s.Proxy = wire.Start(t, wire.To(t, s.direct))
	return s
}

// orders asks the server how many it took.
func (s *shop) orders(t *testing.T) (n int) {
	resp, err := http.Get(s.direct + "/orders")
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	_, err = fmt.Sscanf(string(b), `{"orders":%d}`, &n)
	require.NoError(t, err)
	return n
}

func (s *shop) breakFor(t *testing.T, times int) {
	resp, err := http.Post(fmt.Sprintf("%s/broken/%d", s.direct, times), "", nil)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
}

func open(t *testing.T, path string, retry idem.RetryPolicy) *idem.Client {
	d, err := idem.ParseDialect(dialect)
	require.NoError(t, err)
	if retry.BaseDelay == 0 {
		retry.BaseDelay = time.Millisecond
	}
	retry.NoBudget = true
	c, err := idem.Open(path, &idem.Options{Scope: "shop", Dialect: d, Retry: retry})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func journal(t *testing.T) string { return filepath.Join(t.TempDir(), "orders.db") }

func place(ctx context.Context, c *idem.Client, s *shop, body string) (string, idem.Result, error) {
	var r idem.Result
	req, err := http.NewRequestWithContext(idem.WithResult(ctx, &r), "POST", s.URL+"/orders", strings.NewReader(body))
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

// One server for all: installing it takes seconds.
func TestExpressIdempotency(t *testing.T) {
	s := start(t)
	placed := 0
	for _, tc := range []struct {
		name string
		test func(t *testing.T)
	}{
		{"a lost answer is replayed, without a marker", func(t *testing.T) {
			s.Lose(2)
			got, r, err := place(t.Context(), open(t, journal(t), idem.RetryPolicy{}), s, `{"id":1}`)
			require.NoError(t, err)
			placed++
			require.Equal(t, fmt.Sprintf(`201 {"order":%d,"id":1}`, placed), got)
			require.Equal(t, 3, r.Attempts)
			require.False(t, r.Replayed)
		}},
		{"a name keeps its key over a restart", func(t *testing.T) {
			path, before := journal(t), len(s.Requests())
			run := func() (idem.Result, error) {
				c := open(t, path, idem.RetryPolicy{MaxAttempts: 1})
				defer c.Close()
				_, r, err := place(idem.WithIntent(t.Context(), "order-2"), c, s, `{"id":2}`)
				return r, err
			}
			s.Lose(1)
			first, err := run()
			require.Error(t, err)
			second, err := run()
			require.NoError(t, err)
			placed++
			require.Equal(t, first.Key, second.Key)
			third, err := run()
			require.NoError(t, err)
			require.True(t, third.Recalled)
			sent := s.Requests()[before:]
			require.Len(t, sent, 2)
			require.Equal(t, sent[0].Header["Idempotency-Key"], sent[1].Header["Idempotency-Key"])
		}},
		{"a 503 is not stored, so the retry runs it again", func(t *testing.T) {
			s.breakFor(t, 2)
			_, r, err := place(t.Context(), open(t, journal(t), idem.RetryPolicy{}), s, `{"id":3}`)
			require.NoError(t, err)
			placed++
			require.Equal(t, 3, r.Attempts)
		}},
		{"409 while the first runs is waited for", func(t *testing.T) {
			before := len(s.Requests())
			c := open(t, journal(t), idem.RetryPolicy{MaxAttempts: 20, AttemptTimeout: 200 * time.Millisecond, BaseDelay: 50 * time.Millisecond})
			_, _, err := place(t.Context(), c, s, `{"id":4,"slow":1000}`)
			require.NoError(t, err)
			placed++
			statuses := map[int]int{}
			for _, r := range s.Requests()[before:] {
				statuses[r.Status]++
			}
			require.NotZero(t, statuses[409])
		}},
		{"another payload is refused here, and there with 417 and a stack trace", func(t *testing.T) {
			c, key := open(t, journal(t), idem.RetryPolicy{}), idem.NewKey()
			_, _, err := place(idem.WithKey(t.Context(), key), c, s, `{"id":5}`)
			require.NoError(t, err)
			placed++
			sent := len(s.Requests())
			_, r, err := place(idem.WithKey(t.Context(), key), c, s, `{"id":6}`)
			require.ErrorIs(t, err, idem.ErrMismatch)
			require.Equal(t, idem.FateDone, r.Fate)
			require.Len(t, s.Requests(), sent)

			elsewhere := open(t, journal(t), idem.RetryPolicy{}) // a journal that doesn't know the key
			_, r, err = place(idem.WithKey(t.Context(), key), elsewhere, s, `{"id":6}`)
			require.ErrorIs(t, err, idem.ErrMismatch)
			require.Equal(t, idem.FateUnknown, r.Fate)
			require.Equal(t, 417, r.Status)
		}},
		{"attempts are the client's", func(t *testing.T) {
			before := len(s.Requests())
			s.Lose(3)
			_, r, err := place(t.Context(), open(t, journal(t), idem.RetryPolicy{MaxAttempts: 3}), s, `{"id":7}`)
			require.ErrorIs(t, err, idem.ErrExhausted)
			placed++
			require.Equal(t, 3, r.Attempts)
			require.Len(t, s.Requests()[before:], 3)
		}},
	} {
		t.Run(tc.name, tc.test)
		require.Equal(t, placed, s.orders(t), "each order is placed once")
	}
}
