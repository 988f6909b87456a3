package idem_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
)

// acceptBank pays every second item of a call and refuses the others, in an answer of
// several times MaxResult.
func acceptBank(size int, kind string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var lines []map[string]any
		b, _ := io.ReadAll(r.Body)
		if json.Unmarshal(b, &lines) != nil {
			w.WriteHeader(http.StatusUnsupportedMediaType)
			return
		}
		for _, l := range lines {
			l["status"], l["pad"] = "refused", strings.Repeat("x", size)
			if strings.HasSuffix(l["id"].(string), "even") {
				l["status"] = "paid"
			}
		}
		w.Header().Set("Content-Type", kind)
		json.NewEncoder(w).Encode(lines)
	})
}

func acceptPayouts(n int) idem.Batch {
	return idem.Batch{Name: "payroll", Codec: "payouts", Items: func(yield func(idem.Item, error) bool) {
		for i := range n {
			id := fmt.Sprintf("%d-%s", i, []string{"even", "odd"}[i%2])
			if !yield(idem.Item{ID: id, Body: []byte("{}")}, nil) {
				return
			}
		}
	}}
}

// The status of a call says nothing about an item: an answer over MaxResult was taken
// for Done of all that it carried.
func TestALongAnswerIsReadItemByItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := mockserver.New(&mockserver.Config{Handler: acceptBank(50, "application/json")})
		defer srv.Close()
		c, err := idem.New(idem.NewMemoryKeystore(), &idem.Options{
			Base: srv.Transport(), MaxResult: 200, Codecs: map[string]idem.BatchCodec{"payouts": payouts{}},
		})
		require.NoError(t, err)
		defer c.Close()
		for range 2 { // and recalled
			n := 0
			for res, err := range c.Batch(context.Background(), acceptPayouts(20)) {
				require.NoError(t, err)
				want := idem.FateNotDone
				if strings.HasSuffix(res.ID, "even") {
					want = idem.FateDone
				}
				require.Equal(t, want, res.Fate, res.ID)
				n++
			}
			require.Equal(t, 20, n)
		}
		require.Len(t, srv.Requests(), 1)
	})
}

// A stream, or more than MaxResult for each item, isn't read: the items stay open, as
// after an answer that Decode fails on.
func TestAnAnswerThatIsNotReadSettlesNoItem(t *testing.T) {
	for name, h := range map[string]http.Handler{
		"too long": acceptBank(500, "application/json"),
		"a stream": acceptBank(5, "text/event-stream"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := mockserver.New(&mockserver.Config{Handler: h})
				defer srv.Close()
				c, err := idem.New(idem.NewMemoryKeystore(), &idem.Options{
					Base: srv.Transport(), MaxResult: 200, Codecs: map[string]idem.BatchCodec{"payouts": payouts{}},
				})
				require.NoError(t, err)
				defer c.Close()
				for res, err := range c.Batch(context.Background(), acceptPayouts(4)) {
					require.NoError(t, err)
					require.Equal(t, idem.FateUnknown, res.Fate, res.ID)
					require.ErrorIs(t, res.Err, idem.ErrInDoubt)
				}
			})
		})
	}
}

func TestTheLargestLimitIsNoLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := mockserver.New(nil)
		defer srv.Close()
		c, err := idem.New(idem.NewMemoryKeystore(), &idem.Options{
			Base: srv.Transport(), MaxBody: math.MaxInt64, MaxResult: math.MaxInt64,
		})
		require.NoError(t, err)
		defer c.Close()
		body := io.MultiReader(strings.NewReader(`{"id":"rent"}`)) // of unknown length
		req, err := http.NewRequest("POST", "http://bank.example/pay", body)
		require.NoError(t, err)
		resp, err := c.Do(req)
		require.NoError(t, err)
		got, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NotEmpty(t, got)
		require.Equal(t, []string{`{"id":"rent"}`}, srv.Bodies("rent"))
	})
}
