package mockserver_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/idem-go/idem/mockserver"
	"github.com/stretchr/testify/require"
)

// client sends single requests to one server.
type client struct {
	t    *testing.T
	api  *mockserver.Server
	http *http.Client
}

// inMemory is a client of a server without a socket.
func inMemory(t *testing.T, cfg *mockserver.Config) *client {
	api := mockserver.New(cfg)
	t.Cleanup(api.Close)
	return &client{t, api, &http.Client{Transport: api.Transport()}}
}

// overLoopback is a client that makes a new connection for each request.
func overLoopback(t *testing.T, cfg *mockserver.Config) *client {
	api := mockserver.Start(t, cfg)
	return &client{t, api, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
}

// both runs a test in memory and over loopback: they must behave alike.
func both(t *testing.T, cfg *mockserver.Config, test func(*client)) {
	t.Run("in memory", func(t *testing.T) { test(inMemory(t, cfg)) })
	t.Run("over loopback", func(t *testing.T) { test(overLoopback(t, cfg)) })
}

func order(id string) string { return `{"id":"` + id + `"}` }

func (c *client) request(ctx context.Context, key, body string) *http.Request {
	c.t.Helper()
	req, err := http.NewRequestWithContext(ctx, "POST", c.api.URL+"/orders", strings.NewReader(body))
	require.NoError(c.t, err)
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	return req
}

// try sends and reads an answer whole.
func (c *client) try(ctx context.Context, key, body string) (*http.Response, string, error) {
	c.t.Helper()
	return c.do(c.request(ctx, key, body))
}

func (c *client) do(req *http.Request) (*http.Response, string, error) {
	c.t.Helper()
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp, string(text), err
}

// post expects an answer with the status.
func (c *client) post(status int, key, body string) (*http.Response, string) {
	c.t.Helper()
	resp, text, err := c.try(context.Background(), key, body)
	require.NoError(c.t, err)
	require.Equal(c.t, status, resp.StatusCode, text)
	return resp, text
}

// fail expects that no whole answer comes.
func (c *client) fail(key, body string) error {
	c.t.Helper()
	_, _, err := c.try(context.Background(), key, body)
	require.Error(c.t, err)
	return err
}

func (c *client) script(f ...mockserver.Fault) { c.api.Script(f...) }

func (c *client) effects(n int, value string) {
	c.t.Helper()
	require.Equal(c.t, n, c.api.Effects(value), "effects of %s", value)
}
