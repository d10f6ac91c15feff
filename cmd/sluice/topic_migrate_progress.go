package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/sluice-project/sluice/topic/move"
)

// watch runs a mover, and shows how far it is.
func (m *topicMigration) watch(ctx context.Context, mover *move.Mover) (result move.Result, err error) {
	err = whileShown(m.err, func() (err error) {
		result, err = mover.Run(ctx)
		return err
	}, func(rate func(int64) float64) string {
		p := mover.Progress()
		return moveProgress(p, rate(p.Bytes))
	})
	return result, err
}

// moveProgress is one line of it; the rate is in bytes per second.
func moveProgress(p move.Progress, rate float64) string {
	parts := []string{
		string(p.Phase),
		fmt.Sprintf("%s/%s (%s)", humanize.IBytes(uint64(p.Bytes)), humanize.IBytes(uint64(p.Total)), percent(min(p.Bytes, p.Total), p.Total)),
		humanize.Comma(p.Entries) + " entries",
		humanize.IBytes(uint64(max(rate, 0))) + "/s",
	}
	if p.Pause > 0 {
		parts = append(parts, "paused for "+spell(p.Pause))
	}
	return strings.Join(parts, " · ")
}

// table shows what was moved, or would be.
func (m *topicMigration) table(r *movedTopics) {
	g := grid{Header: []string{"", ""}, Left: map[int]bool{0: true}}
	row := func(what, value string) { g.Rows = append(g.Rows, []string{what, value}) }
	row("topics", humanize.Comma(int64(r.Topics)))
	row("partitions", humanize.Comma(int64(r.Partitions)))
	row("records", humanize.Comma(r.Records))
	row("bytes", humanize.IBytes(uint64(r.Bytes)))
	row("groups", humanize.Comma(int64(r.Groups)))
	row("producers", humanize.Comma(int64(r.Producers)))
	if r.Replicas > 0 {
		row("replicas", strconv.Itoa(r.Replicas))
	}
	if elapsed := time.Duration(r.ElapsedMS) * time.Millisecond; !r.DryRun && !r.Before {
		row("copied", humanize.IBytes(uint64(r.CopiedBytes)))
		row("elapsed", spell(elapsed))
		row("rate", humanize.IBytes(uint64(float64(r.CopiedBytes)/max(0.001, elapsed.Seconds())))+"/s")
		row("pause", spell(time.Duration(r.PauseMS)*time.Millisecond))
	}
	g.Write(m.out, m.out.Columns())
}
