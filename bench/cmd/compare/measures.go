package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/sluice-project/sluice/bench"
)

// enqueueFor is how long producers enqueue in one measure: long enough that sluice's store has to
// compact in that time. Two seconds would put most of that off, and look almost twice as fast.
const enqueueFor = 10 * time.Second

// memoryBatches are 1,000,000 jobs.
const memoryBatches = 1000

// taker takes one measure of every suitable system, and adds the results to the tables.
type taker struct {
	part, name string
	take       func(context.Context, *bench.Environment, *results) error
}

// The parts that have measures.
const (
	bulkPart      = "bulk"
	bulkRedisPart = "bulk-redis"
	topicPart     = "topic"
	// topicClusterPart is separate: it takes long, and six processes.
	topicClusterPart = "topic-cluster"
	roomPart         = "room"
)

var parts = []string{bulkPart, bulkRedisPart, topicPart, topicClusterPart, roomPart}

var takers = []taker{
	{bulkPart, "enqueue", takeEnqueue}, {bulkPart, "enqueue-one", takeEnqueueOne}, {bulkPart, "run", takeRun}, {bulkPart, "load", takeLoad}, {bulkPart, "memory", takeMemory},
	{bulkRedisPart, "redis-enqueue", takeRedisEnqueue}, {bulkRedisPart, "redis-enqueue-one", takeRedisEnqueueOne}, {bulkRedisPart, "redis-run", takeRedisRun},
	{topicPart, "produce", takeProduce}, {topicPart, "produce-defaults", takeProduceDefaults},
	{topicPart, "produce-large", takeProduceLarge}, {topicPart, "produce-many", takeProduceMany}, {topicPart, "latency", takeLatency},
	{topicPart, "settings", takeSettings}, {topicPart, "view", takeView}, {topicPart, "delay", takeDelay}, {topicPart, "queue", takeQueue},
	{topicClusterPart, "replicas", takeReplicas},
	{roomPart, "waiting", takeWaiting}, {roomPart, "streams", takeStreams}, {roomPart, "counting", takeCounting},
}

// names returns the names of all measures and parts.
func names() (names []string) {
	names = slices.Clone(parts)
	for _, t := range takers {
		names = append(names, t.name)
	}
	return names
}

// wanted returns the measures that are named, or whose part is.
func wanted(only []string) (measures []taker, err error) {
	for _, name := range only {
		if !slices.Contains(names(), name) {
			return nil, fmt.Errorf("-only: there is no measure %q: want some of %s", name, strings.Join(names(), ","))
		}
	}
	for _, t := range takers {
		if slices.Contains(only, t.name) || slices.Contains(only, t.part) {
			measures = append(measures, t)
		}
	}
	return measures, nil
}

// takeAll takes every measure, runs times.
func takeAll(ctx context.Context, e *bench.Environment, o options, progress io.Writer) ([]*resultTable, error) {
	found := &results{}
	for run := range o.runs {
		for _, t := range o.measures {
			if _, err := fmt.Fprintf(progress, "run %d of %d: %s\n", run+1, o.runs, t.name); err != nil {
				return found.tables, err
			}
			if err := t.take(ctx, e, found); err != nil {
				return found.tables, err
			}
		}
	}
	return found.tables, nil
}

// enqueueUnit is the unit of enqueue rates.
var enqueueUnit = fmt.Sprintf("jobs/s; batches of 1,000 jobs of 100 bytes from %d producers, for %s", bench.Producers, enqueueFor)

func takeEnqueue(ctx context.Context, e *bench.Environment, found *results) error {
	return enqueueInto(ctx, found.table("Durable enqueue", enqueueUnit, rate), e.Systems())
}

func takeRedisEnqueue(ctx context.Context, e *bench.Environment, found *results) error {
	for _, appendfsync := range bench.Appendfsyncs {
		rates := found.table("Enqueue into Redis, appendfsync "+appendfsync, enqueueUnit, rate)
		if err := enqueueInto(ctx, rates, e.RedisSystems(appendfsync)); err != nil {
			return err
		}
	}
	return nil
}

