package main

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-project/sluice/bench"
)

// The times of one measure of topic. Producing must be long enough that the consumed records exceed
// the broker's memory.
const (
	produceFor  = 5 * time.Second
	latencyFor  = 4 * time.Second
	settingsFor = 3 * time.Second
)

const (
	produceWhat = "records/s, fsynced before they are acknowledged (acks=all), "
	// On a busy machine a broker's share is smaller, but its processor time is the same.
	processorWhat = "milliseconds of a processor that the broker used for a million records"
	clientWhat    = "milliseconds of a processor that the client used for a million records: on this machine too, and so a bound of the rate"
	peakWhat      = "MiB, the broker's resident set at its peak, while they are produced and then consumed"
	uncompress    = "not compressed, one producer"
)

// produced are the tables of one stream of records.
type produced struct{ sent, read, sentCPU, clientCPU, readCPU, peak *resultTable }

func (r *results) produced(records, partitions string) produced {
	return produced{
		sent:      r.table("Produce, "+records, produceWhat+partitions+"; "+uncompress, rate),
		read:      r.table("Consume, "+records, "records/s, from the start, of the records that were produced", rate),
		sentCPU:   r.table("Produce, "+records+": processor", processorWhat, milliseconds),
		clientCPU: r.table("Produce, "+records+": processor of the client", clientWhat, milliseconds),
		readCPU:   r.table("Consume, "+records+": processor", processorWhat, milliseconds),
		peak:      r.table("Produce and consume, "+records+": memory", peakWhat, mebibytes),
	}
}

// take measures brokers, of which the first ones are read too.
func (p produced) take(ctx context.Context, brokers []bench.Broker, readable int, stream bench.Stream) error {
	for i, broker := range brokers {
		found, err := bench.Produce(ctx, broker, stream, i < readable)
		if err != nil {
			return err
		}
		p.sent.add(broker.Name, found.Sent.PerSecond())
		p.sentCPU.add(broker.Name, inMilliseconds(found.Sent.PerMillion(found.SentCPU)))
		p.clientCPU.add(broker.Name, inMilliseconds(found.Sent.PerMillion(found.ClientCPU)))
		if i < readable {
			p.read.add(broker.Name, found.Read.PerSecond())
			p.readCPU.add(broker.Name, inMilliseconds(found.Read.PerMillion(found.ReadCPU)))
			p.peak.add(broker.Name, float64(found.Peak)/(1<<20))
		}
	}
	return nil
}

func takeProduce(ctx context.Context, e *bench.Environment, found *results) error {
	tables := found.produced("100-byte records", "one partition")
	return tables.take(ctx, e.Brokers(), len(e.KafkaBrokers()), bench.Stream{Bytes: bench.PayloadBytes, Partitions: 1, For: produceFor})
}

func takeProduceLarge(ctx context.Context, e *bench.Environment, found *results) error {
	return takeKafka(ctx, e, found.produced("1,000-byte records", "six partitions in turn"), 6)
}

// manyPartitions are written to at once.
const manyPartitions = 500

func takeProduceMany(ctx context.Context, e *bench.Environment, found *results) error {
	return takeKafka(ctx, e, found.produced("1,000-byte records to 500 partitions", "in turn"), manyPartitions)
}

func takeKafka(ctx context.Context, e *bench.Environment, tables produced, partitions int) error {
	brokers := e.KafkaBrokers()
	return tables.take(ctx, brokers, len(brokers), bench.Stream{Bytes: 1000, Partitions: partitions, For: produceFor})
}

func takeProduceDefaults(ctx context.Context, e *bench.Environment, found *results) error {
	sent := found.table("Produce, 100-byte records, franz-go's defaults",
		produceWhat+"one partition; snappy, a linger of 10 ms in the client", rate)
	read := found.table("Consume, 100-byte records, as franz-go's defaults wrote them", "records/s, from the start", rate)
	for _, broker := range e.DefaultClients() {
		stream := bench.Stream{Bytes: bench.PayloadBytes, Partitions: 1, For: produceFor}
		produced, err := bench.Produce(ctx, broker, stream, true)
		if err != nil {
			return err
		}
		sent.add(broker.Name, produced.Sent.PerSecond())
		read.add(broker.Name, produced.Read.PerSecond())
	}
	return nil
}

// takeLatency measures each broker at half of its own peak, measured in the same run, and sluice at
// the rate of JetStream too, since half of sluice's peak is more than JetStream's.
func takeLatency(ctx context.Context, e *bench.Environment, found *results) error {
	const what = "milliseconds from when a record of 100 bytes is due until it is acknowledged, fsynced; one partition"
	aloneMedian := found.table("Latency, one record at a time: median", what, milliseconds)
	aloneP99 := found.table("Latency, one record at a time: p99", what, milliseconds)
	halfMedian := found.table("Latency at half of each one's peak: median", what, milliseconds)
	halfP99 := found.table("Latency at half of each one's peak: p99", what, milliseconds)
	sameP99 := found.table("Latency at half of JetStream's peak: p99", what, milliseconds)
	brokers := e.Brokers()
	for _, broker := range brokers {
		alone, err := bench.OneAtATime(ctx, broker, 1, latencyFor)
		if err != nil {
			return err
		}
		aloneMedian.add(broker.Name, inMilliseconds(alone.Median))
		aloneP99.add(broker.Name, inMilliseconds(alone.P99))
		stream := bench.Stream{Bytes: bench.PayloadBytes, Partitions: 1, For: latencyFor / 2}
		peak, err := bench.Produce(ctx, broker, stream, false)
		if err != nil {
			return err
		}
		half, err := bench.AtRate(ctx, broker, peak.Sent.PerSecond()/2, latencyFor)
		if err != nil {
			return err
		}
		halfMedian.add(broker.Name, inMilliseconds(half.Median))
		halfP99.add(broker.Name, inMilliseconds(half.P99))
		if broker.Name != bench.JetStreamName {
			continue
		}
		same, err := bench.AtRate(ctx, brokers[0], peak.Sent.PerSecond()/2, latencyFor)
		if err != nil {
			return err
		}
		sameP99.add(brokers[0].Name, inMilliseconds(same.P99))
		sameP99.add(broker.Name, inMilliseconds(half.P99))
	}
	return nil
}

