package codec

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/idem-go/idem"
)

// Graph is JSON batching of Microsoft Graph: a call is a list of requests, each
// with an answer of its own, in any order.
//
// An item is read by its status like a call of its own. 429 didn't happen and may
// be sent again, as may 424, whose request waited for another that failed. 503 and
// 504 are unknown like every other 5xx, for a gateway that gives up knows nothing
// of the work behind it; Retry-After is passed on.
//
// Graph takes no keys, so that such an item becomes Ambiguous unless HonoursKeys
// says better.
//
// Source: https://learn.microsoft.com/en-us/graph/json-batching,
// https://github.com/microsoftgraph/msgraph-sdk-design.
type Graph struct {
	URL    string      // "" is https://graph.microsoft.com/v1.0/$batch
	Header http.Header // sent with every call

	// Path is the relative URL of every request, "/me/events", whose body is the
	// item's, with Method ("" is POST) and Headers (nil is Content-Type:
	// application/json). With Path "" an item's body is its whole request,
	// {"method":…,"url":…,"headers":…,"body":…}, and gets an id.
	Path    string
	Method  string
	Headers map[string]string

	// Key is a dotted path in each request at which its key is put,
	// "body.transactionId" for events; "" is none.
	Key string

	// HonoursKeys says that an item may be sent again without harm: by its key,
	// or because it may happen twice (GET, PUT, DELETE).
	HonoursKeys bool
}

var _ idem.BatchCodec = Graph{}

// ItemKeys tells whether an item may be sent again.
func (c Graph) ItemKeys() bool { return c.HonoursKeys }

// MaxItems is how many items a call takes.
func (c Graph) MaxItems() int { return 20 }

// graphID keeps upper case out, for ids are compared without regard to case.
func graphID(id string) string { return shortID(id, false) }

// Encode makes a call. More than 20 items, and an item that is no JSON object, are
// an *idem.InvalidError.
func (c Graph) Encode(ctx context.Context, items []idem.KeyedItem) (*http.Request, error) {
	if err := checkCount(items, c.MaxItems()); err != nil {
		return nil, err
	}
	var list [][]byte
	for _, it := range items {
		if c.Path != "" {
			if len(it.Body) > 0 && !json.Valid(it.Body) {
				return nil, invalidItem(it, "want JSON")
			}
			it.Body = c.request(it.Body)
		}
		e, err := element(it, "id", graphID(it.ID), cmp.Or(c.Key, none))
		if err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	to := cmp.Or(c.URL, "https://graph.microsoft.com/v1.0/$batch")
	return newRequest(ctx, http.MethodPost, to, c.Header, "application/json", wrap("requests", array(list)))
}

// request puts an item's body into a request.
func (c Graph) request(body []byte) []byte {
	text := slices.Concat([]byte(`{"method":`), quote(cmp.Or(c.Method, http.MethodPost)), []byte(`,"url":`), quote(c.Path))
	headers := c.Headers
	if headers == nil && len(body) > 0 {
		headers = map[string]string{"Content-Type": "application/json"}
	}
	if len(headers) > 0 {
		text = slices.Concat(text, []byte(`,"headers":`), quote(headers))
	}
	if len(body) > 0 {
		text = slices.Concat(text, []byte(`,"body":`), body)
	}
	return append(text, '}')
}

// Decode reads an answer. One without responses is an error.
func (c Graph) Decode(resp *http.Response, items []idem.KeyedItem) ([]idem.ItemResult, error) {
	o, err := readObject(resp)
	if err != nil {
		return nil, err
	}
	raw, ok := o.at("responses")
	if !ok {
		return nil, errFormat("the answer has no responses: %s", short(o.textAt("error.code")))
	}
	list, err := elements(raw)
	if err != nil {
		return nil, err
	}
	n := namesOf(items, graphID)
	var results []idem.ItemResult
	for _, raw := range list {
		e, err := members(raw)
		id := e.textAt("id")
		if err != nil || id == "" {
			continue
		}
		if low := strings.ToLower(id); n.has(low) {
			id = low
		}
		results = append(results, n.assign(graphResult(e, resp), id))
	}
	return results, nil
}

func graphResult(e object, resp *http.Response) idem.ItemResult {
	r := idem.ItemResult{Status: httpStatus(e.textAt("status"))}
	r.Body, _ = e.at("body")
	r.Fate, r.Retry = httpFate(r.Status)
	failure, _ := e.at("body.error")
	return finish(r, resp, failure, graphHeader(e, "Retry-After"))
}

// graphHeader returns the first header of that name, in any case.
func graphHeader(e object, name string) string {
	raw, _ := e.get("headers")
	headers, _ := members(raw)
	for _, h := range headers {
		if strings.EqualFold(h.name, name) {
			return text(h.value)
		}
	}
	return ""
}
