package record_test

import (
	"bytes"
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/record"
)

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
	msg, _ := record.EncodeMessage(&record.Message{Method: "POST", Body: []byte("b")})
	f.Add(record.Frame(msg, true))
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
	})
}
