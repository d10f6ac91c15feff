//go:build long

package e2e

import (
	"context"
	"math/rand/v2"
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
	s.newTopic(smokeTopic, 1, "cleanup.policy", "compact", "min.cleanable.dirty.ratio", "0.01", "max.compaction.lag.ms", "1000")
	ctx, stop := context.WithCancel(t.Context())
	producer := s.connect(kgo.RequiredAcks(kgo.AllISRAcks()), kgo.MaxBufferedRecords(500))
	sent, producing := newUpdates(), make(chan struct{})
	if long() {
		sent.pause = 0
	}
	go func() {
		defer close(producing)
		sent.send(ctx, t, producer)
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
	sent.check(t, s)
}

// awaitCompacted waits until the one partition of a topic has so many records at the most, and returns their values and
// offsets by key, and how many there are.
func (s *server) awaitCompacted(name string, most int) (got map[string]string, at map[string]int64, count int) {
	s.t.Helper()
	until.True(s.t, "all is compacted", func() bool {
		got, at = map[string]string{}, map[string]int64{}
		count = s.readCompacted(name, got, at)
		return count <= most
	})
	return got, at, count
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
