package term

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/term"
)

// Screen is a stream that a command writes to.
type Screen struct {
	io.Writer
	// Size returns the columns and rows of the terminal; it is nil if there is none.
	Size  func() (columns, rows int)
	Color bool
}

// defaultColumns is the width without a terminal.
const defaultColumns = 80

// ScreenOf returns the screen of a stream. Colours are off without a terminal, on a
// dumb terminal, and if NO_COLOR is set (https://no-color.org).
func ScreenOf(w io.Writer) Screen {
	s := Screen{Writer: w}
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

// Columns returns the width to write for.
func (s Screen) Columns() int {
	if s.Size == nil {
		return defaultColumns
	}
	columns, _ := s.Size()
	return max(columns, NarrowestView)
}

// lineEvery is the interval between two lines without a terminal.
const lineEvery = time.Second

// Display shows the moments of a run: bars that are redrawn on a terminal, otherwise a
// line per second.
type Display[M any] struct {
	area    Area
	quiet   bool
	elapsed func(m M) time.Duration
	// bars returns the lines of a moment on a terminal; line is the text of it elsewhere.
	bars func(m M, columns, rows int) []string
	line func(m M) string

	last    M
	shown   bool // whether last is set
	wroteAt time.Duration
}

// NewDisplay returns a display; a quiet one shows nothing.
func NewDisplay[M any](s Screen, quiet bool, elapsed func(m M) time.Duration,
	bars func(m M, columns, rows int) []string, line func(m M) string,
) *Display[M] {
	return &Display[M]{area: Area{Screen: s}, quiet: quiet, elapsed: elapsed, bars: bars, line: line}
}

// DisplayOn returns a display of the jobs of a run, with top names of their own (0: all).
func DisplayOn(s Screen, top int, quiet bool) *Display[*Moment] {
	bars := func(m *Moment, columns, rows int) []string {
		b := Bars{Width: columns, Top: top, Paint: Paint(s.Color)}
		// The fold, the line for all, the figures and the cursor need a row each.
		if room := max(rows-4, 1); b.Top <= 0 || b.Top > room {
			b.Top = room
		}
		return b.Draw(m)
	}
	line := func(m *Moment) string {
		done := fmt.Sprintf("%s/%s (%s)", humanize.Comma(m.All.Done()), humanize.Comma(m.All.Total), Percent(m.All.Done(), m.All.Total))
		return strings.Join(append([]string{done}, figures(m)...), " · ")
	}
	return NewDisplay(s, quiet, func(m *Moment) time.Duration { return m.Elapsed }, bars, line)
}

// Show shows a moment. It is called often.
func (d *Display[M]) Show(m M) {
	first := !d.shown
	d.last, d.shown = m, true
	switch at := d.elapsed(m); {
	case d.quiet:
	case d.area.Size != nil:
		columns, rows := d.area.Size()
		// One column stays free, so that no terminal wraps the line.
		d.area.Draw(d.bars(m, max(columns, NarrowestView)-1, rows))
	case first || at-d.wroteAt >= lineEvery:
		d.write()
	}
}

// Say prints a line in between.
func (d *Display[M]) Say(text string) {
	if !d.quiet {
		d.area.Say(text)
	}
}

// Close shows the last moment, if it is not shown.
func (d *Display[M]) Close() {
	switch {
	case !d.shown || d.quiet:
	case d.area.Size == nil && d.wroteAt != d.elapsed(d.last):
		d.write()
	case d.area.Size != nil && d.area.drawn == 0: // Say has removed it
		d.Show(d.last)
	}
}

func (d *Display[M]) write() {
	d.wroteAt = d.elapsed(d.last)
	fmt.Fprintln(d.area, d.line(d.last))
}

// Area is lines of a terminal that are redrawn in place.
type Area struct {
	Screen
	drawn int // lines that the next Draw overwrites
}

// Draw overwrites the lines of the last Draw.
func (a *Area) Draw(lines []string) {
	var out strings.Builder
	if a.drawn > 0 {
		fmt.Fprintf(&out, "\x1b[%dA", a.drawn)
	}
	for _, line := range lines {
		out.WriteString("\r" + line + "\x1b[K\n")
	}
	out.WriteString("\x1b[J")
	a.drawn = len(lines)
	io.WriteString(a, out.String()) //nolint:errcheck // A display that cannot be written to must not end the run.
}

// Say prints a line in place of the area; the next Draw is below it.
func (a *Area) Say(text string) {
	if a.drawn > 0 {
		fmt.Fprintf(a, "\x1b[%dA\r\x1b[J", a.drawn)
	}
	fmt.Fprintln(a, text)
	a.drawn = 0
}

// status is one line that is rewritten in place on a terminal; elsewhere each is a line of
// its own.
type status struct {
	Screen
	drawn bool
}

func (s *status) Show(text string) {
	if s.Size == nil {
		fmt.Fprintln(s, text)
		return
	}
	s.drawn = true
	fmt.Fprint(s, "\r"+Clip(text, s.Columns()-1)+"\x1b[K")
}

// Close removes the line from a terminal.
func (s *status) Close() {
	if s.drawn {
		fmt.Fprint(s, "\r\x1b[K")
	}
}
