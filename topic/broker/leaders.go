package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
)

// electTime bounds how long ElectLeaders waits; electLook is how often it checks.
const (
	electTime = 10 * time.Second
	electLook = 50 * time.Millisecond
)

// ElectLeaders transfers partitions to their preferred leaders and waits for that at
// most 10 seconds. Only a partition's leader can transfer it, so the request is written
// into the topic's record, with the present epoch: the next leader's epoch ends it.
// Errors of single partitions: ErrNoPartition, ErrElectionNotNeeded,
// ErrNoPreferredLeader, and ErrRetry if the transfer has not happened in time. Other
// errors: ErrNoTopic, ErrView.
func (b *Broker) ElectLeaders(ctx context.Context, name string, partitions []int32) (refused map[int32]error, err error) {
	t, err := b.withPartitions(ctx, name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, electTime)
	defer cancel()
	refused, wished := map[int32]error{}, map[int32]int32{}
	targets := map[int32][]int32{}
	record, err := b.topicRecord(ctx, name)
	if err != nil {
		return nil, err
	}
	for _, number := range partitions {
		if err := t.Has(number); err != nil {
			refused[number] = err
			continue
		}
		if int(number) >= len(record.Partitions) {
			refused[number] = fmt.Errorf("%w: %s/%d", topic.ErrNoPartition, name, number)
			continue
		}
		targets[number] = record.Partitions[number].Replicas
		if err := b.checkElection(ctx, record.Names(int(number)).Records, targets[number]); err != nil {
			refused[number] = err
			continue
		}
		wished[number] = targets[number][0]
	}
	if len(wished) == 0 {
		return refused, nil
	}
	if _, err := b.change(ctx, name, func(record *catalog.Topic) error {
		for number := range wished {
			if int(number) < len(record.Partitions) {
				record.Partitions[number].Elect = record.Partitions[number].Epoch
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	b.awaitLeaders(ctx, record, wished)
	for number, preferred := range wished {
		refused[number] = fmt.Errorf("%w: broker %d does not lead %s/%d yet", topic.ErrRetry, preferred, name, number)
	}
	return refused, nil
}

// topicRecord returns a topic's stored record.
func (b *Broker) topicRecord(ctx context.Context, name string) (catalog.Topic, error) {
	item, err := b.store.Meta().Get(ctx, catalog.TopicsPrefix+name)
	if errors.Is(err, topic.ErrNotFound) {
		return catalog.Topic{}, fmt.Errorf("%w: %q", topic.ErrNoTopic, name)
	}
	if err != nil {
		return catalog.Topic{}, err
	}
	return catalog.ReadTopic(item)
}

// checkElection returns why the preferred leader of a log need not or cannot lead it.
func (b *Broker) checkElection(ctx context.Context, log string, target []int32) error {
	preferred := target[0]
	known, err := b.cluster.Replicas(ctx, log)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", topic.ErrNoPreferredLeader, err)
	case known.Leader == preferred:
		return fmt.Errorf("%w: broker %d leads it, which is the preferred one", topic.ErrElectionNotNeeded, preferred)
	case !ready(b.Nodes(), preferred):
		return fmt.Errorf("%w: broker %d, which is preferred, does not answer or is being drained", topic.ErrNoPreferredLeader, preferred)
	case !slices.Contains(known.Current, preferred):
		return fmt.Errorf("%w: broker %d, which is preferred, does not have all of it yet", topic.ErrNoPreferredLeader, preferred)
	}
	return nil
}

// awaitLeaders waits until the wished nodes lead their partitions, and removes those
// that do from wished.
func (b *Broker) awaitLeaders(ctx context.Context, record catalog.Topic, wished map[int32]int32) {
	for {
		for number, preferred := range wished {
			known, err := b.cluster.Replicas(ctx, record.Names(int(number)).Records)
			if err == nil && known.Leader == preferred {
				delete(wished, number)
			}
		}
		if len(wished) == 0 || !lifecycle.Sleep(ctx, nil, electLook) {
			return
		}
	}
}
