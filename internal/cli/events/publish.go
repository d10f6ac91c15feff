package events

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

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/access/audit"
	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
)

// The topics that events are published to. Each is created with the first event if it
// does not exist, whether or not clients may create topics.
const (
	BulkTopic  = "sluice.bulk.events"
	RoomTopic  = "sluice.room.events"
	AuditTopic = access.AuditTopic
)

const (
	eventContentType = "application/cloudevents+json"
	// eventBatchBytes bounds a batch of events, unless the topic's max.message.bytes is
	// less. A single event fits in any case.
	eventBatchBytes = 1 << 20
	// eventOverhead bounds the size of a record without its key, its value and its tenant.
	eventOverhead = 128
	// eventAhead is how far in the future an event's time may be to become the record's
	// timestamp: brokers refuse later timestamps.
	eventAhead = 30 * time.Minute
)

// occurrence is an event of either part.
type occurrence struct {
	// id is the event's own among all of its source.
	id string
	// key orders events: those of one key stay in order.
	key string
	// tenant is the value of the record's header of that name, which filters of views can rely on; "" for none.
	tenant string
	at     time.Time
	// encode returns the CloudEvent in JSON.
	encode func() ([]byte, error)
}

// Publisher is the Publisher of a part, whose events are of type E.
type Publisher[E any] struct {
	*publisher
	of func(*E) occurrence
}

// Publish implements the Publisher of both engines, and is what audit.Trail.PublishTo takes.
func (p Publisher[E]) Publish(ctx context.Context, events []E) error {
	occurrences := make([]occurrence, len(events))
	for i := range events {
		occurrences[i] = p.of(&events[i])
	}
	return p.publish(ctx, occurrences)
}

func ForBulk(broker *broker.Broker, to Log, log *slog.Logger) Publisher[bulk.Event] {
	return Publisher[bulk.Event]{newPublisher(broker, to, BulkTopic, bulk.EventSource, log), func(e *bulk.Event) occurrence {
		return occurrence{id: e.ID, key: e.Action, tenant: e.Tenant, at: e.Time, encode: e.CloudEvent}
	}}
}

func ForRooms(broker *broker.Broker, to Log, log *slog.Logger) Publisher[room.Notice] {
	return Publisher[room.Notice]{newPublisher(broker, to, RoomTopic, room.EventSource, log), func(n *room.Notice) occurrence {
		return occurrence{id: n.ID(), key: n.Visitor(), at: n.Time, encode: n.CloudEvent}
	}}
}

// ForAudit publishes the audit trail. The entries of one run of a server are in one partition, in their order.
func ForAudit(broker *broker.Broker, to Log, log *slog.Logger) Publisher[audit.Entry] {
	return Publisher[audit.Entry]{newPublisher(broker, to, AuditTopic, audit.EventSource, log), func(e *audit.Entry) occurrence {
		return occurrence{id: e.ID, key: e.Run(), at: e.Time, encode: e.CloudEvent}
	}}
}

// publisher publishes events to a topic of this process, or of its cluster.
//
// Each event appears in the topic once. Retries of the same process are those of an
// idempotent producer. Events that an earlier process published without confirming are
// at the start of the outbox: their records are searched once, from the time of the
// oldest event on and among the last ones. If several processes share an outbox, one may
// publish events again that another has published and not confirmed; their ids are equal.
type publisher struct {
	broker *broker.Broker
	to     Log
	log    *slog.Logger
	// name is the topic; source is the CloudEvents source of the events.
	name, source string

	// searched means that the events of earlier processes have been searched.
	searched bool
	// producer is the idempotent producer's id, made when it is needed.
	producer    int64
	hasProducer bool
	// sequences has the next sequence number of each partition.
	sequences map[int32]int32
	// pending is the plan that has not succeeded yet. done has the ids of the events
	// published last, which come again if their publication was not recorded.
	pending *eventPlan
	done    map[string]bool
}

func newPublisher(broker *broker.Broker, to Log, name, source string, log *slog.Logger) *publisher {
	return &publisher{broker: broker, to: to, log: log, name: name, source: source, sequences: map[int32]int32{}}
}

