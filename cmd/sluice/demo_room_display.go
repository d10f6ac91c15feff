package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// roomFigures is how a room of the demo does at one moment.
type roomFigures struct {
	Name string
	// Capacity is how many may be inside, also in a park.
	Capacity, Inside, Waiting int64
	// Served of Visitors have been inside, and are gone.
	Served, Visitors int64
}

// roomMoment is how all do.
type roomMoment struct {
	Elapsed time.Duration
	Rooms   []roomFigures
}

// roomsDisplay shows how the rooms do. Show is called often, Close once.
type roomsDisplay interface {
	Show(m *roomMoment)
	Close(m *roomMoment)
}

// roomsDisplayOn chooses the display that fits, as displayOn does.
func roomsDisplayOn(d *demo) roomsDisplay {
	switch {
	case d.flags.json:
		return silentRooms{}
	case d.err.Size == nil:
		return &roomLines{w: d.err, every: time.Second}
	}
	return &roomBars{barDisplay{screen: d.err}}
}

type silentRooms struct{}

func (silentRooms) Show(*roomMoment)  {}
func (silentRooms) Close(*roomMoment) {}

// roomBars redraws three bars for each room in place.
type roomBars struct{ barDisplay }

// Show implements roomsDisplay.
func (d *roomBars) Show(m *roomMoment) {
	columns, _ := d.screen.Size()
	b := bars{Width: max(columns, narrowestView) - 1, Paint: paint(d.screen.Color)}
	var rows []standing
	for i := range m.Rooms {
		f := &m.Rooms[i]
		rows = append(rows,
			standing{Name: f.Name + " inside", Total: f.Capacity, Succeeded: f.Inside},
			standing{Name: f.Name + " waiting", Total: f.Visitors, Succeeded: f.Waiting},
			standing{Name: f.Name + " served", Total: f.Visitors, Succeeded: f.Served})
	}
	d.redraw(append(b.rows(rows), spell(m.Elapsed)))
}

// Close implements roomsDisplay.
func (d *roomBars) Close(m *roomMoment) { d.Show(m) }

// roomLines writes a plain line now and then.
type roomLines struct {
	w     screen
	every time.Duration
	last  time.Duration
	wrote bool
}

// Show implements roomsDisplay.
func (d *roomLines) Show(m *roomMoment) {
	if !d.wrote || m.Elapsed-d.last >= d.every {
		d.write(m)
	}
}

// Close implements roomsDisplay.
func (d *roomLines) Close(m *roomMoment) { d.write(m) }

func (d *roomLines) write(m *roomMoment) {
	d.last, d.wrote = m.Elapsed, true
	parts := []string{spell(m.Elapsed)}
	for i := range m.Rooms {
		f := &m.Rooms[i]
		parts = append(parts, fmt.Sprintf("%s %s/%s inside, %s waiting, %s served", f.Name, humanize.Comma(f.Inside),
			humanize.Comma(f.Capacity), humanize.Comma(f.Waiting), humanize.Comma(f.Served)))
	}
	fmt.Fprintln(d.w, strings.Join(parts, " · "))
}
