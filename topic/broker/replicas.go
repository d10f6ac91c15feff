package broker

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
	"github.com/sluice-project/sluice/topic/compact"
)

// defaultReplicas is how many nodes keep a partition by default, if there are as many.
const defaultReplicas = 3

// targets returns the nodes of count new partitions: the given ones, one list for
// each, or else well spread ones; wanted 0 or -1 means the default. Errors:
// ErrInvalidReplicas, ErrInvalidAssignment, and those of the metadata.
func (b *Broker) targets(ctx context.Context, first, count int32, wanted int16, given [][]int32) ([][]int32, error) {
	if len(given) > 0 {
		if int64(len(given)) != int64(count) {
			return nil, fmt.Errorf("%w: it is for %d partitions, %d are new", topic.ErrInvalidAssignment, len(given), count)
		}
		for i, set := range given {
			if err := b.checkReplicas(first+int32(i), set, nil); err != nil {
				return nil, err
			}
		}
		return given, nil
	}
	if wanted < -1 {
		return nil, fmt.Errorf("%w: %d; want 1 to %d, or 0 or -1 for the default", topic.ErrInvalidReplicas, wanted, topic.MaxReplicas)
	}
	records, err := b.records(ctx)
	if err != nil {
		return nil, err
	}
	nodes := b.able()
	replicas := int(wanted)
	if replicas <= 0 {
		replicas = b.defaultReplicas(nodes)
	}
	return topic.NewPlaces(nodes, targetsOf(records)).Assign(int(count), replicas)
}

// there returns the nodes that are alive: a log is created on them, and copied to the
// others when they are back.
func (b *Broker) there(nodes []int32) []int32 {
	alive := b.Alive()
	return slices.DeleteFunc(slices.Clone(nodes), func(id int32) bool { return !slices.Contains(alive, id) })
}

// able returns the nodes that may keep replicas.
func (b *Broker) able() []topic.Node { return topic.WithAlive(b.Nodes(), b.Alive()) }

// defaultReplicas returns the default number of replicas for the given nodes.
func (b *Broker) defaultReplicas(nodes []topic.Node) int {
	if b.config.Replicas > 0 {
		return int(b.config.Replicas)
	}
	able := 0
	for _, n := range nodes {
		if !n.Draining {
			able++
		}
	}
	return max(min(defaultReplicas, able), 1)
}

// DefaultReplicas returns how many nodes keep each partition of a topic whose creator
// gives no number: Config.Replicas, or its default for the present nodes.
func (b *Broker) DefaultReplicas() int16 { return int16(b.defaultReplicas(b.able())) }

// checkReplicas returns an ErrInvalidAssignment if a partition cannot be reassigned
// from before to replicas: each node must belong to the cluster, and a new one must be
// alive and not draining.
func (b *Broker) checkReplicas(number int32, replicas, before []int32) error {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%w: partition %d on brokers %v: %s", topic.ErrInvalidAssignment, number, replicas, fmt.Sprintf(format, args...))
	}
	nodes := b.able()
	if len(replicas) < 1 || len(replicas) > topic.MaxReplicas {
		return wrong("want 1 to %d", topic.MaxReplicas)
	}
	for i, id := range replicas {
		at := slices.IndexFunc(nodes, func(n topic.Node) bool { return n.ID == id })
		switch {
		case slices.Contains(replicas[:i], id):
			return wrong("broker %d is there twice", id)
		case at < 0:
			return wrong("there is no broker %d", id)
		case slices.Contains(before, id):
		case nodes[at].Draining:
			return wrong("broker %d is being drained", id)
		case !nodes[at].Alive:
			return wrong("broker %d does not answer", id)
		}
	}
	return nil
}

// namedRecord is a topic's record with its name.
type namedRecord struct {
	name string
	catalog.Topic
}

// records returns the records of all topics that are not being deleted, by name.
func (b *Broker) records(ctx context.Context) ([]namedRecord, error) {
	items, err := b.store.Meta().List(ctx, catalog.TopicsPrefix)
	if err != nil {
		return nil, err
	}
	var records []namedRecord
	for _, item := range items {
		record, err := catalog.ReadTopic(item)
		if err != nil {
			return nil, err
		}
		if !record.Deleting {
			records = append(records, namedRecord{item.Key[len(catalog.TopicsPrefix):], record})
		}
	}
	slices.SortFunc(records, func(x, y namedRecord) int { return cmp.Compare(x.name, y.name) })
	return records, nil
}

// logsOf returns the names of the logs that a partition consists of, first that of its records. That of
// delayed records may not have been made, and the clean generation may have been replaced since.
func (b *Broker) logsOf(ctx context.Context, record catalog.Topic, number int) ([]string, error) {
	names := record.Names(number)
	logs := []string{names.Records}
	if record.Delays {
		logs = append(logs, names.Delays)
	}
	compacted, _, err := compact.ReadRecord(ctx, b.store.Meta(), names)
	if compacted.Log != "" {
		logs = append(logs, compacted.Log)
	}
	return logs, err
}

// targetsOf returns the targets of all partitions of records.
func targetsOf(records []namedRecord) [][]int32 {
	var sets [][]int32
	for _, record := range records {
		sets = append(sets, record.Replicas()...)
	}
	return sets
}
