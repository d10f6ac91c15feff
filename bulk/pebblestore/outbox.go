package pebblestore

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/pebblekv"
)

const (
	// eventsAtOnce and eventBytesAtOnce roughly bound the events of one call of Events.
	eventsAtOnce     = 500
	eventBytesAtOnce = 4 << 20
	// entryJobs and entryBytes bound an entry of jobs; one with a larger result
	// has an entry of its own.
	entryJobs  = 500
	entryBytes = 256 << 10
	// runLength is the length of a run's random name: 75 bits.
	runLength = 15
)

// The first byte of an entry is its kind.
const (
	entryAction = 1
	entryJobsOf = 2
)

// Flags of a job in an entry.
const (
	flagSucceeded byte = 1 << iota
	flagTruncated
)

// outbox has the events that wait to be published. They are numbered; the key of an
// entry is the number of its first event.
type outbox struct {
	// run identifies this opening of the store in the ids of its events, so that the ids
	// of a copy of the directory differ.
	run string
	// most bounds the events that wait; 0 if none are kept.
	most int64
	// Those from first up to next wait.
	first, next uint64
	oldest      time.Time // when the first happened
	// durable is the number up to which events are known to be on disk.
	durable atomic.Uint64
}

// reached records that all events up to a number are on disk. Calls end in any order,
// but the log is written in one.
func (o *outbox) reached(number uint64) {
	for {
		known := o.durable.Load()
		if number <= known || o.durable.CompareAndSwap(known, number) {
			return
		}
	}
}

func newRun() string { return strings.ToLower(rand.Text()[:runLength]) }

func eventKey(number uint64) []byte { return numberKey(keyEvent, number) }

// full returns ErrFull if calls that would cause events are refused.
func (o *outbox) full() error {
	if waiting := int64(o.next - o.first); o.most > 0 && waiting >= o.most {
		return fmt.Errorf("%w: %d events wait to be published, at most %d may: they are taken in turn as soon as publishing succeeds",
			bulk.ErrFull, waiting, o.most)
	}
	return nil
}

// announce adds an event of an action to the outbox, unless the type is empty.
func (c *call) announce(eventType string, record *bulk.Action) {
	if eventType == "" || c.s.outbox.most == 0 {
		return
	}
	event, err := record.Event(eventType, c.now)
	c.keep(err)
	entry := c.newEntry(entryAction)
	entry = appendBytes(entry, []byte(event.Type))
	entry = appendBytes(entry, []byte(event.Action))
	entry = appendBytes(entry, []byte(event.Tenant))
	c.addEntry(append(entry, event.Data...), 1)
}

// newEntry begins an entry: its kind, the run that writes it, and the time.
func (c *call) newEntry(kind byte) []byte {
	entry := appendBytes([]byte{kind}, []byte(c.s.outbox.run))
	return binary.AppendUvarint(entry, uint64(c.now.UnixMicro()))
}

// addEntry puts an entry with this number of events into the outbox.
func (c *call) addEntry(entry []byte, events int) {
	o := &c.s.outbox
	c.keep(c.batch.Set(eventKey(o.next), entry, nil))
	if o.first == o.next {
		o.oldest = c.now
	}
	o.next += uint64(events)
	c.events = o.next
}

// tells reports whether events of an action's jobs are kept.
func (c *call) tells(a *action) bool { return a.jobEvents && c.s.outbox.most > 0 }

// ended records that a job has finished.
func (c *call) ended(a *action, ended bulk.JobResult) {
	c.touch(a)
	if len(ended.Result) > bulk.MaxEventResult {
		ended.Result, ended.ResultTruncated = nil, true
	}
	a.ended = append(a.ended, ended)
}

// writeEnded puts the recorded jobs of an action into the outbox.
func (c *call) writeEnded(a *action) {
	if len(a.ended) == 0 {
		return
	}
	var jobs []byte
	n := 0
	flush := func() {
		entry := c.newEntry(entryJobsOf)
		entry = appendBytes(entry, []byte(a.spec.ID))
		entry = appendBytes(entry, []byte(a.spec.Tenant))
		c.addEntry(append(binary.AppendUvarint(entry, uint64(n)), jobs...), n)
		jobs, n = jobs[:0], 0
	}
	for i := range a.ended {
		jobs = appendEnded(jobs, &a.ended[i])
		if n++; n == entryJobs || len(jobs) >= entryBytes {
			flush()
		}
	}
	if n > 0 {
		flush()
	}
	a.ended = nil // It holds results.
}

func appendEnded(to []byte, r *bulk.JobResult) []byte {
	var flags byte
	if r.Succeeded {
		flags |= flagSucceeded
	}
	if r.ResultTruncated {
		flags |= flagTruncated
	}
	to = append(binary.AppendUvarint(to, uint64(r.Index)), flags)
	to = binary.AppendUvarint(to, uint64(r.Attempts))
	to = appendBytes(to, r.Result)
	return appendBytes(to, []byte(r.Error))
}

// entry is a decoded entry of the outbox.
type entry struct {
	run    string
	at     time.Time
	events []bulk.Event
}

