package broker_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"log/slog"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/storetest"
)

// A program with topics of its own, without a server: a record is durable when Wait returns.
// Programs use filestore.Open instead of a store in memory; package kafka serves clients.
func ExampleNew() {
	ctx := context.Background()
	b, err := broker.New(storetest.NewMemory(), topic.Config{}, broker.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		log.Fatal(err)
	}
	if err := b.Start(ctx); err != nil {
		log.Fatal(err)
	}
	orders, err := b.Create(ctx, topic.Spec{Name: "orders", Partitions: 1}, false)
	if err != nil {
		log.Fatal(err)
	}
	batch, err := topic.NewBatch([]topic.Record{
		{Offset: 0, Key: []byte("alice"), Value: []byte("tea")},
		{Offset: 1, Key: []byte("bob"), Value: []byte("coffee")},
	}, topic.BatchOptions{})
	if err != nil {
		log.Fatal(err)
	}
	appending, err := orders.Append(ctx, 0, []topic.Batch{batch})
	if err != nil {
		log.Fatal(err)
	}
	if _, _, err := appending.Wait(ctx); err != nil {
		log.Fatal(err)
	}
	fetched, err := orders.Read(ctx, 0, 0, 1<<20)
	if err != nil {
		log.Fatal(err)
	}
	batches, err := topic.SplitBatches(bytes.Join(fetched.Data, nil))
	if err != nil {
		log.Fatal(err)
	}
	for _, batch := range batches {
		for record, err := range batch.Records() {
			if err != nil {
				log.Fatal(err)
			}
			fmt.Printf("%d %s %s\n", record.Offset, record.Key, record.Value)
		}
	}
	if err := b.Stop(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 0 alice tea
	// 1 bob coffee
}
