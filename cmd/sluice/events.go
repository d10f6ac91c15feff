package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/topic"
)

// The topics that events are published to. Each is made when the first event comes,
// if it does not exist, whether or not clients may make topics.
const (
	bulkEventsTopic = "sluice.bulk.events"
	roomEventsTopic = "sluice.room.events"
)

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

// occurrence is an event of any part, as a topic needs it.
type occurrence struct {
	// id is the event's own among all of its source.
	id string
	// key is what events stay in order by.
	key string
	at  time.Time
	// encode returns the CloudEvent in JSON.
	encode func() ([]byte, error)
}

// publisherOf is the Publisher of a part, whose events are of type E.
type publisherOf[E any] struct {
	*eventPublisher
	of func(*E) occurrence
}

// Publish implements bulk.Publisher and room.Publisher.
func (p publisherOf[E]) Publish(ctx context.Context, events []E) error {
	occurrences := make([]occurrence, len(events))
	for i := range events {
		occurrences[i] = p.of(&events[i])
	}
	return p.publish(ctx, occurrences)
}

func newBulkPublisher(broker *topic.Broker, to eventLog, log *slog.Logger) publisherOf[bulk.Event] {
	return publisherOf[bulk.Event]{newEventPublisher(broker, to, bulkEventsTopic, bulk.EventSource, log), func(e *bulk.Event) occurrence {
		return occurrence{id: e.ID, key: e.Action, at: e.Time, encode: e.CloudEvent}
	}}
}

func newRoomPublisher(broker *topic.Broker, to eventLog, log *slog.Logger) publisherOf[room.Notice] {
	return publisherOf[room.Notice]{newEventPublisher(broker, to, roomEventsTopic, room.EventSource, log), func(n *room.Notice) occurrence {
		return occurrence{id: n.ID(), key: n.Visitor(), at: n.Time, encode: n.CloudEvent}
	}}
}

// eventPublisher publishes events to a topic of this process, or of its cluster.
//
// Each event appears in the topic once. What the process itself tries again is
// recognised as that of an idempotent producer. What a process before this one
// has published and not confirmed is the beginning of the outbox: its records are
// looked for once, from the time of the oldest event on, and among the last ones.
// Where several processes share an outbox, one may publish again what another has
// published and not confirmed: with the same id.
type eventPublisher struct {
	broker *topic.Broker
	to     eventLog
	log    *slog.Logger
	// name is the topic's, source that of the events, as CloudEvents have it.
	name, source string

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

func newEventPublisher(broker *topic.Broker, to eventLog, name, source string, log *slog.Logger) *eventPublisher {
	return &eventPublisher{broker: broker, to: to, log: log, name: name, source: source, sequences: map[int32]int32{}}
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

// publish returns nil when all events are durable in the topic.
func (p *eventPublisher) publish(ctx context.Context, events []occurrence) error {
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
	if err := p.under.publish(ctx, p.to); err != nil {
		if slices.ContainsFunc(otherBatches, func(is error) bool { return errors.Is(err, is) }) {
			p.startOver()
		}
		return fmt.Errorf("publish to %s: %w", p.name, err)
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
	to, err := p.broker.Topic(p.name)
	if !errors.Is(err, topic.ErrNoTopic) {
		return to, err
	}
	spec := topic.Spec{Name: p.name}
	if p.broker.Config().MaxMessageBytes < eventBatchBytes {
		spec.Settings = map[string]string{"max.message.bytes": fmt.Sprint(eventBatchBytes)}
	}
	to, err = p.broker.Create(ctx, spec, false)
	if errors.Is(err, topic.ErrTopicExists) {
		return p.broker.Topic(p.name)
	}
	return to, err
}

// startOver makes the next attempt one of a new producer, which looks first for
// what is there.
func (p *eventPublisher) startOver() {
	p.looked, p.hasProducer, p.under = false, false, nil
	clear(p.sequences)
}

func idsOf(events []occurrence) map[string]bool {
	ids := make(map[string]bool, len(events))
	for i := range events {
		ids[events[i].id] = true
	}
	return ids
}

// is tells whether the plan is that of these events.
func (e *eventPlan) is(to *topic.Topic, events []occurrence) bool {
	return e.topic == to && e.count == len(events) && e.first == events[0].id && e.last == events[len(events)-1].id
}

// plan divides events among partitions and batches, and leaves out those that the
// topic has.
func (p *eventPublisher) plan(ctx context.Context, to *topic.Topic, events []occurrence) (*eventPlan, error) {
	had := p.done
	if !p.looked {
		found, err := p.look(ctx, to, events)
		if err != nil {
			return nil, fmt.Errorf("look for events in %s: %w", p.name, err)
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
	made := &eventPlan{topic: to, count: len(events), first: events[0].id, last: events[len(events)-1].id}
	records, err := p.divide(events, had, len(to.Partitions()))
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
func (p *eventPublisher) divide(events []occurrence, had map[string]bool, partitions int) ([][]topic.Record, error) {
	choose := kgo.StickyKeyPartitioner(nil).ForTopic(p.name)
	records := make([][]topic.Record, partitions)
	now := time.Now()
	for i := range events {
		if had[events[i].id] {
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
func eventRecord(e *occurrence, now time.Time) (topic.Record, error) {
	value, err := e.encode()
	if err != nil {
		return topic.Record{}, fmt.Errorf("event %s: %w", e.id, err)
	}
	at := e.at
	if at.After(now.Add(eventAhead)) { // the clock was set back
		at = now
	}
	return topic.Record{
		Timestamp: at.UnixMilli(), Key: []byte(e.key), Value: value,
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
func (e *eventPlan) publish(ctx context.Context, to eventLog) error {
	var appending errgroup.Group
	for _, part := range e.partitions {
		appending.Go(func() error {
			for len(part.batches) > 0 {
				if err := to.append(ctx, e.topic, part.number, part.batches[0]); err != nil {
					return err
				}
				part.batches = part.batches[1:]
			}
			return nil
		})
	}
	return appending.Wait()
}
