package main

import (
	"fmt"
	"io"
	"os"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress shows how far a run is.
type progress interface {
	paid(n int)
	note(line string)
	end()
}

// newProgress shows a bar on a terminal and plain lines anywhere else.
func newProgress(w io.Writer, title string, total int) progress {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return newBar(w, title, total)
	}
	return &lines{w: w, title: title, total: total}
}

type bar struct {
	w     io.Writer
	title string
	bar   *progressbar.ProgressBar
}

func newBar(w io.Writer, title string, total int) *bar {
	return &bar{w, title, progressbar.NewOptions(total,
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetDescription(title),
		progressbar.OptionShowCount(),
		progressbar.OptionSetElapsedTime(true),
		progressbar.OptionSetPredictTime(false),
		progressbar.OptionFullWidth(),
		progressbar.OptionClearOnFinish(),
	)}
}

func (b *bar) paid(n int) { b.bar.Set(n) }

// note writes a line above the bar.
func (b *bar) note(line string) {
	b.bar.Clear()
	fmt.Fprintf(b.w, "%s: %s\n", b.title, line)
	b.bar.RenderBlank()
}

func (b *bar) end() { b.bar.Finish() }

// lines writes a line each tenth of the way.
type lines struct {
	w     io.Writer
	title string
	total int
	tenth int // last one written
}

func (l *lines) paid(n int) {
	if tenth := n * 10 / l.total; tenth > l.tenth {
		l.tenth = tenth
		fmt.Fprintf(l.w, "%s: %d of %d paid\n", l.title, n, l.total)
	}
}

func (l *lines) note(line string) { fmt.Fprintf(l.w, "%s: %s\n", l.title, line) }

func (l *lines) end() {}
