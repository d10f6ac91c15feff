package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/kafka"
	"github.com/sluice-project/sluice/topic/storetest"
)

// A program that serves its topics to any Kafka client. Programs use filestore.Open instead of a store in memory, and
// an address of their own.
func ExampleNewServer() {
	ctx := context.Background()
	b, err := broker.New(storetest.NewMemory(), topic.Config{}, broker.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		log.Fatal(err)
	}
	server := kafka.NewServer(b, kafka.Options{Addr: "127.0.0.1:0"})
	if err := errors.Join(b.Start(ctx), server.Start(ctx)); err != nil {
		log.Fatal(err)
	}
	if _, err := b.Create(ctx, topic.Spec{Name: "orders", Partitions: 1}, false); err != nil {
		log.Fatal(err)
	}

	client, err := kgo.NewClient(kgo.SeedBrokers(server.Addr()), kgo.ConsumeTopics("orders"))
	if err != nil {
		log.Fatal(err)
	}
	order := &kgo.Record{Topic: "orders", Key: []byte("alice"), Value: []byte("tea")}
	if err := client.ProduceSync(ctx, order).FirstErr(); err != nil {
		log.Fatal(err)
	}
	for record := range client.PollFetches(ctx).RecordsAll() {
		fmt.Printf("%s/%d at %d: %s %s\n", record.Topic, record.Partition, record.Offset, record.Key, record.Value)
	}
	client.Close()
	if err := errors.Join(server.Stop(ctx), b.Stop(ctx)); err != nil {
		log.Fatal(err)
	}
	// Output: orders/0 at 0: alice tea
}
