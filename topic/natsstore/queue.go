package natsstore

import (
	"time"

	"github.com/sluice-project/sluice/topic"
)

// underway is an append that was sent.
type underway struct {
	entry    topic.Entry
	done     func(error)
	entered  time.Time
	sent     int // how often
	answered bool
	err      error
	// follows says that the log can take it: it comes next after what was there, or
	// under way, when it was sent.
	follows bool
	// disputed says that it was refused by who may not have known.
	disputed bool
}

// queue holds the appends under way in their order, numbered from 0.
type queue struct {
	items []underway
	gone  int    // how many items at the start are popped
	first uint64 // the number of items[gone]
}

func (q *queue) empty() bool     { return q.gone == len(q.items) }
func (q *queue) head() *underway { return &q.items[q.gone] }

// next is the number that the next append gets.
func (q *queue) next() uint64 { return q.first + uint64(len(q.items)-q.gone) }

// follows tells whether an append of a log with that last sequence comes next.
func (q *queue) follows(sequence, last uint64) bool {
	if q.empty() {
		return sequence == last+1
	}
	before := &q.items[len(q.items)-1]
	return before.follows && sequence == before.entry.Sequence+1
}

func (q *queue) push(item underway) uint64 {
	if len(q.items) == cap(q.items) && q.gone > len(q.items)/2 {
		// Use the room of what is gone instead of asking for more.
		kept := copy(q.items, q.items[q.gone:])
		clear(q.items[kept:])
		q.items, q.gone = q.items[:kept], 0
	}
	number := q.next()
	q.items = append(q.items, item)
	return number
}

// at returns an append, nil if it is not there any more, because it timed out.
func (q *queue) at(number uint64) *underway {
	if number < q.first || number >= q.next() {
		return nil
	}
	return &q.items[q.gone+int(number-q.first)]
}

// answer notes the answer to an append, unless it has one, or is not there.
func (q *queue) answer(number uint64, err error) {
	if item := q.at(number); item != nil && !item.answered {
		item.answered, item.err = true, err
	}
}

// fail answers all that are not answered.
func (q *queue) fail(err error) {
	for i := q.gone; i < len(q.items); i++ {
		if item := &q.items[i]; !item.answered {
			item.answered, item.err = true, err
		}
	}
}

// pop takes the first append, if it is answered.
func (q *queue) pop() (item underway, number uint64, ok bool) {
	if q.empty() || !q.items[q.gone].answered {
		return underway{}, 0, false
	}
	item, number = q.items[q.gone], q.first
	q.items[q.gone] = underway{}
	q.gone++
	q.first++
	if q.empty() {
		q.items, q.gone = q.items[:0], 0
	}
	return item, number, true
}
