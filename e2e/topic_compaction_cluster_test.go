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

// updates are the updates of keys that one producer has sent.
type updates struct {
	last    map[string]string // by key; empty for a tombstone
	offsets map[string]int64  // of those
	pause   time.Duration     // after some records: it leaves the processor to the passes
}

func newUpdates() *updates {
	return &updates{map[string]string{}, map[string]int64{}, 10 * time.Millisecond}
}

// send updates random keys, and deletes some, until ctx ends.
func (u *updates) send(ctx context.Context, t *testing.T, by *kgo.Client) {
	for i := 0; ctx.Err() == nil; i++ {
		burst := make([]*kgo.Record, 20)
		for j := range burst {
			burst[j] = &kgo.Record{Topic: smokeTopic, Key: fmt.Append(nil, "key", rand.IntN(200)), Value: fmt.Appendf(nil, "%d %0200d", 20*i+j, i)}
			if rand.IntN(10) == 0 {
				burst[j].Value = nil
			}
		}
		results := by.ProduceSync(context.WithoutCancel(ctx), burst...)
		if err := results.FirstErr(); err != nil {
			t.Error(err)
		}
		for _, result := range results {
			key := string(result.Record.Key)
			if offset, sent := u.offsets[key]; !sent || result.Record.Offset > offset {
				u.last[key], u.offsets[key] = string(result.Record.Value), result.Record.Offset
			}
		}
		<-time.After(u.pause)
	}
}

// check waits until few records are left, and compares them with what was sent.
func (u *updates) check(t *testing.T, by *server) {
	t.Helper()
	got, at, count := by.awaitCompacted(smokeTopic, len(u.last))
	for key, value := range u.last {
		if got[key] != value || at[key] != u.offsets[key] {
			t.Errorf("%s is %.20q at %d, was sent as %.20q at %d last", key, got[key], at[key], value, u.offsets[key])
		}
	}
	t.Logf("%d records left, of %d sent", count, by.topicEnds(smokeTopic)[0])
}

// passes returns how many compactions each node counts since its start.
func (c *nodes) passes() (all []int) {
	for _, node := range c.all {
		all = append(all, compactions(node))
	}
	return all
}

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
	sent, producing := newUpdates(), make(chan struct{})
	go func() {
		defer close(producing)
		sent.send(ctx, t, producer)
	}()
	for range kills(3, 12) {
		before := c.passes()
		until.True(t, "the topic is compacted", func() bool {
			for i, count := range c.passes() {
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
	sent.check(t, c.all[0])
}
