package main

import (
	"net/http"
	"time"

	"github.com/idem-go/idem/mockserver"
)

// faultRate is the share of requests that go wrong.
const faultRate = 0.6

// faults is what goes wrong between the worker and the provider, by weight. The
// waits are those of a bad day on the Internet, shrunk so that the demo ends in
// seconds; the worker's own timeouts are shrunk with them.
func faults() []mockserver.Fault {
	return []mockserver.Fault{
		// The payment is made, and the worker doesn't hear of it.
		{Kind: mockserver.FaultDrop, Weight: 3},
		{Kind: mockserver.FaultReset, After: true, Weight: 3},
		{Kind: mockserver.FaultStatus, Status: http.StatusServiceUnavailable, After: true, Weight: 3},
		{Kind: mockserver.FaultStatus, Status: http.StatusBadGateway, After: true, Weight: 1},
		{Kind: mockserver.FaultHang, Weight: 0.5},

		// The payment is made, and half of the answer comes.
		{Kind: mockserver.FaultCut, Weight: 1},
		{Kind: mockserver.FaultCut, Framing: mockserver.FramingChunked, Weight: 1},
		{Kind: mockserver.FaultCut, Framing: mockserver.FramingClose, Weight: 1},
		{Kind: mockserver.FaultCutHead, Weight: 1},

		// The payment isn't made, and most of these look just the same.
		{Kind: mockserver.FaultRefuse, Weight: 1},
		{Kind: mockserver.FaultReset, Weight: 2},
		{Kind: mockserver.FaultStatus, Status: http.StatusServiceUnavailable, Weight: 2},
		{Kind: mockserver.FaultFail, Status: http.StatusInternalServerError, Weight: 1},
		{Kind: mockserver.FaultRateLimit, Weight: 0.4},
		{Kind: mockserver.FaultStatus, Status: http.StatusTooManyRequests, Weight: 2,
			Header: http.Header{"Retry-After-Ms": {"40"}}},

		// It takes its time. Some outlast the worker's patience, whose next
		// attempt then finds the first one under way.
		{Kind: mockserver.FaultDelay, Delay: 200 * time.Millisecond, Weight: 4},
		{Kind: mockserver.FaultDelay, Delay: attemptTimeout + 100*time.Millisecond, Weight: 1},
		{Kind: mockserver.FaultNone, After: true, Delay: 200 * time.Millisecond, Weight: 2},
		{Kind: mockserver.FaultLate, Delay: 100 * time.Millisecond, Weight: 1},
		{Kind: mockserver.FaultInFlight, Weight: 1},
	}
}
