package aggregate

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// What Map and Reduce return is stored, so both encodings begin with a version. All integers
// are varints of encoding/binary.
//
//	values: version | for each field: number or 0 | for each custom: bytes
//	state:  version | succeeded | for each field: count sum [min max] |
//	        [top-errors] | [latency] | for each custom: bytes
//
// The action's aggregates, which never change, determine the parts. Values of nil mean that
// every field is skipped, a state of nil that nothing was reduced.
const (
	valuesVersion = 1
	stateVersion  = 1
)

// maxCount bounds counts in stored states. It is far above any number of jobs, and
// small enough that sums of counts cannot overflow.
const maxCount = 1 << 53

var errDamaged = errors.New("the stored bytes are damaged")

// totals is the decoded form of a partial state.
type totals struct {
	succeeded uint64
	numbers   []numberState
	errors    errorsState
	latency   latencyState
	customs   [][]byte
}

func (a *Set) decodeState(partial []byte) (*totals, error) {
	state := &totals{
		numbers: make([]numberState, len(a.fields)),
		customs: make([][]byte, len(a.customs)),
	}
	if len(partial) == 0 {
		return state, nil
	}
	r := reader{rest: partial}
	r.version(stateVersion)
	state.succeeded = r.count()
	for i := range state.numbers {
		state.numbers[i].decode(&r)
	}
	if a.errors {
		state.errors.decode(&r)
	}
	if a.latency {
		state.latency.decode(&r)
	}
	for i := range state.customs {
		state.customs[i] = r.optionalBytes()
	}
	if err := r.end(); err != nil {
		return nil, fmt.Errorf("state of the aggregates: %w", err)
	}
	return state, nil
}

func (a *Set) encodeState(state *totals) []byte {
	b := binary.AppendUvarint([]byte{stateVersion}, state.succeeded)
	for i := range state.numbers {
		b = state.numbers[i].append(b)
	}
	if a.errors {
		b = state.errors.append(b)
	}
	if a.latency {
		b = state.latency.append(b)
	}
	for _, custom := range state.customs {
		b = appendOptionalBytes(b, custom)
	}
	return b
}

// addValues adds the values of one job, as returned by Map, to the state.
func (a *Set) addValues(state *totals, values []byte, custom [][][]byte) error {
	if len(values) == 0 && len(a.customs) == 0 {
		return nil
	}
	r := reader{rest: values}
	r.version(valuesVersion)
	for i := range a.fields {
		if value, ok := r.decimal(); ok {
			state.numbers[i].add(value)
		}
	}
	for i := range a.customs {
		custom[i] = append(custom[i], r.optionalBytes())
	}
	return r.end()
}

// reader reads stored bytes. After the first error it returns zeros; end returns
// that error.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) fail() {
	r.rest = nil
	if r.err == nil {
		r.err = errDamaged
	}
}

// end returns the first error, or an error if bytes are left over.
func (r *reader) end() error {
	if len(r.rest) > 0 {
		r.fail()
	}
	return r.err
}

func (r *reader) version(want byte) {
	switch {
	case len(r.rest) == 0:
		r.fail()
	case r.rest[0] != want:
		r.rest, r.err = nil, fmt.Errorf("format version %d is not known: want %d", r.rest[0], want)
	default:
		r.rest = r.rest[1:]
	}
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.rest)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// count reads a count of jobs.
func (r *reader) count() uint64 { return r.atMost(maxCount) }

// atMost reads an integer from 0 to limit.
func (r *reader) atMost(limit uint64) uint64 {
	v := r.uvarint()
	if v > limit {
		r.fail()
		return 0
	}
	return v
}

// take reads n bytes without copying them.
func (r *reader) take(n uint64) []byte {
	if n > uint64(len(r.rest)) {
		r.fail()
		return nil
	}
	taken := r.rest[:n:n]
	r.rest = r.rest[n:]
	return taken
}

// optionalBytes reads what appendOptionalBytes wrote.
func (r *reader) optionalBytes() []byte {
	n := r.uvarint()
	if n == 0 {
		return nil
	}
	return r.take(n - 1)
}

// appendOptionalBytes encodes nil as 0, and other bytes as their length plus 1.
func appendOptionalBytes(b, value []byte) []byte {
	if value == nil {
		return append(b, 0)
	}
	return append(binary.AppendUvarint(b, uint64(len(value))+1), value...)
}
