package delay

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/sluice-project/sluice/topic"
)

// The delay log of a partition consists of operations, several to an entry, as described
// in docs/formats/topic-delay-log.md.

// delayVersion is the version of the format.
const delayVersion = 1

// delayHeader is the length of version, checksum and writer.
const delayHeader = 1 + 4 + 8

// delayKind is the kind of an operation.
type delayKind byte

const (
	// delayAdd adds records of one batch, which may not be appended yet.
	delayAdd delayKind = 'a'
	// delaySettle records which added records belong to appended batches.
	delaySettle delayKind = 's'
	// delayCancel removes records.
	delayCancel delayKind = 'c'
	// delayRelease lists the records of a numbered release. The release was completed
	// if the partition's mark has its number.
	delayRelease delayKind = 'r'
	// delayRewrite repeats live records, so that older entries can be trimmed.
	delayRewrite delayKind = 'w'
)

// delayMove is one operation of the log.
type delayMove struct {
	kind delayKind
	// producer of an add, with the last sequence.
	producer *topic.BatchProducer
	// records of an add or a rewrite; for a rewrite, orders holds their order of
	// arrival.
	records []topic.DelayedRecord
	orders  []uint64
	// ids are those kept by a settle, canceled, or released; dropped are those that a
	// settle drops.
	ids, dropped []string
	// number of a release.
	number int64
}

// newDelayEntry returns the header of a writer's entry.
func newDelayEntry(writer uint64) []byte {
	entry := make([]byte, delayHeader, 1024)
	entry[0] = delayVersion
	binary.BigEndian.PutUint64(entry[5:], writer)
	return entry
}

// sealDelayEntry sets the entry's checksum.
func sealDelayEntry(entry []byte) {
	binary.BigEndian.PutUint32(entry[1:], crc32.Checksum(entry[5:], topic.Castagnoli))
}

// appendDelayMove appends an operation to an entry.
func appendDelayMove(to []byte, move delayMove) []byte {
	to = append(to, byte(move.kind))
	switch move.kind {
	case delayAdd:
		producer := topic.BatchProducer{ID: topic.NoProducer}
		if move.producer != nil {
			producer = *move.producer
		}
		to = binary.AppendVarint(to, producer.ID)
		to = binary.AppendVarint(to, int64(producer.Epoch))
		to = binary.AppendVarint(to, int64(producer.Sequence))
	case delayRelease:
		to = binary.AppendUvarint(to, uint64(move.number))
	}
	switch move.kind {
	case delayAdd, delayRewrite:
		to = binary.AppendUvarint(to, uint64(len(move.records)))
		for i, record := range move.records {
			if move.kind == delayRewrite {
				to = binary.AppendUvarint(to, move.orders[i])
			}
			to = binary.AppendVarint(to, record.Due)
			to = appendSized(to, record.ID)
			to = appendSized(to, record.Body)
		}
	case delaySettle:
		to = appendIDs(appendIDs(to, move.ids), move.dropped)
	default:
		to = appendIDs(to, move.ids)
	}
	return to
}

func appendIDs(to []byte, ids []string) []byte {
	to = binary.AppendUvarint(to, uint64(len(ids)))
	for _, id := range ids {
		to = appendSized(to, id)
	}
	return to
}

func appendSized[T string | []byte](to []byte, value T) []byte {
	to = binary.AppendUvarint(to, uint64(len(value)))
	return append(to, value...)
}

// CheckEntry returns an ErrCorrupt unless an entry of a delay log can be read.
func CheckEntry(entry []byte) error {
	_, err := readDelayEntry(entry)
	return err
}

// readDelayEntry returns the operations of an entry. Bodies alias it. The error is an
// ErrCorrupt.
func readDelayEntry(entry []byte) ([]delayMove, error) {
	if len(entry) < delayHeader || entry[0] != delayVersion {
		return nil, fmt.Errorf("%w: not an entry of a delay log of version %d", topic.ErrCorrupt, delayVersion)
	}
	if got, want := crc32.Checksum(entry[5:], topic.Castagnoli), binary.BigEndian.Uint32(entry[1:]); got != want {
		return nil, fmt.Errorf("%w: delay log has checksum %08x, want %08x", topic.ErrCorrupt, got, want)
	}
	in := delayReader{topic.NewVarints(entry[delayHeader:])}
	var moves []delayMove
	for len(in.Rest()) > 0 {
		move := in.move()
		if in.Err != nil {
			return nil, fmt.Errorf("%w: move %d of a delay log: %w", topic.ErrCorrupt, len(moves), in.Err)
		}
		moves = append(moves, move)
	}
	return moves, nil
}

// delayReader reads operations.
type delayReader struct{ topic.Varints }

func (r *delayReader) move() delayMove {
	move := delayMove{kind: delayKind(r.Take(1)[0])}
	switch move.kind {
	case delayAdd:
		producer := topic.BatchProducer{ID: r.Varint(), Epoch: int16(r.bounded(math.MinInt16, math.MaxInt16)), Sequence: int32(r.bounded(math.MinInt32, math.MaxInt32))}
		if producer.ID >= 0 {
			move.producer = &producer
		}
		move.records = r.records(nil)
	case delayRewrite:
		move.records = r.records(&move.orders)
	case delaySettle:
		move.ids, move.dropped = r.ids(), r.ids()
	case delayRelease:
		move.number = int64(r.uvarint())
		move.ids = r.ids()
	case delayCancel:
		move.ids = r.ids()
	default:
		r.Err = fmt.Errorf("kind %q is unknown", move.kind)
	}
	return move
}

// records reads records, with their orders if orders is not nil.
func (r *delayReader) records(orders *[]uint64) []topic.DelayedRecord {
	count := r.count(3)
	records := make([]topic.DelayedRecord, 0, count)
	for range count {
		if orders != nil {
			*orders = append(*orders, r.uvarint())
		}
		record := topic.DelayedRecord{Due: r.Varint(), ID: string(r.sized()), Body: r.sized()}
		if r.Err != nil {
			return nil
		}
		records = append(records, record)
	}
	return records
}

func (r *delayReader) ids() []string {
	count := r.count(1)
	ids := make([]string, 0, count)
	for range count {
		ids = append(ids, string(r.sized()))
	}
	return ids
}

// count reads a number of elements, each of which takes at least least bytes.
func (r *delayReader) count(least int) int {
	count := r.uvarint()
	if r.Err == nil && count > uint64(len(r.Rest())/least) {
		r.Err = topic.ErrTruncated
	}
	if r.Err != nil {
		return 0
	}
	return int(count)
}

func (r *delayReader) bounded(least, most int64) int64 {
	value := r.Varint()
	if r.Err == nil && (value < least || value > most) {
		r.Err = fmt.Errorf("%d is not from %d to %d", value, least, most)
	}
	return value
}

func (r *delayReader) uvarint() uint64 {
	if r.Err != nil {
		return 0
	}
	value, n := binary.Uvarint(r.Rest())
	if n <= 0 {
		r.Err = topic.ErrTruncated
		return 0
	}
	r.Take(int64(n))
	return value
}

func (r *delayReader) sized() []byte {
	length := r.uvarint()
	if length > math.MaxInt32 {
		r.Err = topic.ErrTruncated
	}
	return r.Take(int64(length))
}
