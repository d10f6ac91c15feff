package topic

import (
	"context"
	"fmt"
	"sync"
)

// Partition is a sequence of records.
//
// Lock order: Partition.mu, then the tails' and the index's own.
type Partition struct {
	number int32
	// removals is how often one of its number was removed before it was made.
	removals int
	topic    *Topic
	broker   *Broker
	log      Log
	tail     tail
	index    index

	mu    sync.Mutex
	state partitionState
	// loaded says that the end of the log was found, since this broker leads the
	// partition: until then nothing is known of it.
	loaded bool
	// trouble is what keeps it recovering, as far as that is known.
	trouble error
	// epoch is the leader epoch: while it is led here that of what is appended,
	// else the highest that the catalog had.
	epoch int32
	// leader is the node that the catalog names, and replicas are those that are
	// to keep the partition.
	leader   int32
	replicas []int32
	// passed says that it was handed on to its preferred leader: see passOn.
	passed bool
	// term is the work of becoming, or staying, the leader; see leadership.go.
	term term
	// start is the first offset that can be read; first the log's first entry.
	start int64
	first uint64
	// next is the offset of the next record, and last the entry that was handed
	// to the log last; landed is the last one that is durable, and its Next
	// the high watermark.
	next         int64
	last, landed point
	producers    producers
	appends      appends
	delays       delaying
	snapshots    snapshots

	watchers watchers
}

// partitionState says what may be done with a partition.
type partitionState int

const (
	// recovering: the end of the log is being looked at; reads go on.
	recovering partitionState = iota
	open
	// resigning: the broker is about to let another lead; what is under way lands,
	// and reads go on.
	resigning
	// following: another broker leads it, or none.
	following
	// closed: the broker stops.
	closed
	// deleted: so is the topic.
	deleted
)

// allows returns why nothing may be appended in a state, or nil.
func (s partitionState) allows() error {
	switch s {
	case open:
		return nil
	case recovering:
		return ErrRetry
	case resigning, following:
		return ErrNotLeader
	case deleted:
		return ErrNoTopic
	default:
		return ErrClosed
	}
}

// allows returns why nothing may be appended, or nil; an ErrRetry is also the
// error that keeps the partition recovering. It is called with the lock held.
func (p *Partition) allows() error {
	if err := p.broker.moving.serves(); err != nil {
		return err
	}
	err := p.state.allows()
	if p.state == recovering && p.trouble != nil {
		return fmt.Errorf("%w: %w", err, p.trouble)
	}
	return err
}

// Number returns its number in its topic, from 0.
func (p *Partition) Number() int32 { return p.number }

// Ready returns why nothing can be read of it here: ErrNotLeader if another broker
// leads it, or none, and ErrRetry until its log was read.
func (p *Partition) Ready() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ready()
}

func (p *Partition) ready() error {
	switch {
	case p.state == following:
		return fmt.Errorf("%w: %s is led by node %d", ErrNotLeader, p, p.leader)
	case !p.loaded:
		return fmt.Errorf("%w: the log of %s was not read yet", ErrRetry, p)
	}
	return nil
}

// Epoch returns the leader epoch.
func (p *Partition) Epoch() int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.epoch
}

// Ends returns where it begins and ends. Where another broker leads it, the high
// watermark is what was known here last.
func (p *Partition) Ends() Ends {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ends()
}

func (p *Partition) ends() Ends {
	return Ends{Start: p.start, HighWatermark: p.landed.Mark.Next, Epoch: p.epoch}
}

// Bytes returns how much is kept, as far as it is known without looking: what
// was appended, less what was trimmed.
func (p *Partition) Bytes(ctx context.Context) (int64, error) {
	first, last := p.sequences()
	if first == 0 || first > last.Sequence {
		return 0, nil
	}
	entry, err := readEntry(ctx, p.log, first)
	if err != nil {
		return 0, err
	}
	return last.Mark.Bytes - entry.Mark.Bytes + int64(len(entry.Data)), nil
}

// sequences returns the first entry that is kept and the last that is durable.
func (p *Partition) sequences() (first uint64, last point) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.first, p.landed
}

// Producers returns the idempotent producers that it knows, by id.
func (p *Partition) Producers() []Producer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.producers.list()
}

// Watch calls signal, which must not block, each time the high watermark moves
// and when the partition ends, until the returned function is called.
func (p *Partition) Watch(signal func()) (cancel func()) { return p.watchers.add(signal) }

func (p *Partition) String() string { return fmt.Sprintf("%s/%d", p.topic.Name(), p.number) }

func (p *Partition) logName() string { return p.names().records }

func (p *Partition) names() partitionNames { return namesOf(p.topic.id, p.number, p.removals) }

// partitionNames are those under which a partition is stored.
type partitionNames struct {
	records, delays string // logs
	snapshot        string // key of the metadata
}

const (
	recordsPrefix   = "records-"
	producersPrefix = "producers/"
)

// namesOf returns the names of a partition. One whose number had another before,
// which was removed, has other names: nothing that is late finds it.
func namesOf(id ID, number int32, removals int) partitionNames {
	again := ""
	if removals > 0 {
		again = fmt.Sprintf("-%d", removals)
	}
	return partitionNames{
		records:  fmt.Sprintf(recordsPrefix+"%x-%d%s", id[:], number, again),
		delays:   fmt.Sprintf("delayed-%x-%d%s", id[:], number, again),
		snapshot: fmt.Sprintf(producersPrefix+"%x/%d%s", id[:], number, again),
	}
}

// watchers are functions to call when something has changed.
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
