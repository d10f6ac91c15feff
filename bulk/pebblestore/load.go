package pebblestore

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/pebblekv"
)

// load checks the format and rebuilds memory from the durable facts.
func (s *Store) load() error {
	if err := s.loadMeta(); err != nil {
		return err
	}
	if err := s.loadSettings(); err != nil {
		return err
	}
	if err := s.loadSchedules(); err != nil {
		return err
	}
	if err := s.loadOutbox(); err != nil {
		return err
	}
	var live []uint64
	bytes := map[uint64]int64{}
	err := pebblekv.Scan(s.db, []byte{keyLive}, []byte{keyLive + 1}, func(key, value []byte) (bool, error) {
		number := binary.BigEndian.Uint64(key[1:])
		live = append(live, number)
		if len(value) > 0 {
			r := pebblekv.Reader{Rest: value}
			bytes[number] = int64(r.Uvarint())
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	wait, err := s.loadActions(live, bytes)
	if err != nil {
		return err
	}
	s.outbox.most = 0 // until KeepEvents says otherwise
	return wait()
}

// loader loads actions, in the order of their numbers.
type loader struct {
	s              *Store
	call           *call
	logs, outcomes *pebblekv.Ascent
	// bytes has the size of the payloads of the actions for which it is stored.
	bytes map[uint64]int64
}

// loadActions loads unfinished actions. Wait waits until what it has changed is durable.
func (s *Store) loadActions(numbers []uint64, bytes map[uint64]int64) (wait func() error, err error) {
	l := loader{s: s, call: s.begin(), bytes: bytes}
	for kind, ascent := range map[byte]**pebblekv.Ascent{keyLog: &l.logs, keyOutcomes: &l.outcomes} {
		if *ascent, err = pebblekv.NewAscent(s.db, []byte{kind}, []byte{kind + 1}); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, (*ascent).Close()) }()
	}
	s.actions, s.numbers = make(map[uint64]*action, len(numbers)), make(map[string]uint64, len(numbers))
	// To decode records takes as long as what follows from them: two goroutines do one each.
	group, ctx := errgroup.WithContext(context.Background())
	decoded := make(chan recordPiece, recordPieces)
	group.Go(func() error {
		defer close(decoded)
		return s.readRecords(ctx, numbers, decoded)
	})
	group.Go(func() error { return l.enter(decoded) })
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return l.call.commit()
}

// recordPiece has the records of some actions, by number.
type recordPiece struct {
	numbers []uint64
	records []bulk.Action
}

// Of records there are at most so many pieces at one time, each with so many.
const recordPieces, pieceRecords = 16, 256

// readRecords reads the records of actions in the order of their numbers.
func (s *Store) readRecords(ctx context.Context, numbers []uint64, to chan<- recordPiece) (err error) {
	stored, err := pebblekv.NewAscent(s.db, []byte{keyAction}, []byte{keyAction + 1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stored.Close()) }()
	for numbers := range slices.Chunk(numbers, pieceRecords) {
		piece := recordPiece{numbers, make([]bulk.Action, len(numbers))}
		for i, number := range numbers {
			if err := readRecord(stored, number, &piece.records[i]); err != nil {
				return err
			}
		}
		select {
		case to <- piece:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func readRecord(stored *pebblekv.Ascent, number uint64, record *bulk.Action) error {
	from, to := numberRange(keyAction, number)
	err := stored.Scan(from, to, func(key, value []byte) (bool, error) {
		return true, pebblekv.Unmarshal(key, value, record)
	})
	if err == nil && record.ID == "" {
		return pebblekv.Corrupt(from, "no record of an unfinished action")
	}
	return err
}

func (l *loader) enter(decoded <-chan recordPiece) error {
	for piece := range decoded {
		for i, number := range piece.numbers {
			if err := l.action(number, &piece.records[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Store) loadMeta() error {
	// Earlier formats have the same keys, or fewer.
	if err := pebblekv.Format(s.db, metaVersion, 1, FormatVersion); err != nil {
		return err
	}
	if number, err := pebblekv.Get(s.db, metaNumber); err != nil {
		return err
	} else if len(number) == 8 {
		s.number = binary.BigEndian.Uint64(number)
	}
	if err := s.loadSecret(); err != nil {
		return err
	}
	window, err := pebblekv.Get(s.db, metaWindow)
	if len(window) == 8 {
		s.shutUntil = time.Unix(0, int64(binary.BigEndian.Uint64(window)))
	}
	return err
}

// secretSize is the length of the store's secret.
const secretSize = 32

// loadSecret reads the store's secret, or makes it.
func (s *Store) loadSecret() (err error) {
	if s.secret, err = pebblekv.Get(s.db, metaSecret); err != nil || s.secret != nil {
		return err
	}
	s.secret = make([]byte, secretSize)
	_, _ = rand.Read(s.secret) // it never fails
	return s.db.Set(metaSecret, s.secret, pebble.Sync)
}

// Secret implements bulk.Store.
func (s *Store) Secret(context.Context) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.secret), s.state
}

func (s *Store) record(number uint64) (record bulk.Action, err error) {
	key := numberKey(keyAction, number)
	value, err := pebblekv.Get(s.db, key)
	if err != nil {
		return record, err
	}
	if value == nil {
		return record, bulk.ErrNotFound
	}
	return record, pebblekv.Unmarshal(key, value, &record)
}

func (l *loader) action(number uint64, record *bulk.Action) (err error) {
	s := l.s
	received := record.Received
	switch {
	case record.Takes():
		if received, err = s.received(number); err != nil {
			return err
		}
	case record.Status == bulk.Canceled:
	default:
		received = record.Total
	}
	batches, err := batchesOf(l.outcomes, number)
	if err != nil {
		return err
	}
	record.Counts = bulk.Counts{Received: received, Batches: batches}
	bytes, known := l.bytes[number]
	if !known && received > 0 { // an earlier version has stored all of them
		if bytes, err = s.payloadBytes(number); err != nil {
			return err
		}
	}
	a := s.enter(number, *record, bytes)
	if err := l.jobs(a); err != nil {
		return err
	}
	counts := &a.record.Counts
	if record.Status == bulk.Canceled {
		counts.Canceled = received - counts.Succeeded - counts.Failed - counts.InFlight
	} else {
		counts.Pending = a.waiting()
	}
	s.changed(a)
	return nil
}

// received counts the stored jobs of an action.
func (s *Store) received(number uint64) (received int64, err error) {
	from, to := numberRange(keyPayloads, number)
	iter, err := s.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return 0, err
	}
	if iter.Last() {
		value, err := iter.ValueAndErr()
		if err != nil {
			return 0, err
		}
		received = int64(binary.BigEndian.Uint32(iter.Key()[9:])) + pageJobs(value)
	}
	return received, iter.Close()
}

// payloadBytes adds up the sizes of an action's stored pages.
func (s *Store) payloadBytes(number uint64) (bytes int64, err error) {
	from, to := numberRange(keyPayloads, number)
	err = pebblekv.Scan(s.db, from, to, func(_, value []byte) (bool, error) {
		bytes += pageBytes(value)
		return true, nil
	})
	return bytes, err
}

// batchesOf counts the batches of outcomes that were recorded for an action.
func batchesOf(outcomes *pebblekv.Ascent, number uint64) (uint64, error) {
	last, err := outcomes.Last(numberRange(keyOutcomes, number))
	if last == nil {
		return 0, err
	}
	return binary.BigEndian.Uint64(last[9:]) + 1, nil
}

// jobs replays the logs of an action's pages.
func (l *loader) jobs(a *action) error {
	var facts pageFacts
	var returned []*job
	from, to := numberRange(keyLog, a.number)
	err := l.logs.Scan(from, to, func(key, log []byte) (bool, error) {
		facts = pageFacts{}
		if err := facts.replay(log); err != nil {
			return false, pebblekv.Corrupt(key, err.Error())
		}
		pageNumber := binary.BigEndian.Uint32(key[9:])
		a.logs[pageNumber] = pageLog{bytes: len(log)}
		a.record.Throttled += int64(facts.throttled)
		a.record.Retried += int64(facts.retried)
		for i := range facts.jobs {
			j, err := l.s.loadJob(a, pageNumber<<pageBits|uint32(i), &facts.jobs[i])
			if err != nil {
				return false, err
			}
			if j != nil {
				returned = append(returned, j)
			}
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	return l.s.loadReturned(l.call, a, returned)
}

// loadJob restores one job from its facts. It returns the job if it goes back to the
// line.
func (s *Store) loadJob(a *action, index uint32, f *jobFacts) (*job, error) {
	if f.phase == untouched {
		return nil, nil
	}
	a.next = max(a.next, int64(index)+1)
	if f.phase.final() {
		a.setFinal(index, f.fence, f.phase == succeeded)
		switch f.phase {
		case succeeded:
			a.record.Succeeded++
		case failed:
			a.record.Failed++
		}
		return nil, nil
	}
	j := &job{
		action: a, index: index, fence: f.fence, attempts: f.attempts, crashes: f.crashes,
		reason: f.reason, phase: f.phase, local: f.local, lapsed: f.lapsed, at: time.UnixMilli(f.at),
	}
	switch {
	case f.phase == inFlight && !f.local:
		a.jobs[index] = j
		s.launch(j)
		return nil, s.holdAgain(j)
	case a.record.Status == bulk.Canceled:
	case f.phase == nonReady:
		a.jobs[index] = j
		s.setAside(j)
	default:
		a.jobs[index] = j
		return j, nil
	}
	return nil, nil
}

// loadReturned returns jobs to the line, in the order of their indexes: those that were in
// flight in the previous process, those that had returned before, and those that were ready but
// never leased, which are not stored.
func (s *Store) loadReturned(call *call, a *action, returned []*job) error {
	if a.record.Status == bulk.Canceled {
		return nil
	}
	for index := range uint32(a.next) {
		if a.jobs[index] == nil && a.final(index) == 0 {
			j := &job{action: a, index: index}
			a.jobs[index] = j
			returned = append(returned, j)
		}
	}
	slices.SortFunc(returned, func(x, y *job) int { return int(x.index) - int(y.index) })
	for _, j := range returned {
		if j.phase == inFlight && !call.crash(j) {
			continue
		}
		j.phase = inLine
		a.returned.push(j)
	}
	return nil
}
