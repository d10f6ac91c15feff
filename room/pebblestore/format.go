package pebblestore

import (
	"encoding/binary"
	"fmt"
)

// FormatVersion is the version of what this package stores. A store of another
// version is not opened.
const FormatVersion = 1

// The first byte of a key says what it holds.
const (
	keyMeta = 'M' // name → value
	keyRoom = 'r' // name → id, revision, record
	keyOf   = 'x' // id, kind, … → what belongs to a room
)

// The kinds of what belongs to a room.
const (
	kindCounts  = 'c' // → counts
	kindEvents  = 'e' // sequence → events of one move
	kindGone    = 'g' // page → why the visitors of a page are gone
	kindVisitor = 'v' // number → a visitor
)

var (
	metaVersion  = []byte("Mversion")
	metaRevision = []byte("Mrevision") // the highest revision given to a room
	metaKeys     = []byte("Mkeys")     // the key ring
)

// VersionError: the directory holds a store of another format.
type VersionError struct{ Found uint64 }

func (e *VersionError) Error() string {
	return fmt.Sprintf("the store has format %d, this program reads and writes format %d: use the version of sluice that wrote it", e.Found, FormatVersion)
}

// CorruptError: a value does not have the form that its key promises.
type CorruptError struct {
	Key []byte
	Why string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("the store is damaged: key %q: %s", e.Key, e.Why)
}

func roomKey(name string) []byte { return append([]byte{keyRoom}, name...) }

// appendKey appends the key of what belongs to a room.
func appendKey(to []byte, id uint64, kind byte, number int64) []byte {
	to = append(binary.BigEndian.AppendUint64(append(to, keyOf), id), kind)
	if kind == kindCounts {
		return to
	}
	return binary.BigEndian.AppendUint64(to, uint64(number))
}

func keyFor(id uint64, kind byte, number int64) []byte { return appendKey(nil, id, kind, number) }

// kindRange is the range of all keys of a kind that belong to a room.
func kindRange(id uint64, kind byte) (from, to []byte) {
	prefix := binary.BigEndian.AppendUint64([]byte{keyOf}, id)
	return append(prefix[:9:9], kind), append(prefix[:9:9], kind+1)
}

// roomRange is the range of all keys that belong to a room.
func roomRange(id uint64) (from, to []byte) {
	return binary.BigEndian.AppendUint64([]byte{keyOf}, id), binary.BigEndian.AppendUint64([]byte{keyOf}, id+1)
}

// numberOf is the number at the end of a key of a kind that has one.
func numberOf(key []byte) (int64, error) {
	if len(key) != 18 || key[10] > 0x7f {
		return 0, corrupt(key, "it has no number")
	}
	return int64(binary.BigEndian.Uint64(key[10:])), nil
}

func corrupt(key []byte, why string) error {
	return &CorruptError{append([]byte{}, key...), why}
}

// reader takes varints and bytes from a value. Its first failure sticks.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.bad, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// count is a number that is not negative.
func (r *reader) count() int64 {
	v := r.uvarint()
	if v > 1<<63-1 {
		r.bad = true
		return 0
	}
	return int64(v)
}

func (r *reader) byte() byte {
	if len(r.rest) == 0 {
		r.bad = true
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

// take returns n bytes, which share memory with the value; nil if there are fewer.
func (r *reader) take(n int) []byte {
	if n > len(r.rest) {
		r.bad, r.rest = true, nil
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

// whole says that all was read, and well.
func (r *reader) whole() bool { return !r.bad && len(r.rest) == 0 }

func appendCounts(to []byte, counts ...int64) []byte {
	for _, v := range counts {
		to = binary.AppendUvarint(to, uint64(v))
	}
	return to
}
