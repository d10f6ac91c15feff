package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	brokers = flag.String("brokers", "127.0.0.1:9092", "where the server is")
	topic   = flag.String("topic", "orders", "the topic")
	group   = flag.String("group", "billing", "the share group")
	limit   = flag.Int("max", 0, "end after so many deliveries; 0: never")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := work(ctx); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

// work acknowledges orders, one at a time, until ctx ends or there were -max deliveries.
func work(ctx context.Context) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(*brokers), kgo.ShareGroup(*group), kgo.ConsumeTopics(*topic),
		kgo.AlwaysRetryEOF()) // also while the server starts again
	if err != nil {
		return err
	}
	defer client.Close()
	for deliveries := 0; *limit == 0 || deliveries < *limit; {
		orders := client.PollRecords(ctx, 1)
		if err := orders.Err(); err != nil {
			return err
		}
		for order := range orders.RecordsAll() {
			status, did := handle(order.Value)
			order.Ack(status)
			fmt.Printf("%s, delivery %d: %s\n", did, order.DeliveryCount(), order.Value)
			deliveries++
		}
		// Durable when it is answered: what was accepted is not delivered again.
		if err := client.FlushAcks(ctx); err != nil {
			return err
		}
	}
	return nil
}

var errIncomplete = errors.New("the order has no total yet")

// handle returns what becomes of an order: one without a total may get it later, and one that is not JSON never
// will be.
func handle(value []byte) (status kgo.AckStatus, did string) {
	switch err := charge(value); {
	case err == nil:
		return kgo.AckAccept, "accepted"
	case errors.Is(err, errIncomplete):
		return kgo.AckRelease, "released"
	default:
		return kgo.AckReject, "rejected"
	}
}

// charge is the work. Since an order may be delivered again, it is idempotent.
func charge(value []byte) error {
	var order struct{ Total float64 }
	if err := json.Unmarshal(value, &order); err != nil {
		return err
	}
	if order.Total == 0 {
		return errIncomplete
	}
	return nil
}
