package topic

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"sync/atomic"
	"time"
)

// Spec says what topic to create.
type Spec struct {
	// Name is of letters, digits, ".", "_" and "-", at most 249 characters.
	Name string
	// Partitions is their number; 0 means the broker's default. A view has
	// those of its source: leave it 0.
	Partitions int32
	// Replicas is how many brokers keep each partition; 0 means the default, see
	// Config.Replicas.
	Replicas int16
	// Assignment says which brokers keep each partition, the preferred leader
	// first, in place of Partitions and Replicas.
	Assignment [][]int32
	// Settings are the topic's own, by name; see [SettingsTable].
	Settings map[string]string
}

// Topic is a name with partitions, or a view of one.
type Topic struct {
	name   string
	id     ID
	broker *Broker
	// source is the topic that a view shows a part of.
	source *Topic

	// partitions are all that there are; the first visible ones of them were not
	// removed.
	partitions atomic.Pointer[[]*Partition]
	visible    atomic.Int32
	settings   atomic.Pointer[topicSettings]
	// claiming says that the lead of some of its partitions is being taken.
	claiming atomic.Bool
}

// topicSettings are a topic's settings, and what was made of them.
type topicSettings struct {
	Settings
	own    map[string]string
	filter *Filter // of a view
	broken error   // why a view has no filter
}

// Name returns its name.
func (t *Topic) Name() string { return t.name }

// ID returns its identity.
func (t *Topic) ID() ID { return t.id }

// Settings returns the settings that hold.
func (t *Topic) Settings() Settings { return t.settings.Load().Settings }

// Own returns the settings that were set for the topic, by name.
func (t *Topic) Own() map[string]string { return maps.Clone(t.settings.Load().own) }

// Source returns the topic that a view shows a part of, or nil.
func (t *Topic) Source() *Topic { return t.source }

// Partitions returns the partitions, by number; those of a view are its
// source's. Those that were removed are not there, see RemovePartitions.
func (t *Topic) Partitions() []*Partition {
	if t.source != nil {
		return t.source.Partitions()
	}
	all := t.all()
	return all[:min(len(all), int(t.visible.Load()))]
}

// all returns the partitions with those that were removed and can still be read.
func (t *Topic) all() []*Partition {
	if t.source != nil {
		return t.source.all()
	}
	return *t.partitions.Load()
}

// Partition returns the partition of that number. Errors: ErrNoPartition;
// ErrNotLeader if another broker leads it, or the topics have moved; ErrRetry while
// its log cannot be read.
func (t *Topic) Partition(number int32) (*Partition, error) {
	p, err := t.Find(number)
	if err != nil {
		return nil, err
	}
	if err := t.broker.moving.reads(); err != nil {
		return nil, err
	}
	if err := p.Ready(); err != nil {
		return nil, err
	}
	return p, nil
}

// Find returns the partition of that number, whoever leads it, or ErrNoPartition.
// One that was removed is found as long as it can be read.
func (t *Topic) Find(number int32) (*Partition, error) {
	if all := t.all(); number >= 0 && int(number) < len(all) {
		return all[number], nil
	}
	return nil, t.lacks(number)
}

// Has returns ErrNoPartition if there is no partition of that number.
func (t *Topic) Has(number int32) error {
	_, err := t.Find(number)
	return err
}

func (t *Topic) lacks(number int32) error {
	return fmt.Errorf("%w: %s has 0 to %d, not %d", ErrNoPartition, t.name, len(t.Partitions())-1, number)
}

// Append numbers batches, starts writing them to a partition, and returns
// without waiting for the disk; it waits only while the partition's appends hold
// more memory than they may, and until records that are delayed are durable. The batches become the partition's: the caller must
// not touch them again. What is wrong with them is an error from here,
// what is wrong with the disk one of Appending.Wait. For a view it is ErrView.
func (t *Topic) Append(ctx context.Context, partition int32, batches []Batch) (*Appending, error) {
	if t.source != nil {
		return nil, fmt.Errorf("%w: %s is a view of %s, produce to that", ErrView, t.name, t.source.name)
	}
	p, err := t.Partition(partition)
	if err != nil {
		return nil, err
	}
	if err := t.broker.moving.serves(); err != nil {
		return nil, err
	}
	if int(partition) >= len(t.Partitions()) {
		return nil, t.lacks(partition) // it can only be read
	}
	settings := t.Settings()
	if err := checkBatches(batches, settings, time.Now().UnixMilli()); err != nil {
		return nil, err
	}
	if settings.Delays {
		return p.appendDelaying(ctx, batches, settings.Delay)
	}
	return p.append(ctx, batches, 0)
}

// Read returns whole batches from the one on that holds the offset, at least
// one if there is one, and more up to maxBytes; for a view, what passes it. It
// does not wait: at the high watermark it returns no data. Out of range it is
// ErrOffsetOutOfRange, with the ends set all the same.
func (t *Topic) Read(ctx context.Context, partition int32, offset int64, maxBytes int) (Fetched, error) {
	p, err := t.Partition(partition)
	if err != nil {
		return Fetched{}, err
	}
	if t.source != nil {
		return t.readView(ctx, p, offset, maxBytes)
	}
	return p.read(ctx, offset, maxBytes)
}

// validName is what Kafka allows.
var validName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

func checkName(name string) error {
	if !validName.MatchString(name) || name == "." || name == ".." {
		return fmt.Errorf("%w %q: want 1 to 249 letters, digits, \".\", \"_\" and \"-\"", ErrInvalidName, name)
	}
	return nil
}
