package idem

import (
	"context"
	"iter"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"
)

// Item is one thing of a batch that is to happen once.
type Item struct {
	ID   string // the caller's own, unique in the batch, never a position; 1 to 255 bytes of UTF-8
	Body []byte // what the item is, in the form that Request or the codec understands
}

// KeyedItem is an item with the key that it has in every call and every run.
type KeyedItem struct {
	Item
	Key Key
}

// ItemResult is what is known of one item.
type ItemResult struct {
	ID       string
	Key      Key
	Fate     Fate
	Status   int    // the item's own, or that of the call; 0 if there is none
	Body     []byte // the item's part of the answer; nil if there is none
	Recalled bool   // from the journal, settled before this run
	Trimmed  bool   // without its body, which was swept, or is a stream or over Options.MaxResult
	Err      error  // why it isn't Done; nil if it is

	// Retry is for Decode: the item didn't happen and may go into another call. A
	// throttled item is one, and an item cancelled behind a failed one. With Fate
	// Unknown it only says that nothing is known.
	Retry bool

	// RetryAfter is for Decode: how long the item's part of the answer asks to wait;
	// 0 if it doesn't.
	RetryAfter time.Duration
}

// Batch is a set of items that are sent in calls of several, or one by one.
type Batch struct {
	// Name is required, of 1 to 200 bytes of UTF-8. Each item's intent is named under
	// it (see [ItemName]), so that running the program again continues the batch. Next
	// month's batch needs another name.
	Name string

	// Items may be a million: they are read as calls leave. An error, of a file that
	// can't be read further say, ends the batch with it, after what came before has
	// been sent. The same ID twice with the same body is one item; with another body it
	// ends the batch with ErrMismatch. [Items] makes a sequence of a slice.
	Items iter.Seq2[Item, error]

	// Total is how many items there are, if that is known, for OnProgress's user; the
	// batch itself doesn't need it.
	Total int

	// Codec names one of Options.Codecs. With "" every item is a request of its own,
	// from Request.
	Codec   string
	Request func(ctx context.Context, it Item) (*http.Request, error)

	MaxItems    int // items in a call, at most what a method MaxItems() int of the codec says; default 100; without a codec always 1
	Concurrency int // calls under way at once; default 4

	// OnProgress is called with the items settled and the items read so far, by the
	// goroutine that ranges over the results. Total is the number to compare with.
	OnProgress func(done, read int)
}

// Items is a sequence of items that are at hand.
func Items(items ...Item) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		for _, it := range items {
			if !yield(it, nil) {
				return
			}
		}
	}
}

// BatchCodec writes the calls of a batch and reads their answers. It is registered
// in Options.Codecs under a name, so that Resume can read answers after a crash,
// without the program that began the batch. Its methods may be called at once from
// several goroutines.
//
// A codec with the method ItemKeys() bool that returns true says that the provider
// honours the items' keys: an item whose fate an answer leaves open is then sent
// again in a new call. Otherwise it becomes Ambiguous.
type BatchCodec interface {
	// Encode makes the request of one call. It is called once for a call; the bytes
	// are journaled. If it fails, or the request is over MaxBody, the items are tried
	// in halves, so that one bad item holds none of the others up.
	Encode(ctx context.Context, items []KeyedItem) (*http.Request, error)

	// Decode reads an answer with status 2xx, 207, 400 or 422; others are judged by
	// the table for the whole call. It says Done or NotDone for the items that the
	// answer settles, by ID. An item that it leaves out, or gives FateUnknown, counts
	// as unsettled, as does one with two different results. An error says that the
	// answer can't be read at all.
	Decode(resp *http.Response, items []KeyedItem) ([]ItemResult, error)
}

const (
	maxBatchName      = 200
	maxItemID         = 255
	defaultMaxItems   = 100
	defaultBatchCalls = 4
)

// ItemName is the business name of a batch's item, for Lookup and Forget. The
// length in front keeps "a/b" with "c" and "a" with "b/c" apart.
func ItemName(batch, id string) string {
	return strconv.Itoa(len(batch)) + ":" + batch + "/" + id
}

// Batch sends every item once and yields what is known of each, as it becomes known.
// Each ID is yielded once a run. Results settled by an earlier run come back
// Recalled, without network; calls that an earlier run left are continued. Leaving
// the loop early cancels what is under way: what was sent stays Pending. The error is
// the batch's own failure, an *Error, and comes last: results that were not yielded
// are not known then, and running the batch again continues it. A panic of the codec,
// of Request or of a hook is raised again in the loop.
func (c *Client) Batch(ctx context.Context, b Batch) iter.Seq2[ItemResult, error] {
	return func(yield func(ItemResult, error) bool) {
		leave, err := c.enter()
		defer leave()
		if err == nil {
			err = b.prepare(c.opts.Codecs)
		}
		if err != nil {
			yield(ItemResult{}, &Error{Op: "Batch", Intent: b.Name, Fate: nothingSent(err), Err: err})
			return
		}
		r := &batchRun{client: c, batch: b, codec: c.opts.Codecs[b.Codec], yield: yield, seen: map[[16]byte][16]byte{}}
		r.run(ctx)
	}
}

// prepare checks b, which is a copy, and fills its defaults.
func (b *Batch) prepare(codecs map[string]BatchCodec) error {
	switch {
	case b.Name == "" || len(b.Name) > maxBatchName || !utf8.ValidString(b.Name):
		return &InvalidError{"Batch.Name", b.Name, "must be 1 to 200 bytes of UTF-8"}
	case b.Items == nil:
		return &InvalidError{"Batch.Items", nil, "must not be nil"}
	case b.Codec == "" && b.Request == nil:
		return &InvalidError{"Batch.Request", nil, "must not be nil without a codec"}
	case b.Codec != "" && codecs[b.Codec] == nil:
		return &InvalidError{"Batch.Codec", b.Codec, "must be registered in Options.Codecs"}
	case b.Total < 0:
		return &InvalidError{"Batch.Total", b.Total, "must not be negative"}
	case b.MaxItems < 0:
		return &InvalidError{"Batch.MaxItems", b.MaxItems, "must not be negative"}
	case b.Concurrency < 0:
		return &InvalidError{"Batch.Concurrency", b.Concurrency, "must not be negative"}
	}
	b.MaxItems = orDefault(b.MaxItems, defaultMaxItems)
	if b.Codec == "" {
		b.MaxItems = 1
	}
	if c, limited := codecs[b.Codec].(interface{ MaxItems() int }); limited && c.MaxItems() > 0 {
		b.MaxItems = min(b.MaxItems, c.MaxItems())
	}
	b.Concurrency = orDefault(b.Concurrency, defaultBatchCalls)
	return nil
}
