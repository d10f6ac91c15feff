package pebblestore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/pebblekv"
)

// Actions implements bulk.Store. It holds s.reads for some actions at a time, so that a long list
// delays no other call, and reads no more of them than a page without a filter has.
func (s *Store) Actions(ctx context.Context, filter bulk.ActionFilter) (actions []bulk.Action, err error) {
	var done func()
	first := uint64(0)
	if filter.After == "" {
		done, err = s.hold()
	} else {
		first, done, err = s.holdAction(filter.After)
		first++
	}
	if err != nil {
		return nil, err
	}
	defer done()
	q := search{ActionFilter: filter, store: s, marks: filter.Marks()}
	some := holdMost
	if filter.Limit > 0 && len(q.marks) == 0 && filter.Status == "" {
		some = min(some, filter.Limit)
		q.found = make([]bulk.Action, 0, some)
	}
	take := func(l *listed) (bool, error) {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		return q.take(l)
	}
	switch {
	case filter.Number > 0:
		s.reads.RLock()
		record, err := s.present(filter.Number)
		s.reads.RUnlock()
		switch {
		case errors.Is(err, bulk.ErrNotFound) || err == nil && !filter.Matches(&record):
			return nil, nil
		case err != nil:
			return nil, err
		}
		return []bulk.Action{record}, nil
	case filter.Unfinished:
		err = s.eachLive(first, some, take)
	default:
		err = s.each(first, some, take)
	}
	return q.found, err
}

// search is a list of actions that is being made.
type search struct {
	bulk.ActionFilter
	store  *Store
	marks  [][]byte
	looked int
	found  []bulk.Action
}

// take adds an action if it matches, and reports whether to continue.
func (q *search) take(l *listed) (more bool, err error) {
	q.looked++
	ends := q.Look > 0 && q.looked >= q.Look
	if !ends && !q.may(l) {
		return true, nil
	}
	err = q.store.decode(l)
	if errors.Is(err, bulk.ErrNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if q.Matches(&l.record) {
		q.found = append(q.found, l.record)
	}
	switch {
	case q.Limit > 0 && len(q.found) == q.Limit:
		return false, nil
	case ends:
		return false, &bulk.LookError{After: l.record.ID}
	}
	return true, nil
}

// may reports whether an action may match, without decoding it: almost all the time of a list goes there.
func (q *search) may(l *listed) bool {
	if l.live {
		return true
	}
	for _, mark := range q.marks {
		if !bytes.Contains(l.value, mark) {
			return false
		}
	}
	// The status of a value that has no end is not the last one.
	return q.Status == "" || bytes.Contains(l.value, []byte(`"`+q.Status+`"`)) || !bytes.Contains(l.value, []byte(`"finished_at":`))
}

// listed is an action that is listed, by its key and value on disk. Of a live one the record
// is that in memory.
type listed struct {
	number uint64
	value  []byte
	live   bool
	record bulk.Action
}

// eachLive calls f for the unfinished actions from a number on, in order, until
// it returns false. It reads some at a time.
func (s *Store) eachLive(first uint64, some int, f func(*listed) (bool, error)) error {
	page := make([]listed, 0, some)
	for {
		page = page[:0]
		err := pebblekv.Scan(s.db, numberKey(keyLive, first), []byte{keyLive + 1}, func(key, _ []byte) (bool, error) {
			page = append(page, listed{number: binary.BigEndian.Uint64(key[1:])})
			return len(page) < some, nil
		})
		if err != nil {
			return err
		}
		s.enliven(page)
		for i := range page {
			if !page[i].live {
				continue
			}
			if more, err := f(&page[i]); err != nil || !more {
				return err
			}
		}
		if len(page) < some {
			return nil
		}
		first = page[len(page)-1].number + 1
	}
}

// each calls f for the actions from a number on, in order, until it returns false. It reads some at a time.
func (s *Store) each(first uint64, some int, f func(*listed) (bool, error)) error {
	page := make([]listed, 0, some)
	for {
		page = page[:0]
		err := pebblekv.Scan(s.db, numberKey(keyAction, first), []byte{keyAction + 1}, func(key, value []byte) (bool, error) {
			page = append(page, listed{number: binary.BigEndian.Uint64(key[1:]), value: slices.Clone(value)})
			return len(page) < some, nil
		})
		if err != nil {
			return err
		}
		s.enliven(page)
		for i := range page {
			if more, err := f(&page[i]); err != nil || !more {
				return err
			}
		}
		if len(page) < some {
			return nil
		}
		first = page[len(page)-1].number + 1
	}
}

// enliven sets the records of those actions that are in memory: the unfinished ones.
func (s *Store) enliven(page []listed) {
	s.reads.RLock()
	defer s.reads.RUnlock()
	for i := range page {
		if a := s.actions[page[i].number]; a != nil {
			page[i].live, page[i].record = true, a.record
		}
	}
}

// decode sets the record of a listed action that is not live. One that finished after its value was
// read has another value now, or was forgotten: bulk.ErrNotFound.
func (s *Store) decode(l *listed) (err error) {
	if l.live {
		return nil
	}
	err = pebblekv.Unmarshal(numberKey(keyAction, l.number), l.value, &l.record)
	if err == nil && l.record.FinishedAt.IsZero() {
		l.record, err = s.record(l.number)
	}
	return err
}
