package mockserver

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// batchFormat reads calls and writes answers.
type batchFormat struct {
	media   string // of answers
	most    int    // items in a call; zero is any number
	parse   func(r *http.Request, body []byte) (batchCall, error)
	render  func(b *batch, call batchCall, results []itemResult) (status int, answer []byte)
	refusal func(status int, why string) (int, any) // of a call as a whole
	nearest func(o ItemOutcome) ItemOutcome         // what the format can say
	same    func(first, now []byte) bool            // whether a known key may come with this body
}

var batchFormats = map[BatchFormat]batchFormat{
	BatchJSON: {
		media: "application/json", parse: parseArray, render: renderArray,
		refusal: plainRefusal, nearest: asItIs, same: bytes.Equal,
	},
	BatchNDJSON: {
		media: "application/x-ndjson", parse: parseLines, render: renderLines,
		refusal: plainRefusal, nearest: asItIs, same: bytes.Equal,
	},
	BatchSQS: {
		media: "application/x-amz-json-1.0", most: 10, parse: parseSQS, render: renderSQS,
		refusal: sqsRefusal, nearest: nearestSQS, same: func(_, _ []byte) bool { return true },
	},
	BatchGraph: {
		media: "application/json", most: 20, parse: parseGraph, render: renderGraph,
		refusal: graphRefusal, nearest: asItIs, same: bytes.Equal,
	},
	BatchFormance: {
		media: "application/json", parse: parseFormance, render: renderFormance,
		refusal: formanceRefusal, nearest: nearestFormance, same: bytes.Equal,
	},
}

// itemStatus is the HTTP status of what a result shows.
var itemStatus = map[ItemOutcome]int{
	ItemDone: 201, ItemRefuse: 422, ItemThrottle: 429, ItemBreak: 500, ItemCancel: 424,
}

func asItIs(o ItemOutcome) ItemOutcome { return o }

// refuseCall answers a call of which no item is looked at.
func refuseCall(w http.ResponseWriter, f batchFormat, call batchCall, why error) {
	status := call.refuse
	if status == 0 {
		status = http.StatusBadRequest
	}
	status, answer := f.refusal(status, why.Error())
	w.WriteHeader(status)
	w.Write(mustJSON(answer))
}

func plainRefusal(status int, why string) (int, any) {
	return status, object{"error": object{"code": "bad_call", "message": why}}
}

// object is a JSON object to write; members come in the order of their names.
type object = map[string]any

func mustJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic("mockserver: internal error: " + err.Error())
	}
	return text
}

var errNoItems = errors.New("no list of items")

// list reads an array, at a member of an object or by itself.
func list(body []byte, name string) ([]json.RawMessage, error) {
	if name != "" {
		var o map[string]json.RawMessage
		if json.Unmarshal(body, &o) != nil {
			return nil, errNoItems
		}
		body = o[name]
	}
	var elements []json.RawMessage
	if json.Unmarshal(body, &elements) != nil || elements == nil {
		return nil, errNoItems
	}
	return elements, nil
}

// itemsOf makes items of elements, by the paths of their ID and key.
func itemsOf(elements []json.RawMessage, id, key []string) []BatchItem {
	var items []BatchItem
	for _, e := range elements {
		it := BatchItem{Body: e}
		it.ID, _ = member(e, id...)
		it.Key, _ = member(e, key...)
		items = append(items, it)
	}
	return items
}

func parseArray(_ *http.Request, body []byte) (call batchCall, err error) {
	body = bytes.TrimSpace(body)
	name := ""
	if call.wrapped = bytes.HasPrefix(body, []byte("{")); call.wrapped {
		name = "items"
	}
	elements, err := list(body, name)
	call.items = itemsOf(elements, []string{"id"}, []string{"idempotency_key"})
	return call, err
}

func parseLines(_ *http.Request, body []byte) (batchCall, error) {
	var elements []json.RawMessage
	for line := range bytes.Lines(body) {
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if !json.Valid(line) {
			return batchCall{}, fmt.Errorf("line %d is no JSON", len(elements)+1)
		}
		elements = append(elements, line)
	}
	return batchCall{items: itemsOf(elements, []string{"id"}, []string{"idempotency_key"})}, nil
}

// plainResult is a result of the two plain formats.
func (b *batch) plainResult(r itemResult) object {
	o := object{"id": r.ID, "status": itemStatus[r.shown]}
	if id, ok := rawMember(r.Body, "id"); ok {
		o["id"] = id // a number stays one
	}
	if r.shown != ItemDone {
		o["error"] = object{"code": r.shown, "message": "the mock server says " + string(r.shown)}
	}
	if r.shown == ItemThrottle && b.RetryAfter > 0 {
		o["retry_after"] = wholeSeconds(b.RetryAfter)
	}
	return o
}

func rawMember(body []byte, name string) (json.RawMessage, bool) {
	var o map[string]json.RawMessage
	if json.Unmarshal(body, &o) != nil {
		return nil, false
	}
	v, ok := o[name]
	return v, ok
}

// status is that of an answer.
func (b *batch) status(results []itemResult) int {
	for _, r := range results {
		if r.shown != ItemDone && b.Status != 0 {
			return b.Status
		}
	}
	return http.StatusOK
}

func renderArray(b *batch, call batchCall, results []itemResult) (int, []byte) {
	shown := make([]object, 0, len(results))
	for _, r := range results {
		shown = append(shown, b.plainResult(r))
	}
	if call.wrapped {
		return b.status(results), mustJSON(object{"results": shown})
	}
	return b.status(results), mustJSON(shown)
}

