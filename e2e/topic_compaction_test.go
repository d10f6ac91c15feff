//go:build long

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// A producer updates keys, and deletes some, while the server compacts their topic and is killed. At the end
// a reader finds for each key what was sent last, no deleted key, and few records.
func TestTopicCompactionKill(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.start()
	s.newTopic("prices", 1, "cleanup.policy", "compact", "min.cleanable.dirty.ratio", "0.01", "max.compaction.lag.ms", "1000")
	ctx, stop := context.WithCancel(t.Context())
	producer := s.connect(kgo.RequiredAcks(kgo.AllISRAcks()), kgo.MaxBufferedRecords(500))
	last := map[string]string{} // what was sent last, by key; empty for a tombstone
	var sent atomic.Int64
	producing := make(chan struct{})
	go func() {
		defer close(producing)
		for i := 0; ctx.Err() == nil; i++ {
			burst := make([]*kgo.Record, 20)
			for j := range burst {
				r := &kgo.Record{Topic: "prices", Key: fmt.Append(nil, "key", rand.IntN(200)), Value: fmt.Appendf(nil, "%d %0200d", 20*i+j, i)}
				if rand.IntN(10) == 0 {
					r.Value = nil
				}
				last[string(r.Key)], burst[j] = string(r.Value), r
			}
			if err := producer.ProduceSync(context.WithoutCancel(ctx), burst...).FirstErr(); err != nil {
				t.Error(err)
			}
			sent.Add(int64(len(burst)))
			if !long() { // leave the processor to the tests beside it
				<-time.After(10 * time.Millisecond)
			}
		}
	}()
	defer stop()
	for range kills(2, 12) {
		before := compactions(s)
		until.True(t, "the topic is compacted", func() bool { return compactions(s) > before })
		<-time.After(rand.N(400 * time.Millisecond))
		s.kill()
		s.start()
	}
	stop()
	<-producing
	got, count := map[string]string{}, 0
	until.True(t, "all is compacted", func() bool {
		clear(got)
		count = s.readCompacted("prices", got, map[string]int64{})
		return count <= len(last)
	})
	for key, value := range last {
		if got[key] != value {
			t.Errorf("%s is %.20q, was sent as %.20q last", key, got[key], value)
		}
	}
	t.Logf("%d records sent, %d left", sent.Load(), count)
}

// readCompacted reads the one partition of a topic into values and offsets by key, and returns how many records
// there are.
func (s *server) readCompacted(name string, into map[string]string, at map[string]int64) (count int) {
	s.t.Helper()
	end := s.topicEnds(name)[0]
	client := s.connect(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{name: {0: kgo.NewOffset().At(0)}}))
	defer client.Close()
	ctx, cancel := context.WithTimeout(s.t.Context(), until.Limit)
	defer cancel()
	for next := int64(0); next < end; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			s.t.Fatalf("%s at %d of %d: %v", name, next, end, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset < next {
				s.t.Errorf("%s: offset %d comes after %d", name, r.Offset, next-1)
			}
			into[string(r.Key)], at[string(r.Key)], next = string(r.Value), r.Offset, r.Offset+1
			count++
		})
	}
	return count
}

func kills(short, many int) int {
	if long() {
		return many
	}
	return short
}

// compactions returns how many compactions the server counts since its start.
func compactions(s *server) int {
	count, err := s.metric("topic_compactions_total")
	if err != nil {
		return 0
	}
	return int(count)
}