func enqueueInto(ctx context.Context, rates *resultTable, systems []bench.System) error {
	for _, system := range systems {
		if system.EnqueuesAsOther {
			continue
		}
		measured, err := bench.Enqueue(ctx, system, bench.For(enqueueFor))
		if err != nil {
			return err
		}
		rates.add(system.Name, measured.PerSecond())
	}
	return nil
}

var enqueueOneUnit = fmt.Sprintf("jobs/s; jobs of 100 bytes, one at a time, from %d callers, for %s", bench.Callers, enqueueFor)

func takeEnqueueOne(ctx context.Context, e *bench.Environment, found *results) error {
	return enqueueOneInto(ctx, found.table("Durable enqueue of single jobs", enqueueOneUnit, rate), e.Systems())
}

func takeRedisEnqueueOne(ctx context.Context, e *bench.Environment, found *results) error {
	for _, appendfsync := range bench.Appendfsyncs {
		rates := found.table("Enqueue of single jobs into Redis, appendfsync "+appendfsync, enqueueOneUnit, rate)
		if err := enqueueOneInto(ctx, rates, e.RedisSystems(appendfsync)); err != nil {
			return err
		}
	}
	return nil
}

func enqueueOneInto(ctx context.Context, rates *resultTable, systems []bench.System) error {
	for _, system := range systems {
		if system.EnqueuesAsOther {
			continue
		}
		measured, err := bench.EnqueueOne(ctx, system, bench.For(enqueueFor))
		if err != nil {
			return err
		}
		rates.add(system.Name, measured.PerSecond())
	}
	return nil
}

// The units of Run's measurements.
const (
	workedUnit = "jobs/s from the start of the workers until every job is recorded as done; all are enqueued before"
	wholeUnit  = "jobs/s from the first enqueue until every job is recorded as done, of the same jobs"
)

func takeRun(ctx context.Context, e *bench.Environment, found *results) error {
	worked := found.table("No-op jobs, worked off", workedUnit, rate)
	whole := found.table("No-op jobs, from end to end", wholeUnit, rate)
	return runInto(ctx, worked, whole, e.Systems())
}

func takeRedisRun(ctx context.Context, e *bench.Environment, found *results) error {
	for _, appendfsync := range bench.Appendfsyncs {
		worked := found.table("No-op jobs in Redis, worked off, appendfsync "+appendfsync, workedUnit, rate)
		whole := found.table("No-op jobs in Redis, from end to end, appendfsync "+appendfsync, wholeUnit, rate)
		if err := runInto(ctx, worked, whole, e.RedisSystems(appendfsync)); err != nil {
			return err
		}
	}
	return nil
}

func runInto(ctx context.Context, worked, whole *resultTable, systems []bench.System) error {
	for _, system := range systems {
		ran, err := bench.Run(ctx, system, system.RunBatches)
		if err != nil {
			return err
		}
		worked.add(system.Title(), ran.Worked.PerSecond())
		whole.add(system.Title(), ran.Whole.PerSecond())
	}
	return nil
}

func takeLoad(ctx context.Context, e *bench.Environment, found *results) error {
	load := fmt.Sprintf("%d tenants at %d jobs/s each, %d jobs each: ideal %s", bench.LoadTenants, bench.LoadRate, bench.LoadJobs, bench.LoadIdeal)
	makespan := found.table("Tenants at their rate: makespan over ideal", load, share)
	throttles := found.table("Tenants at their rate: throttles per job", load, share)
	for _, system := range e.Systems() {
		if system.SlowAtLoad {
			continue
		}
		measured, err := bench.Load(ctx, system)
		if err != nil {
			return err
		}
		makespan.add(system.Title(), measured.OverIdeal())
		throttles.add(system.Title(), measured.Throttles)
	}
	return nil
}

func takeMemory(ctx context.Context, e *bench.Environment, found *results) error {
	memory := found.table("Memory with 1,000,000 waiting jobs of 100 bytes",
		"MiB of the process that has sluice embedded", mebibytes)
	used, err := e.Memory(ctx, memoryBatches)
	if err != nil {
		return err
	}
	memory.add("resident", float64(used.Resident)/(1<<20))
	memory.add("resident at its peak", float64(used.Peak)/(1<<20))
	return nil
}
