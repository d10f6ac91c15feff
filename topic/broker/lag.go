package broker

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-project/sluice/topic/group"
)

// Lag is how far a consumer group has read a partition.
type Lag struct {
	Group     string
	Topic     string
	Partition int32
	// Committed is the offset that the group has committed; of a share group the one before
	// which all records are done.
	Committed int64
	// End is the high watermark, Lag the number of offsets from Committed to it; both are -1
	// if the partition's leader is not known, or does not answer.
	End, Lag int64
}

// lagOf returns the lag of a commit in a partition that ends at an offset, -1 if that is not
// known. A commit beyond the end, as after records were lost, has none.
func lagOf(name, topic string, partition int32, committed, end int64) Lag {
	lag := Lag{Group: name, Topic: topic, Partition: partition, Committed: committed, End: end, Lag: -1}
	if end >= 0 {
		lag.Lag = max(0, end-committed)
	}
	return lag
}

// topicsAsked is for how many topics of a group leaders are asked concurrently.
const topicsAsked = 16

// GroupLag returns how far a group has read each partition in which it has committed an
// offset, or has a window of a share group, by topic and partition, whatever nodes lead them. Errors: group.ErrNoGroup if
// the group does not exist.
func (b *Broker) GroupLag(ctx context.Context, name string) ([]Lag, error) {
	if err := b.store.Meta().Sync(ctx); err != nil {
		return nil, err
	}
	stored, err := group.StoredOffsets(ctx, b.store.Meta(), name)
	if err != nil {
		return nil, err
	}
	shared, err := b.sharedOffsets(ctx, name)
	if err != nil {
		return nil, err
	}
	stored = append(stored, shared...)
	if len(stored) == 0 {
		if exists, err := group.Stored(ctx, b.store.Meta(), name); err != nil || !exists {
			return nil, cmp.Or(err, fmt.Errorf("%w: %q", group.ErrNoGroup, name))
		}
	}
	ends := make([]map[int32]int64, len(stored))
	var asking errgroup.Group
	asking.SetLimit(topicsAsked)
	for i, in := range stored {
		asking.Go(func() error {
			ends[i] = b.ends(ctx, in.Topic)
			return nil
		})
	}
	_ = asking.Wait() // what is not known is no error
	lags := []Lag{}
	for i, in := range stored {
		for partition, o := range in.Partitions {
			end, known := ends[i][partition]
			if !known {
				end = -1
			}
			lags = append(lags, lagOf(name, in.Topic, partition, o.Offset, end))
		}
	}
	slices.SortFunc(lags, func(x, y Lag) int {
		return cmp.Or(cmp.Compare(x.Topic, y.Topic), cmp.Compare(x.Partition, y.Partition))
	})
	return lags, nil
}

// ends returns the high watermarks of a topic's partitions, as far as their leaders tell.
func (b *Broker) ends(ctx context.Context, name string) map[int32]int64 {
	ends, err := b.endsHere(name)
	if err != nil {
		return nil
	}
	if t, err := b.Topic(name); err == nil && t.source != nil {
		name = t.source.name
	}
	leaders, _ := b.otherLeaders(name) // the ends of those without a leader are not known
	var mu sync.Mutex
	var asking sync.WaitGroup
	for _, at := range leaders {
		asking.Go(func() {
			answer, err := b.askLeader(ctx, at, leaderRequest{Topic: name, Ends: true})
			if err != nil {
				b.log.Debug("ends of partitions not known", "topic", name, "error", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(ends, answer.Offsets)
		})
	}
	asking.Wait()
	return ends
}

// endsHere returns the high watermarks of the partitions of a topic that this broker leads.
func (b *Broker) endsHere(name string) (map[int32]int64, error) {
	t, err := b.Topic(name)
	if err != nil {
		return nil, err
	}
	ends := map[int32]int64{}
	for _, p := range t.Partitions() {
		if p.Ready() == nil {
			ends[p.number] = p.Ends().HighWatermark
		}
	}
	return ends, nil
}

// lagsHere calls each with the lag of all groups in the partitions that this broker leads,
// in the order of groups, topics and partitions, until that returns false.
func (b *Broker) lagsHere(ctx context.Context, each func(Lag) bool) error {
	return group.EachStored(ctx, b.store.Meta(), func(name string, in group.TopicOffsets) bool {
		t, err := b.Topic(in.Topic)
		if err != nil { // it was deleted: its offsets are about to be
			return true
		}
		for _, p := range t.Partitions() {
			o, committed := in.Partitions[p.number]
			if committed && p.Ready() == nil && !each(lagOf(name, in.Topic, p.number, o.Offset, p.Ends().HighWatermark)) {
				return false
			}
		}
		return true
	})
}
