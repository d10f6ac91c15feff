package pebblestore

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/pebblekv"
)

// lateActions is the number of finished actions that are cached for late settlements.
const lateActions = 16

// lateFinals caches how the jobs of recently finished actions ended, for late
// settlements. The oldest action is dropped first.
type lateFinals struct {
	numbers []uint64
	finals  map[uint64][]uint8
}

func (l *lateFinals) keep(number uint64, finals []uint8) {
	if l.finals == nil {
		l.finals = map[uint64][]uint8{}
	}
	if _, kept := l.finals[number]; kept {
		return
	}
	if len(l.numbers) == lateActions {
		delete(l.finals, l.numbers[0])
		l.numbers = l.numbers[1:]
	}
	l.numbers, l.finals[number] = append(l.numbers, number), finals
}

// lateVerdict judges a settlement of an action that is not in memory.
func (s *Store) lateVerdict(lease bulk.LeaseID, now time.Time) (bulk.Verdict, error) {
	finals, kept := s.late.finals[lease.Action]
	if !kept {
		var err error
		if finals, err = s.readFinals(lease.Action); err != nil {
			return bulk.Unknown, err
		}
		s.late.keep(lease.Action, finals)
	}
	if int(lease.Index) >= len(finals) || finals[lease.Index] == 0 {
		return bulk.Unknown, nil
	}
	return finalVerdict(finals[lease.Index], lease.Fence, now), nil
}

// readFinals reads how the jobs of a finished action ended.
func (s *Store) readFinals(number uint64) (finals []uint8, err error) {
	var facts pageFacts
	from, to := numberRange(keyLog, number)
	err = pebblekv.Scan(s.db, from, to, func(key, log []byte) (bool, error) {
		facts = pageFacts{}
		if err := facts.replay(log); err != nil {
			return false, pebblekv.Corrupt(key, err.Error())
		}
		base := binary.BigEndian.Uint32(key[9:]) << pageBits
		for i, f := range facts.jobs {
			if !f.phase.final() {
				continue
			}
			for len(finals) <= int(base)+i {
				finals = append(finals, make([]uint8, pageSize)...)
			}
			finals[int(base)+i] = finalOf(f.fence, f.phase == succeeded)
		}
		return true, nil
	})
	return finals, err
}

// forget drops an action.
func (l *lateFinals) forget(number uint64) {
	if _, kept := l.finals[number]; kept {
		delete(l.finals, number)
		l.numbers = slices.DeleteFunc(l.numbers, func(n uint64) bool { return n == number })
	}
}
