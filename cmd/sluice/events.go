package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/topic"
)

// eventsTopic is where the events of bulk are published. It is made when the
// first event comes, if it does not exist, whether or not clients may make topics.
const eventsTopic = "sluice.bulk.events"

const (
	eventContentType = "application/cloudevents+json"
	// eventBatchBytes is how large a batch of events becomes at most, unless the
	// topic's max.message.bytes is less. A single event fits in any case.
	eventBatchBytes = 1 << 20
	// eventOverhead is more than what a record has beside its key and its value.
	eventOverhead = 128
	// eventAhead is how far in the future the time of an event may be for it to be
	// the record's timestamp: brokers refuse what is further ahead.
	eventAhead = 30 * time.Minute
)

// The bounds of looking for events that are in the topic already.
const (
	// eventScanBytes is the most that is read of each partition.
	eventScanBytes = 64 << 20
	// eventLookBack is how many of a partition's last offsets are read however old
	// the events are: more than are published together. If the clock was set back,
	// records are older than their events.
	eventLookBack = 10_000
	eventReadBytes = 1 << 20
)

// eventPublisher is a bulk.Publisher over the topics of this process.
//
// Each event appears in the topic once. What the process itself tries again is
// recognised as that of an idempotent producer. What a process before this one
// has published and not confirmed is the beginning of the outbox: its records are
// looked for once, from the time of the oldest event on, and among the last ones.
type eventPublisher struct {
	broker *topic.Broker
	log    *slog.Logger

	// looked says that what earlier processes published has been looked for.
	looked bool
	// producer is the idempotent producer's id, made when it is needed.
	producer    int64
	hasProducer bool
	// sequences has the next sequence number of each partition.
	sequences map[int32]int32
	// under is what was begun and has not succeeded; done has the ids of the last
	// events that were published: they come again if that was not recorded.
	under *eventPlan
	done  map[string]bool
}

func newEventPublisher(broker *topic.Broker, log *slog.Logger) *eventPublisher {
	return &eventPublisher{broker: broker, log: log, sequences: map[int32]int32{}}
}

// eventPlan is how events become batches: the same ones however often it is tried.
type eventPlan struct {
	topic       *topic.Topic
	first, last string // the ids of its events
	count       int
	partitions  []*partitionPlan
}

// partitionPlan has the batches for a partition that are not known to be durable.
type partitionPlan struct {
	number  int32
	batches []topic.Batch
}

// Publish implements bulk.Publisher.
func (p *eventPublisher) Publish(ctx context.Context, events []bulk.Event) error {
	if len(events) == 0 {
		return nil
	}
	to, err := p.topic(ctx)
	if err != nil {
		return err
	}
	if p.under != nil && !p.under.is(to, events) {
		p.startOver()
	}
	if p.under == nil {
		if p.under, err = p.plan(ctx, to, events); err != nil {
			return err
		}
	}
	if err := p.under.publish(ctx); err != nil {
		if slices.ContainsFunc(otherBatches, func(is error) bool { return errors.Is(err, is) }) {
			p.startOver()
		}
		return fmt.Errorf("publish to %s: %w", eventsTopic, err)
	}
	p.under, p.done = nil, idsOf(events)
	return nil
}

// otherBatches are the errors after which the same batches would fail again, and
// others may not: the topic's settings were changed, or the partition has lost
// what it knew of the producer.
var otherBatches = []error{
	topic.ErrOutOfOrderSequence, topic.ErrProducerFenced, topic.ErrRecordTooLarge, topic.ErrInvalidTimestamp,
}

// topic returns the topic, which is made if it does not exist.
func (p *eventPublisher) topic(ctx context.Context) (*topic.Topic, error) {
	to, err := p.broker.Topic(eventsTopic)
	if !errors.Is(err, topic.ErrNoTopic) {
		return to, err
	}
	spec := topic.Spec{Name: eventsTopic}
	if p.broker.Config().MaxMessageBytes < eventBatchBytes {
		spec.Settings = map[string]string{"max.message.bytes": fmt.Sprint(eventBatchBytes)}
	}
	to, err = p.broker.Create(ctx, spec, false)
	if errors.Is(err, topic.ErrTopicExists) {
		return p.broker.Topic(eventsTopic)
	}
	return to, err
}

// startOver makes the next attempt one of a new producer, which looks first for
// what is there.
func (p *eventPublisher) startOver() {
	p.looked, p.hasProducer, p.under = false, false, nil
	clear(p.sequences)
}

func idsOf(events []bulk.Event) map[string]bool {
	ids := make(map[string]bool, len(events))
	for i := range events {
		ids[events[i].ID] = true
	}
	return ids
}

// is tells whether the plan is that of these events.
func (e *eventPlan) is(to *topic.Topic, events []bulk.Event) bool {
	return e.topic == to && e.count == len(events) && e.first == events[0].ID && e.last == events[len(events)-1].ID
}

// plan divides events among partitions and batches, and leaves out those that the
// topic has.
func (p *eventPublisher) plan(ctx context.Context, to *topic.Topic, events []bulk.Event) (*eventPlan, error) {
	had := p.done
	if !p.looked {
		found, err := p.look(ctx, to, events)
		if err != nil {
			return nil, fmt.Errorf("look for events in %s: %w", eventsTopic, err)
		}
		for id := range p.done {
			found[id] = true
		}
		had = found
	}
	if !p.hasProducer {
		id, err := p.broker.NewProducerID(ctx)
		if err != nil {
			return nil, err
		}
		p.producer, p.hasProducer = id, true
	}
	made := &eventPlan{topic: to, count: len(events), first: events[0].ID, last: events[len(events)-1].ID}
	records, err := divide(events, had, len(to.Partitions()))
	if err != nil {
		return nil, err
	}
	for number, of := range records {
		part := &partitionPlan{number: int32(number)}
		if err := p.batches(part, of, int(to.Settings().MaxMessageBytes)); err != nil {
			return nil, err
		}
		made.partitions = append(made.partitions, part)
	}
	p.looked = true
	return made, nil
}

