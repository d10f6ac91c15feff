//go:build cluster

package cluster

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/e2e/cluster/history"
)

// groupName is the consumer group of the load.
const groupName = "readers"

// member returns a consumer of the group.
func (l *load) member() *kgo.Client {
	return l.cluster.connect(kgo.ConsumerGroup(groupName), kgo.ConsumeTopics(topicName), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(), kgo.SessionTimeout(10*time.Second), kgo.HeartbeatInterval(500*time.Millisecond),
		kgo.FetchMaxWait(500*time.Millisecond))
}

// consume runs a member of the group: it records the received records, and then commits them.
func (l *load) consume(ctx context.Context, client *kgo.Client) {
	for ctx.Err() == nil {
		soon, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		fetches := client.PollRecords(soon, 5000)
		cancel()
		l.complain("the group", fetches)
		next := map[int32]kgo.EpochOffset{}
		for _, r := range readValues(fetches) {
			l.recorder.Processed(r)
			next[r.Partition] = kgo.EpochOffset{Epoch: -1, Offset: r.Offset + 1}
		}
		if len(next) > 0 {
			asked := l.recorder.Now()
			// A commit that is given up may arrive after the next one.
			client.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{topicName: next},
				func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, response *kmsg.OffsetCommitResponse, err error) {
					if err == nil {
						l.group.answered(asked, next, response)
					}
				})
		}
		client.AllowRebalance()
	}
}

// groupOffsets are the offsets that the group has certainly committed.
type groupOffsets struct {
	load *load
	mu   sync.Mutex
	at   map[int32]int64
}

func newGroupOffsets(l *load) *groupOffsets { return &groupOffsets{load: l, at: map[int32]int64{}} }

// committed returns the highest offsets that were acknowledged or seen.
func (g *groupOffsets) committed() map[int32]int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.at)
}

func (g *groupOffsets) note(c history.Commit) {
	g.load.recorder.Committed(c)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.at[c.Partition] = max(g.at[c.Partition], c.Offset)
}

// answered records the answer to a commit.
func (g *groupOffsets) answered(asked time.Duration, offsets map[int32]kgo.EpochOffset, response *kmsg.OffsetCommitResponse) {
	for _, topic := range response.Topics {
		for _, p := range topic.Partitions {
			if p.ErrorCode == 0 {
				g.note(history.Commit{Partition: p.Partition, Offset: offsets[p.Partition].Offset, Asked: asked})
			}
		}
	}
}

// watch polls the committed offsets.
func (g *groupOffsets) watch(ctx context.Context) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		asked := g.load.recorder.Now()
		within, cancel := context.WithTimeout(ctx, 5*time.Second)
		fetched, err := g.load.admin.FetchOffsets(within, groupName)
		cancel()
		if err != nil {
			continue
		}
		known := g.committed()
		for partition := range int32(g.load.partitions) {
			offset, found := fetched.Lookup(topicName, partition)
			if found && offset.Err != nil {
				continue
			}
			// An offset that is missing from the answer has been lost.
			if found || known[partition] > 0 {
				g.note(history.Commit{Partition: partition, Offset: max(offset.At, 0), Asked: asked, Seen: true})
			}
		}
	}
}
