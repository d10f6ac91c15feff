package events

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/storetest"
)

// publishing is an outbox and a topic that its events are published to. The process may fail to
// append, fail to record that it has published, and crash.
type publishing struct {
	t      *testing.T
	kind   kind
	store  *storetest.Memory
	broker *broker.Broker
	hand   func(context.Context, []happening) error
	// happened are all events; those from first on wait in the outbox. open is the batch that the
	// engine retries until it succeeds: the oldest waiting events, at most `most`.
	happened []happening
	first    int
	most     int
	open     []happening
	// choices decide what happens; after the last choice, all remaining events are published.
	choices []int
}

// pick returns the next choice out of a number of options.
func (m *publishing) pick(of int) int {
	if len(m.choices) == 0 {
		return 0
	}
	choice := m.choices[0] % of
	m.choices = m.choices[1:]
	return choice
}

func (m *publishing) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *publishing) begin() {
	var err error
	m.broker, err = broker.New(m.store, topic.Config{Partitions: 3, TailBytes: 2000, RetentionInterval: time.Hour})
	m.must(err)
	m.must(m.broker.Start(m.t.Context()))
	m.hand = m.kind.open(m.broker, slog.New(slog.DiscardHandler))
}

// happen adds events of several subjects to the outbox. The clock may be set back.
func (m *publishing) happen() {
	for range 1 + m.pick(6) {
		m.happened = append(m.happened, happening{
			number: len(m.happened), subject: m.pick(7),
			at:      time.Now().Add([]time.Duration{0, 0, -time.Minute, 2 * time.Hour}[m.pick(4)]),
			padding: []int{0, 10, 300_000}[m.pick(3)],
		})
	}
	time.Sleep(time.Second)
}

// oldest returns the events that the engine publishes together. A retry may have more events, never
// fewer.
func (m *publishing) oldest() []happening {
	return m.happened[m.first:min(m.first+m.most, len(m.happened))]
}

// publish hands a batch to the publisher, as the engine does.
func (m *publishing) publish() {
	if m.open == nil {
		if m.first == len(m.happened) {
			return
		}
		m.open = m.oldest()
	}
	switch m.pick(4) {
	case 0:
	case 1:
		m.store.FailAppends(topic.ErrUncertain, true)
	case 2:
		m.store.FailAppends(errors.New("no"), false)
	case 3: // the append times out
		m.store.Hold()
		time.AfterFunc(time.Minute, m.store.Release)
	}
	ctx, cancel := context.WithTimeout(m.t.Context(), 30*time.Second)
	defer cancel()
	err := m.hand(ctx, m.open)
	m.store.FailAppends(nil, false)
	time.Sleep(time.Minute) // the partition recovers
	if err != nil {
		return
	}
	if m.pick(2) == 0 {
		m.first += len(m.open)
	}
	m.open = nil
}

// die ends the process, perhaps when some partitions already have waiting events.
func (m *publishing) die() {
	if m.open == nil {
		var some []happening
		for _, e := range m.oldest() {
			if m.pick(2) == 0 && !slices.ContainsFunc(m.oldest(), func(o happening) bool {
				return o.subject == e.subject && o.number != e.number
			}) {
				some = append(some, e)
			}
		}
		m.must(m.hand(m.t.Context(), some))
	}
	old := m.broker
	m.store, m.open = m.store.Reopen(), nil
	m.begin()
	m.must(old.Stop(m.t.Context()))
}

// intrude lets another client write to the topic.
func (m *publishing) intrude() {
	to, err := newPublisher(m.broker, OwnLog{}, m.kind.topic, "", slog.New(slog.DiscardHandler)).topic(m.t.Context())
	m.must(err)
	value := []string{"no JSON", `{"id":"run-0","source":"/elsewhere"}`, ""}[m.pick(3)]
	batch, err := topic.NewBatch([]topic.Record{{Timestamp: time.Now().UnixMilli(), Value: []byte(value)}}, topic.BatchOptions{})
	m.must(err)
	a, err := to.Append(m.t.Context(), 0, []topic.Batch{batch})
	m.must(err)
	_, _, err = a.Wait(m.t.Context())
	m.must(err)
}

