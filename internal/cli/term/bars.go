package term

import (
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Bounds of the parts of a bar line, in columns.
const (
	nameColumns   = 16
	LeastBar      = 8
	WidestBar     = 60
	NarrowestView = 40
)

// Bars draws moments as lines of text.
type Bars struct {
	// Width is the most columns of a line.
	Width int
	// Top is how many names get a line of their own; 0 is all.
	Top   int
	Paint Paint
}

// Draw returns one line for each of the largest names, one for the rest, and
// two for all together.
func (b Bars) Draw(m *Moment) []string {
	rows := b.fold(m.Lines)
	if len(rows) > 1 {
		rows = append(rows, Sum("all "+humanize.Comma(int64(len(m.Lines))), m.Lines))
	}
	lines := b.Rows(rows)
	return append(lines, b.summary(m))
}

func (b Bars) fold(lines []Standing) []Standing {
	keep := KeepUnfolded(len(lines), b.Top)
	rows := append([]Standing(nil), lines[:keep]...)
	if keep < len(lines) {
		rest := lines[keep:]
		rows = append(rows, Sum("+"+humanize.Comma(int64(len(rest)))+" more", rest))
	}
	return rows
}

// Rows draws standings below one another, in columns.
func (b Bars) Rows(rows []Standing) []string {
	names, counts, notes := make([]string, len(rows)), make([]string, len(rows)), make([]string, len(rows))
	var nameWidth, countWidth, noteWidth int
	for i := range rows {
		names[i] = Clip(Printable(rows[i].Name), nameColumns)
		counts[i] = humanize.Comma(rows[i].Done()) + "/" + humanize.Comma(rows[i].Total)
		notes[i] = note(&rows[i])
		nameWidth = max(nameWidth, text.StringWidth(names[i]))
		countWidth = max(countWidth, 2*len(humanize.Comma(rows[i].Total))+1)
		noteWidth = max(noteWidth, text.StringWidth(notes[i]))
	}
	const percentWidth = 5
	nameWidth = min(nameWidth, b.Width-countWidth-percentWidth-2)
	fixed := nameWidth + 1 + 1 + countWidth + 1 + percentWidth
	noteWidth = min(max(noteWidth, len("9,999 failed")), b.Width-fixed-LeastBar-2)
	barWidth := min(b.Width-fixed-2-max(noteWidth, 0), WidestBar)
	lines := make([]string, len(rows))
	for i := range rows {
		line := Left(Clip(names[i], nameWidth), nameWidth)
		if barWidth >= LeastBar {
			line += " " + b.Bar(&rows[i], barWidth)
		}
		line += " " + Right(counts[i], countWidth) + " " + Right(Percent(rows[i].Done(), rows[i].Total), percentWidth)
		if notes[i] != "" && noteWidth > 0 {
			line += "  " + b.Paint.With(text.FgRed, Clip(notes[i], noteWidth))
		}
		lines[i] = line
	}
	return lines
}

// note returns what a line shows besides its counts.
func note(s *Standing) string {
	var parts []string
	if s.Note != "" {
		parts = append(parts, strings.ToLower(s.Note))
	}
	if s.Failed > 0 {
		parts = append(parts, humanize.Comma(s.Failed)+" failed")
	}
	return strings.Join(parts, ", ")
}

// eighths are the blocks that fill a cell in part.
var eighths = [8]string{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"}

// Bar draws the jobs that succeeded, those that ended otherwise, and the rest.
func (b Bars) Bar(s *Standing, width int) string {
	if s.Total <= 0 {
		return strings.Repeat("░", width)
	}
	cells := func(part int64) int64 { return part * int64(width) * 8 / s.Total }
	done, bad := cells(s.Done()), cells(s.Failed+s.Canceled)/8
	good := done/8 - bad
	edge := eighths[done%8]
	empty := int64(width) - done/8
	if edge != "" {
		empty--
	}
	return b.Paint.With(text.FgGreen, strings.Repeat("█", int(good))) +
		b.Paint.With(text.FgRed, strings.Repeat("▓", int(bad))) +
		b.Paint.With(text.FgGreen, edge) +
		b.Paint.With(text.FgHiBlack, strings.Repeat("░", int(empty)))
}

// summary returns the line of figures below the bars: as many as fit.
func (b Bars) summary(m *Moment) string {
	line := ""
	for i, figure := range figures(m) {
		if i > 0 {
			figure = " · " + figure
		}
		if text.StringWidth(line+figure) > b.Width {
			break
		}
		line += figure
	}
	return line
}

// figures returns the figures of all jobs, the most important first.
func figures(m *Moment) []string {
	parts := []string{Spell(m.Elapsed), PerSecond(m.Rate)}
	if left := m.Left(); left > 0 {
		parts = append(parts, Spell(left)+" left")
	}
	for _, figure := range []struct {
		name  string
		count int64
	}{
		{"in flight", m.All.InFlight}, {"throttled", m.All.Throttled},
		{"retried", m.All.Retried}, {"failed", m.All.Failed},
	} {
		if figure.count > 0 {
			parts = append(parts, humanize.Comma(figure.count)+" "+figure.name)
		}
	}
	return parts
}
