package idem_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
)

// acceptSingles are n items, each a request of its own.
func acceptSingles(ids ...string) idem.Batch {
	return idem.Batch{
		Name:        "payroll",
		Concurrency: 1,
		Items: func(yield func(idem.Item, error) bool) {
			for _, id := range ids {
				if !yield(idem.Item{ID: id, Body: []byte(id)}, nil) {
					return
				}
			}
		},
		Request: func(ctx context.Context, it idem.Item) (*http.Request, error) {
			return http.NewRequestWithContext(ctx, "POST", "http://bank.example/pay", strings.NewReader(`{"id":"`+it.ID+`"}`))
		},
	}
}

// A request that Options.Skip takes is sent without key or journal: an item that
// is to happen once must not be one, for a rerun would send it again.
func TestABatchItemIsNoSkippedRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := mockserver.New(nil)
		defer srv.Close()
		c, err := idem.New(idem.NewMemoryKeystore(), &idem.Options{
			Base: srv.Transport(), Skip: func(*http.Request) bool { return true },
		})
		require.NoError(t, err)
		defer c.Close()

		body := &skippedBody{Reader: strings.NewReader(`{"id":"a"}`)}
		batch := acceptSingles("a")
		batch.Request = func(ctx context.Context, _ idem.Item) (*http.Request, error) {
			return http.NewRequestWithContext(ctx, "POST", "http://bank.example/pay", io.ReadCloser(body))
		}
		n := 0
		for res, err := range c.Batch(context.Background(), batch) {
			require.NoError(t, err)
			require.ErrorIs(t, res.Err, idem.ErrInvalid)
			require.Equal(t, idem.FateNotDone, res.Fate)
			n++
		}
		require.Equal(t, 1, n)
		require.True(t, body.closed)
		require.Empty(t, srv.Requests())
	})
}

// What is known of an item counts also where its new request can't be sent.
func TestASkippedRequestOfADoneItemIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := mockserver.New(nil)
		defer srv.Close()
		skip := false
		c, err := idem.New(idem.NewMemoryKeystore(), &idem.Options{
			Base: srv.Transport(), Skip: func(*http.Request) bool { return skip },
		})
		require.NoError(t, err)
		defer c.Close()
		for range 2 {
			for res, err := range c.Batch(context.Background(), acceptSingles("a")) {
				require.NoError(t, err)
				require.Equal(t, idem.FateDone, res.Fate)
				require.Equal(t, skip, res.Err != nil)
			}
			skip = true
		}
		require.Equal(t, 1, srv.Effects("a"))
	})
}

// A million items must not leave a million contexts at the run's.
func TestABatchKeepsNothingOfItsItemsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := mockserver.New(nil)
		defer srv.Close()
		var seen []context.Context
		c, err := idem.New(idem.NewMemoryKeystore(), &idem.Options{Base: srv.Transport(), Skip: func(r *http.Request) bool {
			for _, earlier := range seen {
				require.Error(t, earlier.Err(), "an earlier item's context is still held by the run")
			}
			seen = append(seen, r.Context())
			return false
		}})
		require.NoError(t, err)
		defer c.Close()
		for res, err := range c.Batch(context.Background(), acceptSingles("a", "b", "c", "d")) {
			require.NoError(t, err)
			require.Equal(t, idem.FateDone, res.Fate)
		}
		require.Len(t, seen, 4)
	})
}

// The beginning of a body must not pass for the body, nor a recall without it for an
// empty answer.
func TestAnItemSaysThatItsBodyIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := mockserver.New(&mockserver.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "more than ten bytes")
		})})
		defer srv.Close()
		c, err := idem.New(idem.NewMemoryKeystore(), &idem.Options{Base: srv.Transport(), MaxResult: 10})
		require.NoError(t, err)
		defer c.Close()
		for run := range 2 {
			for res, err := range c.Batch(context.Background(), acceptSingles("a")) {
				require.NoError(t, err)
				require.NoError(t, res.Err)
				require.Equal(t, idem.FateDone, res.Fate)
				require.Equal(t, 200, res.Status)
				require.True(t, res.Trimmed)
				require.Nil(t, res.Body)
				require.Equal(t, run == 1, res.Recalled)
			}
		}
	})
}

// A loop that panics, or a test that fails in it, leaves no worker behind with a claim
// that the next run would wait for.
func TestALoopThatPanicsLeavesTheBatchToTheNextRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := mockserver.New(nil)
		defer srv.Close()
		c, err := idem.New(idem.NewMemoryKeystore(), &idem.Options{Base: srv.Transport()})
		require.NoError(t, err)
		defer c.Close()
		batch := acceptSingles("a", "b", "c", "d", "e", "f", "g", "h")
		batch.Concurrency = 4
		require.PanicsWithValue(t, "mine", func() {
			for range c.Batch(context.Background(), batch) {
				panic("mine")
			}
		})
		n := 0
		for res, err := range c.Batch(context.Background(), batch) {
			require.NoError(t, err)
			require.Equal(t, idem.FateDone, res.Fate)
			require.Equal(t, 1, srv.Effects(res.ID))
			n++
		}
		require.Equal(t, 8, n)
	})
}
