package broker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
	"github.com/sluice-project/sluice/topic/view"
)

// Topic is a name with partitions, or a view of one.
type Topic struct {
	name   string
	id     topic.ID
	owner  string // as in the record
	lends  bool
	broker *Broker
	// source is the topic that a view shows a part of.
	source *Topic

	// partitions holds all partitions, those that were not removed first; visible is the
	// number of these.
	partitions atomic.Pointer[[]*Partition]
	visible    atomic.Int32
	settings   atomic.Pointer[topicSettings]
	// claiming reports whether some of its partitions are being claimed.
	claiming atomic.Bool
	// lastRecord is the last result of recordIn.
	lastRecord atomic.Pointer[topicRecord]
}

// topicSettings holds a topic's settings, and the filter built from them.
type topicSettings struct {
	topic.Settings
	own    map[string]string
	filter *view.Filter // filter of a view
	broken error        // why a view has no filter
}

// Name returns the topic's name.
func (t *Topic) Name() string { return t.name }

// ID returns the topic's identity.
func (t *Topic) ID() topic.ID { return t.id }

// Settings returns the effective settings.
func (t *Topic) Settings() topic.Settings { return t.settings.Load().Settings }

// Own returns the settings that were set for the topic, by name.
func (t *Topic) Own() map[string]string { return maps.Clone(t.settings.Load().own) }

// Source returns the topic that a view shows a part of, or nil.
func (t *Topic) Source() *Topic { return t.source }

// Lends reports, of a view, that a right to it is enough to read it: who created it may read its source.
func (t *Topic) Lends() bool { return t.lends }

// Partitions returns the partitions, by number; those of a view are its source's.
// Removed partitions are not included, see RemovePartitions.
func (t *Topic) Partitions() []*Partition {
	if t.source != nil {
		return t.source.Partitions()
	}
	all := t.all()
	return all[:min(len(all), int(t.visible.Load()))]
}

// all returns the partitions, including removed ones that can still be read.
func (t *Topic) all() []*Partition {
	if t.source != nil {
		return t.source.all()
	}
	return *t.partitions.Load()
}

// Partition returns the partition of that number. Errors: ErrNoPartition;
// ErrNotLeader if another broker leads it, or the topics were migrated; ErrRetry while
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

// Find returns the partition of that number, whichever broker leads it, or
// ErrNoPartition. A removed partition is found as long as it can be read.
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

func (t *Topic) lacks(number int32) error { return &noPartitionError{t, number} }

// noPartitionError is the ErrNoPartition of a topic, see noTopicError.
type noPartitionError struct {
	topic  *Topic
	number int32
}

func (p *noPartitionError) Error() string {
	return fmt.Sprintf("%v: %s has 0 to %d, not %d", topic.ErrNoPartition, p.topic.name, len(p.topic.Partitions())-1, p.number)
}

func (*noPartitionError) Unwrap() error { return topic.ErrNoPartition }

// Append numbers batches, starts writing them to a partition, and returns without
// waiting for the disk. It waits only while the partition's appends hold more memory
// than they may, and until delayed records are durable. The caller must not use the
// batches afterwards. Append returns errors in the batches; Appending.Wait returns
// errors of the disk. For a view the error is ErrView.
func (t *Topic) Append(ctx context.Context, partition int32, batches []topic.Batch) (*Appending, error) {
	return t.AppendTransactional(ctx, "", partition, batches)
}

