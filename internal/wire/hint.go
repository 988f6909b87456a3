package wire

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// ReadHint returns how long the server says to wait before the next try. Of the
// headers in hints the first that makes sense counts; a moment in the past, a
// negative number and garbage make none. The wait is never negative, and a value
// too large for a Duration is the largest one. A moment is measured against the
// answer's own Date, for the server's clock may be minutes off ours.
func ReadHint(h http.Header, limited bool, now time.Time) (wait time.Duration, ok bool) {
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	for _, hint := range hints {
		if hint.limit && !limited {
			continue
		}
		for _, v := range HeaderValues(h, hint.header) {
			if wait, ok = hint.read(v, now); ok && !hasQuota(h, hint.remaining) {
				return wait, true
			}
		}
	}
	return 0, false
}

// hints are the headers that tell a wait, strongest first. Those that tell when a
// limit is reset accompany every answer of many providers; they ask for a wait only
// in an answer that speaks of a limit, and only where the header in remaining doesn't
// say that requests are left.
var hints = []struct {
	header    string
	read      func(v string, now time.Time) (time.Duration, bool)
	remaining string
	limit     bool
}{
	{"Retry-After", readWait, "", false},
	{"Retry-After-Ms", readMillis, "", false},
	{"X-Ms-Retry-After-Ms", readMillis, "", false},
	{"X-Amz-Retry-After", readMillis, "", false},
	{"RateLimit-Reset", readWait, "RateLimit-Remaining", true},
	{"X-RateLimit-Reset", readWait, "X-RateLimit-Remaining", true},
	{"X-Rate-Limit-Reset", readWait, "X-Rate-Limit-Remaining", true},
	{"RateLimit", readRateLimit, "", true},
}

// AsksToWait tells an answer that names a time to come back by Retry-After or one of
// its kin, whatever its status.
func AsksToWait(h http.Header) bool {
	_, ok := ReadHint(h, false, time.Now())
	return ok
}

func hasQuota(h http.Header, remaining string) bool {
	if remaining == "" {
		return false
	}
	for _, v := range HeaderValues(h, remaining) {
		if n, ok := readNumber(v); ok && n > 0 {
			return true
		}
	}
	return false
}

func readMillis(v string, _ time.Time) (time.Duration, bool) {
	n, ok := readNumber(v)
	return saturate(n, time.Millisecond), ok
}

// A number below epochSeconds is a count of seconds from now (31 years and more
// would make no sense), one below epochMillis is a moment in seconds since 1970,
// and one above in milliseconds.
const (
	epochSeconds = 1e9
	epochMillis  = 1e11
)

// readWait reads what servers put into Retry-After and reset headers: seconds to
// go, with a fraction or without, a moment in seconds or milliseconds since 1970,
// or a date.
func readWait(v string, now time.Time) (time.Duration, bool) {
	n, ok := readNumber(v)
	switch {
	case !ok:
		return readDate(v, now)
	case n < epochSeconds:
		return saturate(n, time.Second), true
	case n < epochMillis:
		return until(time.UnixMilli(int64(n*1000)), now)
	case n < math.MaxInt64:
		return until(time.UnixMilli(int64(n)), now)
	}
	return math.MaxInt64, true
}

// readDate reads the three date forms of HTTP: IMF-fixdate, RFC 850, asctime.
func readDate(v string, now time.Time) (time.Duration, bool) {
	t, err := http.ParseTime(v)
	if err != nil {
		return 0, false
	}
	return until(t, now)
}

// until is the time from now to t. A moment that has passed is no hint, rather
// than one to hurry. The difference saturates in Time.Sub.
func until(t, now time.Time) (time.Duration, bool) {
	wait := t.Sub(now)
	return max(wait, 0), wait > 0
}

// readRateLimit reads the RateLimit field of the IETF drafts, both the recent
// list of policies, `"burst";r=0;t=30`, and the older `limit=9, remaining=0,
// reset=30`. The longest wait of a policy without quota counts.
func readRateLimit(v string, _ time.Time) (wait time.Duration, ok bool) {
	quota := false
	for item := range strings.SplitSeq(v, ",") {
		var itemWait time.Duration
		itemOK, itemQuota := false, false
		for param := range strings.SplitSeq(item, ";") {
			name, value, _ := strings.Cut(strings.TrimSpace(param), "=")
			n, isNumber := readNumber(value)
			switch {
			case !isNumber:
			case name == "t" || name == "reset":
				itemWait, itemOK = saturate(n, time.Second), true
			case name == "r":
				itemQuota = n > 0
			case name == "remaining":
				quota = n > 0
			}
		}
		if itemOK && !itemQuota {
			wait, ok = max(wait, itemWait), true
		}
	}
	if quota {
		return 0, false
	}
	return wait, ok
}

// readNumber reads digits with an optional fraction. ParseFloat alone would take
// "inf", "1e9" and "0x1p4" too.
func readNumber(v string) (float64, bool) {
	v = strings.TrimSpace(v)
	if v == "" || strings.Trim(v, "0123456789.") != "" {
		return 0, false
	}
	n, err := strconv.ParseFloat(v, 64)
	if err != nil && !math.IsInf(n, 1) { // out of range is only too large
		return 0, false
	}
	return n, true
}

// saturate turns n units into a Duration, rounded up, at most the largest one.
func saturate(n float64, unit time.Duration) time.Duration {
	ns := math.Ceil(n * float64(unit))
	if ns >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(ns)
}
