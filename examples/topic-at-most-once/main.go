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
	topic   = flag.String("topic", "readings", "the topic")
	work    = flag.Duration("work", 0, "how long a reading takes")
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

// produce sends the readings 1 to count. It does not learn whether they arrive.
func produce(ctx context.Context, count int) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(*brokers), kgo.DefaultProduceTopic(*topic), kgo.AllowAutoTopicCreation(),
		kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite(), kgo.RecordRetries(0))
	if err != nil {
		return err
	}
	defer client.Close()
	var readings []*kgo.Record
	for n := 1; n <= count; n++ {
		readings = append(readings, kgo.StringRecord(strconv.Itoa(n)))
	}
	return client.ProduceSync(ctx, readings...).FirstErr()
}

// consume prints records until ctx ends.
func consume(ctx context.Context) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(*brokers), kgo.ConsumeTopics(*topic), kgo.AllowAutoTopicCreation(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		// With a name, a restarted consumer gets its partitions back at once.
		kgo.ConsumerGroup("at-most-once"), kgo.InstanceID("printer"))
	if err != nil {
		return err
	}
	defer client.CloseAllowingRebalance()
	for {
		readings := client.PollRecords(ctx, 10)
		if err := readings.Err(); err != nil {
			return err
		}
		// Committed first: whatever happens now, they are not read again.
		if err := client.CommitRecords(ctx, readings.Records()...); err != nil {
			return err
		}
		for reading := range readings.RecordsAll() {
			if err := show(ctx, reading); err != nil {
				return err
			}
		}
		client.AllowRebalance()
	}
}

// show is the work: it may stop halfway.
func show(ctx context.Context, reading *kgo.Record) error {
	select {
	case <-time.After(*work):
	case <-ctx.Done():
		return ctx.Err()
	}
	_, err := fmt.Println(string(reading.Value))
	return err
}