// AppendTransactional is Append for batches that may belong to the transaction of a
// transactional id. Its first batch in a partition is looked up in the metadata, which
// waits for at most a second. Additional errors: ErrTransactionState, ErrTransactionsFull.
func (t *Topic) AppendTransactional(ctx context.Context, id string, partition int32, batches []topic.Batch) (*Appending, error) {
	if t.source != nil {
		return nil, fmt.Errorf("%w: %s is a view of %s, produce to that", topic.ErrView, t.name, t.source.name)
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
	settings, now := t.Settings(), time.Now().UnixMilli()
	if err := checkBatches(batches, settings, now); err != nil {
		return nil, err
	}
	if err := t.broker.validate(ctx, batches, settings, now); err != nil {
		return nil, err
	}
	switch transactional := batches[0].Transactional(); {
	case transactional && settings.Delays:
		return nil, fmt.Errorf("%w: records of %s may be delayed, which those of a transaction cannot be: use a topic without %s",
			topic.ErrInvalidRecord, t.name, topic.SettingDelays)
	case transactional:
		return p.appendTransactional(ctx, batches, id)
	case settings.Delays:
		return p.appendDelaying(ctx, batches, settings.Delay)
	default:
		return p.append(ctx, batches, 0)
	}
}

// Read returns whole batches, starting with the one that holds the offset: at least one
// if there is one, and more up to maxBytes; for a view, the batches that pass its
// filter. It does not wait: at the high watermark it returns no data. An offset out of
// range is an ErrOffsetOutOfRange; the ends are set nevertheless.
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

// ReadCommitted is Read up to the last stable offset. The records of aborted transactions
// are in the data, and these transactions in Fetched.Aborted; a view does not have any.
func (t *Topic) ReadCommitted(ctx context.Context, partition int32, offset int64, maxBytes int) (Fetched, error) {
	p, err := t.Partition(partition)
	if err != nil || t.source != nil {
		return t.Read(ctx, partition, offset, maxBytes)
	}
	return p.readCommitted(ctx, offset, maxBytes)
}

// storedSettings parses the settings of a record.
func (b *Broker) storedSettings(name string, record catalog.Topic) (*topicSettings, error) {
	settings, err := b.settings(name, record.Settings)
	if source := record.Settings[topic.SettingViewOf]; err != nil && source != "" {
		// It was valid once. The view shows nothing until it is altered or deleted.
		b.log.Error("view cannot be read: alter or delete it", "view", name, "error", err)
		return &topicSettings{Settings: topic.Settings{ViewOf: source, ViewWhere: record.Settings[topic.SettingViewWhere]}, own: record.Settings, broken: err}, nil
	}
	return settings, err
}

// add opens a topic that is in the catalog.
func (b *Broker) add(name string, record catalog.Topic) error {
	id, err := topic.ParseID(record.ID)
	if err != nil {
		return err
	}
	settings, err := b.storedSettings(name, record)
	if err != nil {
		return err
	}
	t := &Topic{name: name, id: id, owner: record.Owner, lends: record.Lends, broker: b}
	t.settings.Store(settings)
	t.partitions.Store(&[]*Partition{})
	if settings.ViewOf != "" {
		if t.source, err = b.Topic(settings.ViewOf); err != nil {
			return err
		}
	} else {
		t.open(record)
	}
	if record.Delays {
		t.delay()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.topics[name], b.byID[id] = t, t
	return nil
}

// open adds the partitions of a record that are not there yet, and closes those that
// are gone.
func (t *Topic) open(record catalog.Topic) {
	t.shrink(record)
	partitions := slices.Clone(*t.partitions.Load())
	have, want := len(partitions), record.Kept()
	for i := have; i < want; i++ {
		partitions = append(partitions, t.broker.newPartition(t, int32(i), record))
	}
	t.partitions.Store(&partitions)
	t.visible.Store(record.Visible())
}

// delay starts holding and releasing delayed records.
func (t *Topic) delay() {
	for _, p := range t.all() {
		p.delay()
	}
}

// newPartition returns a partition that follows at first.
func (b *Broker) newPartition(t *Topic, number int32, of catalog.Topic) *Partition {
	record := of.Partitions[number]
	return &Partition{
		topic: t, number: number, removals: of.Removals(int(number)), broker: b, state: following, epoch: record.Epoch, start: record.Start,
		leader: record.Leader, replicas: record.Replicas, delayLog: record.DelayLog, tail: tail{all: b.tails},
		producers: newProducers(b.config.ProducersMax), compacting: semaphore.NewWeighted(1),
	}
}
