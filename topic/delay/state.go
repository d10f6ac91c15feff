package delay

import (
	"cmp"
	"slices"

	"github.com/sluice-project/sluice/internal/ranks"
	"github.com/sluice-project/sluice/topic"
)

// delayState is the state that the operations of a delay log produce, the same when they
// are applied first and when the log is read. Pure: no clock, no I/O.
type delayState struct {
	items map[string]*delayItem
	queue ranks.Heap[*delayItem] // of the pending records, by due time and then by arrival
	// entries holds the kept entries of the log, from the oldest with a live record on;
	// bytes is their total length, live that of the live records.
	entries     []delayEntry
	bytes, live int64
	// cached is the length of the bodies in memory.
	cached int
	// release is the release whose outcome is open.
	release struct {
		number int64
		items  []*delayItem
	}
}

// delayItem is a delayed record that is live.
type delayItem struct {
	id    string
	due   int64
	order uint64 // rises in the order of arrival
	// sequence and index are its position in the log.
	sequence uint64
	index    int32
	size     int32
	status   delayStatus
	holders  int32 // unsettled: additions that may keep or drop it
	at       int   // place in the queue; 0 if it is not in it
	producer *topic.BatchProducer
	body     []byte // nil unless cached
}

type delayStatus int8

const (
	// unsettled: it is not known whether its batch was appended.
	unsettled delayStatus = iota
	// pending until it is due.
	pending
	// releasing: an entry of the log lists it in a release.
	releasing
	// gone: released, canceled, or its batch was never appended.
	gone
)

// delayEntry is an entry of the log.
type delayEntry struct {
	sequence uint64
	bytes    int32
	live     int32 // records
}

// delayEntryCost is the overhead of an entry in addition to its data.
const delayEntryCost = 64

func newDelayState() delayState {
	return delayState{items: map[string]*delayItem{}, queue: ranks.New(func(i, o *delayItem) bool {
		return cmp.Or(cmp.Compare(i.due, o.due), cmp.Compare(i.order, o.order)) < 0
	}, func(i *delayItem) *int { return &i.at })}
}

// apply applies the operations of an entry.
func (s *delayState) apply(sequence uint64, size int, moves []delayMove) {
	s.entries = append(s.entries, delayEntry{sequence: sequence, bytes: int32(size)})
	s.bytes += int64(size) + delayEntryCost
	index := int32(0)
	for _, move := range moves {
		for i, record := range move.records {
			if move.kind == delayAdd {
				s.add(record, sequence, index, move.producer)
			} else {
				s.rewrite(record, sequence, index, move.orders[i])
			}
			index++
		}
		switch move.kind {
		case delaySettle:
			s.each(move.ids, s.keep)
			s.each(move.dropped, s.remove)
		case delayCancel:
			s.each(move.ids, s.remove)
		case delayRelease:
			s.begin(move.number, move.ids)
		}
	}
}

// each calls f for the live items with these ids.
func (s *delayState) each(ids []string, f func(*delayItem)) {
	for _, id := range ids {
		if item := s.items[id]; item != nil {
			f(item)
		}
	}
}

// add adds a record, unless one of its id is live.
func (s *delayState) add(record topic.DelayedRecord, sequence uint64, index int32, producer *topic.BatchProducer) {
	if s.items[record.ID] != nil {
		return
	}
	item := &delayItem{id: record.ID, due: record.Due, order: sequence<<24 | uint64(index), producer: producer}
	item.size = int32(len(record.ID) + len(record.Body))
	s.items[item.id] = item
	s.live += int64(item.size)
	s.place(item, sequence, index)
}

// rewrite sets a record's new position, or adds the record if its entry was trimmed.
func (s *delayState) rewrite(record topic.DelayedRecord, sequence uint64, index int32, order uint64) {
	item := s.items[record.ID]
	if item == nil {
		s.add(record, sequence, index, nil)
		item = s.items[record.ID]
		item.order = order
		s.keep(item)
		return
	}
	s.entryOf(item).live--
	s.place(item, sequence, index)
}

func (s *delayState) place(item *delayItem, sequence uint64, index int32) {
	item.sequence, item.index = sequence, index
	s.entryOf(item).live++
}

func (s *delayState) entryOf(item *delayItem) *delayEntry {
	at, _ := slices.BinarySearchFunc(s.entries, item.sequence, func(e delayEntry, sequence uint64) int { return cmp.Compare(e.sequence, sequence) })
	return &s.entries[at]
}

// keep makes an unsettled item pending.
func (s *delayState) keep(item *delayItem) {
	if item.status == unsettled {
		item.status, item.producer = pending, nil
		s.queue.Set(item)
	}
}

// remove makes an item gone.
func (s *delayState) remove(item *delayItem) {
	if item.status == gone {
		return
	}
	s.queue.Remove(item)
	s.uncache(item)
	item.status = gone
	delete(s.items, item.id)
	s.live -= int64(item.size)
	s.entryOf(item).live--
}

// uncache drops a record's body from memory; it is read again when needed.
func (s *delayState) uncache(item *delayItem) {
	s.cached -= len(item.body)
	item.body = nil
}

// begin begins a release. A higher number than the last one means that the last release
// was completed, the same number that it was not.
func (s *delayState) begin(number int64, ids []string) {
	s.end(number > s.release.number)
	s.release.number = number
	s.each(ids, func(item *delayItem) {
		s.keep(item)
		s.queue.Remove(item)
		item.status = releasing
		s.release.items = append(s.release.items, item)
	})
}

// end ends the present release, if there is one.
func (s *delayState) end(carriedOut bool) {
	for _, item := range s.release.items {
		switch {
		case item.status != releasing: // canceled since
		case carriedOut:
			s.remove(item)
		default:
			item.status = pending
			s.queue.Set(item)
		}
	}
	s.release.items = nil
}

// forget drops the entries before the first one with a live record, and returns the
// sequence of the first that is needed; next if none is.
func (s *delayState) forget(next uint64) uint64 {
	for len(s.entries) > 0 && s.entries[0].live == 0 {
		s.bytes -= int64(s.entries[0].bytes) + delayEntryCost
		s.entries = s.entries[1:]
	}
	if len(s.entries) == 0 {
		return next
	}
	return s.entries[0].sequence
}
