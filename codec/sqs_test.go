package codec_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/codec"
	"github.com/stretchr/testify/require"
)

const queue = "https://sqs.eu-west-1.amazonaws.com/177715257436/orders"

func TestSQSWritesSendMessageBatch(t *testing.T) {
	req, got := encode(t, codec.SQS{QueueURL: queue}, item("a", `{"n":"<1>"}`), item("b", "text"))
	require.Equal(t, `{"QueueUrl":"`+queue+`","Entries":[{"Id":"a","MessageBody":"{\"n\":\"<1>\"}"},{"Id":"b","MessageBody":"text"}]}`, got)
	require.Equal(t, "https://sqs.eu-west-1.amazonaws.com/", req.URL.String())
	require.Equal(t, "AmazonSQS.SendMessageBatch", req.Header.Get("X-Amz-Target"))
	require.Equal(t, "application/x-amz-json-1.0", req.Header.Get("Content-Type"))
}

func TestSQSFIFODeduplicatesByTheItemsKey(t *testing.T) {
	_, got := encode(t, codec.SQS{QueueURL: queue + ".fifo", FIFO: true}, item("a", "x"))
	require.Contains(t, got, `{"Id":"a","MessageBody":"x","MessageDeduplicationId":"k-a","MessageGroupId":"a"}`)
	_, got = encode(t, codec.SQS{QueueURL: queue + ".fifo", FIFO: true, GroupID: "g"}, item("a", "x"))
	require.Contains(t, got, `"MessageGroupId":"g"`)
}

func TestSQSRefusesWhatTheQueueWould(t *testing.T) {
	c := codec.SQS{QueueURL: queue}
	encodeError(t, c, items(strings.Split("a b c d e f g h i j k", " ")...)...)
	for _, body := range []string{"", "\xff", "\x00", "a\x0b", "\uFFFE"} {
		encodeError(t, c, item("a", body))
	}
	encode(t, c, item("a", "\t\r\n\U0001F600"))
	encodeError(t, codec.SQS{QueueURL: "orders"}, item("a", "x"))
}

var sqsIDForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}$`)

func TestSQSCarriesAnyID(t *testing.T) {
	odd := []string{"a b", "A-1", "Zürich", strings.Repeat("x", 81), "idem-1", "1/2"}
	_, got := encode(t, codec.SQS{QueueURL: queue}, items(odd...)...)
	var wire []string
	for _, m := range regexp.MustCompile(`"Id":"([^"]*)"`).FindAllStringSubmatch(got, -1) {
		require.Regexp(t, sqsIDForm, m[1])
		wire = append(wire, m[1])
	}
	require.Len(t, wire, len(odd))
	require.Equal(t, "A-1", wire[1], "an ID that fits travels as it is")
	require.NotEqual(t, "idem-1", wire[4], "nor may one pass for a digest")

	_, again := encode(t, codec.SQS{QueueURL: queue}, items("1/2", "a b")...)
	require.Contains(t, again, wire[5], "wherever the item stands")

	results, err := codec.SQS{}.Decode(answer(200, `{"Successful":[{"Id":"`+wire[0]+`"},{"Id":"`+wire[3]+`"}]}`), items(odd...))
	require.NoError(t, err)
	require.Equal(t, []string{odd[0] + " done", odd[3] + " done"}, said(results))
	require.EqualValues(t, "k-a b", results[0].Key)

	results, err = codec.SQS{}.Decode(answer(200, `{"Successful":[{"Id":"a b"}]}`), items(odd...))
	require.NoError(t, err)
	require.Equal(t, []string{"a b unknown"}, said(results), "an ID that wasn't sent settles nothing")
}

func TestSQSReadsBothLists(t *testing.T) {
	run(t, codec.SQS{}, []row{
		{"200 with Failed", 200, `{"Successful":[{"Id":"b","MessageId":"m"}],"Failed":[
			{"Id":"a","Code":"InvalidMessageContents","SenderFault":true},{"Id":"c","Code":"InternalError","SenderFault":false}]}`,
			[]string{"b done", "a refused", "c retry"}},
		{"only failures", 200, `{"Failed":[{"Id":"a","SenderFault":false}]}`, []string{"a retry"}},
		{"a failure without a flag", 200, `{"Failed":[{"Id":"a"}]}`, []string{"a retry"}},
		{"in both", 200, `{"Successful":[{"Id":"a"}],"Failed":[{"Id":"a","SenderFault":true}]}`, []string{"a done", "a refused"}},
		{"foreign", 200, `{"Successful":[{"Id":"z"}],"Failed":null}`, []string{"z done"}},
		{"the digest of another message", 200, `{"Successful":[{"Id":"a","MD5OfMessageBody":"00000000000000000000000000000000"}]}`, []string{"a unknown"}},
		{"nobody's", 200, `{"Successful":[{},7],"Failed":[{"Id":null}]}`, nothing},
		{"empty lists", 200, `{"Successful":[],"Failed":[]}`, nothing},
		{"a refusal of the whole", 400, `{"__type":"com.amazonaws.sqs#BatchRequestTooLong","message":"x"}`, nil},
		{"a list that is none", 200, `{"Successful":{}}`, nil},
		{"truncated", 200, `{"Successful":[{"Id":"a"}`, nil},
		{"XML", 200, `<SendMessageBatchResponse/>`, nil},
	})
}

func TestSQSBelievesInTheDigestOfTheMessage(t *testing.T) {
	list := []idem.KeyedItem{item("a", "This is a test message")}
	results, err := codec.SQS{}.Decode(answer(200, `{"Successful":[{"Id":"a","MD5OfMessageBody":"fafb00f5732ab283681e124bf8747ed1"}]}`), list)
	require.NoError(t, err)
	require.Equal(t, []string{"a done"}, said(results))
	require.Equal(t, 200, results[0].Status)
}
