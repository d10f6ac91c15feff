package events

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/ports"
	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/kafka"
	"github.com/sluice-project/sluice/topic/storetest"
)

// startKafkaNodes starts nodes on one cluster in memory, each with its Kafka server. It returns the
// brokers and the address of each.
func startKafkaNodes(t *testing.T, cluster *storetest.Nodes, count int) ([]*broker.Broker, []topic.Advertised) {
	t.Helper()
	brokers, reached := make([]*broker.Broker, count), make([]topic.Advertised, count)
	for i := range brokers {
		port := ports.Take(t, 1)[0]
		address := ports.Addr(port)
		reached[i] = topic.Advertised{Host: "127.0.0.1", Port: int32(port)}
		broker, err := broker.New(cluster.Store(int32(i+1)), topic.Config{Partitions: 3, Advertise: reached[i]})
		if err != nil {
			t.Fatal(err)
		}
		for _, service := range []lifecycle.Service{broker, kafka.NewServer(broker, kafka.Options{Addr: address, Advertise: address})} {
			if err := service.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				ctx, cancel := context.WithTimeout(context.Background(), until.Limit)
				defer cancel()
				if err := service.Stop(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		brokers[i] = broker
	}
	return brokers, reached
}

// The events of one node are in the topic exactly once, whichever nodes lead its partitions and
// even if leaders change between attempts. A restarted process publishes only the events that are
// missing.
func TestEventsOfANodeOfACluster(t *testing.T) {
	cluster := storetest.NewCluster(3)
	brokers, reached := startKafkaNodes(t, cluster, 3)
	leaders, err := NewClusterLog(reached[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(leaders.Close)
	begin := time.Now()
	var events []occurrence
	for n := range 60 {
		id := fmt.Sprint("event-", n)
		events = append(events, occurrence{id: id, key: fmt.Sprint("key-", n%7), at: begin, encode: func() ([]byte, error) {
			return fmt.Appendf(nil, `{"id":%q,"source":"test"}`, id), nil
		}})
	}
	discard := slog.New(slog.DiscardHandler)
	p := newPublisher(brokers[0], leaders, "events", "test", discard)
	publishAll(t, p, events[:20])
	for i, log := range cluster.Logs() {
		cluster.Elect(log, int32(i%3+1))
	}
	publishAll(t, p, events[20:40])
	// The next process does not know that the second half was published.
	publishAll(t, newPublisher(brokers[0], leaders, "events", "test", discard), events[30:])

	to, err := brokers[0].Topic("events")
	if err != nil {
		t.Fatal(err)
	}
	times := map[string]int{}
	for number := range to.Partitions() {
		if err := p.scan(t.Context(), to, int32(number), 0, func(id string) { times[id]++ }); err != nil {
			t.Fatal(err)
		}
	}
	for _, event := range events {
		if times[event.id] != 1 {
			t.Errorf("%s is there %d times", event.id, times[event.id])
		}
	}
}

// publishAll publishes events as the engine does: the same ones until it succeeds.
func publishAll(t *testing.T, p *publisher, events []occurrence) {
	t.Helper()
	until.Succeeds(t, "the events are published", func() error { return p.publish(t.Context(), events) })
}
