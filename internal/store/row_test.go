package store_test

import (
	"encoding/hex"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/keystore"
)

// The bytes of a journal outlive the program that wrote them.
func TestTheFormOfARecordDoesntChange(t *testing.T) {
	r := keystore.Record{
		Scope: "sc", Key: "key", Name: "nm", Lane: keystore.LaneUntold, Rev: 258,
		Order: time.Unix(-1, 5).UTC(), Head: []byte{1, 2, 3},
	}
	key, value, place := store.EncodeRecord(r, true, false)
	require.Equal(t, "02"+"7363"+"6b6579", hex.EncodeToString(key))
	require.Equal(t, "01"+"4cab48a8"+"0000000000000102"+"04"+"7fffffffffffffff00000005"+"01"+"02"+"6e6d"+"010203",
		hex.EncodeToString(value))
	require.Equal(t, "02"+"7363"+"04"+"7fffffffffffffff00000005"+"6b6579", hex.EncodeToString(place))
	back, err := store.DecodeRecord(key, value)
	require.NoError(t, err)
	require.Equal(t, r, back)
}

func FuzzRecord(f *testing.F) {
	key, value, _ := store.EncodeRecord(storeRecord(1), true, true)
	f.Add(key, value)
	f.Add([]byte{255}, []byte{1})
	f.Fuzz(func(t *testing.T, key, value []byte) {
		_, err := store.DecodeRecord(key, value)
		if err != nil {
			require.ErrorIs(t, err, keystore.ErrCorrupt)
		}
	})
}
