package topic

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// defaultReplicas is how many nodes keep a partition if nobody says otherwise and
// there are as many.
const defaultReplicas = 3

// targets returns the nodes of count new partitions: those that are given, one
// list for each, or else well spread ones; wanted 0 or -1 means the default.
// Errors: ErrInvalidReplicas, ErrInvalidAssignment, and those of the metadata.
func (b *Broker) targets(ctx context.Context, first, count int32, wanted int16, given [][]int32) ([][]int32, error) {
	if len(given) > 0 {
		if int64(len(given)) != int64(count) {
			return nil, fmt.Errorf("%w: it is for %d partitions, %d are new", ErrInvalidAssignment, len(given), count)
		}
		for i, set := range given {
			if err := b.checkReplicas(first+int32(i), set, nil); err != nil {
				return nil, err
			}
		}
		return given, nil
	}
	if wanted < -1 {
		return nil, fmt.Errorf("%w: %d; want 1 to %d, or 0 or -1 for the default", ErrInvalidReplicas, wanted, maxReplicas)
	}
	if b.cluster == nil {
		if wanted > 1 {
			return nil, fmt.Errorf("%w: %d replicas on 1 broker", ErrInvalidReplicas, wanted)
		}
		return slices.Repeat([][]int32{{b.Node()}}, int(count)), nil
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
	return newPlaces(nodes, targetsOf(records)).assign(int(count), replicas)
}

// there returns those of some nodes that are alive: a log is made on them, and
// brought to the others when they are back.
func (b *Broker) there(nodes []int32) []int32 {
	if b.cluster == nil {
		return nodes
	}
	alive := b.Alive()
	return slices.DeleteFunc(slices.Clone(nodes), func(id int32) bool { return !slices.Contains(alive, id) })
}

// able returns the nodes that may keep replicas: with those that are alive and have
// just not registered yet, or a topic that is made while a cluster starts would have
// too few.
func (b *Broker) able() []Node {
	nodes := b.Nodes()
	for _, id := range b.Alive() {
		if !slices.ContainsFunc(nodes, func(n Node) bool { return n.ID == id }) {
			nodes = append(nodes, Node{ID: id, Alive: true})
		}
	}
	return nodes
}

// defaultReplicas is that of topics, given the nodes.
func (b *Broker) defaultReplicas(nodes []Node) int {
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

// DefaultReplicas is how many nodes keep each partition of a topic whose creator
// does not say: Config.Replicas, or what it is by default with the nodes that there
// are.
func (b *Broker) DefaultReplicas() int16 { return int16(b.defaultReplicas(b.able())) }

// checkReplicas returns an ErrInvalidAssignment if a partition that is on some
// nodes cannot be on others: each must belong to the cluster, and be alive and not
// draining if it is new there.
func (b *Broker) checkReplicas(number int32, replicas, before []int32) error {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%w: partition %d on brokers %v: %s", ErrInvalidAssignment, number, replicas, fmt.Sprintf(format, args...))
	}
	nodes := b.able()
	if have := []int32{b.Node()}; b.cluster == nil && !slices.Equal(replicas, have) {
		return wrong("there is one broker, so want %v", have)
	}
	if len(replicas) < 1 || len(replicas) > maxReplicas {
		return wrong("want 1 to %d", maxReplicas)
	}
	for i, id := range replicas {
		at := slices.IndexFunc(nodes, func(n Node) bool { return n.ID == id })
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

// namedRecord is a topic's record under its name.
type namedRecord struct {
	name string
	topicRecord
}

// records returns those of all topics that are not being deleted, by name.
func (b *Broker) records(ctx context.Context) ([]namedRecord, error) {
	items, err := b.store.Meta().List(ctx, topicsPrefix)
	if err != nil {
		return nil, err
	}
	var records []namedRecord
	for _, item := range items {
		record, err := readTopicRecord(item)
		if err != nil {
			return nil, err
		}
		if !record.Deleting {
			records = append(records, namedRecord{item.Key[len(topicsPrefix):], record})
		}
	}
	slices.SortFunc(records, func(x, y namedRecord) int { return cmp.Compare(x.name, y.name) })
	return records, nil
}

// targetsOf returns the nodes of all partitions of records.
func targetsOf(records []namedRecord) [][]int32 {
	var sets [][]int32
	for _, record := range records {
		for _, p := range record.Partitions {
			sets = append(sets, p.Replicas)
		}
	}
	return sets
}
