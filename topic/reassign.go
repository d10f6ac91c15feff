package topic

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// The record of a topic says which nodes are to keep each partition: its target.
// What is here changes targets; the leader of each partition then brings its logs
// there, however often leaders change meanwhile: see place.go.

// Reassignment is a partition that is being moved.
type Reassignment struct {
	Topic     string
	Partition int32
	// Target are the brokers that are to keep it, Replicas those that do.
	Target, Replicas []int32
	// Adding and Removing are the differences.
	Adding, Removing []int32
}

// Reassign changes which brokers keep partitions of a topic, the preferred leader
// first; nil means that a move is cancelled, and those that keep it now go
// on to. It returns when that is stored: the moves take their time, see
// Reassignments. Those that are refused are told one by one: ErrNoPartition,
// ErrInvalidAssignment, ErrNoReassignment. Other errors: ErrNoTopic, ErrView.
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
	_, err = b.change(ctx, name, func(record *topicRecord) error {
		same := true
		for number, replicas := range moves {
			if int(number) >= len(record.Partitions) || refused[number] != nil {
				continue
			}
			target := &record.Partitions[number].Replicas
			if replicas == nil {
				if replicas = preferredFirst(actual[number], *target); len(replicas) == 0 || sameNodes(replicas, *target) {
					refused[number] = fmt.Errorf("%w: partition %d is not being moved, it is on brokers %v", ErrNoReassignment, number, *target)
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

// errUnchanged ends a change of a record that would change nothing.
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
		err = fmt.Errorf("%w: %s has the partitions of %s", ErrView, name, t.source.name)
	}
	return t, err
}

// actual returns the nodes that keep a log, in order; none if nobody knows.
func (b *Broker) actual(ctx context.Context, log string) []int32 {
	if b.cluster == nil {
		return []int32{b.Node()}
	}
	known, _ := b.replicasOf(ctx, log)
	return known.Nodes
}

func sameNodes(x, y []int32) bool {
	return slices.Equal(slices.Sorted(slices.Values(x)), slices.Sorted(slices.Values(y)))
}

// SetReplicas changes how many brokers keep each partition of a topic: 1 to 5. As
// many as possible stay where they are. Like Reassign, it does not wait for the
// moves. Errors: ErrNoTopic, ErrView, ErrInvalidReplicas.
func (b *Broker) SetReplicas(ctx context.Context, name string, count int) error {
	t, err := b.withPartitions(ctx, name)
	if err != nil {
		return err
	}
	if count < 1 || count > maxReplicas {
		return fmt.Errorf("%w: %d; want 1 to %d", ErrInvalidReplicas, count, maxReplicas)
	}
	if want := t.Settings().MinInSync; want > majority(count) {
		return fmt.Errorf("%w: %d, of which %d are the majority; lower %s of %s, which is %d, first", ErrInvalidReplicas, count, majority(count), SettingMinInSync, name, want)
	}
	_, err = b.retarget(ctx, name, func(ps places, record *topicRecord) error {
		for i := range record.Partitions {
			p := &record.Partitions[i]
			replicas, err := ps.resize(p.Replicas, count)
			if err != nil {
				return err
			}
			ps.load(p.Replicas, -1)
			ps.load(replicas, 1)
			p.Replicas = replicas
		}
		return nil
	})
	return err
}

// retarget changes targets of a topic's partitions, with what all nodes have to
// carry, and tells how many were changed.
func (b *Broker) retarget(ctx context.Context, name string, change func(places, *topicRecord) error) (changed int, err error) {
	_, err = b.change(ctx, name, func(record *topicRecord) error {
		records, err := b.records(ctx)
		if err != nil {
			return err
		}
		before := slices.Clone(record.Partitions)
		if err := change(newPlaces(b.able(), targetsOf(records)), record); err != nil {
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

// Reassignments returns the partitions that are being moved, as far as is known
// who keeps them.
func (b *Broker) Reassignments(ctx context.Context) ([]Reassignment, error) {
	if b.cluster == nil {
		return nil, nil
	}
	records, err := b.records(ctx)
	if err != nil {
		return nil, err
	}
	var logs []string
	for _, record := range records {
		for number := range record.Partitions {
			logs = append(logs, record.names(number).records)
		}
	}
	b.awaitReplicas(ctx, logs)
	var moving []Reassignment
	for _, record := range records {
		for number, p := range record.Partitions {
			known, ok := b.replicasOf(ctx, record.names(number).records)
			if !ok || sameNodes(known.Nodes, p.Replicas) {
				continue
			}
			moving = append(moving, Reassignment{
				Topic: record.name, Partition: int32(number), Target: p.Replicas, Replicas: known.Nodes,
				Adding: lacking(known.Nodes, p.Replicas), Removing: lacking(p.Replicas, known.Nodes),
			})
		}
	}
	return moving, nil
}

// lacking returns the nodes that are wanted and are not there.
func lacking(there, wanted []int32) []int32 {
	var more []int32
	for _, id := range wanted {
		if !slices.Contains(there, id) {
			more = append(more, id)
		}
	}
	return more
}

// names returns those of a partition; the record's identity was parsed before.
func (r *topicRecord) names(number int) partitionNames {
	id, _ := parseID(r.ID)
	return namesOf(id, int32(number), r.removals(number))
}

// balanceMost is how many partitions one Balance moves.
const balanceMost = 100

// Balance spreads replicas evenly over racks and nodes, as after a node was added,
// and evens out who is the preferred leader. It changes the targets of at most 100
// partitions, and returns of how many; 0 says that all is even. ErrNoCluster.
func (b *Broker) Balance(ctx context.Context) (changed int, err error) {
	if b.cluster == nil {
		return 0, ErrNoCluster
	}
	records, err := b.records(ctx)
	if err != nil {
		return 0, err
	}
	sets := targetsOf(records)
	plan := newPlaces(b.able(), sets).balance(sets, balanceMost)
	first := 0 // of the topic's partitions, in sets
	for _, record := range records {
		begin := first
		first += len(record.Partitions)
		if !slices.ContainsFunc(slices.Collect(maps.Keys(plan)), func(i int) bool { return i >= begin && i < first }) {
			continue
		}
		done, err := b.retarget(ctx, record.name, func(_ places, now *topicRecord) error {
			for i, was := range record.Partitions {
				// What somebody else has moved meanwhile is left alone.
				if now.ID == record.ID && i < len(now.Partitions) && slices.Equal(now.Partitions[i].Replicas, was.Replicas) {
					now.Partitions[i].Replicas = sets[begin+i]
				}
			}
			return nil
		})
		changed += done
		if err != nil && !errors.Is(err, ErrNoTopic) {
			return changed, err
		}
	}
	return changed, nil
}
