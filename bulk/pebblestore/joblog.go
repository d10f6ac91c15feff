package pebblestore

import (
	"encoding/binary"
	"fmt"

	"github.com/sluice-project/sluice/internal/pebblekv"
)

// pageBits sets the number of jobs that share a log: 1,024.
const (
	pageBits = 10
	pageSize = 1 << pageBits
)

// event is what happened to a run of consecutive jobs.
type event byte

const (
	evLeased    event = iota + 1 // by a worker of the process
	evLent                       // to a remote worker; argument: deadline, Unix ms
	evSucceeded                  // final
	evFailed                     // final
	evRetry                      // turned back by an error; argument: due, Unix ms
	evThrottled                  // turned back by the target; argument: due, Unix ms
	evReleased                   // released by the worker
	evExpired                    // the lease expired
	evCrashed                    // the process ended
	evExtended                   // argument: deadline, Unix ms
	evCanceled                   // final: ended after its action was canceled
	evSnapshot                   // everything before it on this page, in one record
	evPostponed                  // released by the worker for a while; argument: due, Unix ms
)

func (e event) hasArgument() bool {
	return e == evLent || e == evRetry || e == evThrottled || e == evExtended || e == evPostponed
}

// jobWriter writes the log of one page: a run of consecutive jobs is one record of event,
// first job, number of jobs and, for some, an argument.
type jobWriter struct {
	page     uint32
	log      []byte
	kind     event
	first    uint32
	count    uint32
	argument int64
}

func (w *jobWriter) add(kind event, index uint32, argument int64) {
	if w.count > 0 && kind == w.kind && index == w.first+w.count && argument == w.argument {
		w.count++
		return
	}
	w.flush()
	w.kind, w.first, w.count, w.argument = kind, index, 1, argument
}

func (w *jobWriter) flush() {
	if w.count == 0 {
		return
	}
	w.log = append(w.log, byte(w.kind))
	w.log = binary.AppendUvarint(w.log, uint64(w.first%pageSize))
	w.log = binary.AppendUvarint(w.log, uint64(w.count))
	if w.kind.hasArgument() {
		w.log = binary.AppendUvarint(w.log, uint64(w.argument))
	}
	w.count = 0
}

// phase is the state of a job that was admitted before.
type phase byte

const (
	untouched phase = iota
	inLine          // returned to the front of its action's line
	ready
	inFlight
	nonReady
	succeeded
	failed
	canceled
)

func (p phase) final() bool { return p >= succeeded }

// jobFacts is the state of one job, from its log.
type jobFacts struct {
	phase    phase
	local    bool
	lapsed   bool // the last lease expired, or ended with its process
	fence    uint32
	attempts uint16
	crashes  uint8
	reason   uint8
	at       int64 // due or deadline, Unix ms
}

// pageFacts is the state of a page, from its log.
type pageFacts struct {
	jobs               [pageSize]jobFacts
	throttled, retried uint64
}

// replay applies a log to the page.
func (p *pageFacts) replay(log []byte) error {
	r := pebblekv.Reader{Rest: log}
	for len(r.Rest) > 0 && !r.Bad {
		kind := event(r.Byte())
		if kind == evSnapshot {
			p.readSnapshot(&r)
			continue
		}
		first, count := r.Uvarint(), r.Uvarint()
		var argument int64
		if kind.hasArgument() {
			argument = int64(r.Uvarint())
		}
		if kind == 0 || kind > evPostponed || first > pageSize || count > pageSize-first {
			return fmt.Errorf("event %d of %d jobs from %d", kind, count, first)
		}
		for i := first; i < first+count; i++ {
			p.apply(&p.jobs[i], kind, argument)
		}
	}
	if r.Bad {
		return fmt.Errorf("the log ends in the middle of a record")
	}
	return nil
}

func (p *pageFacts) apply(j *jobFacts, kind event, argument int64) {
	j.at = argument
	switch kind {
	case evLeased, evLent:
		j.phase, j.local, j.lapsed = inFlight, kind == evLeased, false
		j.fence++
		j.attempts++
	case evExtended:
	case evSucceeded:
		j.phase = succeeded
	case evFailed:
		j.phase = failed
	case evCanceled:
		j.phase = canceled
	case evRetry:
		j.phase, j.reason = nonReady, reasonTransient
		p.retried++
	case evThrottled:
		j.phase, j.reason = nonReady, reasonThrottled
		j.attempts--
		p.throttled++
	case evPostponed:
		j.phase, j.reason = nonReady, reasonTransient
		j.attempts--
	case evReleased:
		j.phase = inLine
		j.attempts--
	case evCrashed:
		j.phase, j.lapsed = inLine, true
		j.attempts--
		j.crashes++
	case evExpired:
		j.phase, j.lapsed = inLine, true
		p.retried++
	}
}

// Flags of a job in a snapshot.
const (
	flagLocal byte = 1 << iota
	flagLapsed
)

// snapshot returns the state of the page as one record.
func (p *pageFacts) snapshot() []byte {
	to := []byte{byte(evSnapshot)}
	to = binary.AppendUvarint(to, p.throttled)
	to = binary.AppendUvarint(to, p.retried)
	for i := range p.jobs {
		j := &p.jobs[i]
		to = append(to, byte(j.phase))
		if j.phase == untouched {
			continue
		}
		var flags byte
		if j.local {
			flags |= flagLocal
		}
		if j.lapsed {
			flags |= flagLapsed
		}
		to = append(to, flags, j.reason, j.crashes)
		to = binary.AppendUvarint(to, uint64(j.fence))
		to = binary.AppendUvarint(to, uint64(j.attempts))
		to = binary.AppendUvarint(to, uint64(j.at))
	}
	return to
}

func (p *pageFacts) readSnapshot(r *pebblekv.Reader) {
	*p = pageFacts{throttled: r.Uvarint(), retried: r.Uvarint()}
	for i := range p.jobs {
		j := jobFacts{phase: phase(r.Byte())}
		if j.phase > canceled {
			r.Bad = true
			return
		}
		if j.phase != untouched {
			flags := r.Byte()
			j.local, j.lapsed = flags&flagLocal != 0, flags&flagLapsed != 0
			j.reason, j.crashes = r.Byte(), r.Byte()
			j.fence, j.attempts, j.at = uint32(r.Uvarint()), uint16(r.Uvarint()), int64(r.Uvarint())
		}
		p.jobs[i] = j
	}
}
