package demo

import (
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/sluice-project/sluice/internal/cli/term"
)

// roomFigures has the counts of a room at one moment.
type roomFigures struct {
	Name string
	// Capacity is the most visitors inside, in a park as well.
	Capacity, Inside, Waiting int64
	// Served of Visitors have ended their visit.
	Served, Visitors int64
}

// roomMoment has the counts of all rooms.
type roomMoment struct {
	Elapsed time.Duration
	Rooms   []roomFigures
}

// roomsDisplayOn returns a display of the state of the rooms, with three bars for each.
func roomsDisplayOn(s term.Screen, quiet bool) *term.Display[*roomMoment] {
	bars := func(m *roomMoment, columns, _ int) []string {
		b := term.Bars{Width: columns, Paint: term.Paint(s.Color)}
		var rows []term.Standing
		for i := range m.Rooms {
			f := &m.Rooms[i]
			rows = append(rows,
				term.Standing{Name: f.Name + " inside", Total: f.Capacity, Succeeded: f.Inside},
				term.Standing{Name: f.Name + " waiting", Total: f.Visitors, Succeeded: f.Waiting},
				term.Standing{Name: f.Name + " served", Total: f.Visitors, Succeeded: f.Served})
		}
		return append(b.Rows(rows), term.Spell(m.Elapsed))
	}
	line := func(m *roomMoment) string {
		parts := []string{term.Spell(m.Elapsed)}
		for i := range m.Rooms {
			f := &m.Rooms[i]
			parts = append(parts, fmt.Sprintf("%s %s/%s inside, %s waiting, %s served", f.Name, humanize.Comma(f.Inside),
				humanize.Comma(f.Capacity), humanize.Comma(f.Waiting), humanize.Comma(f.Served)))
		}
		return strings.Join(parts, " · ")
	}
	return term.NewDisplay(s, quiet, func(m *roomMoment) time.Duration { return m.Elapsed }, bars, line)
}
