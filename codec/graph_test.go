package codec_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem/codec"
	"github.com/stretchr/testify/require"
)

func TestGraphWritesRequests(t *testing.T) {
	req, got := encode(t, codec.Graph{Path: "/me/events", Key: "body.transactionId"}, item("a", `{"subject":"x"}`))
	require.Equal(t, `{"requests":[{"id":"a","method":"POST","url":"/me/events","headers":{"Content-Type":"application/json"},"body":{"transactionId":"k-a","subject":"x"}}]}`, got)
	require.Equal(t, "https://graph.microsoft.com/v1.0/$batch", req.URL.String())

	_, got = encode(t, codec.Graph{Path: "/me/x", Method: "DELETE"}, item("a", ``))
	require.Equal(t, `{"requests":[{"id":"a","method":"DELETE","url":"/me/x"}]}`, got)

	_, got = encode(t, codec.Graph{}, item("a", `{"method":"GET","url":"/me"}`))
	require.Equal(t, `{"requests":[{"id":"a","method":"GET","url":"/me"}]}`, got)
}

func TestGraphRefusesWhatTheProviderWould(t *testing.T) {
	encodeError(t, codec.Graph{}, item("a", `[]`))
	encodeError(t, codec.Graph{Path: "/me"}, item("a", `{`))
	encodeError(t, codec.Graph{Path: "/me"}, item("a", `{},"id":"b","x":{}`))
	encodeError(t, codec.Graph{Path: "/me", Key: "body.k"}, item("a", `7`))
	var ids []string
	for i := range 21 {
		ids = append(ids, fmt.Sprint(i))
	}
	encodeError(t, codec.Graph{Path: "/me"}, items(ids...)...)
	encode(t, codec.Graph{Path: "/me"}, items(ids[:20]...)...)
}

func TestGraphTellsIDsApartThatDifferInCase(t *testing.T) {
	_, got := encode(t, codec.Graph{Path: "/me"}, items("a", "A")...)
	var responses []string
	for i, part := range strings.Split(got, `"id":"`)[1:] {
		id, _, _ := strings.Cut(part, `"`)
		responses = append(responses, fmt.Sprintf(`{"id":%q,"status":%d}`, strings.ToUpper(id), 201+i*221))
	}
	results, err := codec.Graph{}.Decode(answer(200, `{"responses":[`+strings.Join(responses, ",")+`]}`), items("a", "A"))
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"a done", "A refused"}, said(results))
}

func TestGraphReadsResponses(t *testing.T) {
	run(t, codec.Graph{}, []row{
		{"order changed", 200, `{"responses":[{"id":"c","status":201},{"id":"a","status":403}]}`, []string{"c done", "a refused"}},
		{"twice", 200, `{"responses":[{"id":"a","status":201},{"id":"a","status":500}]}`, []string{"a done", "a unknown"}},
		{"foreign and nobody's", 200, `{"responses":[{"id":"z","status":201},{"status":201},[]]}`, []string{"z done"}},
		{"a numeric id", 200, `{"responses":[{"id":1,"status":201}]}`, []string{"1 done"}},
		{"throttled, and what waited for it", 200, `{"responses":[{"id":"a","status":429},{"id":"b","status":424}]}`, []string{"a retry", "b retry"}},
		{"gateways that know nothing", 200, `{"responses":[{"id":"a","status":503},{"id":"b","status":504},{"id":"c","status":500}]}`, []string{"a unknown", "b unknown", "c unknown"}},
		{"no status", 200, `{"responses":[{"id":"a"},{"id":"b","status":302}]}`, []string{"a unknown", "b unknown"}},
		{"a refusal of the whole", 400, `{"error":{"code":"BadRequest","message":"ids must be unique"}}`, nil},
		{"truncated", 200, `{"responses":[{"id":"a","status":201}`, nil},
		{"an array", 200, `[]`, nil},
	})
}

func TestGraphPassesHintsAndErrorsOn(t *testing.T) {
	results, err := codec.Graph{}.Decode(answer(200, `{"responses":[
		{"id":"a","status":429,"headers":{"retry-after":"10"},"body":{"error":{"code":"TooManyRequests","message":"slow down"}}},
		{"id":"b","status":503,"headers":{"Retry-After":3}},
		{"id":"c","status":201,"headers":{"Retry-After":"3"},"body":{"id":"x"}}]}`), items("a", "b", "c"))
	require.NoError(t, err)
	require.Equal(t, 10*time.Second, results[0].RetryAfter)
	require.EqualError(t, results[0].Err, "codec: item not done: 429: TooManyRequests: slow down")
	require.Equal(t, 3*time.Second, results[1].RetryAfter)
	require.Zero(t, results[2].RetryAfter)
	require.Equal(t, 201, results[2].Status)
	require.JSONEq(t, `{"id":"x"}`, string(results[2].Body))
}
