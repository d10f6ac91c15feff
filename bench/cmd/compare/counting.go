package main

import (
	"context"
	"fmt"

	"github.com/dustin/go-humanize"

	"github.com/sluice-project/sluice/bench"
)

// insideLevels are the numbers of visitors inside when a way of counting is measured.
var insideLevels = []int{1_000, 10_000, 100_000}

func takeCounting(ctx context.Context, e *bench.Environment, found *results) error {
	for _, inside := range insideLevels {
		grid := fmt.Sprintf("Counting who is inside: %s", humanize.Comma(int64(inside)))
		column := func(title, head string, u unit) *resultTable {
			return found.table(grid+", "+title, title, u).in(grid, head)
		}
		server := column("a decision, time of Redis", "a decision: µs of Redis", microseconds)
		wall := column("a decision", "µs until it is answered", microseconds)
		expireServer := column("1,000 end, time of Redis", "1,000 end: ms of Redis", milliseconds)
		expire := column("1,000 end", "ms until they are counted", milliseconds)
		late := column(fmt.Sprintf("of 1,000 who ended still counted after %s", bench.GoneWithin), fmt.Sprintf("still counted after %s", bench.GoneWithin), whole)
		over := column("above the capacity, with ten admitters at once", "ten admitters: above the capacity", whole)
		for _, way := range bench.CountingWays {
			counted, err := e.Counting(ctx, way, inside)
			if err != nil {
				return err
			}
			server.add(way, inMicroseconds(counted.AdmitServer))
			wall.add(way, inMicroseconds(counted.Admit))
			expireServer.add(way, inMilliseconds(counted.ExpireServer))
			expire.add(way, inMilliseconds(counted.Expire))
			late.add(way, float64(counted.Late))
			over.add(way, float64(counted.Over))
		}
	}
	return takeDrift(ctx, e, found)
}

func takeDrift(ctx context.Context, e *bench.Environment, found *results) error {
	grid := fmt.Sprintf("Counting who is inside: half of %s leave while those who count fail", humanize.Comma(bench.DriftCapacity))
	wrong := found.table("Drift: count above the truth", "visitors", whole).in(grid, "count above the truth")
	inside := found.table("Drift: inside then", "visitors", whole).in(grid, "inside, once the next were let in")
	drifts := []struct {
		name    string
		measure func() (bench.Drift, error)
	}{
		{"counter, one subscriber", func() (bench.Drift, error) { return e.CountingDrift(ctx, 1) }},
		{"counter, the subscriber was away for 3 s", func() (bench.Drift, error) { return e.CountingDrift(ctx, 0) }},
		{"counter, two instances subscribe", func() (bench.Drift, error) { return e.CountingDrift(ctx, 2) }},
		{"sluice, all instances were away", func() (bench.Drift, error) { return e.RoomDrift(ctx) }},
	}
	for _, d := range drifts {
		drift, err := d.measure()
		if err != nil {
			return err
		}
		wrong.add(d.name, float64(drift.Wrong))
		inside.add(d.name, float64(drift.Inside))
	}
	return nil
}

// streamCounts are the numbers of open streams when their memory is read.
var streamCounts = []int{5_000, 10_000, 15_000}

func takeStreams(ctx context.Context, e *bench.Environment, found *results) error {
	each := found.table("Open event streams: memory of each", "KiB that sluice's resident set has grown by, for each stream", kibibytes)
	all := found.table("Open event streams: memory", "MiB, resident set of sluice", mebibytes)
	streams, err := e.Streams(ctx, streamCounts)
	if err != nil {
		return err
	}
	for _, s := range streams {
		name := humanize.Comma(int64(s.Open)) + " open"
		each.add(name, float64(s.Each)/(1<<10))
		all.add(name, float64(s.Resident)/(1<<20))
	}
	return nil
}
