package dialect_test

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dialect"
)

const (
	docsFile  = "../docs/dialects.md"
	docsBegin = "<!-- begin of the tables -->\n"
	docsEnd   = "<!-- end of the tables -->\n"
)

var update = flag.Bool("update", false, "write the tables of docs/dialects.md")

func TestTheTablesInTheDocsAreThoseOfThePresets(t *testing.T) {
	page, err := os.ReadFile(docsFile)
	require.NoError(t, err)
	head, rest, ok := strings.Cut(string(page), docsBegin)
	require.True(t, ok)
	have, tail, ok := strings.Cut(rest, docsEnd)
	require.True(t, ok)
	want := presetTables()
	if *update && have != want {
		require.NoError(t, os.WriteFile(docsFile, []byte(head+docsBegin+want+docsEnd+tail), 0o644))
		return
	}
	require.Equal(t, want, have, "stale: go generate ./dialect")
}

func TestTheCodeOfTheDocsIsWhatTheTestsRun(t *testing.T) {
	page, err := os.ReadFile(docsFile)
	require.NoError(t, err)
	for language, file := range map[string]string{"json": "testdata/acme.json", "go": "acme_test.go"} {
		_, block, ok := strings.Cut(string(page), "```"+language+"\n")
		require.True(t, ok)
		block, _, _ = strings.Cut(block, "```")
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Contains(t, strings.ReplaceAll(string(source), "testdata/", ""), block)
		if language == "json" {
			require.LessOrEqual(t, bytes.Count(source, []byte("\n")), 10)
		}
	}
}

func TestTheDocsTellEveryMemberOfADialect(t *testing.T) {
	page, err := os.ReadFile(docsFile)
	require.NoError(t, err)
	upper := regexp.MustCompile(`(.)([A-Z][a-z])`)
	for _, f := range reflect.VisibleFields(reflect.TypeFor[idem.Dialect]()) {
		member := strings.ToLower(upper.ReplaceAllString(f.Name, "${1}_$2"))
		if f.Name != "NewKey" && f.Name != "Name" { // the one is no JSON, the other says itself
			require.Contains(t, string(page), "`"+member+"`")
		}
	}
}

// presetTables are the three tables of the docs.
func presetTables() string {
	var b strings.Builder
	for _, table := range []struct {
		title, columns string
		row            func(idem.Dialect) []string
	}{
		{"Where the key goes", "placement | field | key form | bytes | methods | window | margin", placingRow},
		{"How answers are read", "in flight | mismatch | already done | not done | replay marker | should retry | 202", readingRow},
		{"Where the facts come from", "source | checked | unverified", sourceRow},
	} {
		columns := "preset, paths | " + table.columns
		fmt.Fprintf(&b, "\n## %s\n\n| %s |\n|%s\n", table.title, columns, strings.Repeat("---|", strings.Count(columns, "|")+1))
		for _, d := range dialect.All() {
			for _, part := range presetRows(d) {
				fmt.Fprintf(&b, "| %s |\n", strings.Join(append([]string{partName(d.Name, part)}, table.row(part)...), " | "))
			}
		}
	}
	return b.String() + "\n"
}

// presetRows are the routes of a preset and the preset itself, if it keys anything
// beside them. Routes that differ only in their path, and in where a resource is
// fetched below it, share a row.
func presetRows(d idem.Dialect) (rows []idem.Dialect) {
	for _, part := range append(d.Routes, d) {
		if part.Placement == idem.PlaceNone && len(d.Routes) > 0 {
			continue
		}
		if len(part.Paths) == 1 && part.Resource.URL == part.Paths[0]+"/{id}" {
			part.Resource.URL = "<path>/{id}"
		}
		if n := len(rows) - 1; n >= 0 && sameButPaths(rows[n], part) {
			rows[n].Paths = append(rows[n].Paths, part.Paths...)
			continue
		}
		rows = append(rows, part)
	}
	return rows
}

func sameButPaths(a, b idem.Dialect) bool {
	a.Paths, b.Paths = nil, nil
	return reflect.DeepEqual(a, b)
}

