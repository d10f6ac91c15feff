package broker

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
	"github.com/sluice-project/sluice/topic/compact"
)

// Partition is a sequence of records.
//
// Lock order: compacting, removing, reading, Partition.mu, then the tails' and the index's own.
type Partition struct {
	number int32
	// removals is how often a partition of this number was removed before.
	removals int
	topic    *Topic
	broker   *Broker
	// log is opened when this broker leads the partition for the first time.
	log   *compact.Log
	tail  tail
	index index

	// compacting is held while the log is compacted, removing while its oldest entries are
	// removed or replaced, or its ends are being read. A reader that looks for an entry and then reads
	// it holds reading, since compaction gives entries other sequences.
	compacting *semaphore.Weighted // of weight 1
	removing   sync.Mutex
	reading    sync.RWMutex

	mu    sync.Mutex
	state partitionState
	// loaded reports whether the end of the log was found since this broker leads the
	// partition: before that nothing is known of it.
	loaded bool
	// trouble is the error that keeps it recovering, as far as that is known.
	trouble error
	// epoch is the leader epoch: that of new appends while this broker leads, else the
	// highest in the catalog.
	epoch int32
	// leader is the node that the catalog names; replicas are the nodes that are to
	// keep the partition.
	leader   int32
	replicas []int32
	// delayLog reports whether the log of delayed records is known to exist.
	delayLog bool
	// passed reports whether it was passed to its preferred leader: see passOn.
	passed bool
	// term is the work of becoming, or staying, the leader; see leadership.go.
	term term
	// start is the first offset that can be read; first is the log's first entry.
	start int64
	first uint64
	// next is the offset of the next record, and last the entry that was passed to
	// the log last; landed is the last durable entry, and its Next the high
	// watermark.
	next         int64
	last, landed point
	producers    producers
	appends      appends
	delays       delaying
	snapshots    snapshots
	// trimmed has the bytes before the first entry, and that entry's sequence; zero until
	// the size was asked for.
	trimmed point

	watchers watchers
}

// partitionState decides which calls a partition allows.
type partitionState int

const (
	// recovering: the end of the log is being read; reads continue.
	recovering partitionState = iota
	open
	// resigning: the broker is about to transfer the partition; appends in flight land,
	// and reads continue.
	resigning
	// following: another broker leads it, or none.
	following
	// closed: the broker stops.
	closed
	// deleted: the topic was deleted.
	deleted
)

// allows returns the error of appends in a state, or nil.
func (s partitionState) allows() error {
	switch s {
	case open:
		return nil
	case recovering:
		return topic.ErrRetry
	case resigning, following:
		return topic.ErrNotLeader
	case deleted:
		return topic.ErrNoTopic
	default:
		return topic.ErrClosed
	}
}

// allowsLocked returns the error of appends, or nil; an ErrRetry also wraps the error
// that keeps the partition recovering.
func (p *Partition) allowsLocked() error {
	if err := p.broker.moving.serves(); err != nil {
		return err
	}
	err := p.state.allows()
	if p.state == recovering && p.trouble != nil {
		return fmt.Errorf("%w: %w", err, p.trouble)
	}
	return err
}

// Number returns the partition's number in its topic, from 0.
func (p *Partition) Number() int32 { return p.number }

// Ready returns why the partition cannot be read here: ErrNotLeader if another broker
// leads it, or none, and ErrRetry until its log was read.
func (p *Partition) Ready() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.readyLocked()
}

func (p *Partition) readyLocked() error {
	switch {
	case p.state == following:
		return fmt.Errorf("%w: %s is led by node %d", topic.ErrNotLeader, p, p.leader)
	case !p.loaded && p.trouble != nil:
		return fmt.Errorf("%w: %s cannot be read: %v", topic.ErrRetry, p, p.trouble) //nolint:errorlint // what keeps it from being read is no error of the caller's
	case !p.loaded:
		return fmt.Errorf("%w: the log of %s was not read yet", topic.ErrRetry, p)
	}
	return nil
}

// ended reports whether the partition was deleted, or the broker stops.
func (p *Partition) ended() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state == closed || p.state == deleted
}

// Epoch returns the leader epoch.
func (p *Partition) Epoch() int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.epoch
}

// Ends returns the offsets at which the partition begins and ends. If another broker
// leads it, the high watermark is the last one known here.
func (p *Partition) Ends() Ends {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.endsLocked()
}

func (p *Partition) endsLocked() Ends {
	highWatermark := p.landed.Mark.Next
	return Ends{Start: p.start, HighWatermark: highWatermark, LastStable: min(highWatermark, p.producers.stable), Epoch: p.epoch}
}

// Bytes returns the size of the partition: the bytes appended less the bytes trimmed. It
// reads the first entry, once after each trim.
func (p *Partition) Bytes(ctx context.Context) (int64, error) {
	p.reading.RLock()
	defer p.reading.RUnlock()
	first, last := p.sequences()
	if first == 0 || first > last.Sequence {
		return 0, nil
	}
	before, err := p.bytesBefore(ctx, first)
	return last.Mark.Bytes - before, err
}

// bytesBefore returns the bytes before the first entry, whose sequence is first.
func (p *Partition) bytesBefore(ctx context.Context, first uint64) (int64, error) {
	p.mu.Lock()
	trimmed := p.trimmed
	p.mu.Unlock()
	if trimmed.Sequence != first {
		entry, err := topic.ReadEntry(ctx, p.log, first)
		if err != nil {
			return 0, err
		}
		trimmed = point{first, topic.Mark{Bytes: entry.Mark.Bytes - int64(len(entry.Data))}}
		p.mu.Lock()
		p.trimmed = trimmed
		p.mu.Unlock()
	}
	return trimmed.Mark.Bytes, nil
}

// sequences returns the first entry that is kept and the last that is durable.
func (p *Partition) sequences() (first uint64, last point) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.first, p.landed
}

// Producers returns the idempotent producers that the partition knows, by id.
func (p *Partition) Producers() []Producer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.producers.list()
}

// Watch calls signal, which must not block, each time the high watermark changes
// and when the partition ends, until the returned function is called.
func (p *Partition) Watch(signal func()) (cancel func()) { return p.watchers.add(signal) }

func (p *Partition) String() string { return fmt.Sprintf("%s/%d", p.topic.Name(), p.number) }

func (p *Partition) logName() string { return p.names().Records }

func (p *Partition) names() catalog.Names { return catalog.NamesOf(p.topic.id, p.number, p.removals) }

// watchers are functions to call after a change.
type watchers struct {
	mu      sync.Mutex
	next    uint64
	signals map[uint64]func()
}

func (w *watchers) add(signal func()) (cancel func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.signals == nil {
		w.signals = map[uint64]func(){}
	}
	key := w.next
	w.next++
	w.signals[key] = signal
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.signals, key)
	}
}

func (w *watchers) signal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, signal := range w.signals {
		signal()
	}
}
