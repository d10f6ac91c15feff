package room

import (
	"context"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/sluice-project/sluice/internal/cli/term"
	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/client"
)

// roomWatchInterval is the interval between two requests while a room is watched.
const roomWatchInterval = time.Second

// watch shows a room until ctx ends.
func (r *session) watch(ctx context.Context, of *client.Room) error {
	shown := &roomDisplay{Area: term.Area{Screen: r.Out}}
	return watchRoom(ctx, of, r.Room, func(of *client.Room) error {
		if r.JSON {
			return r.WriteJSON(of)
		}
		shown.Show(of)
		return nil
	})
}

// watchRoom calls show with a room, and then at each interval with the result of ask, until ctx
// ends.
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
			return nil // Watching ends with Ctrl-C.
		}
		if err != nil {
			return err
		}
		of = &next
	}
}

// roomDisplay draws a room: on a terminal in place, otherwise as a line each time.
type roomDisplay struct {
	term.Area
	// longest is the longest queue so far; it is the full width of the queue's bar.
	longest int64
}

// Show draws a room.
func (d *roomDisplay) Show(of *client.Room) {
	d.longest = max(d.longest, of.Waiting, 1)
	if d.Size == nil {
		fmt.Fprintf(d, "%s · %s · %s inside · %s waiting · %s\n", term.Printable(of.Name), of.State,
			insideText(of), humanize.Comma(of.Waiting), outflow(of))
		return
	}
	d.Draw(d.lines(of, d.Columns()-1))
}

// lines draws a room in the given number of columns.
func (d *roomDisplay) lines(of *client.Room, columns int) []string {
	b := term.Bars{Width: columns, Paint: term.Paint(d.Color)}
	inside := term.Standing{Total: roomMost(of)}
	inside.Succeeded = min(of.Inside, inside.Total)
	waiting := term.Standing{Total: d.longest}
	waiting.Succeeded = of.Waiting
	counts := []string{insideText(of), humanize.Comma(of.Waiting)}
	width := max(len(counts[0]), len(counts[1]))
	bar := min(columns-len("waiting")-width-2, term.WidestBar)
	lines := []string{term.Clip(fmt.Sprintf("%s · %s · %s", term.Printable(of.Name), of.State, letsIn(of)), columns)}
	for i, s := range []*term.Standing{&inside, &waiting} {
		line := term.Left([]string{"inside", "waiting"}[i], len("waiting"))
		if bar >= term.LeastBar {
			line += " " + b.Bar(s, bar)
		}
		lines = append(lines, line+" "+term.Right(counts[i], width))
	}
	return append(lines, term.Clip(fmt.Sprintf("%s let in, %s", humanize.Comma(of.AdmittedTotal), outflow(of)), columns))
}

// roomMost returns the most visitors inside: the capacity, or the sum of the batches that overlap.
func roomMost(of *client.Room) int64 {
	s := &of.Settings
	if s.Mode != room.Park || s.Interval <= 0 {
		return max(of.Limit(), 1)
	}
	return max(of.Limit()*int64((s.Stay+s.Interval-1)/s.Interval), 1)
}

func insideText(of *client.Room) string {
	return humanize.Comma(of.Inside) + "/" + humanize.Comma(roomMost(of))
}
