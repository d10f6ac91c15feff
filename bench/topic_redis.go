package bench

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// XADDs are sent in pipelines of up to redisPipeline; redisPipelines of them are in flight, each on
// a connection of its own, so that Redis never waits for the next.
const (
	redisPipeline  = 1000
	redisPipelines = 4
)

// redisStreams is Redis with a stream for each partition.
type redisStreams struct {
	server *redisServer
	client *redis.Client
	keys   []string
}

// startRedisStreams starts a Redis with a setting of appendfsync.
func startRedisStreams(ctx context.Context, parent, appendfsync string) (*redisStreams, error) {
	server, err := startRedis(ctx, parent, appendfsync)
	if err != nil {
		return nil, err
	}
	return &redisStreams{server: server, client: redis.NewClient(&redis.Options{Network: "unix", Addr: server.socket})}, nil
}

func (s *redisStreams) Line(_ context.Context, partitions int) (Line, error) {
	for partition := range partitions {
		s.keys = append(s.keys, fmt.Sprint("records-", partition))
	}
	l := &redisLine{client: s.client, keys: s.keys, sent: make(chan redisSent, redisPipeline*redisPipelines)}
	for range redisPipelines {
		l.writers.Go(l.write)
	}
	return l, nil
}

func (s *redisStreams) Kept(ctx context.Context) (int, error) {
	kept := 0
	for _, key := range s.keys {
		length, err := s.client.XLen(ctx, key).Result()
		if err != nil {
			return 0, err
		}
		kept += int(length)
	}
	return kept, nil
}

func (s *redisStreams) CPU() (time.Duration, error) { return s.server.process.cpu() }

func (s *redisStreams) Stop() error {
	_ = s.client.Close() // the server is stopped next
	return s.server.stop()
}

// redisLine adds records to streams.
type redisLine struct {
	client  *redis.Client
	keys    []string
	sent    chan redisSent
	under   sync.WaitGroup // unanswered records
	writers sync.WaitGroup
}

// redisSent is a record that waits for a pipeline.
type redisSent struct {
	key      string
	value    []byte
	answered func(error)
}

// write sends pipelines until the line is closed.
func (l *redisLine) write() {
	waiting := make([]redisSent, 0, redisPipeline)
	for first := range l.sent {
		waiting = append(waiting[:0], first)
		// Yield to the sender, so that a pipeline includes its next records.
		runtime.Gosched()
		for more := true; more && len(waiting) < redisPipeline; {
			select {
			case next, open := <-l.sent:
				if more = open; open {
					waiting = append(waiting, next)
				}
			default:
				more = false
			}
		}
		pipeline := l.client.Pipeline()
		for _, sent := range waiting {
			pipeline.XAdd(context.Background(), &redis.XAddArgs{Stream: sent.key, Values: []any{"v", sent.value}})
		}
		commands, err := pipeline.Exec(context.Background())
		for i, sent := range waiting {
			if i < len(commands) && err != nil {
				sent.answered(commands[i].Err())
			} else {
				sent.answered(err)
			}
			l.under.Done()
		}
	}
}

func (l *redisLine) Send(ctx context.Context, partition int, value []byte, answered func(error)) error {
	l.under.Add(1)
	select {
	case l.sent <- redisSent{l.keys[partition], value, answered}:
		return nil
	case <-ctx.Done():
		l.under.Done()
		return ctx.Err()
	}
}

func (l *redisLine) Flush(context.Context) error {
	l.under.Wait()
	return nil
}

func (l *redisLine) Close() error {
	close(l.sent)
	l.writers.Wait()
	return nil
}
