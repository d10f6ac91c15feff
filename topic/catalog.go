package topic

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// What the metadata has of topics: one key for each, with compare-and-set.

const topicsPrefix = "topics/"

// topicRecord is what is stored of a topic.
type topicRecord struct {
	ID         string            `json:"id"`
	Partitions []partitionRecord `json:"partitions"`
	Settings   map[string]string `json:"settings,omitempty"`
	// Delays says that its records may be delayed, or could be once.
	Delays bool `json:"delays,omitempty"`
	// Deleting says that its logs are being removed; the key goes after them.
	Deleting bool `json:"deleting,omitempty"`
	// Deleter is the node that removes them, while it is alive.
	Deleter int32 `json:"deleter,omitempty"`
	// Removed has, by number, where partitions ended that were removed.
	Removed map[int]removedPartition `json:"removed,omitempty"`
}

// partitionRecord is what is stored of a partition.
type partitionRecord struct {
	// Epoch is that of the present leader: it rises whenever a broker begins to
	// lead the partition.
	Epoch int32 `json:"epoch"`
	// Leader is the node that has claimed that epoch; 0 before the first, and
	// without a cluster.
	Leader int32 `json:"leader,omitempty"`
	// Start is the first offset that may be read, where records were deleted.
	Start int64 `json:"start,omitempty"`
	// Replicas are the brokers that keep it; the first is preferred as leader.
	Replicas []int32 `json:"replicas"`
	// Elect is the epoch in which somebody wished that the preferred leader leads.
	Elect int32 `json:"elect,omitempty"`
	// Until is when a partition that was removed is deleted, in milliseconds since
	// the epoch; 0: it was not removed. Deleting says that its logs are being
	// removed; its place goes after them.
	Until    int64 `json:"until,omitempty"`
	Deleting bool  `json:"deleting,omitempty"`
}

// change reads a topic's record, changes it, and stores it, as often as others
// change it meanwhile. ErrNotLeader if the topics are being moved elsewhere.
func (b *Broker) change(ctx context.Context, name string, change func(*topicRecord) error) (topicRecord, error) {
	if err := b.moving.serves(); err != nil {
		return topicRecord{}, err
	}
	return b.changeFenced(ctx, name, change)
}

// changeFenced is change, also while they are.
func (b *Broker) changeFenced(ctx context.Context, name string, change func(*topicRecord) error) (topicRecord, error) {
	for {
		item, err := b.store.Meta().Get(ctx, topicsPrefix+name)
		if errors.Is(err, ErrNotFound) {
			return topicRecord{}, fmt.Errorf("%w: %q", ErrNoTopic, name)
		}
		if err != nil {
			return topicRecord{}, err
		}
		record, err := readTopicRecord(item)
		if err != nil {
			return topicRecord{}, err
		}
		if err := change(&record); err != nil {
			return topicRecord{}, err
		}
		err = b.putTopic(ctx, name, record, item.Revision)
		if !errors.Is(err, ErrConflict) {
			return record, err
		}
		if err := b.moving.serves(); err != nil {
			return topicRecord{}, err
		}
		// What another node has written is not known here by itself.
		if err := b.store.Meta().Sync(ctx); err != nil {
			return topicRecord{}, err
		}
	}
}

func (b *Broker) putTopic(ctx context.Context, name string, record topicRecord, revision uint64) error {
	value, err := json.Marshal(record)
	if err != nil {
		return err
	}
	_, err = b.store.Meta().Put(ctx, topicsPrefix+name, value, revision, b.unmoved()...)
	return err
}

func readTopicRecord(item Item) (topicRecord, error) {
	var record topicRecord
	if err := json.Unmarshal(item.Value, &record); err != nil {
		return record, fmt.Errorf("metadata of %s: %w", item.Key, err)
	}
	if _, err := parseID(record.ID); err != nil {
		return record, fmt.Errorf("metadata of %s: %w", item.Key, err)
	}
	return record, nil
}

// saveStart stores the first offset that may be read of a partition.
func (b *Broker) saveStart(ctx context.Context, p *Partition, start int64) error {
	_, err := b.change(ctx, p.topic.name, func(record *topicRecord) error {
		if int(p.number) >= len(record.Partitions) || record.ID != p.topic.id.String() || record.Deleting {
			return fmt.Errorf("%w: %s", ErrNoPartition, p)
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

// ID is the identity of a topic: one that is deleted and made again has another.
type ID [16]byte

func (id ID) String() string { return hex.EncodeToString(id[:]) }

func newID() ID {
	var id ID
	_, _ = rand.Read(id[:]) // does not fail
	return id
}

func parseID(text string) (ID, error) {
	var id ID
	bytes, err := hex.DecodeString(text)
	if err != nil || len(bytes) != len(id) {
		return id, fmt.Errorf("id %q: want %d bytes in hexadecimal", text, len(id))
	}
	copy(id[:], bytes)
	return id, nil
}

// producerIDs is how many producer ids are taken at a time; those that are not
// used when the broker ends are lost.
const (
	producerIDs    = 1000
	producerIDsKey = "producer-ids"
)

// NewProducerID returns an id that no other producer has or had.
func (b *Broker) NewProducerID(ctx context.Context) (int64, error) {
	if err := b.moving.serves(); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrCoordinatorLoading, err)
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
		item, err := b.store.Meta().Get(ctx, producerIDsKey)
		switch {
		case errors.Is(err, ErrNotFound):
		case err != nil:
			return 0, err
		default:
			if begin, err = strconv.ParseInt(string(item.Value), 10, 64); err != nil {
				return 0, fmt.Errorf("metadata of %s: %w", producerIDsKey, err)
			}
		}
		next := strconv.FormatInt(begin+producerIDs, 10)
		_, err = b.store.Meta().Put(ctx, producerIDsKey, []byte(next), item.Revision, b.unmoved()...)
		if !errors.Is(err, ErrConflict) {
			return begin, err
		}
		if err := b.moving.serves(); err != nil {
			return 0, fmt.Errorf("%w: %w", ErrCoordinatorLoading, err)
		}
		if err := b.store.Meta().Sync(ctx); err != nil {
			return 0, err
		}
	}
}

// firstProducerID returns where the ids of a store begin: each store somewhere else,
// so that those of a store which is moved into another are of nobody there. Below
// 2^52 they are exact also for clients whose numbers are floating-point.
func firstProducerID() int64 {
	var random [8]byte
	_, _ = rand.Read(random[:]) // does not fail
	return (1<<40 + int64(binary.BigEndian.Uint64(random[:])>>13)) / producerIDs * producerIDs
}

const clusterKey = "cluster"

// loadClusterID returns the identity of the cluster, made at the first start.
func loadClusterID(ctx context.Context, meta Meta) (string, error) {
	item, err := meta.Get(ctx, clusterKey)
	if !errors.Is(err, ErrNotFound) {
		return string(item.Value), err
	}
	id := newID()
	made := base64.RawURLEncoding.EncodeToString(id[:])
	if _, err = meta.Put(ctx, clusterKey, []byte(made), 0); err == nil {
		return made, nil
	}
	if !errors.Is(err, ErrConflict) {
		return "", err
	}
	if err := meta.Sync(ctx); err != nil {
		return "", err
	}
	item, err = meta.Get(ctx, clusterKey)
	return string(item.Value), err
}
