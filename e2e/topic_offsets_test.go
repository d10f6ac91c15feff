package e2e

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// committedOffsets has the lower bounds of the committed offsets of one group.
type committedOffsets struct {
	t     *testing.T
	group string
	admin *kadm.Client
	looks int

	mu sync.Mutex
	// floors are the acknowledged or seen offsets, by topic and partition.
	floors map[string]map[int32]int64
}

func newCommittedOffsets(s *server, group string, topics ...string) *committedOffsets {
	o := &committedOffsets{t: s.t, group: group, admin: kadm.NewClient(s.connect()), floors: map[string]map[int32]int64{}}
	for _, name := range topics {
		o.floors[name] = map[int32]int64{}
	}
	return o
}

// raise records that an offset was certainly committed.
func (o *committedOffsets) raise(topic string, partition int32, offset int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.floors[topic][partition] = max(o.floors[topic][partition], offset)
}

func (o *committedOffsets) floor(topic string, partition int32) int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.floors[topic][partition]
}

// watch polls the committed offsets: none may be below one that was acknowledged or seen before.
func (o *committedOffsets) watch(ctx context.Context) {
	for ctx.Err() == nil {
		o.mu.Lock()
		floors := map[string]map[int32]int64{}
		for name := range o.floors {
			floors[name] = maps.Clone(o.floors[name])
		}
		o.mu.Unlock()
		fetched, err := o.admin.FetchOffsets(ctx, o.group)
		if err == nil {
			o.looks++
			o.compare(floors, fetched)
		} else if ctx.Err() == nil && !awayOrLoading(err) {
			o.t.Errorf("fetch the offsets of %s: %v", o.group, err)
		}
		pause(ctx, 15*time.Millisecond)
	}
}

// awayOrLoading reports whether an error means only that the broker cannot answer now.
func awayOrLoading(err error) bool {
	var told *kerr.Error
	var lost *kgo.ErrDataLoss
	return !errors.As(err, &lost) && (!errors.As(err, &told) || told.Retriable)
}

func (o *committedOffsets) compare(floors map[string]map[int32]int64, fetched kadm.OffsetResponses) {
	for name, partitions := range floors {
		for partition, floor := range partitions {
			got, found := fetched.Lookup(name, partition)
			switch {
			case found && got.Err != nil && awayOrLoading(got.Err):
			case !found || got.Err != nil || got.At < floor:
				o.t.Errorf("group %s, %s/%d: committed is %d (found %t, error %v), and it was %d before",
					o.group, name, partition, got.At, found, got.Err, floor)
			default:
				o.raise(name, partition, got.At)
			}
		}
	}
}

// commitAll commits one offset after another, for all partitions.
func (o *committedOffsets) commitAll(ctx context.Context, topics map[string]int) {
	for n := int64(1); ctx.Err() == nil; n++ {
		var offsets kadm.Offsets
		for name, partitions := range topics {
			for partition := range partitions {
				offsets.AddOffset(name, int32(partition), n, -1)
			}
		}
		committed, err := o.admin.CommitOffsets(ctx, o.group, offsets)
		if err != nil {
			pause(ctx, 10*time.Millisecond)
			continue // the next one is higher
		}
		committed.Each(func(c kadm.OffsetResponse) {
			if c.Err == nil {
				o.raise(c.Topic, c.Partition, n)
			}
		})
	}
}

// answered records the answer to a commit; it is the callback of CommitOffsetsSync.
func (o *committedOffsets) answered(_ *kgo.Client, request *kmsg.OffsetCommitRequest, response *kmsg.OffsetCommitResponse, err error) {
	if err != nil {
		return
	}
	asked := map[string]map[int32]int64{}
	for _, topic := range request.Topics {
		asked[topic.Topic] = map[int32]int64{}
		for _, partition := range topic.Partitions {
			asked[topic.Topic][partition.Partition] = partition.Offset
		}
	}
	for _, topic := range response.Topics {
		for _, partition := range topic.Partitions {
			if partition.ErrorCode == 0 {
				o.raise(topic.Topic, partition.Partition, asked[topic.Topic][partition.Partition])
			}
		}
	}
}
