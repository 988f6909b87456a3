package codec_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/codec"
	"github.com/stretchr/testify/require"
)

const url = "https://api.example.com/batch"

func TestJSONArrayPutsIDAndKeyAndTouchesNoOtherByte(t *testing.T) {
	for _, c := range []struct {
		name  string
		codec codec.JSONArray
		body  string
		want  string
	}{
		{"in front", codec.JSONArray{}, `{"n":1.50,"b" : [ ]}`, `[{"id":"a","idempotency_key":"k-a","n":1.50,"b" : [ ]}]`},
		{"in an empty object", codec.JSONArray{}, `{}`, `[{"id":"a","idempotency_key":"k-a"}]`},
		{"in an array further down", codec.JSONArray{Array: "data.items"}, `{}`, `{"data":{"items":[{"id":"a","idempotency_key":"k-a"}]}}`},
		{"at paths", codec.JSONArray{ID: "ref.id", Key: "ref.key"}, `{"ref":{"x":1}}`, `[{"ref":{"id":"a","key":"k-a","x":1}}]`},
		{"at a path that isn't there", codec.JSONArray{ID: "-", Key: "meta.key"}, `{"n":1}`, `[{"meta":{"key":"k-a"},"n":1}]`},
		{"not at all", codec.JSONArray{ID: "-", Key: "-"}, `{"n":1}`, `[{"n":1}]`},
		{"where they are already", codec.JSONArray{}, `{"idempotency_key":"k-a", "id":"a"}`, `[{"idempotency_key":"k-a", "id":"a"}]`},
		{"in place of empty ones", codec.JSONArray{}, `{"id":null,"idempotency_key":""}`, `[{"id":"a","idempotency_key":"k-a"}]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.codec.URL = url
			_, got := encode(t, c.codec, item("a", c.body))
			require.Equal(t, c.want, got)
		})
	}
}

func TestJSONArrayKeepsBigNumbersAndBadUTF8(t *testing.T) {
	body := "{\"n\":12345678901234567890.0,\"s\":\"\xff<&\"}"
	_, got := encode(t, codec.JSONArray{URL: url}, item("a", body))
	require.Contains(t, got, body[1:])
}

func TestJSONArrayTakesAnyID(t *testing.T) {
	id := "Zürich / <1> \"x\"\n"
	req, got := encode(t, codec.JSONArray{URL: url}, item(id, `{}`))
	require.Contains(t, got, `"id":"Zürich / <1> \"x\"\n"`)
	results, err := codec.JSONArray{}.Decode(answer(200, strings.ReplaceAll(got, `"id"`, `"status":201,"id"`)), []idem.KeyedItem{item(id, `{}`)})
	require.NoError(t, err)
	require.Equal(t, []string{id + " done"}, said(results))
	require.Equal(t, "application/json", req.Header.Get("Content-Type"))
	require.Equal(t, "POST", req.Method)
}

func TestJSONArrayRefusesBodiesThatItCannotCarry(t *testing.T) {
	for name, body := range map[string]string{
		"no JSON": `{`, "nothing": ``, "no object": `[1]`, "another id": `{"id":"z"}`,
		"a numeric id": `{"id":7}`, "another key": `{"idempotency_key":"other"}`, "an id twice": `{"id":"a","id":"a"}`,
	} {
		t.Run(name, func(t *testing.T) { encodeError(t, codec.JSONArray{URL: url}, item("a", body)) })
	}
	encodeError(t, codec.JSONArray{}, item("a", `{}`))
}

func TestJSONArrayDoesNotWriteToItsHeader(t *testing.T) {
	h := http.Header{"Accept": {"application/json"}}
	req, _ := encode(t, codec.JSONArray{URL: url, Header: h, Method: "PUT"}, items("a")...)
	require.Len(t, h, 1)
	require.Equal(t, "application/json", req.Header.Get("Accept"))
	require.Equal(t, "PUT", req.Method)
}

func TestJSONArrayReadsItemByItem(t *testing.T) {
	run(t, codec.JSONArray{}, []row{
		{"all done", 200, `[{"id":"a","status":201},{"id":"b","status":200},{"id":"c","status":"202"}]`, []string{"a done", "b done", "c done"}},
		{"order changed", 200, `[{"id":"c","status":201},{"id":"a","status":422}]`, []string{"c done", "a refused"}},
		{"missing", 200, `[{"id":"b","status":201}]`, []string{"b done"}},
		{"twice with different results", 200, `[{"id":"a","status":201},{"id":"a","status":422}]`, []string{"a done", "a refused"}},
		{"foreign", 200, `[{"id":"z","status":201}]`, []string{"z done"}},
		{"by key", 200, `[{"id":"k-b","status":201}]`, []string{"b done"}},
		{"207", 207, `[{"id":"a","status":201},{"id":"b","status":409},{"id":"c","status":500}]`, []string{"a done", "b refused", "c unknown"}},
		{"400 with mixed results", 400, `[{"id":"a","status":201},{"id":"b","status":400}]`, []string{"a done", "b refused"}},
		{"cancelled behind the first failure", 400, `[{"id":"a","status":422},{"id":"b","status":424},{"id":"c","status":424}]`, []string{"a refused", "b retry", "c retry"}},
		{"throttled", 200, `[{"id":"a","status":429}]`, []string{"a retry"}},
		{"statuses that prove nothing", 200, `[{"id":"a","status":408},{"id":"b","status":503},{"id":"c"}]`, []string{"a unknown", "b unknown", "c unknown"}},
		{"a status that is no HTTP status", 200, `[{"id":"a","status":2},{"id":"b","status":"ok"},{"id":"c","status":200.0}]`, []string{"a unknown", "b unknown", "c unknown"}},
		{"a member in another case", 200, `[{"id":"a","status":422,"Status":201}]`, []string{"a refused"}},
		{"a status twice in one result", 200, `[{"id":"a","status":201,"status":422}]`, nothing},
		{"results that are nobody's", 200, `[{"status":201},{"id":null,"status":201},{"id":"","status":201},{"id":{},"status":201},"a",7,null]`, nothing},
		{"an empty list", 200, `[]`, nothing},
		{"a refusal of the whole", 400, `{"error":"too many"}`, nil},
		{"truncated", 200, `[{"id":"a","status":201},{"id":"b"`, nil},
		{"garbage", 200, `<html>`, nil},
		{"nothing", 200, ``, nil},
		{"null", 200, `null`, nil},
		{"two values", 200, `[] []`, nil},
		{"nested too deep", 200, strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000), nil},
		{"too many results", 200, "[" + strings.Repeat("0,", 70_000) + "0]", nil},
	})
}

func TestJSONArrayTellsNumericIDsAsTheyAreWritten(t *testing.T) {
	results, err := codec.JSONArray{}.Decode(
		answer(200, `[{"id":7,"status":201},{"id":007,"status":201}]`), items("7", "007"))
	require.Error(t, err, "007 is no JSON number: %v", results)

	results, err = codec.JSONArray{}.Decode(
		answer(200, `[{"id":7,"status":201},{"id":7.0,"status":201},{"id":12345678901234567890,"status":422}]`),
		items("7", "12345678901234567890"))
	require.NoError(t, err)
	require.Equal(t, []string{"7 done", "7.0 done", "12345678901234567890 refused"}, said(results))
	require.EqualValues(t, "k-7", results[0].Key)
	require.Empty(t, results[1].Key, "a foreign id has no key")
}

func TestJSONArrayReadsTheShapeThatItIsTold(t *testing.T) {
	c := codec.JSONArray{Results: "data.0.results", Answer: codec.Answer{
		ID: "meta.ref", Status: "state", Body: "payload", Error: "problem", RetryAfter: "wait",
		Done: []string{"created", "exists"}, NotDone: []string{"bad", ">=100"}, Retry: []string{"busy", "9xx"},
	}}
	results, err := c.Decode(answer(207, `{"data":[{"results":[
		{"meta":{"ref":"a"},"state":"created","payload":{"x":1}},
		{"meta":{"ref":"b"},"state":"bad","problem":{"code":"E1","message":"no"}},
		{"meta":{"ref":"c"},"state":"busy","problem":"later","wait":1.5},
		{"meta":{"ref":"d"},"state":true},
		{"meta":{"ref":"e"},"state":950},
		{"meta":{"ref":"f"},"state":250}]}]}`), items("a", "b", "c"))
	require.NoError(t, err)
	require.Equal(t, []string{"a done", "b refused", "c retry", "d unknown", "e retry", "f refused"}, said(results))
	require.JSONEq(t, `{"x":1}`, string(results[0].Body))
	require.Equal(t, 200, results[0].Status, "207 speaks of others too")
	require.NoError(t, results[0].Err)
	require.Zero(t, results[1].Status)
	require.EqualError(t, results[1].Err, "codec: item not done: E1: no")
	require.Equal(t, 1500*time.Millisecond, results[2].RetryAfter)
	require.EqualError(t, results[2].Err, "codec: item not done: later")
}

func TestJSONArrayWithoutStatusesGoesByTheError(t *testing.T) {
	run(t, codec.JSONArray{Answer: codec.Answer{Status: "-"}}, []row{
		{"an error or none", 200, `[{"id":"a","error":null},{"id":"b","error":{"code":"no"}},{"id":"c"}]`, []string{"a done", "b refused", "c done"}},
	})
}

func TestRetryHintsOfItems(t *testing.T) {
	for hint, want := range map[string]time.Duration{
		`2`: 2 * time.Second, `"0.5"`: time.Second / 2, `-1`: 0, `"soon"`: 0, `1e3`: 0, `null`: 0, `{}`: 0,
		`99999999999999999999999`:         1<<63 - 1,
		`"Sun, 06 Nov 1994 08:49:47 GMT"`: 10 * time.Second,
		`"Sun, 06 Nov 1994 08:49:27 GMT"`: 0,
	} {
		t.Run(hint, func(t *testing.T) {
			resp := answer(200, `[{"id":"a","status":429,"retry_after":`+hint+`}]`)
			resp.Header.Set("Date", "Sun, 06 Nov 1994 08:49:37 GMT")
			results, err := codec.JSONArray{}.Decode(resp, items("a"))
			require.NoError(t, err)
			require.Equal(t, want, results[0].RetryAfter)
		})
	}
}

func TestErrorsOfItemsAreCutBetweenCharacters(t *testing.T) {
	results, err := codec.JSONArray{}.Decode(
		answer(200, `[{"id":"a","status":422,"error":"x`+strings.Repeat("ü", 1000)+`"}]`), items("a"))
	require.NoError(t, err)
	var e *codec.ItemError
	require.ErrorAs(t, results[0].Err, &e)
	require.Equal(t, "x"+strings.Repeat("ü", 149), e.Message)
	require.Equal(t, 422, e.Status)
}
