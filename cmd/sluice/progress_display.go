package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/term"
)

// display shows how a run goes on. Show is called often, Say when something is to
// be told in between; Close once, with the last moment.
type display interface {
	Show(m *moment)
	Say(text string)
	Close(m *moment)
}

// silent shows nothing.
type silent struct{}

func (silent) Show(*moment)  {}
func (silent) Say(string)    {}
func (silent) Close(*moment) {}

// screen is what a command knows of a stream it writes to.
type screen struct {
	io.Writer
	// Size returns the columns and rows of the terminal; nil if it is none.
	Size  func() (columns, rows int)
	Color bool
}

// defaultColumns is the width where there is no terminal to ask.
const defaultColumns = 80

// screenOf looks at where a command writes to. Colours are off where there is no
// terminal, where NO_COLOR is set (https://no-color.org) and on a dumb terminal.
func screenOf(w io.Writer) screen {
	s := screen{Writer: w}
	file, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) || os.Getenv("TERM") == "dumb" {
		return s
	}
	s.Color = os.Getenv("NO_COLOR") == ""
	s.Size = func() (int, int) {
		columns, rows, err := term.GetSize(int(file.Fd()))
		if err != nil || columns <= 0 || rows <= 0 {
			return defaultColumns, 24
		}
		return columns, rows
	}
	return s
}

// Columns is the width to write for.
func (s screen) Columns() int {
	if s.Size == nil {
		return defaultColumns
	}
	columns, _ := s.Size()
	return max(columns, narrowestView)
}

// displayOn chooses the display that fits: bars that are redrawn on a terminal,
// else a line per second.
func displayOn(s screen, top int) display {
	if s.Size == nil {
		return &lineDisplay{w: s, every: time.Second}
	}
	return &barDisplay{screen: s, top: top}
}

// barDisplay redraws bars in place.
type barDisplay struct {
	screen screen
	top    int
	drawn  int // lines that the next draw writes over
}

func (d *barDisplay) Show(m *moment) {
	columns, rows := d.screen.Size()
	// One column stays free, so that no terminal wraps the line.
	b := bars{Width: max(columns, narrowestView) - 1, Top: d.top, Paint: paint(d.screen.Color)}
	// The fold, the line for all, the figures and the cursor need a row each.
	if room := max(rows-4, 1); b.Top <= 0 || b.Top > room {
		b.Top = room
	}
	d.redraw(b.Draw(m))
}

// redraw writes lines over those of the last time.
func (d *barDisplay) redraw(lines []string) {
	var out strings.Builder
	if d.drawn > 0 {
		fmt.Fprintf(&out, "\x1b[%dA", d.drawn)
	}
	for _, line := range lines {
		out.WriteString("\r" + line + "\x1b[K\n")
	}
	out.WriteString("\x1b[J")
	d.drawn = len(lines)
	io.WriteString(d.screen, out.String()) //nolint:errcheck // A display that cannot be written to must not end the run.
}

// Say puts a line where the bars were; the next Show draws them below it.
func (d *barDisplay) Say(text string) {
	if d.drawn > 0 {
		fmt.Fprintf(d.screen, "\x1b[%dA\r\x1b[J", d.drawn)
	}
	fmt.Fprintln(d.screen, text)
	d.drawn = 0
}

func (d *barDisplay) Close(m *moment) { d.Show(m) }

// lineDisplay writes a plain line now and then.
type lineDisplay struct {
	w     io.Writer
	every time.Duration
	last  time.Duration
	wrote bool
}

func (d *lineDisplay) Show(m *moment) {
	if d.wrote && m.Elapsed-d.last < d.every {
		return
	}
	d.write(m)
}

func (d *lineDisplay) Say(text string) { fmt.Fprintln(d.w, text) }

func (d *lineDisplay) Close(m *moment) {
	if !d.wrote || m.Elapsed != d.last {
		d.write(m)
	}
}

func (d *lineDisplay) write(m *moment) {
	d.last, d.wrote = m.Elapsed, true
	done := fmt.Sprintf("%s/%s (%s)", humanize.Comma(m.All.Done()), humanize.Comma(m.All.Total),
		percent(m.All.Done(), m.All.Total))
	parts := append([]string{done}, figures(m)...)
	fmt.Fprintln(d.w, strings.Join(parts, " · "))
}
