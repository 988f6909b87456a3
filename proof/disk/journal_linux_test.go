//go:build linux && (amd64 || arm64)

package disk

import (
	"context"
	"iter"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/keystore"
)

// journal is a journal that callers have, or the same without syncs.
type journal interface {
	idem.Keystore
	Compact(ctx context.Context) error
}

// openWith opens a journal. With noSync its commits return before they are durable, as the
// library never lets them: the tests must notice.
func openWith(path string, noSync bool) (journal, error) {
	if !noSync {
		return idem.OpenKeystore(path, nil)
	}
	j, err := store.Open(path, store.Options{LockWait: time.Second})
	if err == nil {
		j.NoSync()
	}
	return j, err
}

// unswept is a journal for those who only look: nothing in it comes of age.
type unswept struct{ idem.Keystore }

func (k *unswept) Scan(ctx context.Context, q keystore.Query) iter.Seq2[keystore.Record, error] {
	if q.Lane == keystore.LaneSettled {
		return func(func(keystore.Record, error) bool) {}
	}
	return k.Keystore.Scan(ctx, q)
}
