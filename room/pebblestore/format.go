package pebblestore

import (
	"encoding/binary"

	"github.com/sluice-project/sluice/internal/pebblekv"
)

// FormatVersion is the version of what this package stores. A store of version 1 becomes one
// of this version when it is opened; its visitors have no fingerprints. A store of another
// version is not opened.
const FormatVersion = 2

// The first byte of a key says what it holds.
const (
	keyMeta = 'M' // name → value
	keyRoom = 'r' // name → id, revision, record
	keyOf   = 'x' // id, kind, … → what belongs to a room
)

// The kinds of what belongs to a room.
const (
	kindCounts  = 'c' // → counts
	kindEvents  = 'e' // sequence → events of one operation
	kindGone    = 'g' // page → why the visitors of a page are gone
	kindVisitor = 'v' // number → a visitor
)

var (
	metaVersion  = []byte("Mversion")
	metaRevision = []byte("Mrevision") // the highest revision given to a room
	metaKeys     = []byte("Mkeys")     // the key ring
)

type (
	// VersionError is the error of Open for a store of another format.
	VersionError = pebblekv.VersionError
	// CorruptError is the error of a value that does not have the format of its key.
	CorruptError = pebblekv.CorruptError
)

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
		return 0, pebblekv.Corrupt(key, "it has no number")
	}
	return int64(binary.BigEndian.Uint64(key[10:])), nil
}

func appendCounts(to []byte, counts ...int64) []byte {
	for _, v := range counts {
		to = binary.AppendUvarint(to, uint64(v))
	}
	return to
}
