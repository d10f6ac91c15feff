package broker

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/sluice-project/sluice/topic"
)

// producers is a partition's state of its idempotent producers: enough to distinguish
// a repeated batch from the next one. Pure: no clock, no I/O.
type producers struct {
	max  int
	byID map[int64]*producer
	// first holds, for unknown producers, the first batch that was given up: batches
	// that were in flight after it must not be accepted before it.
	first map[int64]givenUp
	transactions
}

// givenUp is a batch that was numbered and given up.
type givenUp struct {
	epoch    int16
	sequence int32
}

// producer is the state of one producer.
type producer struct {
	Epoch int16 `json:"epoch"`
	// Sent holds its last batches, at most keptBatches, the newest last; none if only a
	// marker has its epoch.
	Sent []sentBatch `json:"sent"`
	// Timestamp is when its last batch was appended, in milliseconds.
	Timestamp int64 `json:"timestamp"`
	// revision is the last one of its transactional id that was applied since the log was
	// read: see proof.
	revision uint64
	// hanging is set while its open transaction is one that the metadata does not have.
	hanging *lostEnd
}

// next returns the sequence number that its next batch begins with.
func (p *producer) next() int32 {
	if len(p.Sent) == 0 {
		return 0
	}
	return nextSequence(p.Sent[len(p.Sent)-1].Last)
}

// sentBatch is a batch that was numbered.
type sentBatch struct {
	First int32 `json:"first"`
	Last  int32 `json:"last"`
	Base  int64 `json:"base"`
}

// keptBatches is how many batches of a producer are known: as many as a producer may
// have in flight, by the protocol.
const keptBatches = 5

func newProducers(most int) producers {
	return producers{max: most, byID: map[int64]*producer{}, transactions: newTransactions()}
}

// check returns an error if a batch may not be appended. If it was appended before,
// check returns the offset it got then, and true.
//
// The rules are Kafka's: a producer that the partition does not know may begin
// with any number, since it may have been forgotten; a new epoch begins with 0.
func (p *producers) check(b topic.Batch) (base int64, repeated bool, err error) {
	id, epoch, first := b.Producer()
	if id < 0 {
		return 0, false, nil
	}
	known := p.byID[id]
	switch {
	case known == nil:
		if before, ok := p.first[id]; ok && before.epoch == epoch && before.sequence != first {
			return 0, false, fmt.Errorf("%w: producer %d sent %d, want %d, which failed", topic.ErrOutOfOrderSequence, id, first, before.sequence)
		}
		return 0, false, nil
	case epoch < known.Epoch:
		return 0, false, fmt.Errorf("%w: producer %d has epoch %d, the batch %d", topic.ErrProducerFenced, id, known.Epoch, epoch)
	case epoch > known.Epoch:
		if first != 0 {
			return 0, false, fmt.Errorf("%w: producer %d begins epoch %d with %d, want 0", topic.ErrOutOfOrderSequence, id, epoch, first)
		}
		return 0, false, nil
	}
	last := topic.LastSequence(b)
	for _, sent := range known.Sent {
		if sent.First == first && sent.Last == last {
			return sent.Base, true, nil
		}
	}
	if want := known.next(); first != want {
		return 0, false, fmt.Errorf("%w: producer %d sent %d, want %d", topic.ErrOutOfOrderSequence, id, first, want)
	}
	return 0, false, nil
}

func nextSequence(last int32) int32 {
	if last == math.MaxInt32 {
		return 0
	}
	return last + 1
}

// add records a batch that was numbered at now, in milliseconds.
func (p *producers) add(b topic.Batch, now int64) {
	id, epoch, first := b.Producer()
	if id < 0 {
		return
	}
	known := p.at(id, epoch, now)
	switch {
	case b.Control():
		p.end(b)
		return
	case b.Transactional():
		p.begin(id, b.Base())
	}
	if len(known.Sent) == keptBatches {
		known.Sent = slices.Delete(known.Sent, 0, 1)
	}
	known.Sent = append(known.Sent, sentBatch{First: first, Last: topic.LastSequence(b), Base: b.Base()})
}

