package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
)

// The record of a topic lists the nodes that are to keep each partition: its target.
// This file changes targets; each partition's leader then moves its logs there, even if
// leaders change in the meantime: see place.go.

// Reassignment is a partition that is being reassigned.
type Reassignment struct {
	Topic     string
	Partition int32
	// Target lists the brokers that are to keep it, Replicas those that do.
	Target, Replicas []int32
	// Adding and Removing are the differences.
	Adding, Removing []int32
}

// Reassign changes which brokers keep partitions of a topic, the preferred leader
// first; nil cancels a reassignment, and the present brokers continue. Reassign returns
// when that is stored: for the progress, see Reassignments. Errors of single partitions:
// ErrNoPartition, ErrInvalidAssignment, ErrNoReassignment. Other errors: ErrNoTopic,
// ErrView.
func (b *Broker) Reassign(ctx context.Context, name string, moves map[int32][]int32) (refused map[int32]error, err error) {
	t, err := b.withPartitions(ctx, name)
	if err != nil {
		return nil, err
	}
	refused = map[int32]error{}
	actual := map[int32][]int32{}
	for number := range moves {
		if refused[number] = t.Has(number); refused[number] == nil {
			actual[number] = b.actual(ctx, t.all()[number].logName())
			delete(refused, number)
		}
	}
	_, err = b.change(ctx, name, func(record *catalog.Topic) error {
		same := true
		for number, replicas := range moves {
			if int(number) >= len(record.Partitions) || refused[number] != nil {
				continue
			}
			target := &record.Partitions[number].Replicas
			if replicas == nil {
				if replicas = preferredFirst(actual[number], *target); len(replicas) == 0 || sameNodes(replicas, *target) {
					refused[number] = fmt.Errorf("%w: partition %d is not being moved, it is on brokers %v", topic.ErrNoReassignment, number, *target)
					continue
				}
			} else if err := b.checkReplicas(number, replicas, slices.Concat(*target, actual[number])); err != nil {
				refused[number] = err
				continue
			}
			same = same && slices.Equal(*target, replicas)
			*target = slices.Clone(replicas)
		}
		if same {
			return errUnchanged
		}
		return nil
	})
	return refused, unlessUnchanged(err)
}

// errUnchanged cancels a change of a record that would have no effect.
var errUnchanged = errors.New("nothing changes")

func unlessUnchanged(err error) error {
	if errors.Is(err, errUnchanged) {
		return nil
	}
	return err
}

// withPartitions returns a topic that has partitions of its own.
func (b *Broker) withPartitions(ctx context.Context, name string) (*Topic, error) {
	if err := b.catchUp(ctx); err != nil {
		return nil, err
	}
	t, err := b.Topic(name)
	if err == nil && t.source != nil {
		err = fmt.Errorf("%w: %s has the partitions of %s", topic.ErrView, name, t.source.name)
	}
	return t, err
}

// actual returns the nodes that keep a log, in order; none if that is unknown.
func (b *Broker) actual(ctx context.Context, log string) []int32 {
	known, _ := b.replicasOf(ctx, log)
	return known.Nodes
}

func sameNodes(x, y []int32) bool {
	return slices.Equal(slices.Sorted(slices.Values(x)), slices.Sorted(slices.Values(y)))
}

// SetReplicas changes how many brokers keep each partition of a topic: 1 to 5. As many
// replicas as possible stay where they are. Like Reassign, it does not wait for the
// data. Errors: ErrNoTopic, ErrView, ErrInvalidReplicas.
func (b *Broker) SetReplicas(ctx context.Context, name string, count int) error {
	t, err := b.withPartitions(ctx, name)
	if err != nil {
		return err
	}
	if count < 1 || count > topic.MaxReplicas {
		return fmt.Errorf("%w: %d; want 1 to %d", topic.ErrInvalidReplicas, count, topic.MaxReplicas)
	}
	if want := t.Settings().MinInSync; want > topic.Majority(count) {
		return fmt.Errorf("%w: %d, of which %d are the majority; lower %s of %s, which is %d, first", topic.ErrInvalidReplicas, count, topic.Majority(count), topic.SettingMinInSync, name, want)
	}
	_, err = b.retarget(ctx, name, func(ps topic.Places, record *catalog.Topic) error {
		for i := range record.Partitions {
			p := &record.Partitions[i]
			replicas, err := ps.Resize(p.Replicas, count)
			if err != nil {
				return err
			}
			ps.Load(p.Replicas, -1)
			ps.Load(replicas, 1)
			p.Replicas = replicas
		}
		return nil
	})
	return err
}

