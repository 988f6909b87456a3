package idem_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

// verdictNothingKept checks that no entry was made.
func verdictNothingKept(t *testing.T, c *idem.Client) {
	t.Helper()
	for e, err := range c.Pending(context.Background()) {
		require.NoError(t, err)
		t.Errorf("journaled: %v %v", e.Method, e.URL)
	}
}

func TestAReadIsRetriedWithoutKeyAndJournal(t *testing.T) {
	for _, method := range []string{"GET", "HEAD", "OPTIONS", "TRACE"} {
		for _, step := range []verdictStep{verdictLost, verdictRefused, verdictAnswer(503, ""), verdictAnswer(429, ""), verdictAnswer(500, "", "Idempotent-Replayed", "true")} {
			synctest.Test(t, func(t *testing.T) {
				base := &verdictBase{}
				c := verdictClient(t, base, idem.Options{Retry: verdictPatient})
				defer c.Close()
				base.script(step)
				ctx := idem.WithKey(idem.WithIntent(context.Background(), "read"), idem.NewKey())
				resp, err := c.Do(verdictReq(ctx, method, ""))
				require.NoError(t, err)
				sent := base.sends()
				if resp.StatusCode == 200 {
					require.Len(t, sent, 2)
				}
				for _, s := range sent {
					require.Equal(t, method, s.Method)
					require.Empty(t, s.Key, "a read carries a key")
				}
				require.Equal(t, "withdrawn", verdictState(t, c, "read"), "a read was journaled")
				verdictNothingKept(t, c)
			})
		}
	}
}

func TestAReadIsAnsweredAsTheProviderSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &verdictBase{}
		c := verdictClient(t, base, idem.Options{Retry: verdictPatient})
		defer c.Close()
		for _, status := range []int{200, 202, 204, 301, 302, 303, 304, 307, 308, 400, 401, 404, 409, 410, 422} {
			base.always(verdictAnswer(status, "", "Location", "/elsewhere"))
			for op, call := range map[string]func(*http.Request) (*http.Response, error){"Do": c.Do, "Transport": c.Transport().RoundTrip} {
				resp, err := call(verdictReq(context.Background(), "GET", ""))
				require.NoError(t, err, "%s %d", op, status)
				require.Equal(t, status, resp.StatusCode)
			}
			require.Len(t, base.sends(), 2, "%d", status)
		}
		base.always(verdictAnswer(503, `{}`))
		resp, err := c.Do(verdictReq(context.Background(), "GET", ""))
		require.Equal(t, 503, verdictErr(t, resp, err).Response.StatusCode)
		require.Len(t, base.sends(), verdictPatient.MaxAttempts)
		resp, err = c.Transport().RoundTrip(verdictReq(context.Background(), "GET", ""))
		require.NoError(t, err)
		require.Equal(t, 503, resp.StatusCode)
		verdictNothingKept(t, c)
	})
}

func TestAReadCutOnEveryAttemptIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &verdictBase{}
		c := verdictClient(t, base, idem.Options{Retry: verdictPatient})
		defer c.Close()
		base.always(verdictCut(200, false))
		for op, call := range map[string]func(*http.Request) (*http.Response, error){"Do": c.Do, "Transport": c.Transport().RoundTrip} {
			resp, err := call(verdictReq(context.Background(), "GET", ""))
			require.Nil(t, resp, "%s returned half a body as an answer", op)
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		}
	})
}

// The answer to a HEAD has a length and no body; that is no cut.
func TestAHeadWithALengthIsWhole(t *testing.T) {
	sends := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sends++
		w.Header().Set("Content-Length", "12345")
	}))
	defer srv.Close()
	c, err := idem.Open(t.TempDir()+"/journal.db", nil)
	require.NoError(t, err)
	defer c.Close()
	req, _ := http.NewRequest("HEAD", srv.URL, nil)
	resp, err := c.Do(req)
	require.NoError(t, err)
	require.Equal(t, 1, sends)
	require.Equal(t, int64(12345), resp.ContentLength)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Empty(t, body)
}

func TestALargeReadPassesThroughAsItComes(t *testing.T) {
	const chunk, chunks = 64 << 10, 64 // 4 MiB, over MaxResult
	for _, length := range []bool{true, false} {
		t.Run(fmt.Sprint("length ", length), func(t *testing.T) {
			more := make(chan struct{})
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if length {
					w.Header().Set("Content-Length", strconv.Itoa(chunk*chunks))
				}
				piece := bytes.Repeat([]byte("x"), chunk)
				for i := range chunks {
					if i == 1 {
						w.(http.Flusher).Flush()
						<-more // the rest comes only after the caller has its response
					}
					_, _ = w.Write(piece)
				}
			}))
			defer srv.Close()
			c, err := idem.Open(t.TempDir()+"/journal.db", nil)
			require.NoError(t, err)
			defer c.Close()
			req, _ := http.NewRequest("GET", srv.URL, nil)
			resp, err := c.Do(req)
			close(more)
			require.NoError(t, err)
			n, err := io.Copy(io.Discard, resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, int64(chunk*chunks), n)
		})
	}
}

func TestASkippedRequestIsSentOnceAsItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &verdictBase{}
		c := verdictClient(t, base, idem.Options{Retry: verdictPatient, Skip: func(*http.Request) bool { return true }})
		defer c.Close()
		base.script(verdictAnswer(503, "{}"))
		resp, err := c.Do(verdictNamed("skipped"))
		require.NoError(t, err)
		require.Equal(t, 503, resp.StatusCode)
		require.Len(t, base.sends(), 1)
		require.Empty(t, base.sends()[0].Key)
		require.Equal(t, "withdrawn", verdictState(t, c, "skipped"))
	})
}
