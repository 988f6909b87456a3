package codec

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"

	"github.com/idem-go/idem"
)

// newRequest makes the request of a call. The header is the codec's, shared by
// all calls, and so copied.
func newRequest(ctx context.Context, method, url string, h http.Header, media string, body []byte) (*http.Request, error) {
	if url == "" {
		return nil, &idem.InvalidError{Field: "URL", Why: "the codec needs the URL of the batch endpoint"}
	}
	req, err := http.NewRequestWithContext(ctx, cmp.Or(method, http.MethodPost), url, bytes.NewReader(body))
	if err != nil {
		return nil, &idem.InvalidError{Field: "URL", Value: url, Why: err.Error()}
	}
	if h != nil {
		req.Header = h.Clone()
	}
	if req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", media)
	}
	return req, nil
}

func invalidItem(it idem.KeyedItem, why string) error {
	return &idem.InvalidError{Field: "Item.Body", Value: it.ID, Why: why}
}

// checkCount refuses calls that the provider would refuse as a whole.
func checkCount(items []idem.KeyedItem, most int) error {
	if n := len(items); n > most {
		return &idem.InvalidError{Field: "Batch.MaxItems", Value: n, Why: fmt.Sprintf("the format takes %d items a call", most)}
	}
	return nil
}

// derivedPrefix marks IDs that stand for others. One that begins so by itself is
// derived too, so that no two are ever the same.
const derivedPrefix = "idem-"

// shortID returns the ID itself where it is at most 80 of the ASCII letters,
// digits, "_" and "-", else a digest of it: the same in every call and run,
// wherever the item stands.
func shortID(id string, upper bool) string {
	ok := id != "" && len(id) <= 80 && !strings.HasPrefix(id, derivedPrefix)
	for i := 0; ok && i < len(id); i++ {
		c := id[i]
		ok = 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '_' || c == '-' || upper && 'A' <= c && c <= 'Z'
	}
	if ok {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return derivedPrefix + hex.EncodeToString(sum[:16])
}

// names leads from what stands in an answer back to the items.
type names struct {
	sent map[string]idem.KeyedItem
	ids  map[string]bool
}

// namesOf maps the items by what short makes of their IDs.
func namesOf(items []idem.KeyedItem, short func(id string) string) names {
	n := names{map[string]idem.KeyedItem{}, map[string]bool{}}
	for _, it := range items {
		n.sent[short(it.ID)], n.ids[it.ID] = it, true
	}
	return n
}

// namesOrKeys maps them by ID and by key: some providers answer with the key.
func namesOrKeys(items []idem.KeyedItem) names {
	n := namesOf(items, func(id string) string { return id })
	for _, it := range items {
		if key := string(it.Key); key != "" && !n.ids[key] {
			n.sent[key] = it
		}
	}
	return n
}

func (n names) has(name string) bool {
	_, ok := n.sent[name]
	return ok
}

// assign gives a result to the item that the name stands for. A name that wasn't
// sent stays as it is; if it reads like the ID of an item that travelled under
// another name, nothing is known.
func (n names) assign(r idem.ItemResult, name string) idem.ItemResult {
	if it, ok := n.sent[name]; ok {
		r.ID, r.Key = it.ID, it.Key
		return r
	}
	r.ID = name
	if n.ids[name] {
		return unknown(r, "the answer has an ID that wasn't sent")
	}
	return r
}

// unknown is a result of which nothing can be believed.
func unknown(r idem.ItemResult, why string) idem.ItemResult {
	r.Fate, r.Retry, r.Err = idem.FateUnknown, false, &ItemError{Status: r.Status, Message: why}
	return r
}
