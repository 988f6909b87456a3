package codec

import (
	"cmp"
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/idem-go/idem"
)

// Answer says where a result has its parts and what its status means. Paths are
// dotted ("meta.id"); a number is an index into an array.
type Answer struct {
	ID         string // the item's ID or its key, a number as it is written; "" is "id"
	Status     string // a number, text or boolean; "" is "status"; "-": there is none, see below
	Body       string // what becomes ItemResult.Body; "", or nothing there, is the whole result
	Error      string // what went wrong, a text or an object with code and message; "" is "error"
	RetryAfter string // how long to wait, in seconds, or until an HTTP date; "" is "retry_after"

	// The statuses of items that may be tried again, that are done, and that are
	// refused; tried in this order. Each is the text itself ("created", "409",
	// "true"), a class ("4xx") or a bound (">=500"). What none of them has is
	// unknown. All nil is what HTTP's statuses mean, read like those of single
	// calls: 2xx done; 424 and 429 retry; other 4xx, but 408, 421 and 425, and 307,
	// 308, 501 and 505 refused; everything else unknown.
	//
	// With Status "-" a result is refused if something stands at Error, else done.
	Retry, Done, NotDone []string
}

// ItemError is the Err of a result that isn't Done, in the provider's words.
type ItemError struct {
	Status        int    // the item's own; 0 if it has none
	Code, Message string // "" if the answer has none; at most 300 bytes each
}

func (e *ItemError) Error() string {
	parts := []string{"codec: item not done"}
	if e.Status != 0 {
		parts = append(parts, strconv.Itoa(e.Status))
	}
	for _, p := range []string{e.Code, e.Message} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	return strings.Join(parts, ": ")
}

// read reads one result; false if it can't be told whose it is.
func (a Answer) read(raw json.RawMessage, n names, resp *http.Response) (idem.ItemResult, bool) {
	o, err := members(raw)
	if err != nil {
		return idem.ItemResult{}, false
	}
	name := o.textAt(cmp.Or(a.ID, "id"))
	if name == "" {
		return idem.ItemResult{}, false
	}
	failure, failed := o.at(cmp.Or(a.Error, "error"))
	status := ""
	if a.Status != none {
		status = o.textAt(cmp.Or(a.Status, "status"))
	}
	r := idem.ItemResult{Body: raw, Status: httpStatus(status)}
	if part, ok := o.at(a.Body); ok && a.Body != "" {
		r.Body = part
	}
	r.Fate, r.Retry = a.fate(status, failed)
	r = finish(r, resp, failure, o.textAt(cmp.Or(a.RetryAfter, "retry_after")))
	return n.assign(r, name), true
}

// finish adds what goes with the fate: a status for what is Done, an error and a
// hint for what isn't.
func finish(r idem.ItemResult, resp *http.Response, failure json.RawMessage, wait string) idem.ItemResult {
	if r.Fate == idem.FateDone {
		r.Status = cmp.Or(r.Status, doneStatus(resp.StatusCode))
		return r
	}
	code, message := describe(failure)
	r.Err = &ItemError{Status: r.Status, Code: code, Message: message}
	r.RetryAfter = readWait(wait, answeredAt(resp))
	return r
}

// fate judges a status.
func (a Answer) fate(status string, failed bool) (fate idem.Fate, retry bool) {
	switch {
	case a.Status == none && failed:
		return idem.FateNotDone, false
	case a.Status == none:
		return idem.FateDone, false
	case a.Retry == nil && a.Done == nil && a.NotDone == nil:
		return httpFate(httpStatus(status))
	case matches(a.Retry, status):
		return idem.FateNotDone, true
	case matches(a.Done, status):
		return idem.FateDone, false
	case matches(a.NotDone, status):
		return idem.FateNotDone, false
	}
	return idem.FateUnknown, false
}

// httpFate reads an item's status as that of a call of its own would be.
func httpFate(status int) (fate idem.Fate, retry bool) {
	switch {
	case status/100 == 2:
		return idem.FateDone, false
	case status == http.StatusFailedDependency || status == http.StatusTooManyRequests:
		return idem.FateNotDone, true
	case slices.Contains([]int{408, 421, 425}, status):
		return idem.FateUnknown, false
	case status/100 == 4 || slices.Contains([]int{307, 308, 501, 505}, status):
		return idem.FateNotDone, false
	}
	return idem.FateUnknown, false
}

// httpStatus is the number that stands for an HTTP status, else 0.
func httpStatus(s string) int {
	if n, err := strconv.Atoi(s); err == nil && n >= 100 && n <= 599 && len(s) == 3 {
		return n
	}
	return 0
}

// doneStatus is the status of a Done item that has none of its own: the call's,
// unless that speaks of other items.
func doneStatus(call int) int {
	if call/100 == 2 && call != http.StatusMultiStatus {
		return call
	}
	return http.StatusOK
}

func matches(patterns []string, status string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		n, err := strconv.Atoi(status)
		if bound, ok := strings.CutPrefix(p, ">="); ok && err == nil {
			least, bad := strconv.Atoi(bound)
			return bad == nil && n >= least
		}
		if len(p) == 3 && strings.HasSuffix(p, "xx") && err == nil {
			return strconv.Itoa(n/100) == p[:1]
		}
		return p == status && status != ""
	})
}

// describe finds code and message in what providers put into an error.
func describe(failure json.RawMessage) (code, message string) {
	o, err := members(failure)
	if err != nil {
		return "", short(text(failure))
	}
	first := func(names ...string) string {
		for _, name := range names {
			if v, ok := o.get(name); ok && text(v) != "" {
				return short(text(v))
			}
		}
		return ""
	}
	return first("code", "type"), first("message", "description", "detail", "title")
}

// short cuts what goes into errors and logs.
func short(s string) string {
	const most = 300
	if len(s) <= most {
		return s
	}
	cut := most
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut]
}

// answeredAt is the time of the answer by the provider's own clock, against which
// its dates are meant.
func answeredAt(resp *http.Response) time.Time {
	if t, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		return t
	}
	return time.Now()
}

// readWait reads seconds or an HTTP date. It is never negative; what is too large
// for a Duration is the largest one.
func readWait(s string, now time.Time) time.Duration {
	if t, err := http.ParseTime(s); err == nil {
		return max(t.Sub(now), 0)
	}
	if strings.Trim(s, "0123456789.") != "" { // ParseFloat would take "inf" and "0x1p4" too
		return 0
	}
	n, _ := strconv.ParseFloat(s, 64) // 0 if it is none, infinite if out of range
	if ns := math.Ceil(n * float64(time.Second)); ns < math.MaxInt64 {
		return time.Duration(ns)
	}
	return math.MaxInt64
}
