package codec_test

import (
	"slices"
	"testing"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/codec"
	"github.com/stretchr/testify/require"
)

const (
	made     = `{"responseType":"CREATE_TRANSACTION","data":{"id":1}}`
	poor     = `{"responseType":"ERROR","errorCode":"INSUFFICIENT_FUND","errorDescription":"no"}`
	broken   = `{"responseType":"ERROR","errorCode":"INTERNAL","errorDescription":"connection reset"}`
	canceled = `{"responseType":"ERROR","errorCode":"INTERNAL","errorDescription":"context canceled"}`
)

func TestFormanceWritesElements(t *testing.T) {
	c := codec.FormanceBulk{URL: "https://ledger.example.com/v2/main/_bulk?x=1", Action: "CREATE_TRANSACTION"}
	req, got := encode(t, c, item("b", `{"n":2}`), item("a", `{"n":1}`))
	require.Equal(t, `[{"ik":"k-a","action":"CREATE_TRANSACTION","data":{"n":1}},{"ik":"k-b","action":"CREATE_TRANSACTION","data":{"n":2}}]`, got)
	require.Equal(t, c.URL, req.URL.String())

	c.Action, c.Atomic, c.ContinueOnFailure = "", true, true
	req, got = encode(t, c, item("a", `{"action":"ADD_METADATA","data":{}}`))
	require.Equal(t, `[{"ik":"k-a","action":"ADD_METADATA","data":{}}]`, got)
	require.Equal(t, "atomic=true&continueOnFailure=true&x=1", req.URL.RawQuery)
}

func TestFormanceRefusesWhatItCannotRead(t *testing.T) {
	encodeError(t, codec.FormanceBulk{URL: url + "?parallel=true"}, item("a", `{}`))
	encodeError(t, codec.FormanceBulk{URL: "/_bulk"}, item("a", `{}`))
	encodeError(t, codec.FormanceBulk{URL: url}, item("a", `{"ik":"other"}`))
	encodeError(t, codec.FormanceBulk{URL: url, Action: "X"}, item("a", `{},"ik":"k-a","x":{`))
}

func TestFormanceReadsResultsInOrder(t *testing.T) {
	data := func(list string) string { return `{"data":[` + list + `]}` }
	run(t, codec.FormanceBulk{}, []row{
		{"all done", 200, data(made + "," + made + "," + made), []string{"a done", "b done", "c done"}},
		{"400 with mixed results", 400, data(made + "," + poor + "," + canceled), []string{"a done", "b refused", "c retry"}},
		{"cancelled behind something broken", 400, data(broken + "," + canceled + "," + canceled), []string{"a unknown", "b retry", "c retry"}},
		{"cancelled with nothing in front", 400, data(canceled + "," + canceled + "," + made), []string{"a unknown", "b retry", "c done"}},
		{"an element without a type", 400, data(made + ",{}," + poor), []string{"a done", "b unknown", "c refused"}},
		{"another number of results", 200, data(made), nil},
		{"an element that is none", 200, data(made + ",7," + made), nil},
		{"400 without a failure", 400, data(made + "," + made + "," + made), nil},
		{"a refusal of the whole", 400, `{"errorCode":"VALIDATION","errorMessage":"bad"}`, nil},
		{"a failure beside results", 400, `{"data":[` + made + "," + made + "," + made + `],"errorCode":"INTERNAL"}`, nil},
		{"truncated", 400, `{"data":[` + made, nil},
	})
	run(t, codec.FormanceBulk{ContinueOnFailure: true}, []row{
		{"continued behind a failure", 400, data(poor + "," + made + "," + canceled), []string{"a refused", "b done", "c unknown"}},
	})
	run(t, codec.FormanceBulk{Atomic: true}, []row{
		{"atomic, all done", 200, data(made + "," + made + "," + made), []string{"a done", "b done", "c done"}},
		{"atomic, taken back", 400, data(made + "," + poor + "," + canceled), []string{"a retry", "b refused", "c retry"}},
		{"atomic, something broken", 400, data(made + "," + broken + "," + canceled), []string{"a retry", "b retry", "c retry"}},
	})
}

func TestFormanceFindsTheOrderAgain(t *testing.T) {
	list := items("a", "b", "c")
	slices.Reverse(list)
	results, err := codec.FormanceBulk{}.Decode(answer(400, `{"data":[`+made+","+poor+","+canceled+`]}`), list)
	require.NoError(t, err)
	require.Equal(t, []string{"a done", "b refused", "c retry"}, said(results))
	require.Equal(t, "c", list[0].ID, "the caller's list stays as it was")
	require.JSONEq(t, `{"id":1}`, string(results[0].Body))
	require.Equal(t, 200, results[0].Status, "400 is the others'")
	require.Equal(t, idem.Key("k-a"), results[0].Key)
	require.EqualError(t, results[1].Err, "codec: item not done: INSUFFICIENT_FUND: no")
}
