package mockserver

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Fault is what goes wrong with a request. It is plain data: a struct literal,
// or JSON (durations are nanoseconds). The zero Fault is none: the request
// passes, which is how a script lets one through.
type Fault struct {
	Kind FaultKind

	// After lets the effect happen, and its answer be kept, before the fault
	// strikes. FaultDrop, FaultHang, FaultCut and FaultCutHead always strike
	// after the effect; FaultLate, FaultRefuse, FaultInFlight, FaultRateLimit and
	// FaultForget never can.
	After bool

	// Times is how many requests meet the fault, one after the other; zero is
	// 1, and less is every request from then on, until [Server.Heal].
	Times int

	// Delay is waited out first, with any kind: before the effect, the key
	// being in flight meanwhile; with After between effect and answer. A fault
	// that keeps the request from the API, and FaultLate, wait ahead of it, where
	// nothing is known of the key.
	Delay time.Duration

	Status     int           // of FaultStatus and FaultFail; zero is 503 and 500
	Header     http.Header   // of FaultStatus, FaultFail, FaultInFlight and FaultRateLimit: a Retry-After date, say
	Body       string        // of FaultStatus and FaultFail
	RetryAfter time.Duration // of the same four, in seconds, rounded up; zero is none, and one second for FaultRateLimit

	// Keep is what remains under the key of a FaultFail; zero is as the profile
	// says. With FaultRestart, KeepNothing loses all keys.
	Keep Keep

	// CutAt is how many bytes of the body FaultCut lets through; zero is half
	// of them. Framing is what tells the client that more was to come.
	CutAt   int
	Framing Framing

	// Weight is the fault's share where faults are drawn at random; zero is 1.
	Weight float64
}

// FaultKind names what goes wrong.
type FaultKind string

// The kinds of fault.
const (
	FaultNone      FaultKind = ""           // nothing, or only a Delay
	FaultDelay     FaultKind = "delay"      // a slow API; the key is in flight meanwhile
	FaultLate      FaultKind = "late"       // a slow network: the request waits for Delay before its key is looked up
	FaultRefuse    FaultKind = "refuse"     // connection refused: nothing arrives, nothing is recorded; see Server.ServeHTTP
	FaultReset     FaultKind = "reset"      // connection reset
	FaultDrop      FaultKind = "drop"       // the effect happens, the connection is closed without an answer
	FaultHang      FaultKind = "hang"       // the effect happens, no answer comes until the client gives up
	FaultCut       FaultKind = "cut"        // the effect happens, the answer's body is cut short
	FaultCutHead   FaultKind = "cut-head"   // the effect happens, the answer ends within its head
	FaultStatus    FaultKind = "status"     // an answer from in front of the API: any Status, Header and Body
	FaultInFlight  FaultKind = "in-flight"  // the profile's answer to a key in flight; a plain 409 where it has none
	FaultRateLimit FaultKind = "rate-limit" // 429 with Retry-After, before the key is looked at
	FaultFail      FaultKind = "fail"       // the handler answers Status and does nothing; see Keep
	FaultForget    FaultKind = "forget"     // the window of the request's key closes just before
	FaultRestart   FaultKind = "restart"    // the server restarts: see Server.Restart and Keep
)

// faultKinds says of each kind whether After goes with it.
var faultKinds = map[FaultKind]bool{
	FaultNone: true, FaultDelay: true, FaultReset: true, FaultDrop: true, FaultHang: true,
	FaultCut: true, FaultCutHead: true, FaultStatus: true, FaultFail: true, FaultRestart: true,
	FaultLate: false, FaultRefuse: false, FaultInFlight: false, FaultRateLimit: false, FaultForget: false,
}

// Framing is how an answer says where its body ends.
type Framing string

// The framings of a cut body.
const (
	FramingLength  Framing = ""        // Content-Length says more
	FramingChunked Framing = "chunked" // the last chunk never comes
	FramingClose   Framing = "close"   // only the connection's end: the cut can't be seen in the framing
)

// script is the faults still to come: the queue first, then the draw.
type script struct {
	queue []Fault
	pool  []Fault
	rate  float64
	rand  *rand.Rand
}

func newScript(cfg *Config) script {
	mustBeKnown(cfg.Faults)
	if cfg.Seed == 0 && cfg.Rate == 0 {
		return script{queue: append([]Fault(nil), cfg.Faults...)}
	}
	rate := cfg.Rate
	if rate == 0 {
		rate = 0.5
	}
	return script{
		pool: append([]Fault(nil), cfg.Faults...),
		rate: rate,
		rand: rand.New(rand.NewPCG(cfg.Seed, cfg.Seed)),
	}
}

// mustBeKnown panics on a fault that would strike otherwise than it reads, and
// so test nothing.
func mustBeKnown(faults []Fault) {
	for _, f := range faults {
		both, known := faultKinds[f.Kind]
		switch {
		case !known:
			panic(fmt.Sprintf("mockserver: unknown fault kind %q", f.Kind))
		case f.After && !both:
			panic(fmt.Sprintf("mockserver: fault %q can't strike after the effect", f.Kind))
		}
	}
}

// next is the fault that the next request meets.
func (s *script) next() Fault {
	if len(s.queue) == 0 {
		f := s.draw()
		if f.Times <= 1 && f.Times >= 0 {
			return f
		}
		s.queue = append(s.queue, f)
	}
	f := &s.queue[0]
	met := *f
	switch {
	case f.Times < 0:
	case f.Times > 1:
		f.Times--
	default:
		s.queue = s.queue[1:]
	}
	return met
}

// draw picks one of the pool by weight, or none.
func (s *script) draw() Fault {
	if s.rand == nil || len(s.pool) == 0 || s.rand.Float64() >= s.rate {
		return Fault{}
	}
	var sum float64
	for _, f := range s.pool {
		sum += f.weight()
	}
	at := s.rand.Float64() * sum
	for _, f := range s.pool {
		if at -= f.weight(); at < 0 {
			return f
		}
	}
	return s.pool[len(s.pool)-1]
}

func (f Fault) weight() float64 {
	if f.Weight == 0 {
		return 1
	}
	return f.Weight
}

// answer is the fault's own answer.
func (f Fault) answer(status int) *answer {
	if f.Status != 0 {
		status = f.Status
	}
	return f.dress(newAnswer(status, nil, []byte(f.Body)))
}

// dress adds the fault's headers to an answer of its own.
func (f Fault) dress(a *answer) *answer {
	for name, values := range f.Header {
		a.header[http.CanonicalHeaderKey(name)] = append([]string(nil), values...)
	}
	if f.RetryAfter > 0 {
		a.header.Set("Retry-After", strconv.FormatInt(wholeSeconds(f.RetryAfter), 10))
	}
	if a.header.Get("Content-Type") == "" && strings.HasPrefix(f.Body, "{") {
		a.header.Set("Content-Type", "application/json")
	}
	return a
}

// wholeSeconds rounds up, for a client that comes a moment early is refused again.
func wholeSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
