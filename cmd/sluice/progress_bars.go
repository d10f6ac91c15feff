package main

import (
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Bounds of the parts of a bar line, in columns.
const (
	nameColumns   = 16
	leastBar      = 8
	widestBar     = 60
	narrowestView = 40
)

// bars draws moments as lines of text.
type bars struct {
	// Width is the most columns of a line.
	Width int
	// Top is how many names get a line of their own; 0 is all.
	Top   int
	Paint paint
}

// Draw returns one line for each of the largest names, one for the rest, and
// two for all together.
func (b bars) Draw(m *moment) []string {
	rows := b.fold(m.Lines)
	if len(rows) > 1 {
		rows = append(rows, sum("all "+humanize.Comma(int64(len(m.Lines))), m.Lines))
	}
	lines := b.rows(rows)
	return append(lines, b.summary(m))
}

func (b bars) fold(lines []standing) []standing {
	keep := keepUnfolded(len(lines), b.Top)
	rows := append([]standing(nil), lines[:keep]...)
	if keep < len(lines) {
		rest := lines[keep:]
		rows = append(rows, sum("+"+humanize.Comma(int64(len(rest)))+" more", rest))
	}
	return rows
}

// rows draws standings below one another, in columns.
func (b bars) rows(rows []standing) []string {
	names, counts, notes := make([]string, len(rows)), make([]string, len(rows)), make([]string, len(rows))
	var nameWidth, countWidth, noteWidth int
	for i := range rows {
		names[i] = clip(printable(rows[i].Name), nameColumns)
		counts[i] = humanize.Comma(rows[i].Done()) + "/" + humanize.Comma(rows[i].Total)
		notes[i] = note(&rows[i])
		nameWidth = max(nameWidth, text.StringWidth(names[i]))
		countWidth = max(countWidth, 2*len(humanize.Comma(rows[i].Total))+1)
		noteWidth = max(noteWidth, text.StringWidth(notes[i]))
	}
	const percentWidth = 5
	nameWidth = min(nameWidth, b.Width-countWidth-percentWidth-2)
	fixed := nameWidth + 1 + 1 + countWidth + 1 + percentWidth
	noteWidth = min(max(noteWidth, len("9,999 failed")), b.Width-fixed-leastBar-2)
	barWidth := min(b.Width-fixed-2-max(noteWidth, 0), widestBar)
	lines := make([]string, len(rows))
	for i := range rows {
		line := left(clip(names[i], nameWidth), nameWidth)
		if barWidth >= leastBar {
			line += " " + b.bar(&rows[i], barWidth)
		}
		line += " " + right(counts[i], countWidth) + " " + right(percent(rows[i].Done(), rows[i].Total), percentWidth)
		if notes[i] != "" && noteWidth > 0 {
			line += "  " + b.Paint.with(text.FgRed, clip(notes[i], noteWidth))
		}
		lines[i] = line
	}
	return lines
}

// note is what is worth saying of a line besides its counts.
func note(s *standing) string {
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

// bar draws what succeeded, what ended otherwise, and what is left.
func (b bars) bar(s *standing, width int) string {
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
	return b.Paint.with(text.FgGreen, strings.Repeat("█", int(good))) +
		b.Paint.with(text.FgRed, strings.Repeat("▓", int(bad))) +
		b.Paint.with(text.FgGreen, edge) +
		b.Paint.with(text.FgHiBlack, strings.Repeat("░", int(empty)))
}

// summary is the line of figures below the bars: as many as fit.
func (b bars) summary(m *moment) string {
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

// figures spells how all together do, the most telling first.
func figures(m *moment) []string {
	parts := []string{spell(m.Elapsed), perSecond(m.Rate)}
	if left := m.Left(); left > 0 {
		parts = append(parts, spell(left)+" left")
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
