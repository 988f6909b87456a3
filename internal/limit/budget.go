package limit

import (
	"sync"
	"time"
)

const (
	// budgetCapacity is how many retries an origin gets at once. It is more
	// than any sound load uses, so that only a storm of retries notices.
	budgetCapacity = 1000.0

	// budgetRefill is how many retries an origin gets back in a second, so that
	// an outage of hours is still probed by those who wait.
	budgetRefill = 20.0

	// budgetRefund is what a success gives back: an origin that answers can
	// take more.
	budgetRefund = 1.0

	// budgetSlack is how far now may go back before it means that the clock was
	// set back. Below it two callers just read the clock in one order and came
	// in the other.
	budgetSlack = time.Second

	// maxBudgets bounds the origins that are remembered. One that wasn't used
	// for capacity/refill = 50 s is full again, so that forgetting it loses
	// nothing.
	maxBudgets = 1000
)

// Budgets bounds the retries of each origin by a token bucket of 1,000, refilled by
// 20 a second and by 1 for each success. Without it a client with many calls
// multiplies its load by the attempts that each may make, just when the origin can
// bear it least. First attempts take no token. There is no goroutine: what flowed
// in since the last use is computed at the next.
type Budgets struct {
	mu      sync.Mutex // guards all below
	origins *recent[*budget]
}

// budget is the bucket of one origin; it starts full.
type budget struct {
	tokens float64   // 0 to budgetCapacity, as of the time below
	asOf   time.Time // when tokens was computed
}

// NewBudgets returns full budgets for every origin.
func NewBudgets() *Budgets {
	return &Budgets{origins: newRecent[*budget](maxBudgets)}
}

// Take takes a token for a retry, or returns false if there is none.
func (b *Budgets) Take(origin string, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	o := b.at(origin, now)
	if o.tokens < 1 {
		return false
	}
	o.tokens--
	return true
}

// Refund is told of a success of any attempt, the first ones included.
func (b *Budgets) Refund(origin string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at(origin, now).add(budgetRefund)
}

// at returns the budget of an origin as it stands now. It is called with mu held.
func (b *Budgets) at(origin string, now time.Time) *budget {
	o, ok := b.origins.get(origin)
	if !ok {
		o = &budget{tokens: budgetCapacity, asOf: now}
		b.origins.add(origin, o, func(*budget) bool { return true })
		return o
	}
	switch elapsed := now.Sub(o.asOf); {
	case elapsed > 0:
		o.add(elapsed.Seconds() * budgetRefill)
		o.asOf = now
	case elapsed < -budgetSlack:
		// What flowed in since can't be known, but waiting for the old time to
		// come again would keep the bucket empty for as long as the clock
		// jumped.
		o.asOf = now
	}
	return o
}

func (o *budget) add(tokens float64) { o.tokens = min(o.tokens+tokens, budgetCapacity) }