// decodeEntry decodes an entry. The number of its first event makes the ids.
func decodeEntry(key, value []byte) (entry, error) {
	r := pebblekv.Reader{Rest: value}
	kind := r.Byte()
	e := entry{run: string(r.Bytes()), at: time.UnixMicro(int64(r.Uvarint())).UTC()}
	var err error
	switch kind {
	case entryAction:
		event := bulk.Event{Type: string(r.Bytes()), Action: string(r.Bytes()), Tenant: string(r.Bytes()), Time: e.at}
		event.Subject, event.Data = event.Action, slices.Clone(r.Rest)
		e.events = []bulk.Event{event}
	case entryJobsOf:
		err = e.decodeJobs(&r)
	default:
		r.Bad = true
	}
	if err != nil || r.Bad {
		return e, pebblekv.Corrupt(key, "not an entry of the outbox")
	}
	number := binary.BigEndian.Uint64(key[1:])
	for i := range e.events {
		e.events[i].ID = e.run + "-" + strconv.FormatUint(number+uint64(i), 10)
	}
	return e, nil
}

func (e *entry) decodeJobs(r *pebblekv.Reader) error {
	action, tenant := string(r.Bytes()), string(r.Bytes())
	for range r.Uvarint() {
		ended := bulk.JobResult{Action: action, Tenant: tenant, Index: int64(r.Uvarint()), FinishedAt: e.at}
		flags := r.Byte()
		ended.Succeeded, ended.ResultTruncated = flags&flagSucceeded != 0, flags&flagTruncated != 0
		ended.Attempts, ended.Result, ended.Error = int(r.Uvarint()), r.Bytes(), string(r.Bytes())
		if r.Bad {
			return nil
		}
		event, err := ended.Event()
		if err != nil {
			return err
		}
		e.events = append(e.events, event)
	}
	r.Bad = r.Bad || len(r.Rest) > 0 || len(e.events) == 0
	return nil
}

// loadOutbox reads which events wait. If any were kept before, the events that opening
// the store causes are kept too.
func (s *Store) loadOutbox() (err error) {
	o := &s.outbox
	o.run = newRun()
	kept, err := pebblekv.Get(s.db, metaEvents)
	if err != nil {
		return err
	}
	if kept != nil {
		o.most = math.MaxInt64
	}
	iter, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{keyEvent}, UpperBound: []byte{keyEvent + 1}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	for _, at := range []func() bool{iter.First, iter.Last} {
		if !at() {
			return iter.Error()
		}
		value, err := iter.ValueAndErr()
		if err != nil {
			return err
		}
		e, err := decodeEntry(iter.Key(), value)
		if err != nil {
			return err
		}
		number := binary.BigEndian.Uint64(iter.Key()[1:])
		if o.oldest.IsZero() {
			o.first, o.oldest = number, e.at
		}
		o.next = number + uint64(len(e.events))
	}
	o.durable.Store(o.next)
	return nil
}

// KeepEvents implements bulk.Store.
func (s *Store) KeepEvents(_ context.Context, most int64) error {
	return s.do(func(c *call) error {
		kept, err := pebblekv.Get(s.db, metaEvents)
		if err != nil {
			return err
		}
		switch most = max(0, most); {
		case most > 0 && kept == nil:
			c.keep(c.batch.Set(metaEvents, nil, nil))
		case most == 0 && kept != nil:
			c.keep(c.batch.Delete(metaEvents, nil))
		}
		s.outbox.most = most
		return nil
	})
}

// Events implements bulk.Store.
func (s *Store) Events(context.Context) (events []bulk.Event, upTo uint64, err error) {
	done, err := s.hold()
	if err != nil {
		return nil, 0, err
	}
	defer done()
	durable := s.outbox.durable.Load()
	s.mu.Lock()
	upTo = s.outbox.first
	s.mu.Unlock()
	if upTo >= durable {
		return nil, upTo, nil
	}
	bytes := 0
	err = pebblekv.Scan(s.db, eventKey(upTo), eventKey(durable), func(key, value []byte) (bool, error) {
		e, err := decodeEntry(key, value)
		if err != nil {
			return false, err
		}
		events = append(events, e.events...)
		upTo = binary.BigEndian.Uint64(key[1:]) + uint64(len(e.events))
		bytes += len(value)
		return len(events) < eventsAtOnce && bytes < eventBytesAtOnce, nil
	})
	return events, upTo, err
}

// Published implements bulk.Store.
func (s *Store) Published(_ context.Context, upTo uint64) error {
	done, err := s.hold()
	if err != nil {
		return err
	}
	defer done()
	s.mu.Lock()
	first := s.outbox.first
	s.mu.Unlock()
	if upTo <= first {
		return nil
	}
	// Read without the lock: only a concurrent call of Published changes these entries.
	var keys [][]byte
	err = pebblekv.Scan(s.db, eventKey(first), eventKey(upTo), func(key, _ []byte) (bool, error) {
		keys = append(keys, slices.Clone(key))
		return true, nil
	})
	if err != nil {
		return err
	}
	return s.do(func(c *call) error { return c.publish(upTo, keys) })
}

// publish deletes entries up to a number, one by one: range deletions make reads slower
// until Pebble has flushed them.
func (c *call) publish(upTo uint64, keys [][]byte) error {
	o := &c.s.outbox
	if upTo <= o.first {
		return nil
	}
	var oldest time.Time
	if upTo != o.next {
		follows, err := pebblekv.Get(c.s.db, eventKey(upTo))
		if err != nil {
			return err
		}
		if follows == nil {
			return fmt.Errorf("%d events were published, which is not where Events has ended", upTo)
		}
		e, err := decodeEntry(eventKey(upTo), follows)
		if err != nil {
			return err
		}
		oldest = e.at
	}
	for _, key := range keys {
		c.keep(c.batch.Delete(key, nil))
	}
	o.first, o.oldest = upTo, oldest
	return nil
}
