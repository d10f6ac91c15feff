package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A queue has queueLines partitions or streams and queueWorkers workers, which get up to queueBatch records at once.
const (
	queueLines   = 4
	queueWorkers = 20
	queueBatch   = 500
	queueGroup   = "workers"
	// queueBatchBytes bounds the batches that are produced, as Java's producer does: one that is larger than what is in flight in
	// a partition is sent several times.
	queueBatchBytes = 16 << 10
	// queueSettles is how long both brokers have, before the workers come, to put on the disk what was sent: fsyncs of that time
	// would wait for it.
	queueSettles = 3 * time.Second
)

// Queued is the measurement of Queue: records a second.
type Queued struct{ Sluice, Redis float64 }

// Queue measures how fast workers of a group get and acknowledge records that are there, each once: with a share group, and
// with a group of Redis Streams. Both fsync once a second.
func (e *Environment) Queue(ctx context.Context, records int) (q Queued, err error) {
	broker := e.sluice("sluice", SluiceSettings{Sync: time.Second}, append(slices.Clone(plainProducer), kgo.ProducerBatchMaxBytes(queueBatchBytes)))
	if err = serve(ctx, broker, func(ctx context.Context, server Server) error {
		q.Sluice, err = shareQueue(ctx, server.(*kafkaServer), records)
		return err
	}); err != nil {
		return q, err
	}
	broker = Broker{Name: "Redis Streams", Start: func(ctx context.Context) (Server, error) { return startRedisStreams(ctx, e.folder, "everysec") }}
	return q, serve(ctx, broker, func(ctx context.Context, server Server) error {
		q.Redis, err = streamQueue(ctx, server.(*redisStreams), records)
		return err
	})
}

// fillQueue sends records to all lines, and waits until they are on the disk.
func fillQueue(ctx context.Context, server Server, records int) error {
	line, err := server.Line(ctx, queueLines)
	if err != nil {
		return err
	}
	var failed firstError
	value := Values(PayloadBytes)
	for n := 0; n < records && err == nil; n++ {
		err = line.Send(ctx, n%queueLines, value(n), failed.set)
	}
	err = errors.Join(err, line.Flush(ctx), line.Close(), failed.get())
	select {
	case <-ctx.Done():
	case <-time.After(queueSettles):
	}
	return err
}

// worked calls work in each worker until they have got all records, and returns the records a second.
func worked(ctx context.Context, records int, work func(ctx context.Context, worker int, got func(int)) error) (float64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var count, took atomic.Int64
	var failed firstError
	var workers sync.WaitGroup
	began := time.Now()
	for worker := range queueWorkers {
		workers.Go(func() {
			err := work(ctx, worker, func(got int) {
				if count.Add(int64(got)) >= int64(records) {
					took.CompareAndSwap(0, int64(time.Since(began)))
					cancel()
				}
			})
			if err != nil && ctx.Err() == nil {
				failed.set(err)
				cancel()
			}
		})
	}
	workers.Wait()
	if err := failed.get(); err != nil {
		return 0, err
	}
	if got := count.Load(); got != int64(records) {
		return 0, fmt.Errorf("the workers got %d records of %d", got, records)
	}
	return float64(records) / time.Duration(took.Load()).Seconds(), nil
}

func shareQueue(ctx context.Context, server *kafkaServer, records int) (float64, error) {
	if err := server.shareFromStart(ctx, queueGroup); err != nil {
		return 0, err
	}
	if err := fillQueue(ctx, server, records); err != nil {
		return 0, err
	}
	return worked(ctx, records, func(ctx context.Context, _ int, got func(int)) error {
		var refused firstError
		client, err := server.client(kgo.ShareGroup(queueGroup), kgo.ConsumeTopics(recordsTopic), kgo.ShareMaxRecords(queueBatch),
			kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) { refused.set(results.Error()) }))
		if err != nil {
			return err
		}
		defer client.Close()
		for ctx.Err() == nil && refused.get() == nil {
			polled := client.PollFetches(ctx)
			polled.EachRecord(func(r *kgo.Record) { r.Ack(kgo.AckAccept) })
			if err := client.FlushAcks(ctx); err != nil {
				return err
			}
			got(polled.NumRecords())
		}
		return refused.get()
	})
}

func streamQueue(ctx context.Context, server *redisStreams, records int) (float64, error) {
	if err := fillQueue(ctx, server, records); err != nil {
		return 0, err
	}
	for _, key := range server.keys {
		if err := server.client.XGroupCreate(ctx, key, queueGroup, "0").Err(); err != nil {
			return 0, err
		}
	}
	return worked(ctx, records, func(ctx context.Context, worker int, got func(int)) error {
		key := server.keys[worker%queueLines]
		for ctx.Err() == nil {
			read, err := server.client.XReadGroup(ctx, &redis.XReadGroupArgs{
				Group: queueGroup, Consumer: fmt.Sprint(worker), Streams: []string{key, ">"}, Count: queueBatch, Block: 50 * time.Millisecond}).Result()
			if errors.Is(err, redis.Nil) {
				continue
			}
			if err != nil {
				return err
			}
			ids := make([]string, len(read[0].Messages))
			for i := range ids {
				ids[i] = read[0].Messages[i].ID
			}
			if err := server.client.XAck(ctx, key, queueGroup, ids...).Err(); err != nil {
				return err
			}
			got(len(ids))
		}
		return nil
	})
}
