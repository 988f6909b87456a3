package codec_test

import (
	"encoding/json"
	"testing"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/codec"
)

// FuzzDecode: whatever comes, no codec panics, and what one says holds together.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`[{"id":"a","status":201},{"id":7,"status":"429","retry_after":3}]`,
		"{\"id\":\"a\",\"status\":201}\n{\"id\":\"b\",\"sta",
		`{"Successful":[{"Id":"a","MD5OfMessageBody":"x"}],"Failed":[{"Id":"b","SenderFault":true,"Code":"C"}]}`,
		`{"responses":[{"id":"a","status":503,"headers":{"Retry-After":"9"},"body":{"error":{"code":"x"}}}]}`,
		`{"data":[` + made + "," + poor + "," + canceled + `]}`,
		`{"results":{"0":[{"id":{},"id":null}]},"results":[]}`, `[[[{`, "\xef\xbb\xbf[]", ``,
	} {
		f.Add(seed, 200)
		f.Add(seed, 400)
	}
	codecs := map[string]idem.BatchCodec{
		"array": codec.JSONArray{}, "results": codec.JSONArray{Results: "results.0", Answer: codec.Answer{Status: "-", Body: "x.1"}},
		"words":  codec.JSONArray{Answer: codec.Answer{Done: []string{"2xx"}, Retry: []string{">=429"}, NotDone: []string{"no"}}},
		"ndjson": codec.NDJSON{}, "sqs": codec.SQS{}, "graph": codec.Graph{},
		"formance": codec.FormanceBulk{}, "atomic": codec.FormanceBulk{Atomic: true},
	}
	list := items("a", "b", "a b")
	f.Fuzz(func(t *testing.T, body string, status int) {
		for name, c := range codecs {
			results, err := c.Decode(answer(status, body), list)
			if err != nil && results != nil {
				t.Fatalf("%s: results beside the error %v", name, err)
			}
			for _, r := range results {
				checkResult(t, name, r)
			}
		}
	})
}

func checkResult(t *testing.T, name string, r idem.ItemResult) {
	t.Helper()
	keyed := r.ID == "a" || r.ID == "b" || r.ID == "a b"
	switch {
	case r.ID == "":
		t.Fatalf("%s: a result without an ID", name)
	case r.Key != "" && r.Key != idem.Key("k-"+r.ID):
		t.Fatalf("%s: %q has the key %q", name, r.ID, r.Key)
	case keyed && r.Key == "" && r.Fate != idem.FateUnknown:
		t.Fatalf("%s: an ID that wasn't sent settles %q", name, r.ID)
	case !keyed && r.Key != "":
		t.Fatalf("%s: the foreign %q has a key", name, r.ID)
	case (r.Fate == idem.FateDone) != (r.Err == nil):
		t.Fatalf("%s: %q is %v with the error %v", name, r.ID, r.Fate, r.Err)
	case r.Retry && r.Fate != idem.FateNotDone, r.RetryAfter < 0, r.Fate == idem.FateDone && r.RetryAfter != 0:
		t.Fatalf("%s: %q is %v, retry %v in %v", name, r.ID, r.Fate, r.Retry, r.RetryAfter)
	case r.Status != 0 && (r.Status < 100 || r.Status > 599):
		t.Fatalf("%s: %q has the status %d", name, r.ID, r.Status)
	case r.Body != nil && !json.Valid(r.Body):
		t.Fatalf("%s: the body of %q is no JSON: %q", name, r.ID, r.Body)
	}
}
