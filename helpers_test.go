package idem_test

import (
	"context"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

// post is a JSON request to a provider that isn't there but in memory.
func post(ctx context.Context, body string) *http.Request {
	req, err := http.NewRequestWithContext(ctx, "POST", "http://api.example/v1/payments", strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	req.Header.Set("Content-Type", "application/json")
	return req
}

// bodyOf reads an answer.
func bodyOf(t testing.TB, resp *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(b)
}

func openJournal(t testing.TB, path string, opts *idem.KeystoreOptions) *idem.BoltKeystore {
	t.Helper()
	ks, err := idem.OpenKeystore(path, opts)
	require.NoError(t, err)
	t.Cleanup(func() { ks.Close() })
	return ks
}

func journalPath(t testing.TB) string { return filepath.Join(t.TempDir(), "journal") }