// eventPlan divides events into batches, the same ones at each attempt.
type eventPlan struct {
	topic       *broker.Topic
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
func (p *publisher) publish(ctx context.Context, events []occurrence) error {
	if len(events) == 0 {
		return nil
	}
	to, err := p.topic(ctx)
	if err != nil {
		return err
	}
	if p.pending != nil && !p.pending.is(to, events) {
		p.startOver()
	}
	if p.pending == nil {
		if p.pending, err = p.plan(ctx, to, events); err != nil {
			return err
		}
	}
	if err := p.pending.publish(ctx, p.to); err != nil {
		if slices.ContainsFunc(otherBatches, func(is error) bool { return errors.Is(err, is) }) {
			p.startOver()
		}
		return fmt.Errorf("publish to %s: %w", p.name, err)
	}
	p.pending, p.done = nil, idsOf(events)
	return nil
}

// otherBatches are the errors after which the same batches would fail again but new
// ones may succeed: the topic's settings were changed, or the partition has lost the
// state of the producer.
var otherBatches = []error{
	topic.ErrOutOfOrderSequence, topic.ErrProducerFenced, topic.ErrRecordTooLarge, topic.ErrInvalidTimestamp,
}

// topic returns the topic, and creates it if it does not exist.
func (p *publisher) topic(ctx context.Context) (*broker.Topic, error) {
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

// startOver lets the next attempt search the topic and publish as a new producer.
func (p *publisher) startOver() {
	p.searched, p.hasProducer, p.pending = false, false, nil
	clear(p.sequences)
}

func idsOf(events []occurrence) map[string]bool {
	ids := make(map[string]bool, len(events))
	for i := range events {
		ids[events[i].id] = true
	}
	return ids
}

// is reports whether the plan is that of these events.
func (e *eventPlan) is(to *broker.Topic, events []occurrence) bool {
	return e.topic == to && e.count == len(events) && e.first == events[0].id && e.last == events[len(events)-1].id
}

// plan divides events among partitions and batches, without those that the topic
// already has.
func (p *publisher) plan(ctx context.Context, to *broker.Topic, events []occurrence) (*eventPlan, error) {
	had := p.done
	if !p.searched {
		found, err := p.search(ctx, to, events)
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
	p.searched = true
	return made, nil
}

// divide converts events to records by partition, with the hash of the key that
// Kafka's clients use.
func (p *publisher) divide(events []occurrence, had map[string]bool, partitions int) ([][]topic.Record, error) {
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

// eventRecord converts an event to a record, in structured mode.
func eventRecord(e *occurrence, now time.Time) (topic.Record, error) {
	value, err := e.encode()
	if err != nil {
		return topic.Record{}, fmt.Errorf("event %s: %w", e.id, err)
	}
	at := e.at
	if at.After(now.Add(eventAhead)) { // the clock was set back
		at = now
	}
	headers := []topic.Header{{Key: "content-type", Value: []byte(eventContentType)}}
	if e.tenant != "" {
		headers = append(headers, topic.Header{Key: "tenant", Value: []byte(e.tenant)})
	}
	return topic.Record{Timestamp: at.UnixMilli(), Key: []byte(e.key), Value: value, Headers: headers}, nil
}

// batches adds batches of records to a partition's plan, each of at most most bytes.
func (p *publisher) batches(part *partitionPlan, records []topic.Record, most int) error {
	most = min(most, eventBatchBytes) - topic.BatchOverhead
	for len(records) > 0 {
		n, bytes := 0, 0
		for n < len(records) {
			headers := records[n].Headers
			bytes += len(records[n].Key) + len(records[n].Value) + len(headers[len(headers)-1].Value) + eventOverhead
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

// publish appends the rest of the plan: partitions concurrently, the batches of each in order. If
// one fails, the others continue: appends in flight when publish returns would not be found by a
// search.
func (e *eventPlan) publish(ctx context.Context, to Log) error {
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