// divide makes records of events, by partition: by the hash of the key that
// Kafka's clients use.
func divide(events []bulk.Event, had map[string]bool, partitions int) ([][]topic.Record, error) {
	choose := kgo.StickyKeyPartitioner(nil).ForTopic(eventsTopic)
	records := make([][]topic.Record, partitions)
	now := time.Now()
	for i := range events {
		if had[events[i].ID] {
			continue
		}
		record, err := eventRecord(&events[i], now)
		if err != nil {
			return nil, err
		}
		number := choose.Partition(&kgo.Record{Key: record.Key}, partitions)
		records[number] = append(records[number], record)
	}
	return records, nil
}

// eventRecord is an event as a record, in structured mode.
func eventRecord(e *bulk.Event, now time.Time) (topic.Record, error) {
	value, err := e.CloudEvent()
	if err != nil {
		return topic.Record{}, fmt.Errorf("event %s: %w", e.ID, err)
	}
	at := e.Time
	if at.After(now.Add(eventAhead)) { // the clock was set back
		at = now
	}
	return topic.Record{
		Timestamp: at.UnixMilli(), Key: []byte(e.Action), Value: value,
		Headers: []topic.Header{{Key: "content-type", Value: []byte(eventContentType)}},
	}, nil
}

// batches makes batches of a partition's records, of at most so many bytes.
func (p *eventPublisher) batches(part *partitionPlan, records []topic.Record, most int) error {
	most = min(most, eventBatchBytes) - topic.BatchOverhead
	for len(records) > 0 {
		n, bytes := 0, 0
		for n < len(records) {
			bytes += len(records[n].Key) + len(records[n].Value) + eventOverhead
			if n > 0 && bytes > most {
				break
			}
			records[n].Offset = int64(n)
			n++
		}
		sequence := p.sequences[part.number]
		batch, err := topic.NewBatch(records[:n], topic.BatchOptions{Producer: &topic.BatchProducer{ID: p.producer, Sequence: sequence}})
		if err != nil {
			return err
		}
		part.batches = append(part.batches, batch)
		p.sequences[part.number] = int32((int64(sequence) + int64(n)) & math.MaxInt32)
		records = records[n:]
	}
	return nil
}

// publish appends what is left of the plan: partitions side by side, the batches
// of each one after another. If one fails, the others go on: what is under way
// when it returns would not be found by looking.
func (e *eventPlan) publish(ctx context.Context) error {
	var appending errgroup.Group
	for _, part := range e.partitions {
		appending.Go(func() error {
			for len(part.batches) > 0 {
				// A copy: what is appended becomes the partition's.
				a, err := e.topic.Append(ctx, part.number, []topic.Batch{slices.Clone(part.batches[0])})
				if err != nil {
					return err
				}
				if _, _, err := a.Wait(ctx); err != nil {
					return err
				}
				part.batches = part.batches[1:]
			}
			return nil
		})
	}
	return appending.Wait()
}

// look returns which of the events the topic has.
func (p *eventPublisher) look(ctx context.Context, to *topic.Topic, events []bulk.Event) (map[string]bool, error) {
	wanted := idsOf(events)
	oldest := slices.MinFunc(events, func(a, b bulk.Event) int { return a.Time.Compare(b.Time) }).Time
	found := map[string]bool{}
	for _, partition := range to.Partitions() {
		offset, _, err := partition.OffsetAt(ctx, min(oldest.UnixMilli(), time.Now().UnixMilli()))
		if err != nil {
			return nil, err
		}
		ends := partition.Ends()
		last := max(ends.Start, ends.HighWatermark-eventLookBack)
		if offset < 0 || offset > last {
			offset = last
		}
		if err := p.lookIn(ctx, to, partition.Number(), offset, func(id string) {
			if wanted[id] {
				found[id] = true
			}
		}); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// lookIn calls see with the id of each event of a partition from an offset on.
func (p *eventPublisher) lookIn(ctx context.Context, to *topic.Topic, number int32, offset int64, see func(id string)) error {
	for read := 0; read < eventScanBytes; {
		fetched, err := to.Read(ctx, number, offset, eventReadBytes)
		if errors.Is(err, topic.ErrOffsetOutOfRange) && offset < fetched.Start { // retention was faster
			offset = fetched.Start
			continue
		}
		if err != nil || len(fetched.Data) == 0 {
			return err
		}
		for _, piece := range fetched.Data {
			batches, err := topic.SplitBatches(piece)
			if err != nil {
				return err
			}
			for _, batch := range batches {
				if err := seeEvents(batch, see); err != nil {
					return err
				}
				offset = batch.Next()
			}
		}
		read += fetched.Size
	}
	p.log.Warn("more was written to the topic of events than is searched: events of before a crash may be there twice, with the same id",
		"topic", eventsTopic, "partition", number, "bytes", eventScanBytes)
	return nil
}

// seeEvents calls see with the ids of a batch's events. What is no event of bulk,
// and was written by others, has none.
func seeEvents(batch topic.Batch, see func(id string)) error {
	if batch.Control() {
		return nil
	}
	for record, err := range batch.Records() {
		if err != nil {
			return err
		}
		var event struct{ ID, Source string }
		if json.Unmarshal(record.Value, &event) == nil && event.Source == bulk.EventSource {
			see(event.ID)
		}
	}
	return nil
}
