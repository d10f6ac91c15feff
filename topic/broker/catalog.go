package broker

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
	"github.com/sluice-project/sluice/topic/group"
)

// Topics in the metadata: one key for each, with compare-and-set.

// change reads a topic's record, changes it, and stores it; it repeats this on
// conflicts. It returns ErrNotLeader if the topics are being migrated. With guards, which may
// be what conflicts, it tries once and returns ErrConflict.
func (b *Broker) change(ctx context.Context, name string, change func(*catalog.Topic) error, guards ...topic.Guard) (catalog.Topic, error) {
	if err := b.moving.serves(); err != nil {
		return catalog.Topic{}, err
	}
	return b.changeFenced(ctx, name, change, guards...)
}

// changeFenced is change, but works during a migration too.
func (b *Broker) changeFenced(ctx context.Context, name string, change func(*catalog.Topic) error, guards ...topic.Guard) (catalog.Topic, error) {
	for {
		item, err := b.store.Meta().Get(ctx, catalog.TopicsPrefix+name)
		if errors.Is(err, topic.ErrNotFound) {
			return catalog.Topic{}, fmt.Errorf("%w: %q", topic.ErrNoTopic, name)
		}
		if err != nil {
			return catalog.Topic{}, err
		}
		record, err := catalog.ReadTopic(item)
		if err != nil {
			return catalog.Topic{}, err
		}
		if err := change(&record); err != nil {
			return catalog.Topic{}, err
		}
		err = b.putTopic(ctx, name, record, item.Revision, guards...)
		if len(guards) > 0 || !errors.Is(err, topic.ErrConflict) {
			return record, err
		}
		if err := b.moving.serves(); err != nil {
			return catalog.Topic{}, err
		}
		// Learn what other nodes have written.
		if err := b.store.Meta().Sync(ctx); err != nil {
			return catalog.Topic{}, err
		}
	}
}

func (b *Broker) putTopic(ctx context.Context, name string, record catalog.Topic, revision uint64, guards ...topic.Guard) error {
	value, err := record.Encode()
	if err != nil {
		return err
	}
	_, err = b.store.Meta().Put(ctx, catalog.TopicsPrefix+name, value, revision, append(b.unmoved(), guards...)...)
	return err
}

// saveStart stores a partition's first readable offset.
func (b *Broker) saveStart(ctx context.Context, p *Partition, start int64) error {
	_, err := b.change(ctx, p.topic.name, func(record *catalog.Topic) error {
		if int(p.number) >= len(record.Partitions) || record.ID != p.topic.id.String() || record.Deleting {
			return fmt.Errorf("%w: %s", topic.ErrNoPartition, p)
		}
		saved := &record.Partitions[p.number]
		if err := p.stillLeads(*saved); err != nil {
			return err
		}
		saved.Start = max(saved.Start, start)
		return nil
	})
	return err
}

// producerIDs is how many producer ids are claimed at a time; unused ones are lost
// when the broker ends.
const (
	producerIDs = 1000
)

// NewProducerID returns an id that no other producer has or had.
func (b *Broker) NewProducerID(ctx context.Context) (int64, error) {
	if err := b.moving.serves(); err != nil {
		return 0, fmt.Errorf("%w: %w", group.ErrCoordinatorLoading, err)
	}
	b.ids.mu.Lock()
	defer b.ids.mu.Unlock()
	if b.ids.next == b.ids.end {
		begin, err := b.takeProducerIDs(ctx)
		if err != nil {
			return 0, err
		}
		b.ids.next, b.ids.end = begin, begin+producerIDs
	}
	b.ids.next++
	return b.ids.next - 1, nil
}

func (b *Broker) takeProducerIDs(ctx context.Context) (int64, error) {
	for {
		begin := firstProducerID()
		item, err := b.store.Meta().Get(ctx, catalog.ProducerIDsKey)
		switch {
		case errors.Is(err, topic.ErrNotFound):
		case err != nil:
			return 0, err
		default:
			if begin, err = strconv.ParseInt(string(item.Value), 10, 64); err != nil {
				return 0, fmt.Errorf("metadata of %s: %w", catalog.ProducerIDsKey, err)
			}
		}
		next := strconv.FormatInt(begin+producerIDs, 10)
		_, err = b.store.Meta().Put(ctx, catalog.ProducerIDsKey, []byte(next), item.Revision, b.unmoved()...)
		if !errors.Is(err, topic.ErrConflict) {
			return begin, err
		}
		if err := b.moving.serves(); err != nil {
			return 0, fmt.Errorf("%w: %w", group.ErrCoordinatorLoading, err)
		}
		if err := b.store.Meta().Sync(ctx); err != nil {
			return 0, err
		}
	}
}

// firstProducerID returns a random first id for a store: so the ids of a store that
// is migrated into another do not collide there. Ids below 2^52 are exact also in
// clients whose numbers are floating-point.
func firstProducerID() int64 {
	var random [8]byte
	_, _ = rand.Read(random[:]) // does not fail
	return (1<<40 + int64(binary.BigEndian.Uint64(random[:])>>13)) / producerIDs * producerIDs
}
