package idem_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
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

// copyNow copies the journal as a crash would leave it at this moment.
func (w *resumeWorld) copyNow() (path string) {
	w.Helper()
	data, err := os.ReadFile(w.path)
	require.NoError(w, err)
	path = journalPath(w)
	require.NoError(w, os.WriteFile(path, data, 0o600))
	return path
}

// openCopy opens a client over such a copy.
func (w *resumeWorld) openCopy(path string) *idem.Client {
	w.Helper()
	c, err := idem.New(openJournal(w, path, nil), &w.opts)
	require.NoError(w, err)
	w.Cleanup(func() { require.NoError(w, c.Close()) })
	return c
}

// fails expects an *Error with this fate and cause.
func fails(t *testing.T, resp *http.Response, err error, fate idem.Fate, cause error) *idem.Error {
	t.Helper()
	require.Nil(t, resp)
	require.ErrorIs(t, err, cause)
	require.Equal(t, fate, idem.FateOf(resp, err), "%v", err)
	return resumeError(t, err)
}

// answers expects an answer with this fate and status, and returns what is known.
func answers(t *testing.T, resp *http.Response, err error, fate idem.Fate, status int) idem.Result {
	t.Helper()
	require.NoError(t, err)
	require.Equal(t, status, resp.StatusCode)
	require.Equal(t, fate, idem.FateOf(resp, err))
	r, ok := idem.ResultOf(resp)
	require.True(t, ok)
	return r
}

var (
	lost   = mockserver.Fault{Kind: mockserver.FaultDrop} // it happens, and no answer comes
	denied = mockserver.Fault{Kind: mockserver.FaultStatus, Status: 402}
	atGate = mockserver.Fault{Kind: mockserver.FaultStatus, Status: 401}
	down   = mockserver.Fault{Kind: mockserver.FaultStatus, Status: 503, Times: -1}
)
