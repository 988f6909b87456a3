package codec_test

import (
	"testing"

	"github.com/idem-go/idem/codec"
	"github.com/stretchr/testify/require"
)

func TestItemKeysAreHonouredWhereTheProviderSaysSo(t *testing.T) {
	keys := func(c any) bool { return c.(interface{ ItemKeys() bool }).ItemKeys() }
	require.False(t, keys(codec.JSONArray{}))
	require.True(t, keys(codec.JSONArray{HonoursKeys: true}))
	require.False(t, keys(codec.JSONArray{HonoursKeys: true, Key: "-"}), "a key that isn't sent")
	require.False(t, keys(codec.NDJSON{}))
	require.True(t, keys(codec.NDJSON{HonoursKeys: true}))
	require.False(t, keys(codec.SQS{}))
	require.True(t, keys(codec.SQS{FIFO: true}))
	require.False(t, keys(codec.Graph{Key: "body.transactionId"}))
	require.True(t, keys(codec.Graph{HonoursKeys: true}))
	require.True(t, keys(codec.FormanceBulk{}))
}
