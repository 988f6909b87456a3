package codec

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"

	"github.com/idem-go/idem"
)

// FormanceBulk is the bulk endpoint of the Formance ledger. Each element carries
// its key as "ik", which the ledger keeps for ever.
//
// One failed element makes the status 400 although others were applied. Results
// have no id: they stand in the order of the elements, which is that of the items'
// keys, so that an answer can be read whatever order the items come in. Decode has
// to be given all items of the call; a list of another length is an error.
//
//   - An error with a code is a refusal: NotDone. INTERNAL says nothing: Unknown.
//   - Without ContinueOnFailure the elements behind the first failed one are
//     reported as INTERNAL "context canceled": they never ran, NotDone with Retry.
//   - With Atomic a failure takes everything back, whatever the answer shows of the
//     others: all are NotDone, and all but the refused ones Retry.
//
// Source: https://github.com/formancehq/ledger, internal/api/bulking (bulker.go,
// handler_json.go), and the same observed in runs.
type FormanceBulk struct {
	URL    string      // "https://ledger.example.com/v2/main/_bulk"
	Header http.Header // sent with every call

	// Action is that of every item, whose body is its data: "CREATE_TRANSACTION".
	// With "" an item's body is its whole element, {"action":…,"data":…}.
	Action string

	Atomic            bool // all elements or none
	ContinueOnFailure bool // elements behind a failed one run
}

var _ idem.BatchCodec = FormanceBulk{}

// ItemKeys is true: the ledger honours the items' keys.
func (c FormanceBulk) ItemKeys() bool { return true }

// Encode makes a call. An item that is no JSON object or has another ik, and a URL
// that asks for parallel work, whose results have no sure order, are an
// *idem.InvalidError.
func (c FormanceBulk) Encode(ctx context.Context, items []idem.KeyedItem) (*http.Request, error) {
	to, err := c.url()
	if err != nil {
		return nil, err
	}
	var list [][]byte
	for _, it := range inOrder(items) {
		if c.Action != "" {
			if !json.Valid(it.Body) {
				return nil, invalidItem(it, "want JSON")
			}
			it.Body = slices.Concat([]byte(`{"action":`), quote(c.Action), []byte(`,"data":`), it.Body, []byte("}"))
		}
		e, err := element(it, none, "", "ik")
		if err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	return newRequest(ctx, http.MethodPost, to, c.Header, "application/json", array(list))
}

func (c FormanceBulk) url() (string, error) {
	u, err := url.Parse(c.URL)
	if err != nil || u.Host == "" {
		return "", &idem.InvalidError{Field: "URL", Value: c.URL, Why: "want the URL of the bulk endpoint"}
	}
	q := u.Query()
	if q.Has("parallel") || q.Has("atomic") || q.Has("continueOnFailure") {
		return "", &idem.InvalidError{Field: "URL", Value: c.URL, Why: "parallel can't be read; atomic and continueOnFailure are fields of the codec"}
	}
	if c.Atomic {
		q.Set("atomic", "true")
	}
	if c.ContinueOnFailure {
		q.Set("continueOnFailure", "true")
	}
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// inOrder sorts the items by key, in a copy.
func inOrder(items []idem.KeyedItem) []idem.KeyedItem {
	return slices.SortedFunc(slices.Values(items), func(a, b idem.KeyedItem) int {
		return cmp.Compare(a.Key, b.Key)
	})
}

// Decode reads an answer, under 200 and 400 alike.
func (c FormanceBulk) Decode(resp *http.Response, items []idem.KeyedItem) ([]idem.ItemResult, error) {
	o, err := readObject(resp)
	if err != nil {
		return nil, err
	}
	raw, ok := o.at("data")
	if code := o.textAt("errorCode"); !ok || code != "" {
		return nil, errFormat("the bulk failed as a whole: %s %s", short(code), short(o.textAt("errorMessage")))
	}
	list, err := elements(raw)
	if err != nil {
		return nil, err
	}
	if len(list) != len(items) {
		return nil, errFormat("%d results for %d items, which have only their order", len(list), len(items))
	}
	return c.read(list, inOrder(items), resp)
}

func (c FormanceBulk) read(list []json.RawMessage, items []idem.KeyedItem, resp *http.Response) ([]idem.ItemResult, error) {
	results := make([]idem.ItemResult, len(items))
	failed := false
	for i, raw := range list {
		e, err := members(raw)
		if err != nil {
			return nil, err
		}
		results[i] = c.judge(e, failed)
		results[i].ID, results[i].Key = items[i].ID, items[i].Key
		failed = failed || results[i].Fate != idem.FateDone
		if part, ok := e.at("data"); ok && results[i].Fate == idem.FateDone {
			raw = part
		}
		results[i].Body = raw
	}
	switch {
	case c.Atomic && failed:
		takeBack(results)
	case !failed && resp.StatusCode/100 != 2:
		return nil, errFormat("status %d, but no element failed", resp.StatusCode)
	}
	return results, nil
}

// judge reads one element; behind says that one before it failed.
func (c FormanceBulk) judge(e object, behind bool) idem.ItemResult {
	code, why := e.textAt("errorCode"), e.textAt("errorDescription")
	kind := e.textAt("responseType")
	if code == "" && kind != "ERROR" && kind != "" {
		return idem.ItemResult{Fate: idem.FateDone, Status: http.StatusOK}
	}
	r := idem.ItemResult{Err: &ItemError{Code: short(code), Message: short(why)}}
	switch {
	case code == "INTERNAL" && why == "context canceled" && behind && !c.ContinueOnFailure:
		r.Fate, r.Retry = idem.FateNotDone, true
	case code != "" && code != "INTERNAL":
		r.Fate = idem.FateNotDone
	}
	return r
}

// takeBack is the end of an atomic bulk of which something failed.
func takeBack(results []idem.ItemResult) {
	for i := range results {
		r := &results[i]
		if r.Fate == idem.FateDone {
			r.Status, r.Err = 0, &ItemError{Message: "taken back with the rest of the bulk"}
		}
		r.Retry = r.Retry || r.Fate != idem.FateNotDone
		r.Fate = idem.FateNotDone
	}
}
