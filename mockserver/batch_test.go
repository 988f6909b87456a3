package mockserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem/mockserver"
	"github.com/stretchr/testify/require"
)

// batchOf is a client of a batch endpoint in memory.
func batchOf(t *testing.T, b mockserver.Batch) *client {
	return inMemory(t, &mockserver.Config{Batch: &b})
}

// plain is a call of the plain format, of items with the keys "k-" and their ID.
func plain(ids ...string) string {
	var list []string
	for _, id := range ids {
		list = append(list, fmt.Sprintf(`{"id":%q,"idempotency_key":"k-%s"}`, id, id))
	}
	return "[" + strings.Join(list, ",") + "]"
}

// statuses are the results of an answer of the plain format, as "id status".
func statuses(t *testing.T, answer string) []string {
	t.Helper()
	var results []struct {
		ID     string
		Status int
	}
	require.NoError(t, json.Unmarshal([]byte(answer), &results), answer)
	var list []string
	for _, r := range results {
		list = append(list, fmt.Sprint(r.ID, " ", r.Status))
	}
	return list
}

func TestEachItemOfABatchIsAnEffectOfItsOwn(t *testing.T) {
	c := batchOf(t, mockserver.Batch{})
	_, text := c.post(200, "call-1", plain("a", "b"))
	require.Equal(t, []string{"a 201", "b 201"}, statuses(t, text))
	c.effects(1, "a")
	require.Equal(t, 1, c.api.EffectsOfKey("k-b"))
	require.Equal(t, 2, c.api.Total(), "the call as a whole is none")

	again, same := c.post(200, "call-1", plain("a", "b"))
	require.Equal(t, text, same)
	require.Equal(t, "true", again.Header.Get("Idempotent-Replayed"))
	require.Len(t, c.api.Items(), 2, "a replayed call brings no items")

	_, text = c.post(200, "call-2", plain("b", "c"))
	require.Equal(t, []string{"b 201", "c 201"}, statuses(t, text))
	c.effects(1, "b")
	require.Equal(t, 3, c.api.Total())
	require.Equal(t, []string{"k-b"}, c.api.ItemKeys("b"))
	items := c.api.Items()
	require.True(t, items[0].Effect)
	require.False(t, items[2].Effect)
	require.Equal(t, 2, items[2].Try)
}

func TestItemsWithoutHonouredKeysHappenAgain(t *testing.T) {
	c := batchOf(t, mockserver.Batch{IgnoreKeys: true})
	c.post(200, "call-1", plain("a"))
	c.post(200, "call-2", plain("a"))
	c.effects(2, "a")
}

func TestAnItemWithAnotherBodyUnderItsKeyIsRefused(t *testing.T) {
	c := batchOf(t, mockserver.Batch{})
	c.post(200, "1", `[{"id":"a","idempotency_key":"k","n":1}]`)
	_, text := c.post(200, "2", `[{"id":"a","idempotency_key":"k","n":2}]`)
	require.Equal(t, []string{"a 422"}, statuses(t, text))
	c.effects(1, "a")
}

func TestWhatBecomesOfAnItemIsScripted(t *testing.T) {
	for _, row := range []struct {
		outcome mockserver.ItemOutcome
		want    []string
		effects int
	}{
		{mockserver.ItemDone, []string{"a 201"}, 1},
		{mockserver.ItemRefuse, []string{"a 422"}, 0},
		{mockserver.ItemThrottle, []string{"a 429"}, 0},
		{mockserver.ItemBreak, []string{"a 500"}, 0},
		{mockserver.ItemBreakAfter, []string{"a 500"}, 1},
		{mockserver.ItemSkip, nil, 0},
		{mockserver.ItemLose, nil, 1},
		{mockserver.ItemTwice, []string{"a 201", "a 201"}, 1},
		{mockserver.ItemContradict, []string{"a 201", "a 422"}, 1},
		{mockserver.ItemCancel, []string{"a 424"}, 0},
	} {
		t.Run(string(row.outcome), func(t *testing.T) {
			c := batchOf(t, mockserver.Batch{Script: map[string][]mockserver.ItemOutcome{"a": {row.outcome}}})
			_, text := c.post(200, "1", plain("a"))
			require.Equal(t, row.want, statuses(t, text))
			c.effects(row.effects, "a")

			_, text = c.post(200, "2", plain("a"))
			require.Equal(t, []string{"a 201"}, statuses(t, text), "the script is over")
			c.effects(1, "a")
		})
	}
}

