package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/sluice-project/sluice/bench"
)

// The times of one measure of rooms.
const (
	askFor  = 2 * time.Second
	peakFor = 4 * time.Second
	halfFor = 5 * time.Second
)

// waitingLevels are the numbers of waiting visitors when positions are asked for.
var waitingLevels = []int{1_000, 100_000, 1_000_000}

// askClients are the numbers of clients in the seed: 10 at the table, 300 at Redis.
var askClients = []int{10, 300}

// takeWaiting fills the queues step by step, asks for positions at each step, and takes the other
// measures when the queues are longest.
func takeWaiting(ctx context.Context, e *bench.Environment, found *results) (err error) {
	hall, err := e.OpenHall(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hall.Close()) }()
	for _, waiting := range waitingLevels {
		filled, err := hall.FillTo(ctx, waiting)
		if err != nil {
			return err
		}
		if waiting == waitingLevels[len(waitingLevels)-1] {
			line := found.table("Filling the line", fmt.Sprintf("joins/s, from %s to %s waiting; %d clients",
				humanize.Comma(int64(waitingLevels[len(waitingLevels)-2])), humanize.Comma(int64(waiting)), bench.HallClients), rate)
			addRates(line, filled)
			if err := takeHallMemory(ctx, hall, found); err != nil {
				return err
			}
		}
		for _, clients := range askClients {
			asked, err := hall.Positions(ctx, clients, askFor)
			if err != nil {
				return err
			}
			addPositions(found, waiting, clients, asked)
		}
	}
	return takeHallLoads(ctx, hall, found)
}

func takeHallMemory(ctx context.Context, hall *bench.Hall, found *results) error {
	m, err := hall.Memory(ctx)
	if err != nil {
		return err
	}
	memory := found.table("Memory of 1,000,000 who wait", "MiB", mebibytes)
	for _, use := range []struct {
		name  string
		bytes int64
	}{
		{"embedded: resident set of sluice", m.Embedded}, {"Redis: used_memory", m.Redis},
		{"Redis: its resident set", m.RedisResident}, {"Redis: resident set of sluice", m.Process},
	} {
		memory.add(use.name, float64(use.bytes)/(1<<20))
	}
	return nil
}

func addRates(t *resultTable, all []bench.Served) {
	for _, served := range all {
		t.add(served.Name, served.Rate)
	}
}

func addPositions(found *results, waiting, clients int, asked []bench.Served) {
	title := fmt.Sprintf("Positions, %s waiting, %d clients", humanize.Comma(int64(waiting)), clients)
	rates := found.table(title, fmt.Sprintf("answers/s, each client asks again when it was answered; %s each", askFor), rate)
	medians := found.table(title+": median", "milliseconds", milliseconds)
	addRates(rates, asked)
	for _, served := range asked {
		medians.add(served.Name, inMilliseconds(served.Median))
	}
}

// takeHallLoads measures joins and positions at the peak, and at half of it, those of the floors too.
func takeHallLoads(ctx context.Context, hall *bench.Hall, found *results) error {
	if err := hall.OpenFloors(ctx); err != nil {
		return err
	}
	for _, joins := range []bool{true, false} {
		what := "Positions"
		measure := func() ([]bench.Served, error) { return hall.Positions(ctx, bench.HallClients, peakFor) }
		if joins {
			what, measure = "Joins", func() ([]bench.Served, error) { return hall.Joins(ctx, bench.HallClients, peakFor) }
		}
		peaks, err := measure()
		if err != nil {
			return err
		}
		addPeaks(found, what, peaks)
		half, err := hall.AtHalf(ctx, peaks, joins, halfFor)
		if err != nil {
			return err
		}
		medians := found.table(what+" at half of each one's peak: median", "milliseconds, from when each was due", milliseconds)
		p99 := found.table(what+" at half of each one's peak: p99", "milliseconds, from when each was due", milliseconds)
		for _, served := range half {
			medians.add(served.Name, inMilliseconds(served.Median))
			p99.add(served.Name, inMilliseconds(served.P99))
		}
	}
	return nil
}

func addPeaks(found *results, what string, peaks []bench.Served) {
	title := what + ", 1,000,000 waiting"
	rates := found.table(title, fmt.Sprintf("answers/s; %d clients, %s each", bench.HallClients, peakFor), rate)
	part := found.table(title+": part of a bare handler", "of the rate of a bare handler in the same run", share)
	cpu := found.table(title+": processor", "microseconds of the servers' processors for each answer", microseconds)
	addRates(rates, peaks)
	bare := 0.0
	for _, served := range peaks {
		if served.Name == bench.BareName {
			bare = served.Rate
		}
	}
	for _, served := range peaks {
		if served.Name != bench.BareName {
			part.add(served.Name, served.Rate/bare)
		}
		if served.CPU > 0 {
			cpu.add(served.Name, inMicroseconds(served.CPU))
		}
	}
}

func inMicroseconds(d time.Duration) float64 { return d.Seconds() * 1e6 }
