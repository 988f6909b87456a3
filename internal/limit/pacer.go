package limit

import (
	"context"
	"sync"
	"time"
)

// Pacer spaces out what is begun. The zero value does not.
type Pacer struct {
	Rate float64 // a second; 0: no limit

	mu   sync.Mutex
	next time.Time // guarded by mu
}

// Wait waits for the next turn, and is false if ctx ended.
func (p *Pacer) Wait(ctx context.Context) bool {
	if p.Rate == 0 {
		return ctx.Err() == nil
	}
	p.mu.Lock()
	now := time.Now()
	pause := p.next.Sub(now)
	p.next = now.Add(max(pause, 0) + time.Duration(float64(time.Second)/p.Rate))
	p.mu.Unlock()
	if pause <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
