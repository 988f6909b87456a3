package codec_test

import (
	"testing"

	"github.com/idem-go/idem/codec"
	"github.com/stretchr/testify/require"
)

func TestNDJSONWritesOneLineAnItem(t *testing.T) {
	req, got := encode(t, codec.NDJSON{URL: url, Key: "key"}, item("a", "{\n\t\"s\": \"x\\n\xff\",\r\n \"n\": 1\n}\n"), item("b", `{}`))
	require.Equal(t, "{\"id\":\"a\",\"key\":\"k-a\", \t\"s\": \"x\\n\xff\",   \"n\": 1 }\n{\"id\":\"b\",\"key\":\"k-b\"}\n", got)
	require.Equal(t, "application/x-ndjson", req.Header.Get("Content-Type"))
	encodeError(t, codec.NDJSON{URL: url}, item("a", `"text"`))
}

func TestNDJSONReadsLineByLine(t *testing.T) {
	run(t, codec.NDJSON{}, []row{
		{"order changed", 200, "{\"id\":\"b\",\"status\":201}\n{\"id\":\"a\",\"status\":429}\n", []string{"b done", "a retry"}},
		{"blank lines and CRLF", 200, "\r\n{\"id\":\"b\",\"status\":201}\r\n\n", []string{"b done"}},
		{"no break at the end", 200, `{"id":"b","status":201}`, []string{"b done"}},
		{"twice", 200, "{\"id\":\"a\",\"status\":201}\n{\"id\":\"a\",\"status\":201}\n", []string{"a done", "a done"}},
		{"foreign", 200, "{\"id\":\"z\",\"status\":422}\n", []string{"z refused"}},
		{"the last line cut off", 200, "{\"id\":\"b\",\"status\":201}\n{\"id\":\"a\",\"sta", []string{"b done"}},
		{"a line that is nobody's", 400, `{"error":"bad request"}`, nothing},
		{"garbage between", 200, "{\"id\":\"b\",\"status\":201}\n<br>\n{\"id\":\"a\",\"status\":201}\n", nil},
		{"only garbage", 200, `<html>`, nil},
		{"only a cut line", 200, `{"id":"b"`, nil},
		{"nothing", 200, ``, nothing},
	})
}
