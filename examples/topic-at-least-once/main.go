package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	brokers = flag.String("brokers", "127.0.0.1:9092", "where the server is")
	topic   = flag.String("topic", "orders", "the topic")
	work    = flag.Duration("work", 0, "how long an order takes")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := fmt.Errorf("%q: want produce NUMBER, or consume", flag.Args())
	switch count, number := strconv.Atoi(flag.Arg(1)); {
	case flag.Arg(0) == "produce" && number == nil:
		err = produce(ctx, count)
	case flag.Arg(0) == "consume":
		err = consume(ctx)
	}
	if err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

// produce sends the orders 1 to count, and returns when all are durable. After an error some are
// and some are not; sending all again loses none.
func produce(ctx context.Context, count int) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(*brokers), kgo.DefaultProduceTopic(*topic), kgo.AllowAutoTopicCreation(),
		kgo.RequiredAcks(kgo.AllISRAcks()))
	if err != nil {
		return err
	}
	defer client.Close()
	var orders []*kgo.Record
	for n := 1; n <= count; n++ {
		orders = append(orders, kgo.StringRecord(strconv.Itoa(n)))
	}
	return client.ProduceSync(ctx, orders...).FirstErr()
}

// consume prints records until ctx ends.
func consume(ctx context.Context) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(*brokers), kgo.ConsumeTopics(*topic), kgo.AllowAutoTopicCreation(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		// With a name, a restarted consumer gets its partitions back at once.
		kgo.ConsumerGroup("at-least-once"), kgo.InstanceID("printer"))
	if err != nil {
		return err
	}
	defer client.CloseAllowingRebalance()
	for {
		orders := client.PollRecords(ctx, 10)
		if err := orders.Err(); err != nil {
			return err
		}
		for order := range orders.RecordsAll() {
			if err := show(ctx, order); err != nil {
				return err
			}
		}
		// Committed last: after a crash before this, the orders are read again.
		if err := client.CommitRecords(ctx, orders.Records()...); err != nil {
			return err
		}
		client.AllowRebalance()
	}
}

// show is the work: it may be repeated.
func show(ctx context.Context, order *kgo.Record) error {
	select {
	case <-time.After(*work):
	case <-ctx.Done():
		return ctx.Err()
	}
	_, err := fmt.Println(string(order.Value))
	return err
}