func TestAKnownKeyIsLookedUpBeforeTheItemIsJudged(t *testing.T) {
	c := batchOf(t, mockserver.Batch{Script: map[string][]mockserver.ItemOutcome{"a": {mockserver.ItemLose, mockserver.ItemRefuse}}})
	c.post(200, "1", plain("a"))
	_, text := c.post(200, "2", plain("a"))
	require.Equal(t, []string{"a 201"}, statuses(t, text))
	c.effects(1, "a")
}

func TestItemsBehindTheFirstFailureDoNotRun(t *testing.T) {
	c := batchOf(t, mockserver.Batch{StopAtFailure: true, Status: 400, Script: map[string][]mockserver.ItemOutcome{"b": {mockserver.ItemRefuse}}})
	_, text := c.post(400, "1", plain("a", "b", "c"))
	require.Equal(t, []string{"a 201", "b 422", "c 424"}, statuses(t, text))
	require.Equal(t, 1, c.api.Total())
}

func TestOutcomesAreDrawnAlikeHoweverCallsAreMadeUp(t *testing.T) {
	outcomes := func(calls ...string) map[string]mockserver.ItemOutcome {
		c := batchOf(t, mockserver.Batch{Seed: 7, Outcomes: []mockserver.ItemOutcome{mockserver.ItemRefuse, mockserver.ItemLose}})
		for i, call := range calls {
			c.post(200, fmt.Sprint(i), call)
		}
		seen := map[string]mockserver.ItemOutcome{}
		for _, it := range c.api.Items() {
			seen[it.ID] = it.Outcome
		}
		return seen
	}
	ids := strings.Fields("a b c d e f g h i j k l m n o p")
	one := outcomes(plain(ids...))
	require.Equal(t, one, outcomes(plain(ids[8:]...), plain(ids[:8]...)))
	kinds := map[mockserver.ItemOutcome]bool{}
	for _, o := range one {
		kinds[o] = true
	}
	require.Len(t, kinds, 3, "done, refuse and lose")
}

func TestAnswersAreDisturbed(t *testing.T) {
	c := batchOf(t, mockserver.Batch{Shuffle: true, Seed: 2, Foreign: 2})
	_, text := c.post(200, "1", plain("a", "b", "c"))
	got := statuses(t, text)
	want := []string{"a 201", "b 201", "c 201", "foreign-1 201", "foreign-2 201"}
	require.ElementsMatch(t, want, got)
	require.NotEqual(t, want, got)
	require.Equal(t, 3, c.api.Total())
}

func TestThrottledItemsAreToldWhenToComeBack(t *testing.T) {
	throttle := mockserver.Batch{RetryAfter: 1500 * time.Millisecond, Script: map[string][]mockserver.ItemOutcome{"a": {mockserver.ItemThrottle}}}
	_, text := batchOf(t, throttle).post(200, "1", plain("a"))
	require.Contains(t, text, `"retry_after":2`)

	throttle.Format = mockserver.BatchGraph
	_, text = batchOf(t, throttle).post(200, "1", `{"requests":[{"id":"a","method":"POST","url":"/x"}]}`)
	require.Contains(t, text, `"Retry-After":"2"`)
	require.Contains(t, text, `"status":429`)
}

func TestPlainCallsMayBeWrappedOrLines(t *testing.T) {
	c := batchOf(t, mockserver.Batch{})
	_, text := c.post(200, "1", `{"items":[{"id":7}]}`)
	require.JSONEq(t, `{"results":[{"id":7,"status":201}]}`, text)

	c = batchOf(t, mockserver.Batch{Format: mockserver.BatchNDJSON})
	_, text = c.post(200, "1", "{\"id\":\"a\"}\n\n{\"id\":\"b\"}")
	require.Equal(t, "{\"id\":\"a\",\"status\":201}\n{\"id\":\"b\",\"status\":201}\n", text)
	c.post(400, "2", "{\"id\":\"a\"}\n<br>")
}

func TestSQSAnswers200WithBothLists(t *testing.T) {
	c := batchOf(t, mockserver.Batch{Format: mockserver.BatchSQS, Script: map[string][]mockserver.ItemOutcome{
		"b": {mockserver.ItemRefuse}, "c": {mockserver.ItemThrottle}, "d": {mockserver.ItemBreakAfter},
	}})
	_, text := c.post(200, "1", `{"Entries":[{"Id":"a","MessageBody":"This is a test message","MessageDeduplicationId":"k"},{"Id":"b"},{"Id":"c"},{"Id":"d"}]}`)
	require.JSONEq(t, `{"Successful":[{"Id":"a","MessageId":"m-a","MD5OfMessageBody":"fafb00f5732ab283681e124bf8747ed1"}],"Failed":[
		{"Id":"b","Code":"InvalidMessageContents","SenderFault":true},{"Id":"c","Code":"RequestThrottled","SenderFault":false}]}`, text)
	c.effects(1, "d")

	_, text = c.post(200, "2", `{"Entries":[{"Id":"a","MessageBody":"another","MessageDeduplicationId":"k"}]}`)
	require.Contains(t, text, "fafb00f5732ab283681e124bf8747ed1", "accepted and dropped")
	c.effects(1, "a")
}

