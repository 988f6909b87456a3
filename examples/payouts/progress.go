package main

import (
	"fmt"
	"io"
	"os"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress shows how many payouts the running child has settled, those that it recalled
// included.
type progress interface {
	settled(n int)
	note(line string)
	end()
}

// newProgress shows a bar on a terminal and plain lines anywhere else.
func newProgress(w io.Writer, total int) progress {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return &bar{w, progressbar.NewOptions(total, progressbar.OptionSetWriter(w), progressbar.OptionShowCount(),
			progressbar.OptionSetDescription("payouts"), progressbar.OptionFullWidth(), progressbar.OptionClearOnFinish())}
	}
	return &lines{w: w, total: total}
}

type bar struct {
	w   io.Writer
	bar *progressbar.ProgressBar
}

func (b *bar) settled(n int) { b.bar.Set(n) }
func (b *bar) end()          { b.bar.Finish() }

// note writes a line above the bar.
func (b *bar) note(line string) {
	b.bar.Clear()
	fmt.Fprintln(b.w, line)
	b.bar.RenderBlank()
}

// lines writes a line each quarter of the way.
type lines struct {
	w              io.Writer
	total, quarter int
}

func (l *lines) settled(n int) {
	quarter := n * 4 / l.total
	if quarter > l.quarter {
		fmt.Fprintf(l.w, "%d of %d settled\n", n, l.total)
	}
	l.quarter = max(quarter, l.quarter)
}

func (l *lines) note(line string) { fmt.Fprintln(l.w, line) }
func (l *lines) end()             {}
