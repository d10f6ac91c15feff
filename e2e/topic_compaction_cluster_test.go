//go:build long

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// A producer updates keys, and deletes some, while three nodes compact their topic and random ones, often
// the leader, are killed at random moments. At the end a reader finds for each key what was sent last, under its
// offset, no deleted key, and few records.
func TestTopicCompactionKillInACluster(t *testing.T) {
	t.Parallel()
	c := startNodes(t, 3)
	admin := kadm.NewClient(c.all[0].connect())
	one, now := "0.01", "1000"
	policy := "compact"
	settings := map[string]*string{"cleanup.policy": &policy, "min.cleanable.dirty.ratio": &one, "max.compaction.lag.ms": &now}
	if _, err := admin.CreateTopic(t.Context(), 1, 3, settings, smokeTopic); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	producer := c.all[0].connect(kgo.RequiredAcks(kgo.AllISRAcks()), kgo.MaxBufferedRecords(500))
	last := map[string]string{}   // what was sent last, by key; empty for a tombstone
	offsets := map[string]int64{} // of that
	producing := make(chan struct{})
	go func() {
		defer close(producing)
		for i := 0; ctx.Err() == nil; i++ {
			burst := make([]*kgo.Record, 20)
			for j := range burst {
				r := &kgo.Record{Topic: smokeTopic, Key: fmt.Append(nil, "key", rand.IntN(200)), Value: fmt.Appendf(nil, "%d %0200d", 20*i+j, i)}
				if rand.IntN(10) == 0 {
					r.Value = nil
				}
				burst[j] = r
			}
			results := producer.ProduceSync(context.WithoutCancel(ctx), burst...)
			if err := results.FirstErr(); err != nil {
				t.Error(err)
			}
			for _, result := range results {
				key := string(result.Record.Key)
				if offset, sent := offsets[key]; !sent || result.Record.Offset > offset {
					last[key], offsets[key] = string(result.Record.Value), result.Record.Offset
				}
			}
			<-time.After(10 * time.Millisecond) // leave the processor to the passes
		}
	}()
	passes := func() (all [3]int) {
		for i, node := range c.all {
			all[i] = compactions(node)
		}
		return all
	}
	for range kills(3, 12) {
		before := passes()
		until.True(t, "the topic is compacted", func() bool {
			for i, count := range passes() {
				if count > before[i] {
					return true
				}
			}
			return false
		})
		<-time.After(rand.N(400 * time.Millisecond))
		victim := c.all[rand.IntN(3)]
		if rand.IntN(2) == 0 {
			victim = c.leaderOf(admin, 0)
		}
		victim.kill()
		if rand.IntN(2) == 0 { // the others elect a leader, and compact without it
			<-time.After(rand.N(20 * time.Second))
		}
		victim.start()
		c.settle(c.all[0], 3)
	}
	stop()
	<-producing
	got, at, count := map[string]string{}, map[string]int64{}, 0
	until.True(t, "all is compacted", func() bool {
		clear(got)
		clear(at)
		count = c.all[0].readCompacted(smokeTopic, got, at)
		return count <= len(last)
	})
	for key, value := range last {
		if got[key] != value || at[key] != offsets[key] {
			t.Errorf("%s is %.20q at %d, was sent as %.20q at %d last", key, got[key], at[key], value, offsets[key])
		}
	}
	t.Logf("%d records left, of %d sent; passes since the last start: %v", count, c.all[0].topicEnds(smokeTopic)[0], passes())
}
