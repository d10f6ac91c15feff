package pebblestore

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/pebblekv"
)

// outcomesAtOnce roughly bounds the outcomes of one call of Outcomes.
const outcomesAtOnce = 1000

func encodeOutcomes(outcomes []bulk.Outcome) []byte {
	to := binary.AppendUvarint(make([]byte, 0, 16*len(outcomes)), uint64(len(outcomes)))
	for i := range outcomes {
		o := &outcomes[i]
		ok := byte(0)
		if o.Succeeded {
			ok = 1
		}
		to = append(binary.AppendUvarint(to, uint64(o.Index)), ok)
		to = binary.AppendUvarint(to, uint64(o.Attempts))
		to = binary.AppendUvarint(to, uint64(max(0, o.Took)))
		to = appendBytes(to, o.Values)
		to = binary.AppendUvarint(to, uint64(len(o.Error)))
		to = append(to, o.Error...)
	}
	return to
}

func decodeOutcomes(to []bulk.Outcome, value []byte) ([]bulk.Outcome, bool) {
	r := pebblekv.Reader{Rest: append([]byte{}, value...)}
	for range r.Uvarint() {
		o := bulk.Outcome{Index: int64(r.Uvarint()), Succeeded: r.Byte() == 1}
		o.Attempts, o.Took = int(r.Uvarint()), time.Duration(r.Uvarint())
		if values := r.Bytes(); len(values) > 0 {
			o.Values = values
		}
		o.Error = string(r.Bytes())
		if r.Bad {
			return nil, false
		}
		to = append(to, o)
	}
	return to, !r.Bad && len(r.Rest) == 0
}

// holdAction is hold for a call that reads one action: it returns the action's number.
func (s *Store) holdAction(id string) (number uint64, done func(), err error) {
	s.reads.RLock()
	defer s.reads.RUnlock()
	if s.state != nil {
		return 0, nil, s.state
	}
	if number, err = s.lookup(id); err != nil {
		return 0, nil, err
	}
	s.running.Add(1)
	return number, s.running.Done, nil
}

// Outcomes implements bulk.Store.
func (s *Store) Outcomes(_ context.Context, id string, after uint64) (outcomes []bulk.Outcome, upTo uint64, err error) {
	number, done, err := s.holdAction(id)
	if err != nil {
		return nil, after, err
	}
	defer done()
	upTo = after
	_, end := numberRange(keyOutcomes, number)
	err = pebblekv.Scan(s.db, outcomesKey(number, after), end, func(key, value []byte) (bool, error) {
		var ok bool
		if outcomes, ok = decodeOutcomes(outcomes, value); !ok {
			return false, pebblekv.Corrupt(key, "not a batch of outcomes")
		}
		upTo = binary.BigEndian.Uint64(key[9:]) + 1
		return len(outcomes) < outcomesAtOnce, nil
	})
	return outcomes, upTo, err
}

func encodeResult(result []byte, truncated bool) []byte {
	if truncated || len(result) > bulk.MaxEventResult {
		return []byte{1}
	}
	return append([]byte{0}, result...)
}

func decodeResult(value []byte) (result []byte, truncated, ok bool) {
	if len(value) == 0 || value[0] > 1 {
		return nil, false, false
	}
	return value[1:], value[0] == 1, true
}

func encodeDeadLetter(d bulk.DeadLetter) []byte {
	to := binary.AppendUvarint(nil, uint64(d.Attempts))
	to = binary.AppendUvarint(to, uint64(d.FailedAt.UnixMilli()))
	to = appendBytes(to, []byte(d.Error))
	return append(to, d.Payload...)
}

func decodeDeadLetter(value []byte) (d bulk.DeadLetter, ok bool) {
	r := pebblekv.Reader{Rest: value}
	d.Attempts = int(r.Uvarint())
	d.FailedAt = time.UnixMilli(int64(r.Uvarint())).UTC()
	d.Error = string(r.Bytes())
	d.Payload = append([]byte{}, r.Rest...)
	return d, !r.Bad
}

// DeadLetters implements bulk.Store.
func (s *Store) DeadLetters(_ context.Context, id string, from int64, limit int) (letters []bulk.DeadLetter, err error) {
	number, done, err := s.holdAction(id)
	if err != nil {
		return nil, err
	}
	defer done()
	if limit <= 0 || from > MaxJobs {
		return nil, nil
	}
	_, end := numberRange(keyDead, number)
	bytes := 0
	err = pebblekv.Scan(s.db, indexKey(keyDead, number, uint32(max(0, from))), end, func(key, value []byte) (bool, error) {
		letter, ok := decodeDeadLetter(value)
		if !ok {
			return false, pebblekv.Corrupt(key, "not a dead letter")
		}
		letter.Action, letter.Index = id, int64(binary.BigEndian.Uint32(key[9:]))
		letters = append(letters, letter)
		bytes += len(letter.Payload)
		return len(letters) < limit && bytes < bulk.MaxPageBytes, nil
	})
	return letters, err
}
