package topic

import (
	"context"
	"time"
)

// Spec says what topic to create.
type Spec struct {
	// Name is of letters, digits, ".", "_" and "-", at most 249 characters.
	Name string
	// Partitions is their number; 0 means the broker's default. A view has
	// those of its source: leave it 0.
	Partitions int32
	// Replicas is how many brokers keep each partition; 0 means the default.
	Replicas int16
	// Settings are the topic's own, by name; see [SettingsTable].
	Settings map[string]string
}

// ID is the identity of a topic: one that is deleted and made again has another.
type ID [16]byte

// Topic is a name with partitions, or a view of one.
type Topic struct{}

// Name returns its name.
func (t *Topic) Name() string { panic("contract") }

// ID returns its identity.
func (t *Topic) ID() ID { panic("contract") }

// Settings returns the settings that hold, and which of them are the topic's own.
func (t *Topic) Settings() Settings { panic("contract") }

// Own returns the settings that were set for the topic, by name.
func (t *Topic) Own() map[string]string { panic("contract") }

// Source returns the topic that a view shows a part of, or nil.
func (t *Topic) Source() *Topic { panic("contract") }

// Partitions returns the partitions, by number; those of a view are its
// source's.
func (t *Topic) Partitions() []*Partition { panic("contract") }

// Partition returns the partition of that number: ErrNoPartition.
func (t *Topic) Partition(number int32) (*Partition, error) { panic("contract") }

// Append numbers batches, starts writing them to a partition, and returns
// without waiting for the disk. The batches become the partition's: the caller
// must not touch them again. Errors that are known at once come from
// here, those of the disk from Appending.Wait. For a view it is ErrView.
func (t *Topic) Append(ctx context.Context, partition int32, batches []Batch) (*Appending, error) {
	panic("contract")
}

// Appending is an append under way.
type Appending struct{}

// Wait returns the offset of the first record and the time, in milliseconds, of
// the append where the topic's timestamps are that (NoTimestamp otherwise),
// once all records are durable.
func (a *Appending) Wait(ctx context.Context) (base, appendTime int64, err error) { panic("contract") }

// Read returns whole batches from the one on that holds the offset, at least
// one if there is one, and more up to maxBytes; for a view, what passes it.
// It does not wait: at the high watermark it returns no data. Out of range:
// ErrOffsetOutOfRange, with Fetched's ends set all the same.
func (t *Topic) Read(ctx context.Context, partition int32, offset int64, maxBytes int) (Fetched, error) {
	panic("contract")
}

// Fetched is what a read found.
type Fetched struct {
	// Data has whole batches one after another, in pieces. Read-only.
	Data [][]byte
	// Size is the length of Data.
	Size int
	Ends
}

// Ends are the offsets at which a partition begins and ends.
type Ends struct {
	// Start is the first offset that can be read.
	Start int64
	// HighWatermark is the offset after the last durable record.
	HighWatermark int64
	// Epoch is the present leader epoch.
	Epoch int32
}

// Partition is a sequence of records.
type Partition struct{}

// Number returns its number in its topic, from 0.
func (p *Partition) Number() int32 { panic("contract") }

// Leader returns the broker that leads it; Replicas those that have it, and
// InSync those of them that are current.
func (p *Partition) Leader() int32     { panic("contract") }
func (p *Partition) Replicas() []int32 { panic("contract") }
func (p *Partition) InSync() []int32   { panic("contract") }

// Ends returns where it begins and ends.
func (p *Partition) Ends() Ends { panic("contract") }

// Bytes returns how much is kept.
func (p *Partition) Bytes() int64 { panic("contract") }

// Watch calls signal, which must not block, each time the high watermark moves,
// until the returned function is called.
func (p *Partition) Watch(signal func()) (cancel func()) { panic("contract") }

// OffsetAt returns the first record whose timestamp is at least that (ms since
// the epoch), and its timestamp; offset and timestamp -1 if there is none.
func (p *Partition) OffsetAt(ctx context.Context, timestamp int64) (offset, at int64, err error) {
	panic("contract")
}

// MaxTimestamp returns the record with the highest timestamp; -1, -1 if there is none.
func (p *Partition) MaxTimestamp(ctx context.Context) (offset, at int64, err error) {
	panic("contract")
}

// EndOfEpoch returns the highest epoch ≤ epoch that has records and the offset
// after its last record; -1, -1 if there is none.
func (p *Partition) EndOfEpoch(ctx context.Context, epoch int32) (int32, int64, error) {
	panic("contract")
}

// DeleteRecords removes the records before offset (-1: all up to the high
// watermark), durably, and returns the new start.
func (p *Partition) DeleteRecords(ctx context.Context, before int64) (start int64, err error) {
	panic("contract")
}

// Producers returns the idempotent producers that it knows.
func (p *Partition) Producers() []Producer { panic("contract") }

// Producer is what a partition knows of an idempotent producer.
type Producer struct {
	ID            int64
	Epoch         int16
	LastSequence  int32
	LastTimestamp time.Time
}