func partName(name string, d idem.Dialect) string {
	return strings.TrimSuffix("**"+name+"** "+codes(d.Paths, "<br>"), " ")
}

func placingRow(d idem.Dialect) []string {
	if d.Placement == idem.PlaceNone {
		return []string{d.Placement.String(), "", "", "", "", "", ""}
	}
	field, window := d.Field, cmp.Or(d.Window, 24*time.Hour)
	if field == "" {
		field = "Idempotency-Key"
	}
	if d.FirstSent != "" {
		field += "`, `" + d.FirstSent
	}
	methods := d.Methods
	if methods == nil {
		methods = []string{"POST", "PATCH"}
	}
	return []string{
		d.Placement.String(), "`" + field + "`", cmp.Or(string(d.KeyForm), "uuidv7"),
		fmt.Sprintf("%d–%d", cmp.Or(d.MinKey, 1), cmp.Or(d.MaxKey, 255)), strings.Join(methods, " "),
		duration(window), marginText(d.Margin, window),
	}
}

func marginText(margin, window time.Duration) string {
	if window == idem.Forever {
		return ""
	}
	return duration(cmp.Or(margin, min(5*time.Minute, window/10)))
}

func readingRow(d idem.Dialect) []string {
	inFlight, alreadyDone, shouldRetry := matches(d.InFlight...), matches(d.AlreadyDone...), ""
	if d.InFlightDelay > 0 {
		inFlight += ", wait at least " + duration(d.InFlightDelay)
	}
	if d.Resource.URL != "" {
		alreadyDone += ", fetch `" + d.Resource.URL + "`"
	}
	if d.ShouldRetry != "" {
		shouldRetry = "`" + d.ShouldRetry + "`"
	}
	if d.SilentStop {
		shouldRetry += ", absent: no"
	}
	replay := d.Replay
	if replay == (idem.Match{}) && d.Placement != idem.PlaceNone {
		replay = idem.Match{Header: "Idempotent-Replayed", Value: "true"}
	}
	if d.KeyFirst {
		shouldRetry = strings.TrimPrefix(shouldRetry+"; looks the key up first", "; ")
	}
	return []string{inFlight, matches(d.Mismatch...), alreadyDone, matches(d.NotDone...), matches(replay), shouldRetry, d.Accepted.String()}
}

func sourceRow(d idem.Dialect) []string {
	source := ""
	if d.Source != "" {
		host, _, _ := strings.Cut(strings.TrimPrefix(d.Source, "https://"), "/")
		source = "[" + host + "](" + d.Source + ")"
	}
	return []string{source, d.Checked, strings.Join(d.Unverified, ", ")}
}

func matches(list ...idem.Match) string {
	var texts []string
	for _, m := range list {
		var parts []string
		if m.Method != "" {
			parts = append(parts, m.Method)
		}
		if m.Status != 0 {
			parts = append(parts, fmt.Sprint(m.Status))
		}
		if at := cmp.Or(m.Header, m.Path); at != "" {
			sep := map[bool]string{true: ": ", false: "="}[m.Header != ""]
			parts = append(parts, "`"+strings.TrimRight(at+sep+m.Value, ":= ")+"`")
		}
		if text := strings.Join(parts, " "); text != "" {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, "<br>")
}

func codes(list []string, sep string) string {
	if len(list) == 0 {
		return ""
	}
	return "`" + strings.Join(list, "`"+sep+"`") + "`"
}

// duration is for people: "30 days", "12 h", "5 min".
func duration(d time.Duration) string {
	switch {
	case d == idem.Forever:
		return "for ever"
	case d >= 48*time.Hour && d%(24*time.Hour) == 0:
		return fmt.Sprint(int(d/(24*time.Hour)), " days")
	case d%time.Hour == 0:
		return fmt.Sprint(int(d/time.Hour), " h")
	case d%time.Minute == 0:
		return fmt.Sprint(int(d/time.Minute), " min")
	}
	return fmt.Sprint(int(d/time.Second), " s")
}
