package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/sluice-project/sluice/bulk/redisstore"
)

// migrateTick is how often progress is shown: on a terminal in place, else in a line
// every migrateLine.
const (
	migrateTick = 250 * time.Millisecond
	migrateLine = 5 * time.Second
)

// staged tells how far staging is.
type staged interface {
	Progress() redisstore.ImportProgress
}

// watch runs the copying, and shows how far it is.
func (m *migration) watch(target staged, work func() error) error {
	return whileShown(m.err, work, func(rate func(int64) float64) string {
		p := target.Progress()
		return m.progress(p, rate(p.Jobs))
	})
}

// whileShown does work, and shows how far it is: on a terminal in place, else in a line
// now and then. A line is given what makes a rate per second of what was done so far.
func whileShown(on screen, work func() error, line func(rate func(done int64) float64) string) error {
	done := make(chan error, 1)
	go func() { done <- work() }()
	every := migrateLine
	if on.Size != nil {
		every = migrateTick
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	began, meter := time.Now(), rateMeter{}
	meter.Read(0, 0)
	rate := func(done int64) float64 { return meter.Read(time.Since(began), done) }
	for {
		select {
		case err := <-done:
			if on.Size != nil {
				fmt.Fprint(on, "\r\x1b[K")
			}
			return err
		case <-tick.C:
			text := line(rate)
			if on.Size != nil {
				fmt.Fprint(on, "\r"+clip(text, on.Columns()-1)+"\x1b[K")
			} else {
				fmt.Fprintln(on, text)
			}
		}
	}
}

// progress is one line of it.
func (m *migration) progress(p redisstore.ImportProgress, rate float64) string {
	parts := []string{
		fmt.Sprintf("%s/%s jobs (%s)", humanize.Comma(p.Jobs), humanize.Comma(m.summary.Jobs), percent(p.Jobs, m.summary.Jobs)),
		fmt.Sprintf("%s/%s actions", humanize.Comma(p.Actions), humanize.Comma(m.summary.Actions)),
		humanize.IBytes(uint64(p.Bytes)), perSecond(rate),
	}
	if rate > 0 {
		parts = append(parts, spell(time.Duration(float64(m.summary.Jobs-p.Jobs)/rate*float64(time.Second)))+" left")
	}
	return strings.Join(parts, " · ")
}

// table shows what was moved, or would be.
func (m *migration) table(r *migrated) {
	g := grid{Header: []string{"", "all", "unfinished"}, Left: map[int]bool{0: true}}
	row := func(what string, all, unfinished string) { g.Rows = append(g.Rows, []string{what, all, unfinished}) }
	row("actions", humanize.Comma(r.Actions), humanize.Comma(r.Unfinished))
	row("jobs", humanize.Comma(r.Jobs), humanize.Comma(r.Waiting))
	row("in flight", "", humanize.Comma(r.InFlight))
	row("dead letters", humanize.Comma(r.DeadLetters), "")
	row("events", humanize.Comma(r.Events), "")
	row("schedules", humanize.Comma(r.Schedules), "")
	row("settings", humanize.Comma(r.Settings), "")
	if elapsed := time.Duration(r.ElapsedMS) * time.Millisecond; !r.DryRun && !r.Before {
		row("payloads", humanize.IBytes(uint64(r.Bytes)), "")
		row("elapsed", spell(elapsed), "")
		row("rate", perSecond(float64(r.Jobs)/max(0.001, elapsed.Seconds())), "")
	}
	g.Write(m.out, m.out.Columns())
}
