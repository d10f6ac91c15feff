package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// lastPayment creates the topic if it does not exist, and returns the number of the last payment in
// it.
func lastPayment(ctx context.Context) (int, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(*brokers), kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	if err != nil {
		return 0, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	if _, err := admin.CreateTopic(ctx, 1, 1, nil, *topic); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return 0, err
	}
	end, err := endOffset(ctx, admin)
	for ; kerr.IsRetriable(err) && ctx.Err() == nil; end, err = endOffset(ctx, admin) {
		<-time.After(100 * time.Millisecond) // a topic that was just created has no leader yet
	}
	if err != nil || end == 0 {
		return 0, err
	}
	client.AddConsumePartitions(map[string]map[int32]kgo.Offset{*topic: {0: kgo.NewOffset().At(end - 1)}})
	payments := client.PollRecords(ctx, 1)
	if err := payments.Err(); err != nil {
		return 0, err
	}
	return strconv.Atoi(string(payments.Records()[0].Value))
}

// endOffset returns the offset after the last payment.
func endOffset(ctx context.Context, admin *kadm.Client) (int64, error) {
	ends, err := admin.ListEndOffsets(ctx, *topic)
	if err != nil {
		return 0, err
	}
	end, _ := ends.Lookup(*topic, 0)
	return end.Offset, end.Err
}