// eventsIn returns the topic's records that have a key, by partition.
func eventsIn(t *testing.T, broker *broker.Broker, name string) (partitions [][]topic.Record) {
	t.Helper()
	to, err := broker.Topic(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, partition := range to.Partitions() {
		var records []topic.Record
		for offset := int64(0); offset < partition.Ends().HighWatermark; {
			fetched, err := to.Read(t.Context(), partition.Number(), offset, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			batches, err := topic.SplitBatches(bytes.Join(fetched.Data, nil))
			if err != nil {
				t.Fatal(err)
			}
			for _, batch := range batches {
				for record, err := range batch.Records() {
					if err != nil {
						t.Fatal(err)
					}
					if len(record.Key) > 0 {
						records = append(records, record)
					}
				}
				offset = batch.Next()
			}
		}
		partitions = append(partitions, records)
	}
	return partitions
}

// check verifies that each event is in the topic once, in the partition of its key, after the
// earlier events of the key.
func (m *publishing) check() error {
	want, got := map[string][]string{}, map[string][]string{}
	for _, e := range m.happened {
		want[m.kind.key(e)] = append(want[m.kind.key(e)], m.kind.id(e))
	}
	choose := kgo.StickyKeyPartitioner(nil).ForTopic(m.kind.topic)
	for number, records := range eventsIn(m.t, m.broker, m.kind.topic) {
		for _, record := range records {
			var e struct{ ID, Tenant string }
			m.must(json.Unmarshal(record.Value, &e))
			key := string(record.Key)
			got[key] = append(got[key], e.ID)
			if to := choose.Partition(&kgo.Record{Key: record.Key}, 3); to != number {
				return fmt.Errorf("%s of %s is in partition %d, want %d", e.ID, key, number, to)
			}
			headers := []topic.Header{{Key: "content-type", Value: []byte("application/cloudevents+json")}}
			if e.Tenant != "" {
				headers = append(headers, topic.Header{Key: "tenant", Value: []byte(e.Tenant)})
			}
			if !reflect.DeepEqual(record.Headers, headers) {
				return fmt.Errorf("%s has the headers %+v, want %+v", e.ID, record.Headers, headers)
			}
		}
	}
	if !maps.EqualFunc(want, got, slices.Equal) {
		return fmt.Errorf("the topic has %v, want %v", got, want)
	}
	return nil
}

func (m *publishing) run() error {
	m.most = 1 + m.pick(12)
	m.begin()
	for len(m.choices) > 0 {
		[]func(){m.happen, m.publish, m.publish, m.die, m.intrude}[m.pick(5)]()
	}
	m.happen()
	if m.open != nil { // the open batch comes first, and may be recorded
		m.must(m.hand(m.t.Context(), m.open))
	}
	for ; m.first < len(m.happened); m.first += len(m.oldest()) {
		m.must(m.hand(m.t.Context(), m.oldest()))
	}
	err := m.check()
	m.must(m.broker.Stop(m.t.Context()))
	return err
}

// Under all failures and crashes, the topic has each event once, with those of an action or a
// visitor in order.
func TestEventsAreInTheTopicOnce(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(r *rapid.T) {
				choices := rapid.SliceOfN(rapid.IntRange(0, 1<<16), 0, 120).Draw(r, "choices")
				var wrong error
				synctest.Test(t, func(t *testing.T) {
					m := &publishing{t: t, kind: kind, store: storetest.NewMemory(), choices: choices}
					wrong = m.run()
				})
				if wrong != nil {
					r.Fatal(wrong)
				}
			})
		})
	}
}

// The search for events among the records of other clients is bounded.
func TestLookingForEventsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker, err := broker.New(storetest.NewMemory(), topic.Config{MaxMessageBytes: 2000})
		if err != nil {
			t.Fatal(err)
		}
		if err := broker.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		var logged bytes.Buffer
		event := bulk.Event{ID: "run-1", Action: "a", Time: time.Now(), Data: json.RawMessage(`"` + strings.Repeat("x", 400_000) + `"`)}
		p := ForBulk(broker, OwnLog{}, slog.New(slog.NewTextHandler(&logged, nil)))
		to, err := p.topic(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range eventScanBytes/1_000_000 + 1 {
			junk := topic.Record{Timestamp: time.Now().UnixMilli(), Value: make([]byte, 1_000_000)}
			batch, err := topic.NewBatch([]topic.Record{junk}, topic.BatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			a, err := to.Append(t.Context(), 0, []topic.Batch{batch})
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := a.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Publish(t.Context(), []bulk.Event{event}); err != nil {
			t.Errorf("an event of 400 kB, where max_message_bytes is 2000: %v", err)
		}
		if !strings.Contains(logged.String(), "may be there twice") {
			t.Errorf("it does not say that it has not looked at all:\n%s", logged.String())
		}
		if err := broker.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// An event that exceeds the topic's limit is an error, and is published once the limit is raised.
func TestEventsOutgrowTheTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker, err := broker.New(storetest.NewMemory(), topic.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if err := broker.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := broker.Create(t.Context(), topic.Spec{Name: BulkTopic, Settings: map[string]string{"max.message.bytes": "1000"}}, false); err != nil {
			t.Fatal(err)
		}
		p := ForBulk(broker, OwnLog{}, slog.New(slog.DiscardHandler))
		var events []bulk.Event
		for i := range 5 {
			events = append(events, bulk.Event{
				ID: fmt.Sprint("run-", i), Action: "a", Time: time.Now(), Data: json.RawMessage(`"` + strings.Repeat("x", 400*i) + `"`),
			})
		}
		if err := p.Publish(t.Context(), events); !errors.Is(err, topic.ErrRecordTooLarge) {
			t.Fatalf("got %v, want that it is too large", err)
		}
		enough := "100000"
		if err := broker.Alter(t.Context(), BulkTopic, map[string]*string{"max.message.bytes": &enough}, false, false); err != nil {
			t.Fatal(err)
		}
		if err := p.Publish(t.Context(), events); err != nil {
			t.Fatal(err)
		}
		to, err := broker.Topic(BulkTopic)
		if err != nil {
			t.Fatal(err)
		}
		partition, err := to.Partition(0)
		if err != nil {
			t.Fatal(err)
		}
		if got := partition.Ends().HighWatermark; got != 5 {
			t.Errorf("the topic has %d records, want 5: those of before that fitted must not come twice", got)
		}
		if err := broker.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}
