package natsstore

import (
	"time"

	"github.com/sluice-project/sluice/topic"
)

// pendingAppend is an append in flight.
type pendingAppend struct {
	entry    topic.Entry
	done     func(error)
	entered  time.Time
	sent     int // times
	answered bool
	err      error
	// follows says that the log can take it: when it was sent, its sequence followed the
	// log's end or the append before it in flight.
	follows bool
	// checking says that it was refused, perhaps by a former leader: checkLog runs.
	checking bool
}

// queue holds the appends in flight in their order, numbered from 0.
type queue struct {
	items []pendingAppend
	gone  int    // how many items at the start are popped
	first uint64 // the number of items[gone]
}

func (q *queue) empty() bool          { return q.gone == len(q.items) }
func (q *queue) head() *pendingAppend { return &q.items[q.gone] }

// next is the number that the next append gets.
func (q *queue) next() uint64 { return q.first + uint64(len(q.items)-q.gone) }

// follows reports whether sequence is the next one of a log that ends at last.
func (q *queue) follows(sequence, last uint64) bool {
	if q.empty() {
		return sequence == last+1
	}
	before := &q.items[len(q.items)-1]
	return before.follows && sequence == before.entry.Sequence+1
}

func (q *queue) push(item pendingAppend) uint64 {
	if len(q.items) == cap(q.items) && q.gone > len(q.items)/2 {
		// Reuse the space of popped items.
		kept := copy(q.items, q.items[q.gone:])
		clear(q.items[kept:])
		q.items, q.gone = q.items[:kept], 0
	}
	number := q.next()
	q.items = append(q.items, item)
	return number
}

// at returns an append, nil if it has left the queue.
func (q *queue) at(number uint64) *pendingAppend {
	if number < q.first || number >= q.next() {
		return nil
	}
	return &q.items[q.gone+int(number-q.first)]
}

// answer records the outcome of an append, unless it has one or has left the queue.
func (q *queue) answer(number uint64, err error) {
	if item := q.at(number); item != nil && !item.answered {
		item.answered, item.err = true, err
	}
}

// fail fails all appends without an outcome.
func (q *queue) fail(err error) {
	for i := q.gone; i < len(q.items); i++ {
		if item := &q.items[i]; !item.answered {
			item.answered, item.err = true, err
		}
	}
}

// pop removes the first append if it has an outcome.
func (q *queue) pop() (item pendingAppend, number uint64, ok bool) {
	if q.empty() || !q.items[q.gone].answered {
		return pendingAppend{}, 0, false
	}
	item, number = q.items[q.gone], q.first
	q.items[q.gone] = pendingAppend{}
	q.gone++
	q.first++
	if q.empty() {
		q.items, q.gone = q.items[:0], 0
	}
	return item, number, true
}
