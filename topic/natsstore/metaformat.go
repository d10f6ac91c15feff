package natsstore

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Bounds of the metadata.
const (
	maxKeyBytes   = 600
	maxValueBytes = 4 << 20
)

const (
	metaFormat   byte = 1
	changePut    byte = 1
	changeDelete byte = 2
)

// changesHead begins the data of an entry of the metadata.
type changesHead struct {
	// From is the first entry that counts: no value and no deletion that is still in force
	// is in an earlier one.
	From uint64
	// Bytes is the length of the data of all entries from From to the one before this.
	Bytes uint64
}

// stored is a change in an entry. It is decided, so readers apply it without conditions.
type stored struct {
	Key    string
	Value  []byte
	Delete bool
	// Revision is the key's new revision; 0 for the sequence of the entry.
	Revision uint64
}

// changeOverhead is the least size of a change without its key and value.
const changeOverhead = 16

func appendHead(b []byte, head changesHead) []byte {
	b = append(b, metaFormat)
	b = binary.AppendUvarint(b, head.From)
	return binary.AppendUvarint(b, head.Bytes)
}

func appendChange(b []byte, change stored) []byte {
	kind := changePut
	if change.Delete {
		kind = changeDelete
	}
	b = append(b, kind)
	b = binary.AppendUvarint(b, uint64(len(change.Key)))
	b = append(b, change.Key...)
	if change.Delete {
		return b
	}
	b = binary.AppendUvarint(b, change.Revision)
	b = binary.AppendUvarint(b, uint64(len(change.Value)))
	return append(b, change.Value...)
}

var errChanges = errors.New("not an entry of the metadata")

// readChanges calls each with the changes of an entry's data. Their values share it.
func readChanges(data []byte, each func(stored)) (changesHead, error) {
	if len(data) == 0 || data[0] != metaFormat {
		return changesHead{}, fmt.Errorf("%w: want it to begin with %d", errChanges, metaFormat)
	}
	d := decoder{rest: data[1:]}
	head := changesHead{From: d.number(), Bytes: d.number()}
	return head, d.changes(each)
}

// changes calls each with the remaining changes.
func (d *decoder) changes(each func(stored)) error {
	size := len(d.rest)
	for !d.failed && len(d.rest) > 0 {
		kind := d.rest[0]
		d.rest = d.rest[1:]
		change := stored{Delete: kind == changeDelete, Key: string(d.bytes(maxKeyBytes))}
		switch kind {
		case changePut:
			change.Revision, change.Value = d.number(), d.bytes(maxValueBytes)
		case changeDelete:
		default:
			return fmt.Errorf("%w: change of kind %d", errChanges, kind)
		}
		if !d.failed {
			each(change)
		}
	}
	if d.failed {
		return fmt.Errorf("%w: %d bytes do not end with a whole change", errChanges, size)
	}
	return nil
}

// decoder reads numbers and bytes until one is incomplete.
type decoder struct {
	rest   []byte
	failed bool
}

func (d *decoder) number() uint64 {
	number, n := binary.Uvarint(d.rest)
	if n <= 0 || d.failed {
		d.failed = true
		return 0
	}
	d.rest = d.rest[n:]
	return number
}

func (d *decoder) bytes(most uint64) []byte {
	length := d.number()
	if d.failed || length > most || length > uint64(len(d.rest)) {
		d.failed = true
		return nil
	}
	b := d.rest[:length:length]
	d.rest = d.rest[length:]
	return b
}
