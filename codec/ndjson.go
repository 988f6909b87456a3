package codec

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"

	"github.com/idem-go/idem"
)

// NDJSON is one JSON object a line, in the call and in the answer
// (https://github.com/ndjson/ndjson-spec).
//
// An item's body is a JSON object, into which ID and key are put; line breaks
// between its members become spaces, and no other byte changes. If the body
// already has ID or key, it has to be the same.
type NDJSON struct {
	URL    string
	Method string      // "" is POST
	Header http.Header // sent with every call; Content-Type is application/x-ndjson unless it says otherwise

	ID  string // dotted path of the ID in each line; "" is "id"; "-": not put, the body has what comes back
	Key string // dotted path of the key in each line; "" is "idempotency_key"; "-": not put

	Answer Answer // what stands in each line of the answer

	// HonoursKeys says that the provider acts once for an item's key, whatever
	// call it comes in, so that an item left open may be sent again.
	HonoursKeys bool
}

var _ idem.BatchCodec = NDJSON{}

// ItemKeys tells whether the provider honours the items' keys.
func (c NDJSON) ItemKeys() bool { return c.HonoursKeys && c.Key != none }

// Encode makes a call. An item that is no JSON object, or has another ID or key in
// it, is an *idem.InvalidError.
func (c NDJSON) Encode(ctx context.Context, items []idem.KeyedItem) (*http.Request, error) {
	var body []byte
	for _, it := range items {
		line, err := element(it, cmp.Or(c.ID, "id"), it.ID, cmp.Or(c.Key, "idempotency_key"))
		if err != nil {
			return nil, err
		}
		body = append(body, oneLine(line)...)
		body = append(body, '\n')
	}
	return newRequest(ctx, c.Method, c.URL, c.Header, "application/x-ndjson", body)
}

// oneLine blanks line breaks. In valid JSON they never stand inside a string.
func oneLine(line []byte) []byte {
	line = bytes.ReplaceAll(line, []byte("\n"), []byte(" "))
	return bytes.ReplaceAll(line, []byte("\r"), []byte(" "))
}

// Decode reads an answer. Its last line may be cut off: what came before holds,
// and the items behind it are missing. Any other line that is no JSON is an error.
func (c NDJSON) Decode(resp *http.Response, items []idem.KeyedItem) ([]idem.ItemResult, error) {
	body, err := readBytes(resp)
	if err != nil {
		return nil, err
	}
	n := namesOrKeys(items)
	var results []idem.ItemResult
	for lines := 0; len(body) > 0; lines++ {
		line, rest, whole := bytes.Cut(body, []byte("\n"))
		body = rest
		line = bytes.TrimSpace(line)
		switch {
		case len(line) == 0:
			continue
		case lines >= maxResults:
			return nil, errFormat("more than %d lines", maxResults)
		case !json.Valid(line) && (whole || results == nil):
			return nil, errFormat("line %d of the answer is no JSON", lines+1)
		}
		if r, ok := c.Answer.read(bytes.Clone(line), n, resp); ok {
			results = append(results, r)
		}
	}
	return results, nil
}
