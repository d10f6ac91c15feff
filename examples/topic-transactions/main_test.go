package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/examples/kill"
)

func TestMain(m *testing.M) { kill.Main(m, main) }

// Two programs share the events of two topics, and are killed repeatedly: each event has one line.
func TestKilled(t *testing.T) {
	count := 300 * kill.Kills()
	broker := kill.Broker(t)
	sources := []string{"bulk", "rooms"}
	send(t, broker, sources, count)
	one := kill.New(t, "-brokers", broker, "-from", strings.Join(sources, ","), "-id", "one")
	two := kill.New(t, "-brokers", broker, "-from", strings.Join(sources, ","), "-id", "two")
	for n := range kill.Kills() {
		one.Start()
		two.Start()
		one.Until(func(lines []string) bool { return len(lines)+len(two.Lines()) > 2*n })
		one.Kill()
		two.Kill()
	}
	one.Start()
	lines := read(t, broker, len(sources)*count)
	for id, times := range lines {
		if times != 1 {
			t.Errorf("%s has %d lines", id, times)
		}
	}
	if len(lines) != len(sources)*count {
		t.Errorf("%d events have lines, want %d", len(lines), len(sources)*count)
	}
}

// send sends events to each topic.
func send(t *testing.T, broker string, topics []string, count int) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.AllowAutoTopicCreation())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for n := range count {
		for _, topic := range topics {
			event := fmt.Sprintf(`{"id": "%s-%d", "type": "io.sluice.%s.happened", "subject": "acme", "time": "2026-05-04T03:02:01Z"}`, topic, n, topic)
			client.Produce(t.Context(), &kgo.Record{Topic: topic, Key: fmt.Append(nil, n), Value: []byte(event)}, func(_ *kgo.Record, err error) {
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
	if err := client.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// read reads committed lines until there are count, and returns how many each event has.
func read(t *testing.T, broker string, count int) map[string]int {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.ConsumeTopics("activity"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	lines := map[string]int{}
	for total := 0; total < count; {
		fetches := client.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			fields := strings.Fields(string(r.Value))
			lines[fields[len(fields)-1]]++
			total++
		})
	}
	return lines
}
