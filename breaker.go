package idem

import (
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
)

// BreakerPolicy says when the circuit breaker of an origin opens. It is
// sony/gobreaker in its two-step form with a rolling window. The zero value is
// the default policy.
type BreakerPolicy struct {
	Disabled    bool                       // no breaker at all
	Window      time.Duration              // the rolling window that is counted; default 60 s
	MinRequests uint32                     // attempts in the window before it may open; default 20
	FailureRate float64                    // share of failed attempts, 0 to 1, at which it opens; default 0.5
	OpenFor     time.Duration              // how long it stays open before it lets probes through; default 30 s
	Probes      uint32                     // successful probes that close it, and how many may run at once; default 1
	Group       func(*http.Request) string // requests of one group share a breaker; nil: scheme and host
}

const (
	// windowBuckets is how many steps the rolling window moves in.
	windowBuckets = 10

	// longestBreak caps Window and OpenFor. gobreaker rounds the window up
	// without looking for overflow and would then count in no bucket at all.
	longestBreak = 365 * 24 * time.Hour

	// probePause is how long a caller should wait while all probes of a
	// half-open breaker are under way. Nobody knows how long they take: one
	// second is short beside an attempt's timeout, and long enough for the
	// callers that wait not to spin.
	probePause = time.Second

	// maxGroups bounds the breakers of one client.
	maxGroups = 1000
)

// validate refuses what can't be meant.
func (p BreakerPolicy) validate() error {
	switch {
	case p.Window < 0:
		return &InvalidError{Field: "Options.Breaker.Window", Value: p.Window, Why: "must not be negative"}
	case !(p.FailureRate >= 0 && p.FailureRate <= 1): // NaN too
		return &InvalidError{Field: "Options.Breaker.FailureRate", Value: p.FailureRate, Why: "must be from 0 to 1"}
	case p.OpenFor < 0:
		return &InvalidError{Field: "Options.Breaker.OpenFor", Value: p.OpenFor, Why: "must not be negative"}
	}
	return nil
}

func (p BreakerPolicy) window() time.Duration {
	return min(orDefault(p.Window, 60*time.Second), longestBreak)
}

func (p BreakerPolicy) minRequests() uint32 { return orDefault(p.MinRequests, 20) }

func (p BreakerPolicy) failureRate() float64 { return orDefault(p.FailureRate, 0.5) }

func (p BreakerPolicy) openFor() time.Duration {
	return min(orDefault(p.OpenFor, 30*time.Second), longestBreak)
}

func (p BreakerPolicy) probes() uint32 { return orDefault(p.Probes, 1) }

// orDefault returns v, or its default if v is zero.
func orDefault[T comparable](v, byDefault T) T {
	var zero T
	if v == zero {
		return byDefault
	}
	return v
}

// shouldOpen is asked after each failure. It counts only attempts that ended
// with a verdict: gobreaker's Requests holds those under way and the neutral
// ones too, and they would hide an outage.
func (p BreakerPolicy) shouldOpen(counts gobreaker.Counts) bool {
	ended := uint64(counts.TotalSuccesses) + uint64(counts.TotalFailures)
	if ended < uint64(p.minRequests()) { // which is never 0, so nothing is divided by it
		return false
	}
	return float64(counts.TotalFailures)/float64(ended) >= p.failureRate()
}

// health is what an attempt tells about its origin. It isn't what it tells
// about the intent: a 4xx is a refusal, and proof of life.
type health int

const (
	neutral health = iota // nothing: the caller gave up, the journal failed
	healthy               // it answers
	failed                // it doesn't, or only to say that it can't
)

var (
	errNeutral = errors.New("idem: attempt tells nothing about the origin")
	errFailed  = errors.New("idem: attempt failed at the origin")
)

// err is how a breaker is told.
func (h health) err() error {
	switch h {
	case healthy:
		return nil
	case failed:
		return errFailed
	}
	return errNeutral
}

// breakers holds a circuit for each group of requests. It starts no goroutine:
// a circuit changes state only when somebody asks or reports.
//
// gobreaker calls OnStateChange under its own lock, and a hook that asked for
// anything there would never return. So changes are only noted there, and told
// by the goroutine that caused them once it holds no lock.
type breakers struct {
	policy  BreakerPolicy
	changed func(group, from, to string) // nil if nobody wants to know

	mu       sync.Mutex // guards circuits
	circuits *recent[*circuit]

	leaf    sync.Mutex // guards what follows and the state of each circuit; taken last, under mu or gobreaker's lock
	changes []change   // not told yet, oldest first
	telling bool       // a goroutine is at it
}

// newBreakers returns breakers under a valid policy. changed may be nil; it is
// called with no lock held, one call at a time, in the order of the changes.
func newBreakers(p BreakerPolicy, changed func(group, from, to string)) *breakers {
	return &breakers{policy: p, changed: changed, circuits: newRecent[*circuit](maxGroups)}
}

// group names the breaker of a request.
func (b *breakers) group(req *http.Request) string {
	if b.policy.Group != nil {
		return b.policy.Group(req)
	}
	return originOf(req.URL)
}

// allow asks whether an attempt may start now. If so, done must be called with
// what the attempt told, whatever happens, or a probe's slot is lost for good:
// defer done(neutral) first, for only the first call counts.
//
// Otherwise err is ErrCircuitOpen, done does nothing, and retryAt is when the
// half-open breaker lets its first probe through, or, if all probes are under
// way, a second from now (or OpenFor, if that is shorter).
func (b *breakers) allow(group string, now time.Time) (done func(health), retryAt time.Time, err error) {
	if b.policy.Disabled {
		return func(health) {}, time.Time{}, nil
	}
	c := b.circuit(group)
	report, refusal := c.breaker.Allow()
	if refusal != nil {
		b.tell()
		return func(health) {}, b.retryAt(c, refusal, now), ErrCircuitOpen
	}
	handedOver := false
	defer func() {
		if !handedOver { // a hook panicked: nobody else can give the slot back
			report(errNeutral)
		}
	}()
	b.tell()
	handedOver = true
	return b.once(report), time.Time{}, nil
}

// once makes a report that counts only the first time.
func (b *breakers) once(report func(error)) func(health) {
	var reported atomic.Bool
	return func(h health) {
		if reported.Swap(true) {
			return
		}
		report(h.err())
		b.tell()
	}
}

// retryAt says when to ask a circuit again that refused. The time stands on
// now's own clock; if that was set back since the circuit opened, the wait is
// still about OpenFor at most.
func (b *breakers) retryAt(c *circuit, refusal error, now time.Time) time.Time {
	openFor := b.policy.openFor()
	if errors.Is(refusal, gobreaker.ErrTooManyRequests) {
		return now.Add(min(probePause, openFor))
	}
	b.leaf.Lock()
	wait := c.probeAt.Sub(now)
	b.leaf.Unlock()
	return now.Add(min(max(wait, 1), openFor+probePause))
}

// originOf returns scheme://host:port in lower case, without the port that the
// scheme has by default, or "" for no URL.
func originOf(u *url.URL) string {
	if u == nil {
		return ""
	}
	scheme, host, port := strings.ToLower(u.Scheme), strings.ToLower(u.Hostname()), u.Port()
	switch {
	case port != "" && !(scheme == "http" && port == "80") && !(scheme == "https" && port == "443"):
		host = net.JoinHostPort(host, port)
	case strings.Contains(host, ":"): // an IPv6 address
		host = "[" + host + "]"
	}
	return scheme + "://" + host
}
