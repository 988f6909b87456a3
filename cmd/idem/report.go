package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// column is one client's run in the table.
type column struct {
	title string
	audit audit
	kills int
	took  time.Duration
}

// printTable prints the runs beside each other.
func printTable(w io.Writer, cols []column) {
	row := func(label string, cell func(column) string) {
		fmt.Fprintf(w, "%-22s", label)
		for _, c := range cols {
			fmt.Fprintf(w, "  %14s", cell(c))
		}
		fmt.Fprintln(w)
	}
	count := func(label string, n func(column) int) {
		row(label, func(c column) string { return strconv.Itoa(n(c)) })
	}
	row("", func(c column) string { return c.title })
	count("payments in the file", func(c column) int { return c.audit.Rows })
	count("sent", func(c column) int { return c.audit.Sent })
	count("applied once", func(c column) int { return c.audit.Once })
	count("applied twice", func(c column) int { return c.audit.Twice })
	count("lost", func(c column) int { return c.audit.Lost })
	count("wrong amount", func(c column) int { return c.audit.wrong() })
	count("attempts", func(c column) int { return c.audit.Arrived })
	count("replays", func(c column) int { return c.audit.Replays })
	count("keys", func(c column) int { return c.audit.Keys })
	count("kills", func(c column) int { return c.kills })
	row("time", func(c column) string { return fmt.Sprintf("%.1f s", c.took.Seconds()) })
	for _, cur := range cols[0].audit.currencies() {
		row(cur+" in the file", func(c column) string { return grouped(c.audit.Due[cur]) })
		row(cur+" applied", func(c column) string { return grouped(c.audit.Made[cur]) })
	}
}

// printVerdict says of each run in words what the table says in numbers.
func printVerdict(w io.Writer, cols []column) {
	for _, c := range cols {
		if c.audit.clean() {
			fmt.Fprintf(w, "%s: every payment was applied exactly once.\n", c.title)
			continue
		}
		fmt.Fprintf(w, "%s: %d applied twice, %d lost, %d with a wrong amount.%s\n",
			c.title, c.audit.Twice, c.audit.Lost, c.audit.wrong(), difference(c.audit))
	}
}

// difference says how much too much or too little was paid.
func difference(a audit) string {
	var parts []string
	for _, cur := range a.currencies() {
		switch d := a.Made[cur] - a.Due[cur]; {
		case d > 0:
			parts = append(parts, fmt.Sprintf("%s %s too much", grouped(d), cur))
		case d < 0:
			parts = append(parts, fmt.Sprintf("%s %s too little", grouped(-d), cur))
		}
	}
	if parts == nil {
		return ""
	}
	return " " + strings.Join(parts, ", ") + "."
}

// grouped writes 123456789 as "1,234,567.89".
func grouped(cents int64) string {
	s := formatCents(cents)
	for i := len(s) - 6; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
