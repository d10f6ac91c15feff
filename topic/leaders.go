package topic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
)

// electTime bounds how long ElectLeaders waits, and electLook is how often it
// looks.
const (
	electTime = 10 * time.Second
	electLook = 50 * time.Millisecond
)

// ElectLeaders lets the preferred leaders of partitions lead them, and waits, at
// most 10 seconds, until they do. Only the node that leads one can hand it over, so
// the wish is written into the topic's record, with the epoch in which it was
// made: with the next leader it is over. The errors, one for each partition that is not led by
// another now: ErrNoPartition, ErrElectionNotNeeded, ErrNoPreferredLeader, and
// ErrRetry if it has not happened in time. Other errors: ErrNoTopic, ErrView.
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
			refused[number] = fmt.Errorf("%w: %s/%d", ErrNoPartition, name, number)
			continue
		}
		targets[number] = record.Partitions[number].Replicas
		if err := b.checkElection(ctx, record.names(int(number)).records, targets[number]); err != nil {
			refused[number] = err
			continue
		}
		wished[number] = targets[number][0]
	}
	if len(wished) == 0 {
		return refused, nil
	}
	if _, err := b.change(ctx, name, func(record *topicRecord) error {
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
		refused[number] = fmt.Errorf("%w: broker %d does not lead %s/%d yet", ErrRetry, preferred, name, number)
	}
	return refused, nil
}

// topicRecord returns what is stored of a topic.
func (b *Broker) topicRecord(ctx context.Context, name string) (topicRecord, error) {
	item, err := b.store.Meta().Get(ctx, topicsPrefix+name)
	if errors.Is(err, ErrNotFound) {
		return topicRecord{}, fmt.Errorf("%w: %q", ErrNoTopic, name)
	}
	if err != nil {
		return topicRecord{}, err
	}
	return readTopicRecord(item)
}

// checkElection tells why the preferred leader of a log need not or cannot lead it.
func (b *Broker) checkElection(ctx context.Context, log string, target []int32) error {
	cluster := b.cluster
	if cluster == nil {
		return fmt.Errorf("%w: broker %d leads it, the only one that has it", ErrElectionNotNeeded, b.Node())
	}
	preferred := target[0]
	known, err := cluster.Replicas(ctx, log)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrNoPreferredLeader, err)
	case known.Leader == preferred:
		return fmt.Errorf("%w: broker %d leads it, which is the preferred one", ErrElectionNotNeeded, preferred)
	case !ready(b.Nodes(), preferred):
		return fmt.Errorf("%w: broker %d, which is preferred, does not answer or is being drained", ErrNoPreferredLeader, preferred)
	case !slices.Contains(known.Current, preferred):
		return fmt.Errorf("%w: broker %d, which is preferred, does not have all of it yet", ErrNoPreferredLeader, preferred)
	}
	return nil
}

// awaitLeaders waits until the wished nodes lead partitions, and removes those that
// do.
func (b *Broker) awaitLeaders(ctx context.Context, record topicRecord, wished map[int32]int32) {
	for {
		for number, preferred := range wished {
			known, err := b.cluster.Replicas(ctx, record.names(int(number)).records)
			if err == nil && known.Leader == preferred {
				delete(wished, number)
			}
		}
		if len(wished) == 0 || !lifecycle.Sleep(ctx, nil, electLook) {
			return
		}
	}
}
