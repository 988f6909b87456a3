package codec

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/idem-go/idem"
)

// SQS is SendMessageBatch of Amazon SQS in its JSON protocol. An item's body is
// the message. Requests are unsigned: Options.Authorize signs them.
//
// An answer is 200 even if no message was accepted. Entries of its Failed list
// weren't enqueued: with SenderFault they never will be, the others may be sent
// again.
//
// Only a FIFO queue deduplicates, by MessageDeduplicationId (which is the item's
// key) and for 5 minutes, so the client's dialect has to say Window:
// 5*time.Minute. With a standard queue an item whose fate an answer leaves open
// becomes Ambiguous.
//
// Source: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessageBatch.html,
// API_SendMessageBatchRequestEntry.html, API_BatchResultErrorEntry.html.
type SQS struct {
	QueueURL string      // "https://sqs.eu-west-1.amazonaws.com/177715257436/orders.fifo"
	URL      string      // where calls go; "" is the root of QueueURL's host
	Header   http.Header // sent with every call, beside Content-Type and X-Amz-Target
	FIFO     bool        // the queue is one; its name then ends in ".fifo"

	// GroupID is the MessageGroupId of every message of a FIFO queue. "" makes
	// each item a group of its own, since a batch promises no order.
	GroupID string
}

var _ idem.BatchCodec = SQS{}

// ItemKeys tells whether the queue honours the items' keys.
func (c SQS) ItemKeys() bool { return c.FIFO }

// MaxItems is how many items a call takes.
func (c SQS) MaxItems() int { return 10 }

type sqsEntry struct {
	ID      string `json:"Id"`
	Body    string `json:"MessageBody"`
	DedupID string `json:"MessageDeduplicationId,omitempty"`
	GroupID string `json:"MessageGroupId,omitempty"`
}

// Encode makes a call. More than 10 items, and a message with characters that SQS
// would refuse or replace, are an *idem.InvalidError.
func (c SQS) Encode(ctx context.Context, items []idem.KeyedItem) (*http.Request, error) {
	if err := checkCount(items, c.MaxItems()); err != nil {
		return nil, err
	}
	to, err := c.endpoint()
	if err != nil {
		return nil, err
	}
	var entries []sqsEntry
	for _, it := range items {
		if !isMessage(it.Body) {
			return nil, invalidItem(it, "want a message of at least one character, all allowed in XML 1.0")
		}
		entries = append(entries, c.entry(it))
	}
	body := quote(struct {
		QueueURL string `json:"QueueUrl"`
		Entries  []sqsEntry
	}{c.QueueURL, entries})
	req, err := newRequest(ctx, http.MethodPost, to, c.Header, "application/x-amz-json-1.0", body)
	if err == nil {
		req.Header.Set("X-Amz-Target", "AmazonSQS.SendMessageBatch")
	}
	return req, err
}

func (c SQS) endpoint() (string, error) {
	u, err := url.Parse(c.QueueURL)
	if err != nil || u.Host == "" {
		return "", &idem.InvalidError{Field: "QueueURL", Value: c.QueueURL, Why: "want the URL of a queue"}
	}
	if c.URL != "" {
		return c.URL, nil
	}
	return u.Scheme + "://" + u.Host + "/", nil
}

func sqsID(id string) string { return shortID(id, true) }

func (c SQS) entry(it idem.KeyedItem) sqsEntry {
	e := sqsEntry{ID: sqsID(it.ID), Body: string(it.Body)}
	if c.FIFO {
		e.DedupID, e.GroupID = string(it.Key), c.GroupID
		if e.GroupID == "" {
			e.GroupID = e.ID
		}
	}
	return e
}

// isMessage tells whether SQS takes the text as it is. What it doesn't allow it
// refuses or, by an older page, replaces: another message than was meant.
func isMessage(body []byte) bool {
	if len(body) == 0 || !utf8.Valid(body) {
		return false
	}
	return !strings.ContainsFunc(string(body), func(r rune) bool {
		return r < 0x20 && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF
	})
}

// Decode reads an answer. One with neither list, such as the refusal of a call
// that is too long, is an error.
func (c SQS) Decode(resp *http.Response, items []idem.KeyedItem) ([]idem.ItemResult, error) {
	o, err := readObject(resp)
	if err != nil {
		return nil, err
	}
	good, ok, err := sqsList(o, "Successful")
	if err != nil {
		return nil, err
	}
	bad, failed, err := sqsList(o, "Failed")
	if err != nil {
		return nil, err
	}
	if !ok && !failed {
		return nil, errFormat("the answer has no result: %s %s", short(o.textAt("__type")), short(o.textAt("message")))
	}
	n := namesOf(items, sqsID)
	results := sqsResults(good, n, func(raw json.RawMessage, e object) idem.ItemResult {
		return sqsDone(raw, e, n, resp)
	})
	return append(results, sqsResults(bad, n, sqsFailed)...), nil
}

// sqsList returns the elements of one of the two lists.
func sqsList(o object, name string) (list []json.RawMessage, ok bool, err error) {
	raw, ok := o.at(name)
	if ok {
		list, err = elements(raw)
	}
	return list, ok, err
}

func sqsResults(list []json.RawMessage, n names, read func(json.RawMessage, object) idem.ItemResult) []idem.ItemResult {
	var results []idem.ItemResult
	for _, raw := range list {
		e, err := members(raw)
		if id := e.textAt("Id"); err == nil && id != "" {
			results = append(results, n.assign(read(raw, e), id))
		}
	}
	return results
}

// sqsDone believes in a success only if it speaks of the same message: a FIFO
// queue accepts another one under a key it knows, and drops it.
func sqsDone(raw json.RawMessage, e object, n names, resp *http.Response) idem.ItemResult {
	r := idem.ItemResult{Fate: idem.FateDone, Status: doneStatus(resp.StatusCode), Body: raw}
	it, ok := n.sent[e.textAt("Id")]
	sum := md5.Sum(it.Body)
	if got := e.textAt("MD5OfMessageBody"); ok && got != "" && !strings.EqualFold(got, hex.EncodeToString(sum[:])) {
		return unknown(r, "MD5OfMessageBody is that of another message")
	}
	return r
}

func sqsFailed(raw json.RawMessage, e object) idem.ItemResult {
	return idem.ItemResult{
		Fate: idem.FateNotDone, Retry: e.textAt("SenderFault") != "true", Body: raw,
		Err: &ItemError{Code: short(e.textAt("Code")), Message: short(e.textAt("Message"))},
	}
}