func inMilliseconds(d time.Duration) float64 { return d.Seconds() * 1000 }

func takeSettings(ctx context.Context, e *bench.Environment, found *results) error {
	const grid = "Settings of sluice: sync and linger, 100-byte records, one partition"
	const until = "milliseconds until a record is acknowledged; one producer, one record at a time"
	many := fmt.Sprintf("%d producers, each one record at a time", bench.SettingsProducers)
	peak := found.table("Settings: one busy producer", "records/s", rate).in(grid, "busy producer, records/s")
	alone := found.table("Settings: one at a time, median", until, milliseconds).in(grid, "one at a time, median ms")
	aloneP99 := found.table("Settings: one at a time, p99", until, milliseconds).in(grid, "p99 ms")
	manyRate := found.table("Settings: many small producers", "records/s; "+many, rate).in(grid, fmt.Sprintf("%d at a time, records/s", bench.SettingsProducers))
	manyMedian := found.table("Settings: many small producers, median", "milliseconds; "+many, milliseconds).in(grid, "median ms")
	manyP99 := found.table("Settings: many small producers, p99", "milliseconds; "+many, milliseconds).in(grid, "p99 ms")
	for _, settings := range bench.Settings() {
		effect, err := e.BySettings(ctx, settings, settingsFor)
		if err != nil {
			return err
		}
		name := settings.String()
		peak.add(name, effect.Peak)
		alone.add(name, inMilliseconds(effect.Alone.Median))
		aloneP99.add(name, inMilliseconds(effect.Alone.P99))
		manyRate.add(name, effect.Many.Rate)
		manyMedian.add(name, inMilliseconds(effect.Many.Median))
		manyP99.add(name, inMilliseconds(effect.Many.P99))
	}
	return nil
}

// viewRecords is the number of records of the topic of which a view shows 1 %.
const viewRecords = 1_000_000

func takeView(ctx context.Context, e *bench.Environment, found *results) error {
	bytes := found.table("A view that passes 1 % of 1,000,000 records", "MiB that come to the consumer, not compressed", mebibytes)
	part := found.table("A view that passes 1 %: part of the topic's bytes", "the view's bytes over those of the whole topic", share)
	took := found.table("A view that passes 1 %: time to read it", "milliseconds from the start to the last record", milliseconds)
	v, err := e.View(ctx, viewRecords)
	if err != nil {
		return err
	}
	bytes.add("whole topic", float64(v.Whole)/(1<<20))
	bytes.add("view", float64(v.Shown)/(1<<20))
	part.add("view", v.Share())
	took.add("view", inMilliseconds(v.ShownTook))
	took.add("whole topic", inMilliseconds(v.WholeTook))
	return nil
}

// The delayed records: few, each due at its own time; and many that are all pending when the broker
// is killed.
const (
	delayFew   = 5000
	delayMany  = 100_000
	delayAfter = 2 * time.Second
	// delayManyAfter leaves time to produce the records and to restart.
	delayManyAfter = 12 * time.Second
	delaySpread    = 5 * time.Second
)

func takeDelay(ctx context.Context, e *bench.Environment, found *results) error {
	late := found.table("Delayed records", "milliseconds from when a record is due until a consumer has it", lateness)
	few, err := e.Delay(ctx, delayFew, delayAfter, delaySpread, false)
	if err != nil {
		return err
	}
	addLate(late, fmt.Sprintf("%d pending", delayFew), few)
	many, err := e.Delay(ctx, delayMany, delayManyAfter, delaySpread, true)
	if err != nil {
		return err
	}
	addLate(late, fmt.Sprintf("%d pending over a restart", delayMany), many)
	return nil
}

// queueRecords is the number of records that the workers of a group get.
const queueRecords = 1_000_000

func takeQueue(ctx context.Context, e *bench.Environment, found *results) error {
	rates := found.table("1,000,000 records, 20 workers of a group", "records/s, each got and acknowledged once; fsync once a second", rate)
	worked, err := e.Queue(ctx, queueRecords)
	if err != nil {
		return err
	}
	rates.add("sluice, a share group", worked.Sluice)
	rates.add("Redis Streams, a group", worked.Redis)
	return nil
}

func addLate(t *resultTable, name string, late bench.Late) {
	t.add(name+", median", inMilliseconds(late.Median))
	t.add(name+", p99", inMilliseconds(late.P99))
	t.add(name+", latest", inMilliseconds(late.Most))
}
