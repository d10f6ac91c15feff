package top

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/sluice-project/sluice/internal/cli/term"
)

// lines returns a report for people: a line about the process, and a table for each list that has
// rows, with the first rows of each (0: all), in the given number of columns.
func (r *Report) lines(rows, columns int) []string {
	var out strings.Builder
	fmt.Fprintln(&out, term.Clip(r.Process.line(r.Seconds), columns))
	write := func(g *term.Grid) {
		if len(g.Rows) == 0 {
			return
		}
		hidden := 0
		if rows > 0 && len(g.Rows) > rows {
			hidden = len(g.Rows) - rows
			g.Rows = g.Rows[:rows]
		}
		fmt.Fprintln(&out)
		g.Write(&out, columns)
		if hidden > 0 {
			fmt.Fprintf(&out, "and %s\n", term.Plural(int64(hidden), "other", "others"))
		}
	}
	write(tenantGrid(r.Tenants))
	write(typeGrid(r.Types))
	if text := r.nonReadyText(); text != "" {
		fmt.Fprintln(&out, term.Clip(text, columns))
	}
	write(roomGrid(r.Rooms))
	write(topicGrid(r.Topics))
	write(groupGrid(r.Groups))
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

func (p *Process) line(seconds float64) string {
	return fmt.Sprintf("up %s · %.2f cores · %s · %s · %s of %s files · over %.1fs",
		term.Spell(time.Duration(p.UptimeSeconds*float64(time.Second))), p.CPU, humanize.IBytes(uint64(max(p.MemoryBytes, 0))),
		term.Counted(p.Connections, "connection"), humanize.Comma(p.OpenFiles), humanize.Comma(p.MaxFiles), seconds)
}

func (r *Report) nonReadyText() string {
	var parts []string
	for _, reason := range slices.Sorted(maps.Keys(r.NonReady)) {
		if n := r.NonReady[reason]; n > 0 {
			parts = append(parts, humanize.Comma(n)+" "+reason)
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "not ready: " + strings.Join(parts, ", ")
}

func tenantGrid(tenants []Tenant) *term.Grid {
	g := &term.Grid{Header: []string{"tenant", "succeeded", "failed", "rate limited", "finished"}, Left: map[int]bool{0: true}}
	for _, t := range tenants {
		g.Rows = append(g.Rows, []string{term.Printable(t.Tenant), term.PerSecond(t.SucceededPerSecond), term.PerSecond(t.FailedPerSecond), term.PerSecond(t.LimitedPerSecond), humanize.Comma(t.Finished)})
	}
	return g
}

func typeGrid(types []Type) *term.Grid {
	g := &term.Grid{Header: []string{"job type", "attempts", "in flight", "ready", "waiting"}, Left: map[int]bool{0: true}}
	for _, t := range types {
		g.Rows = append(g.Rows, []string{term.Printable(t.Type), term.PerSecond(t.AttemptsPerSecond), humanize.Comma(t.InFlight), humanize.Comma(t.Ready), humanize.Comma(t.Waiting)})
	}
	return g
}

func roomGrid(rooms []Room) *term.Grid {
	g := &term.Grid{Header: []string{"room", "entered", "let in", "inside", "waiting"}, Left: map[int]bool{0: true}}
	for _, r := range rooms {
		g.Rows = append(g.Rows, []string{term.Printable(r.Room), term.PerSecond(r.EnteredPerSecond), term.PerSecond(r.AdmittedPerSecond), humanize.Comma(r.Inside), humanize.Comma(r.Waiting)})
	}
	return g
}

func topicGrid(topics []Topic) *term.Grid {
	g := &term.Grid{Header: []string{"topic", "written", "partitions", "records", "size"}, Left: map[int]bool{0: true}}
	for _, t := range topics {
		g.Rows = append(g.Rows, []string{term.Printable(t.Topic), term.PerSecond(t.RecordsPerSecond), humanize.Comma(int64(t.Partitions)), humanize.Comma(t.Records), humanize.IBytes(uint64(max(t.Bytes, 0)))})
	}
	return g
}

func groupGrid(groups []Group) *term.Grid {
	g := &term.Grid{Header: []string{"group", "topic", "committed", "lag"}, Left: map[int]bool{0: true, 1: true}}
	for _, of := range groups {
		g.Rows = append(g.Rows, []string{term.Printable(of.Group), term.Printable(of.Topic), term.PerSecond(of.CommittedPerSecond), humanize.Comma(of.Lag)})
	}
	return g
}