func TestFormanceStopsAtTheFirstFailureUnlessAskedToContinue(t *testing.T) {
	elements := `[{"action":"X","ik":"k1","data":{"id":"a"}},{"action":"X","ik":"k2","data":{"reference":"b"}},{"action":"X","ik":"c","data":{}}]`
	post := func(query string) (*client, string) {
		c := batchOf(t, mockserver.Batch{Format: mockserver.BatchFormance, Script: map[string][]mockserver.ItemOutcome{"b": {mockserver.ItemRefuse}}})
		req, err := http.NewRequest("POST", c.api.URL+"/v2/main/_bulk"+query, strings.NewReader(elements))
		require.NoError(t, err)
		resp, text, err := c.do(req)
		require.NoError(t, err)
		require.Equal(t, 400, resp.StatusCode)
		return c, text
	}
	const (
		made   = `{"data":{"reference":"%s"},"responseType":"X"}`
		poor   = `{"errorCode":"INSUFFICIENT_FUND","errorDescription":"account had insufficient funds","responseType":"ERROR"}`
		cancel = `{"errorCode":"INTERNAL","errorDescription":"context canceled","responseType":"ERROR"}`
	)
	c, text := post("")
	require.JSONEq(t, `{"data":[`+fmt.Sprintf(made, "a")+","+poor+","+cancel+`]}`, text)
	require.Equal(t, 1, c.api.Total())

	c, text = post("?continueOnFailure=true")
	require.JSONEq(t, `{"data":[`+fmt.Sprintf(made, "a")+","+poor+","+fmt.Sprintf(made, "c")+`]}`, text)
	require.Equal(t, 2, c.api.Total())

	c, text = post("?atomic=true")
	require.JSONEq(t, `{"data":[`+fmt.Sprintf(made, "a")+","+poor+","+cancel+`]}`, text, "the first still shows as made")
	require.Zero(t, c.api.Total())
}

func TestCallsAreRefusedAsAWhole(t *testing.T) {
	c := batchOf(t, mockserver.Batch{MaxItems: 2})
	c.post(413, "1", plain("a", "b", "c"))
	c.post(400, "2", `{"id":"a"}`)
	c.post(400, "3", `[{"id":`)
	require.Zero(t, c.api.Total())

	c = batchOf(t, mockserver.Batch{Format: mockserver.BatchGraph})
	c.post(400, "1", `{"requests":[{"id":"a"},{"id":"A"}]}`)
	c = batchOf(t, mockserver.Batch{Format: mockserver.BatchSQS, MaxItems: 1})
	_, text := c.post(400, "1", `{"Entries":[{"Id":"a"},{"Id":"b"}]}`)
	require.Contains(t, text, "BatchRequestTooLong")
	c = batchOf(t, mockserver.Batch{Format: mockserver.BatchFormance, MaxItems: 1})
	_, text = c.post(413, "1", `[{},{}]`)
	require.Contains(t, text, "BULK_SIZE_EXCEEDED")
}

func TestTheValueOfAnItemCanBeAnother(t *testing.T) {
	c := batchOf(t, mockserver.Batch{Value: func(it mockserver.BatchItem) string { return "order of " + it.Key }})
	c.post(200, "1", plain("a"))
	c.effects(1, "order of k-a")
}

func TestABatchThatWouldTestNothingPanics(t *testing.T) {
	require.Panics(t, func() { mockserver.New(&mockserver.Config{Batch: &mockserver.Batch{Format: "xml"}}) })
	require.Panics(t, func() {
		mockserver.New(&mockserver.Config{Batch: &mockserver.Batch{Outcomes: []mockserver.ItemOutcome{"explode"}}})
	})
	require.Panics(t, func() {
		mockserver.New(&mockserver.Config{Batch: &mockserver.Batch{Script: map[string][]mockserver.ItemOutcome{"a": {"?"}}}})
	})
}

func TestAServerWithoutBatchesHasNoItems(t *testing.T) {
	c := inMemory(t, nil)
	require.Empty(t, c.api.Items())
	require.Empty(t, c.api.ItemKeys("a"))
}