func renderLines(b *batch, _ batchCall, results []itemResult) (int, []byte) {
	var lines []byte
	for _, r := range results {
		lines = append(append(lines, mustJSON(b.plainResult(r))...), '\n')
	}
	return b.status(results), lines
}

func parseSQS(_ *http.Request, body []byte) (batchCall, error) {
	elements, err := list(body, "Entries")
	return batchCall{items: itemsOf(elements, []string{"Id"}, []string{"MessageDeduplicationId"})}, err
}

// nearestSQS leaves out what breaks, for an entry in Failed wasn't enqueued.
func nearestSQS(o ItemOutcome) ItemOutcome {
	switch o {
	case ItemBreak:
		return ItemSkip
	case ItemBreakAfter:
		return ItemLose
	}
	return o
}

func renderSQS(b *batch, _ batchCall, results []itemResult) (int, []byte) {
	good, bad := []object{}, []object{}
	for _, r := range results {
		if r.shown == ItemDone {
			message, _ := member(r.Body, "MessageBody")
			sum := md5.Sum([]byte(message))
			good = append(good, object{"Id": r.ID, "MessageId": "m-" + r.ID, "MD5OfMessageBody": hex.EncodeToString(sum[:])})
			continue
		}
		code := map[ItemOutcome]string{ItemRefuse: "InvalidMessageContents", ItemThrottle: "RequestThrottled"}[r.shown]
		bad = append(bad, object{"Id": r.ID, "Code": code, "SenderFault": r.shown == ItemRefuse})
	}
	return b.status(results), mustJSON(object{"Successful": good, "Failed": bad})
}

func sqsRefusal(_ int, why string) (int, any) {
	return http.StatusBadRequest, object{"__type": "com.amazonaws.sqs#BatchRequestTooLong", "message": why}
}

func parseGraph(_ *http.Request, body []byte) (batchCall, error) {
	elements, err := list(body, "requests")
	call := batchCall{items: itemsOf(elements, []string{"id"}, []string{"body", "transactionId"})}
	ids := map[string]bool{}
	for _, it := range call.items {
		if id := strings.ToLower(it.ID); id == "" || ids[id] {
			err = fmt.Errorf("the id %q is empty or there twice", it.ID)
		} else {
			ids[id] = true
		}
	}
	return call, err
}

func renderGraph(b *batch, _ batchCall, results []itemResult) (int, []byte) {
	shown := []object{}
	for _, r := range results {
		headers, body := object{"Content-Type": "application/json"}, object{"value": r.ID}
		if r.shown != ItemDone {
			body = object{"error": object{"code": r.shown, "message": "the mock server says " + string(r.shown)}}
		}
		if r.shown == ItemThrottle && b.RetryAfter > 0 {
			headers["Retry-After"] = strconv.FormatInt(wholeSeconds(b.RetryAfter), 10)
		}
		shown = append(shown, object{"id": r.ID, "status": itemStatus[r.shown], "headers": headers, "body": body})
	}
	return b.status(results), mustJSON(object{"responses": shown})
}

func graphRefusal(_ int, why string) (int, any) {
	return http.StatusBadRequest, object{"error": object{"code": "BadRequest", "message": why}}
}

func parseFormance(r *http.Request, body []byte) (batchCall, error) {
	elements, err := list(body, "")
	q := r.URL.Query()
	call := batchCall{
		items:  itemsOf(elements, []string{"data", "id"}, []string{"ik"}),
		atomic: q.Get("atomic") == "true", stop: q.Get("continueOnFailure") != "true",
	}
	for i := range call.items {
		it := &call.items[i]
		if it.ID == "" {
			it.ID, _ = member(it.Body, "data", "reference")
		}
		if it.ID == "" {
			it.ID = it.Key
		}
	}
	return call, err
}

// nearestFormance breaks what its answers, by position, can't leave out, and what
// it has no word for.
func nearestFormance(o ItemOutcome) ItemOutcome {
	switch o {
	case ItemSkip, ItemThrottle:
		return ItemBreak
	case ItemLose:
		return ItemBreakAfter
	case ItemTwice, ItemContradict:
		return ItemDone
	}
	return o
}

// renderFormance shows the elements of an atomic bulk as made that were taken back
// after a later one failed, as the ledger does.
func renderFormance(_ *batch, _ batchCall, results []itemResult) (int, []byte) {
	status := http.StatusOK
	shown := []object{}
	for _, r := range results {
		if r.shown == ItemDone {
			action, _ := member(r.Body, "action")
			shown = append(shown, object{"responseType": action, "data": object{"reference": r.ID}})
			continue
		}
		status = http.StatusBadRequest
		code, why := "INTERNAL", "connection reset by peer"
		switch r.shown {
		case ItemRefuse:
			code, why = "INSUFFICIENT_FUND", "account had insufficient funds"
		case ItemCancel:
			why = "context canceled"
		}
		shown = append(shown, object{"responseType": "ERROR", "errorCode": code, "errorDescription": why})
	}
	return status, mustJSON(object{"data": shown})
}

func formanceRefusal(status int, why string) (int, any) {
	code := "VALIDATION"
	if status == http.StatusRequestEntityTooLarge {
		code = "BULK_SIZE_EXCEEDED"
	}
	return status, object{"errorCode": code, "errorMessage": why}
}
