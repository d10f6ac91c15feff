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
	topic   = flag.String("topic", "payments", "the topic; its partition 0 is used")
	file    = flag.String("file", "payments.json", "where the consumer keeps its sum")
	work    = flag.Duration("work", 0, "how long the consumer and the producer take for ten payments")
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

// atOnce is how many payments are sent, or added up, together.
const atOnce = 10

// produce sends the payments up to number count, after those of earlier runs.
func produce(ctx context.Context, count int) error {
	last, err := lastPayment(ctx)
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(*brokers), kgo.DefaultProduceTopic(*topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner())) // idempotent, with acks=all: kgo's defaults
	if err != nil {
		return err
	}
	defer client.Close()
	for last < count {
		var payments []*kgo.Record
		for ; last < count && len(payments) < atOnce; last++ {
			payments = append(payments, kgo.StringRecord(strconv.Itoa(last+1)))
		}
		if err := client.ProduceSync(ctx, payments...).FirstErr(); err != nil {
			return err
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
	return nil
}

// consume adds up the payments until ctx ends.
func consume(ctx context.Context) error {
	total, err := load(*file)
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(*brokers), kgo.AllowAutoTopicCreation(),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), // records removed unread are an error
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{*topic: {0: kgo.NewOffset().At(total.Offset)}}))
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		payments := client.PollRecords(ctx, atOnce)
		if err := payments.Err(); err != nil {
			return err
		}
		for payment := range payments.RecordsAll() {
			if err := total.add(payment); err != nil {
				return err
			}
		}
		if err := pause(ctx); err != nil {
			return err
		}
		if err := total.store(*file); err != nil {
			return err
		}
		fmt.Printf("%d payments, sum %d\n", total.Last, total.Sum)
	}
}

// pause simulates work: a crash may come here.
func pause(ctx context.Context) error {
	select {
	case <-time.After(*work):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
