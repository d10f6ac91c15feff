package main

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-project/sluice/bench"
)

// replicasFor is the time of each measure of a cluster: three runs of all take less than four
// minutes.
const replicasFor = 2500 * time.Millisecond

// besideTitle is the title of the table of ratios of sluice to JetStream in the same run.
const besideTitle = "Three replicas: sluice over JetStream"

// takeReplicas measures JetStream first, since sluice is measured at half of JetStream's peak too:
// half of its own is more than JetStream can do.
func takeReplicas(ctx context.Context, e *bench.Environment, found *results) error {
	clusters := e.Clusters()
	sluice, jetStream := clusters[0], clusters[1]
	theirs, err := bench.Replicate(ctx, jetStream, 0, replicasFor)
	if err != nil {
		return err
	}
	ours, err := bench.Replicate(ctx, sluice, theirs.Small[0].Sent.PerSecond()/2, replicasFor)
	if err != nil {
		return err
	}
	theirs.Same = theirs.Half
	beside(found) // above the tables of its numbers
	for i, partitions := range bench.ClusterPartitions {
		addReplicated(found, bench.ClusterSmall, partitions, ours.Small[i], theirs.Small[i])
		addReplicated(found, bench.ClusterLarge, partitions, ours.Large[i], theirs.Large[i])
	}
	addReplicatedLatency(found, "one record at a time", ours.Alone, theirs.Alone)
	addReplicatedLatency(found, "at half of each one's peak", ours.Half, theirs.Half)
	addReplicatedLatency(found, "at half of JetStream's peak", ours.Same, theirs.Same)
	return nil
}

// addReplicated adds records of a size; large ones count by their bytes.
func addReplicated(found *results, bytes, partitions int, ours, theirs bench.Produced) {
	stream := fmt.Sprintf("%d bytes, partitions: %d", bytes, partitions)
	title := "Three replicas, produce, " + stream
	records := found.table(title, produceWhat+"with a majority of three nodes; "+uncompress, rate).in(title, "records/s")
	volume := found.table(title+": bytes", "megabytes of values in a second", rate).in(title, "MB/s")
	cpu := found.table(title+": processor", "microseconds of a processor that the three nodes used for a record", microseconds).in(title, "µs of a processor")
	for _, of := range []struct {
		name string
		bench.Produced
	}{{"sluice", ours}, {bench.JetStreamName, theirs}} {
		records.add(of.name, of.Sent.PerSecond())
		volume.add(of.name, of.Sent.PerSecond()*float64(bytes)/1e6)
		cpu.add(of.name, inMicroseconds(of.SentCPU)/float64(of.Sent.Jobs))
	}
	beside(found).add("produce, "+stream, ours.Sent.PerSecond()/theirs.Sent.PerSecond())
}

func addReplicatedLatency(found *results, how string, ours, theirs bench.Latency) {
	const grid = "Three replicas: milliseconds until a record is acknowledged"
	title := "Three replicas, " + how
	what := fmt.Sprintf("milliseconds from when a record of %d bytes is due until it is acknowledged; one partition", bench.PayloadBytes)
	medians := found.table(title+": median", what, milliseconds).in(grid, how+": median")
	p99 := found.table(title+": p99", what, milliseconds).in(grid, "p99")
	for _, of := range []struct {
		name string
		bench.Latency
	}{{"sluice", ours}, {bench.JetStreamName, theirs}} {
		medians.add(of.name, inMilliseconds(of.Median))
		p99.add(of.name, inMilliseconds(of.P99))
	}
	beside(found).add("p99, "+how, ours.P99.Seconds()/theirs.P99.Seconds())
}

// beside returns the summary: the ratios of each run.
func beside(found *results) *resultTable {
	return found.table(besideTitle, "sluice's number over JetStream's in the same run: rates should be high, times low", share)
}
