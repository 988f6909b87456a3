package record_test

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/record"
)

// golden is a head with every member set that release 1 writes.
func golden() *record.Head {
	at := time.Date(2026, 11, 29, 12, 0, 0, 5, time.UTC)
	return &record.Head{
		Key: "018f-key", Scope: "stripe", Intent: "order-1", Account: "acct", AccountGift: true,
		State: 1, Fate: 2, Cause: "window", Status: 201, KeySource: 1, Parent: "018f-old",
		Method: "POST", URL: "https://api.example/v1/charges", Fingerprint: []byte{1, 2, 3},
		Created: at, FirstSent: at, RetryAt: at, RetryEpoch: 3, Settled: at, Expires: at, Attempts: 3,
		LastError: "reset", Reason: "why", Dialect: "stripe", Placement: 1, Unkeyed: true,
		WireKey: `"018f-key"`, Window: time.Hour, Margin: time.Minute, Epoch: 4,
		WithheldHeaders: []string{"Authorization"}, WithheldParams: []string{"token"},
		Batch: "b", Item: "i", Call: "c", ItemBefore: true, Codec: "sqs", Items: []string{"k"}, Strikes: 2,
		Freed: true, Untold: true, SweepAge: 5, Queued: true, Reserved: true, Conditional: true, Reconciled: true, InFlightSince: at,
		PollURL: "https://api.example/jobs/1", CutSum: []byte{9}, Trimmed: true, TooLarge: true,
	}
}

func TestAHeadOfReleaseOneStillOpens(t *testing.T) {
	path := filepath.Join("testdata", "head-v1.bin")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		b, err := record.EncodeHead(golden())
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, record.Frame(b, false), 0o644))
	}
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	payload, sealed, err := record.Unframe(b)
	require.NoError(t, err)
	require.False(t, sealed)
	h, err := record.DecodeHead(payload)
	require.NoError(t, err)
	require.Equal(t, golden(), h)
}

func TestAMessageComesBackAsItWas(t *testing.T) {
	for _, body := range [][]byte{{}, []byte("x"), bytes.Repeat([]byte{0, 255}, 1000)} {
		m := &record.Message{Method: "POST", URL: "https://a/b", Host: "h", Header: http.Header{"A": {"1", "2"}}, Body: body}
		b, err := record.EncodeMessage(m)
		require.NoError(t, err)
		got, err := record.DecodeMessage(b)
		require.NoError(t, err)
		require.Equal(t, m, got)
	}
}

func TestEveryFlippedBitOfAFrameIsNoticed(t *testing.T) {
	frame := record.Frame([]byte("payload"), true)
	for i := range len(frame) * 8 {
		b := bytes.Clone(frame)
		b[i/8] ^= 1 << (i % 8)
		_, _, err := record.Unframe(b)
		require.ErrorIs(t, err, record.ErrDamaged, "bit %d", i)
	}
}

func FuzzRecord(f *testing.F) {
	head, _ := record.EncodeHead(golden())
	msg, _ := record.EncodeMessage(&record.Message{Method: "POST", Body: []byte("b")})
	f.Add(record.Frame(head, false))
	f.Add(record.Frame(msg, true))
	f.Add(head)
	f.Add(msg)
	f.Fuzz(func(t *testing.T, b []byte) {
		if payload, sealed, err := record.Unframe(b); err == nil {
			if !bytes.Equal(record.Frame(payload, sealed), b) {
				t.Fatal("a frame that opens is not the frame of its payload")
			}
		}
		if m, err := record.DecodeMessage(b); err == nil {
			again, err := record.EncodeMessage(m)
			if err != nil {
				t.Fatal(err)
			}
			back, err := record.DecodeMessage(again)
			if err != nil || !bytes.Equal(back.Body, m.Body) || back.URL != m.URL {
				t.Fatalf("message changed: %v", err)
			}
		} else if !errors.Is(err, record.ErrDamaged) {
			t.Fatal(err)
		}
		if h, err := record.DecodeHead(b); err == nil {
			if _, err := record.EncodeHead(h); err != nil {
				t.Fatal(err)
			}
		}
	})
}
