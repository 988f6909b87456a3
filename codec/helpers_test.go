package codec_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/idem-go/idem"
	"github.com/stretchr/testify/require"
)

// items makes items of IDs, each with the key "k-" and its ID.
func items(ids ...string) []idem.KeyedItem {
	var list []idem.KeyedItem
	for _, id := range ids {
		list = append(list, item(id, `{"amount":5}`))
	}
	return list
}

func item(id, body string) idem.KeyedItem {
	return idem.KeyedItem{Item: idem.Item{ID: id, Body: []byte(body)}, Key: idem.Key("k-" + id)}
}

func answer(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
}

// encode returns the request and its body.
func encode(t *testing.T, c idem.BatchCodec, list ...idem.KeyedItem) (*http.Request, string) {
	t.Helper()
	req, err := c.Encode(context.Background(), list)
	require.NoError(t, err)
	body, err := io.ReadAll(req.Body)
	require.NoError(t, err)
	return req, string(body)
}

func encodeError(t *testing.T, c idem.BatchCodec, list ...idem.KeyedItem) error {
	t.Helper()
	_, err := c.Encode(context.Background(), list)
	require.ErrorIs(t, err, idem.ErrInvalid)
	return err
}

// said is what an answer says, as words: "a done", "b retry", "c refused",
// "d unknown".
func said(results []idem.ItemResult) []string {
	var list []string
	for _, r := range results {
		word := "unknown"
		switch {
		case r.Fate == idem.FateDone:
			word = "done"
		case r.Fate == idem.FateNotDone && r.Retry:
			word = "retry"
		case r.Fate == idem.FateNotDone:
			word = "refused"
		}
		list = append(list, r.ID+" "+word)
	}
	return list
}

// row is an answer to the items a, b and c, and what it says.
type row struct {
	name   string
	status int
	body   string
	want   []string // nil: it can't be read
}

func run(t *testing.T, c idem.BatchCodec, rows []row) {
	t.Helper()
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			results, err := c.Decode(answer(r.status, r.body), items("a", "b", "c"))
			if r.want == nil {
				require.Error(t, err)
				require.Empty(t, results)
				return
			}
			require.NoError(t, err)
			require.Equal(t, append([]string(nil), r.want...), said(results))
		})
	}
}

// nothing is an answer that can be read and settles nothing.
var nothing = []string{}
