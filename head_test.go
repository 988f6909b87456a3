package idem

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/record"
)

// goldenHead is a head with every member set that release 1 writes.
func goldenHead() *head {
	at := time.Date(2026, 11, 29, 12, 0, 0, 5, time.UTC)
	return &head{
		Key: "018f-key", Scope: "stripe", Intent: "order-1", Account: "acct", AccountPerCall: true,
		State: 1, Fate: 2, Cause: "window", Status: 201, KeySource: 1, Parent: "018f-old",
		Method: "POST", URL: "https://api.example/v1/charges", Fingerprint: []byte{1, 2, 3},
		Created: at, FirstSent: at, RetryAt: at, RetryEpoch: 3, Settled: at, Expires: at, Attempts: 3,
		LastError: "reset", Reason: "why", Dialect: "stripe", Placement: 1, Unkeyed: true,
		WireKey: `"018f-key"`, Window: time.Hour, Margin: time.Minute, Epoch: 4,
		WithheldHeaders: []string{"Authorization"}, WithheldParams: []string{"token"},
		Batch: "b", Item: "i", Call: "c", ItemBefore: true, Codec: "sqs", Items: []Key{"k"}, Strikes: 2,
		Freed: true, Untold: true, SweepAge: 5, Queued: true, Reserved: true, Conditional: true, Reconciled: true, InFlightSince: at,
		PollURL: "https://api.example/jobs/1", CutSum: []byte{9}, Trimmed: true, TooLarge: true,
	}
}

func TestAHeadOfReleaseOneStillOpens(t *testing.T) {
	const path = "testdata/golden/head-v1.bin"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		b, err := goldenHead().encode()
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, record.Frame(b, false), 0o644))
	}
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	payload, sealed, err := record.Unframe(b)
	require.NoError(t, err)
	require.False(t, sealed)
	h, err := decodeHead(payload)
	require.NoError(t, err)
	require.Equal(t, goldenHead(), h)
}

// An older release that shares a journal with a later one must not undo what that wrote.
func TestMembersOfALaterReleaseAreKept(t *testing.T) {
	const later = `{"Key":"k","Scope":"s","Fresh":{"a": [1, "<"]},"State":1,"More":null}`
	h, err := decodeHead([]byte(later))
	require.NoError(t, err)
	require.Equal(t, Key("k"), h.Key)
	moved := *h
	moved.settle(FateDone, "")
	for _, next := range []*head{&moved, moved.tombstone(1)} {
		b, err := next.encode()
		require.NoError(t, err)
		var members map[string]any
		require.NoError(t, json.Unmarshal(b, &members))
		require.Equal(t, map[string]any{"a": []any{1.0, "<"}}, members["Fresh"])
		require.Contains(t, members, "More")
		require.EqualValues(t, StateSettled, members["State"])
	}
	_, err = decodeHead([]byte(`{"Key":"k"} and more`))
	require.ErrorIs(t, err, record.ErrDamaged)
}

func FuzzHead(f *testing.F) {
	b, err := goldenHead().encode()
	require.NoError(f, err)
	f.Add(b)
	f.Add([]byte(`{"Key":"k","Later": [1, "<\\ud800"],"":0}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := decodeHead(b)
		if err != nil {
			require.ErrorIs(t, err, record.ErrDamaged)
			return
		}
		again, err := h.encode()
		require.NoError(t, err)
		back, err := decodeHead(again)
		require.NoError(t, err)
		require.Equal(t, h, back)
	})
}