// retarget changes targets of a topic's partitions, given the load of all nodes, and
// returns how many were changed.
func (b *Broker) retarget(ctx context.Context, name string, change func(topic.Places, *catalog.Topic) error) (changed int, err error) {
	_, err = b.change(ctx, name, func(record *catalog.Topic) error {
		records, err := b.records(ctx)
		if err != nil {
			return err
		}
		before := slices.Clone(record.Partitions)
		if err := change(topic.NewPlaces(b.able(), targetsOf(records)), record); err != nil {
			return err
		}
		changed = 0
		for i := range before {
			if !slices.Equal(before[i].Replicas, record.Partitions[i].Replicas) {
				changed++
			}
		}
		if changed == 0 {
			return errUnchanged
		}
		return nil
	})
	return changed, unlessUnchanged(err)
}

// Reassignments returns the partitions that are being reassigned, as far as their
// replicas are known.
func (b *Broker) Reassignments(ctx context.Context) ([]Reassignment, error) {
	records, err := b.records(ctx)
	if err != nil {
		return nil, err
	}
	var logs []string
	byPartition := map[string][]string{} // by the log of records
	for _, record := range records {
		for number := range record.Partitions {
			all, err := b.logsOf(ctx, record.Topic, number)
			if err != nil {
				return nil, err
			}
			byPartition[all[0]] = all
			logs = append(logs, all...)
		}
	}
	b.awaitReplicas(ctx, logs)
	var moving []Reassignment
	for _, record := range records {
		for number, p := range record.Partitions {
			for _, log := range byPartition[record.Names(number).Records] {
				known, ok := b.replicasOf(ctx, log)
				if !ok || sameNodes(known.Nodes, p.Replicas) {
					continue
				}
				moving = append(moving, Reassignment{
					Topic: record.name, Partition: int32(number), Target: p.Replicas, Replicas: known.Nodes,
					Adding: lacking(known.Nodes, p.Replicas), Removing: lacking(p.Replicas, known.Nodes),
				})
				break // one log that moves is enough
			}
		}
	}
	return moving, nil
}

// lacking returns the wanted nodes that are not there.
func lacking(there, wanted []int32) []int32 {
	var more []int32
	for _, id := range wanted {
		if !slices.Contains(there, id) {
			more = append(more, id)
		}
	}
	return more
}

// balanceMost bounds the partitions that one Balance reassigns.
const balanceMost = 100

// Balance spreads replicas evenly over racks and nodes, for example after a node was
// added, and evens out the preferred leaders. It changes the targets of at most 100
// partitions, and returns how many it changed; 0 means that all is even.
func (b *Broker) Balance(ctx context.Context) (changed int, err error) {
	records, err := b.records(ctx)
	if err != nil {
		return 0, err
	}
	sets := targetsOf(records)
	plan := topic.NewPlaces(b.able(), sets).Balance(sets, balanceMost)
	first := 0 // index in sets of the topic's first partition
	for _, record := range records {
		begin := first
		first += len(record.Partitions)
		if !slices.ContainsFunc(slices.Collect(maps.Keys(plan)), func(i int) bool { return i >= begin && i < first }) {
			continue
		}
		done, err := b.retarget(ctx, record.name, func(_ topic.Places, now *catalog.Topic) error {
			for i, was := range record.Partitions {
				// Keep what another caller has reassigned in the meantime.
				if now.ID == record.ID && i < len(now.Partitions) && slices.Equal(now.Partitions[i].Replicas, was.Replicas) {
					now.Partitions[i].Replicas = sets[begin+i]
				}
			}
			return nil
		})
		changed += done
		if err != nil && !errors.Is(err, topic.ErrNoTopic) {
			return changed, err
		}
	}
	return changed, nil
}
