package wire

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var hintNow = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

func TestHintsAreRead(t *testing.T) {
	const longest = time.Duration(math.MaxInt64)
	in30s := hintNow.Add(30 * time.Second)
	epoch := in30s.Unix()
	for name, tc := range map[string]struct {
		header string // "Name: value" lines
		want   time.Duration
		ok     bool
	}{
		"none":                          {"", 0, false},
		"seconds":                       {"Retry-After: 30", 30 * time.Second, true},
		"zero seconds":                  {"Retry-After: 0", 0, true},
		"a fraction":                    {"Retry-After: 1.5", 1500 * time.Millisecond, true},
		"spaces around":                 {"Retry-After:  30 ", 30 * time.Second, true},
		"an IMF-fixdate":                {"Retry-After: " + in30s.Format(http.TimeFormat), 30 * time.Second, true},
		"an RFC 850 date":               {"Retry-After: " + in30s.Format("Monday, 02-Jan-06 15:04:05 GMT"), 30 * time.Second, true},
		"an asctime date":               {"Retry-After: " + in30s.Format(time.ANSIC), 30 * time.Second, true},
		"a date in the past":            {"Retry-After: Fri, 31 Dec 1999 23:59:59 GMT", 0, false},
		"the year 9999":                 {"Retry-After: Fri, 31 Dec 9999 23:59:59 GMT", longest, true},
		"a negative number":             {"Retry-After: -5", 0, false},
		"garbage":                       {"Retry-After: soon", 0, false},
		"an exponent":                   {"Retry-After: 1e3", 0, false},
		"infinity":                      {"Retry-After: inf", 0, false},
		"two points":                    {"Retry-After: 1.2.3", 0, false},
		"a point alone":                 {"Retry-After: .", 0, false},
		"more digits than any number":   {"Retry-After: " + strings.Repeat("9", 400), longest, true},
		"garbage falls to the next":     {"Retry-After: soon\nRetry-After-Ms: 250", 250 * time.Millisecond, true},
		"a past date falls to the next": {"Retry-After: Fri, 31 Dec 1999 23:59:59 GMT\nX-RateLimit-Reset: 9", 9 * time.Second, true},
		"Retry-After is the strongest":  {"Retry-After: 1\nRetry-After-Ms: 2\nRateLimit-Reset: 3", time.Second, true},
		"milliseconds":                  {"retry-after-ms: 1500", 1500 * time.Millisecond, true},
		"Azure's milliseconds":          {"x-ms-retry-after-ms: 20", 20 * time.Millisecond, true},
		"AWS's milliseconds":            {"x-amz-retry-after: 40", 40 * time.Millisecond, true},
		"too many milliseconds":         {"retry-after-ms: 99999999999999999999", longest, true},
		"a reset in seconds":            {"RateLimit-Reset: 30", 30 * time.Second, true},
		"a reset as epoch":              {"X-RateLimit-Reset: " + strconv.FormatInt(epoch, 10), 30 * time.Second, true},
		"a reset as epoch in ms":        {"X-Rate-Limit-Reset: " + strconv.FormatInt(epoch*1000+500, 10), 30500 * time.Millisecond, true},
		"a reset as date":               {"X-RateLimit-Reset: " + in30s.Format(http.TimeFormat), 30 * time.Second, true},
		"an epoch in the past":          {"X-RateLimit-Reset: 1700000000", 0, false},
		"an epoch in ms in the past":    {"X-RateLimit-Reset: 1700000000000", 0, false},
		"an epoch beyond all":           {"X-RateLimit-Reset: 9999999999999999999999", longest, true},
		"a reset with requests left":    {"X-RateLimit-Reset: 3000\nX-RateLimit-Remaining: 4999", 0, false},
		"a reset with none left":        {"RateLimit-Reset: 3\nRateLimit-Remaining: 0", 3 * time.Second, true},
		"the RateLimit list":            {`RateLimit: "default";r=0;t=30`, 30 * time.Second, true},
		"a RateLimit without r":         {`RateLimit: "default";t=30`, 30 * time.Second, true},
		"a RateLimit with quota":        {`RateLimit: "default";r=50;t=30`, 0, false},
		"two policies":                  {`RateLimit: "burst";r=5;t=1, "daily";r=0;t=3600`, time.Hour, true},
		"the old RateLimit":             {`RateLimit: limit=100, remaining=0, reset=50`, 50 * time.Second, true},
		"the old RateLimit with quota":  {`RateLimit: limit=100, remaining=7, reset=50`, 0, false},
		"a RateLimit that is none":      {`RateLimit: t=;;,=`, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			wait, ok := ReadHint(headerLines(tc.header), true, hintNow)
			require.Equal(t, tc.ok, ok)
			require.Equal(t, tc.want, wait)
		})
	}
}

func headerLines(lines string) http.Header {
	h := http.Header{}
	for line := range strings.SplitSeq(lines, "\n") {
		if name, value, ok := strings.Cut(line, ":"); ok {
			h.Add(name, strings.TrimPrefix(value, " "))
		}
	}
	return h
}

func FuzzHint(f *testing.F) {
	for _, v := range []string{"30", "1.5", "-1", "99999999999999999999", "1700000000000",
		"Fri, 31 Dec 9999 23:59:59 GMT", `"a";r=0;t=9223372036854775807`, "remaining=0, reset=1", "nan"} {
		f.Add(v, int64(1788264000))
	}
	f.Fuzz(func(t *testing.T, v string, now int64) {
		for _, hint := range hints {
			wait, ok := ReadHint(http.Header{hint.header: {v}}, true, time.Unix(now%(1<<40), 0))
			require.GreaterOrEqual(t, wait, time.Duration(0))
			require.True(t, ok || wait == 0)
		}
	})
}
