package codec

import (
	"cmp"
	"context"
	"net/http"

	"github.com/idem-go/idem"
)

// JSONArray is the common shape: a call is a JSON array of objects, and so is its
// answer, with an ID and a status in each.
//
//	[{"id":"p-1","idempotency_key":"…","amount":5}]   →   [{"id":"p-1","status":201,…}]
//
// An item's body is a JSON object. ID and key are put into it and no other byte
// changes. If the body already has one of them, it has to be the same.
type JSONArray struct {
	URL    string
	Method string      // "" is POST
	Header http.Header // sent with every call; Content-Type is application/json unless it says otherwise

	Array string // dotted path of the array in the call; "": the body is the array
	ID    string // dotted path of the ID in each item; "" is "id"; "-": not put, the body has what comes back
	Key   string // dotted path of the key in each item; "" is "idempotency_key"; "-": not put

	Results string // dotted path of the array in the answer; "": the answer is the array
	Answer  Answer // what stands in each result

	// HonoursKeys says that the provider acts once for an item's key, whatever
	// call it comes in, so that an item left open may be sent again.
	HonoursKeys bool
}

var _ idem.BatchCodec = JSONArray{}

// ItemKeys tells whether the provider honours the items' keys.
func (c JSONArray) ItemKeys() bool { return c.HonoursKeys && c.Key != none }

// Encode makes a call. An item that is no JSON object, or has another ID or key in
// it, is an *idem.InvalidError.
func (c JSONArray) Encode(ctx context.Context, items []idem.KeyedItem) (*http.Request, error) {
	var list [][]byte
	for _, it := range items {
		e, err := element(it, cmp.Or(c.ID, "id"), it.ID, cmp.Or(c.Key, "idempotency_key"))
		if err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	return newRequest(ctx, c.Method, c.URL, c.Header, "application/json", wrap(c.Array, array(list)))
}

// Decode reads an answer. One without the array, such as a refusal of the call as
// a whole, is an error.
func (c JSONArray) Decode(resp *http.Response, items []idem.KeyedItem) ([]idem.ItemResult, error) {
	body, err := readJSON(resp)
	if err != nil {
		return nil, err
	}
	found, ok := at(body, c.Results)
	if !ok {
		return nil, errFormat("nothing stands at %q of the answer", c.Results)
	}
	list, err := elements(found)
	if err != nil {
		return nil, err
	}
	n := namesOrKeys(items)
	var results []idem.ItemResult
	for _, raw := range list {
		if r, ok := c.Answer.read(raw, n, resp); ok {
			results = append(results, r)
		}
	}
	return results, nil
}
