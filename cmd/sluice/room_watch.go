package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/client"
)

// roomWatchInterval is how often a room is asked for while it is watched.
const roomWatchInterval = time.Second

// watch shows a room until ctx ends.
func (r *roomRemote) watch(ctx context.Context, of *client.Room) error {
	shown := &roomDisplay{screen: r.out}
	return watchRoom(ctx, of, r.Room, func(of *client.Room) error {
		if r.json {
			return r.writeJSON(of)
		}
		shown.Show(of)
		return nil
	})
}

// watchRoom calls show with a room, and with what ask returns of it at each
// interval, until ctx ends.
func watchRoom(ctx context.Context, of *client.Room, ask func(ctx context.Context, name string) (client.Room, error), show func(*client.Room) error) error {
	ticks := time.NewTicker(roomWatchInterval)
	defer ticks.Stop()
	for {
		if err := show(of); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
		next, err := ask(ctx, of.Name)
		if ctx.Err() != nil {
			return nil // Ctrl-C is how watching ends.
		}
		if err != nil {
			return err
		}
		of = &next
	}
}

// roomDisplay draws a room: on a terminal in place, else a line each time.
type roomDisplay struct {
	screen screen
	drawn  int
	// longest is the longest line of people so far: what its bar is part of.
	longest int64
}

// Show draws a room.
func (d *roomDisplay) Show(of *client.Room) {
	d.longest = max(d.longest, of.Waiting, 1)
	if d.screen.Size == nil {
		fmt.Fprintf(d.screen, "%s · %s · %s inside · %s waiting · %s\n", printable(of.Name), of.State,
			insideText(of), humanize.Comma(of.Waiting), outflow(of))
		return
	}
	var out strings.Builder
	if d.drawn > 0 {
		fmt.Fprintf(&out, "\x1b[%dA", d.drawn)
	}
	lines := d.lines(of, d.screen.Columns()-1)
	for _, line := range lines {
		out.WriteString("\r" + line + "\x1b[K\n")
	}
	d.drawn = len(lines)
	io.WriteString(d.screen, out.String()) //nolint:errcheck // A display that cannot be written to must not end the command.
}

// lines draws a room in so many columns.
func (d *roomDisplay) lines(of *client.Room, columns int) []string {
	b := bars{Width: columns, Paint: paint(d.screen.Color)}
	inside := standing{Total: roomMost(of)}
	inside.Succeeded = min(of.Inside, inside.Total)
	waiting := standing{Total: d.longest}
	waiting.Succeeded = of.Waiting
	counts := []string{insideText(of), humanize.Comma(of.Waiting)}
	width := max(len(counts[0]), len(counts[1]))
	bar := min(columns-len("waiting")-width-2, widestBar)
	lines := []string{clip(fmt.Sprintf("%s · %s · %s", printable(of.Name), of.State, letsIn(of)), columns)}
	for i, s := range []*standing{&inside, &waiting} {
		line := left([]string{"inside", "waiting"}[i], len("waiting"))
		if bar >= leastBar {
			line += " " + b.bar(s, bar)
		}
		lines = append(lines, line+" "+right(counts[i], width))
	}
	return append(lines, clip(fmt.Sprintf("%s let in, %s", humanize.Comma(of.AdmittedTotal), outflow(of)), columns))
}

// roomMost is how many can be inside: the capacity, or as many batches as overlap.
func roomMost(of *client.Room) int64 {
	s := &of.Settings
	if s.Mode != room.Park || s.Interval <= 0 {
		return max(s.Capacity, 1)
	}
	return max(s.Batch*int64((s.Stay+s.Interval-1)/s.Interval), 1)
}

func insideText(of *client.Room) string {
	return humanize.Comma(of.Inside) + "/" + humanize.Comma(roomMost(of))
}