// at returns a producer, known or new, which has that epoch from now on.
func (p *producers) at(id int64, epoch int16, now int64) *producer {
	known := p.byID[id]
	if known == nil {
		delete(p.first, id)
		p.makeRoom()
		known = &producer{Epoch: epoch}
		p.byID[id] = known
	}
	if known.Epoch != epoch {
		known.Epoch, known.Sent = epoch, known.Sent[:0]
	}
	known.Timestamp = now
	return known
}

// giveUp records batches, in order, that were numbered and given up.
func (p *producers) giveUp(batches []topic.Batch) {
	for _, b := range batches {
		id, epoch, sequence := b.Producer()
		if _, ok := p.first[id]; ok || id < 0 || len(p.first) >= p.max {
			continue
		}
		if p.first == nil {
			p.first = map[int64]givenUp{}
		}
		p.first[id] = givenUp{epoch, sequence}
	}
}

// after adds the batches that were given up before the log was read, of producers
// that are not in the log.
func (p *producers) after(before producers) {
	for id, batch := range before.first {
		if p.byID[id] != nil {
			continue
		}
		if p.first == nil {
			p.first = map[int64]givenUp{}
		}
		p.first[id] = batch
	}
}

// makeRoom forgets the producer that was silent longest if there are too many, but none
// with an open transaction.
func (p *producers) makeRoom() {
	for len(p.byID) >= min(p.max, p.room()) {
		oldest, at := int64(-1), int64(math.MaxInt64)
		for id, known := range p.byID {
			if known.Timestamp < at && !p.isOpen(id) {
				oldest, at = id, known.Timestamp
			}
		}
		if oldest < 0 {
			return
		}
		delete(p.byID, oldest)
	}
}

// clone returns a copy of the producers.
func (p *producers) clone() map[int64]*producer {
	byID := make(map[int64]*producer, len(p.byID))
	for id, known := range p.byID {
		byID[id] = &producer{Epoch: known.Epoch, Sent: slices.Clone(known.Sent), Timestamp: known.Timestamp}
	}
	return byID
}

// expire forgets producers without an open transaction whose last batch is from before a
// time, in milliseconds.
func (p *producers) expire(before int64) {
	for id, known := range p.byID {
		if known.Timestamp < before && !p.isOpen(id) {
			delete(p.byID, id)
		}
	}
}

// committed reports whether the batch that ends with a sequence number was
// numbered, as far as the partition remembers.
func (p *producers) committed(id int64, epoch int16, last int32) bool {
	known := p.byID[id]
	switch {
	case known == nil || epoch > known.Epoch || len(known.Sent) == 0:
		return false
	case epoch < known.Epoch:
		return true
	}
	// Numbers wrap, so "not after" is a distance of less than half the range.
	return (known.Sent[len(known.Sent)-1].Last-last)&math.MaxInt32 < math.MaxInt32/2
}

// list returns all producers, by id.
func (p *producers) list() []Producer {
	list := make([]Producer, 0, len(p.byID))
	for id, known := range p.byID {
		of := Producer{ID: id, Epoch: known.Epoch, LastSequence: -1, LastTimestamp: time.UnixMilli(known.Timestamp), Open: -1}
		if n := len(known.Sent); n > 0 {
			of.LastSequence = known.Sent[n-1].Last
		}
		if first, open := p.open[id]; open {
			of.Open = first
		}
		list = append(list, of)
	}
	slices.SortFunc(list, func(a, b Producer) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// Producer is what a partition knows of an idempotent producer.
type Producer struct {
	ID    int64
	Epoch int16
	// LastSequence is -1 if only a marker has its epoch.
	LastSequence  int32
	LastTimestamp time.Time
	// Open is the first offset of its open transaction, -1 without one.
	Open int64
}
