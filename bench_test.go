package idem_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
)

// BenchmarkDo is a named call end to end, the provider in memory and the journal on
// disk: two durable commits each, shared among the callers that wait together.
func BenchmarkDo(b *testing.B) {
	for _, callers := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("callers-a-core=%d", callers), func(b *testing.B) {
			srv := mockserver.New(nil)
			defer srv.Close()
			c, err := idem.Open(filepath.Join(b.TempDir(), "j.db"), &idem.Options{Base: srv.Transport()})
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			var n atomic.Int64
			b.SetParallelism(callers)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					id := fmt.Sprint("order-", n.Add(1))
					resp, err := c.Do(post(idem.WithIntent(context.Background(), id), `{"id":"`+id+`"}`))
					if err != nil {
						b.Error(err)
						return
					}
					resp.Body.Close()
				}
			})
		})
	}
}

// BenchmarkRecall is a settled name asked for again: one read of the journal.
func BenchmarkRecall(b *testing.B) {
	srv := mockserver.New(nil)
	defer srv.Close()
	c, err := idem.Open(filepath.Join(b.TempDir(), "j.db"), &idem.Options{Base: srv.Transport()})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	ctx := idem.WithIntent(context.Background(), "order-1")
	for b.Loop() {
		resp, err := c.Do(post(ctx, `{"id":"order-1"}`))
		if err != nil {
			b.Fatal(err)
		}
		resp.Body.Close()
	}
}
