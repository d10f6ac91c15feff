package topic

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
)

// The delay log of a partition is moves, several to an entry, as
// docs/formats/topic-delay-log.md says.

// delayVersion is the format's.
const delayVersion = 1

// delayHeader is version, checksum and writer.
const delayHeader = 1 + 4 + 8

// delayKind says what a move does.
type delayKind byte

const (
	// delayAdd adds records of one batch, whose own append is not known yet.
	delayAdd delayKind = 'a'
	// delaySettle tells of added records whether their batch was appended.
	delaySettle delayKind = 's'
	// delayCancel takes records out.
	delayCancel delayKind = 'c'
	// delayRelease says which records the release of a number has. That was
	// carried out if the partition's mark says so.
	delayRelease delayKind = 'r'
	// delayRewrite has live records anew, so that older entries can go.
	delayRewrite delayKind = 'w'
)

// delayMove is one move of the log.
type delayMove struct {
	kind delayKind
	// producer of an add, with the last sequence.
	producer *BatchProducer
	// records of an add and of a rewrite; orders, of a rewrite, say when they
	// arrived.
	records []DelayedRecord
	orders  []uint64
	// ids of a settle that are kept, of a cancel and of a release; dropped are
	// those of a settle that are not.
	ids, dropped []string
	// number of a release.
	number int64
}

// newDelayEntry returns the begin of an entry of a writer.
func newDelayEntry(writer uint64) []byte {
	entry := make([]byte, delayHeader, 1024)
	entry[0] = delayVersion
	binary.BigEndian.PutUint64(entry[5:], writer)
	return entry
}

// sealDelayEntry sets its checksum.
func sealDelayEntry(entry []byte) {
	binary.BigEndian.PutUint32(entry[1:], crc32.Checksum(entry[5:], castagnoli))
}

// appendDelayMove appends a move to an entry.
func appendDelayMove(to []byte, move delayMove) []byte {
	to = append(to, byte(move.kind))
	switch move.kind {
	case delayAdd:
		producer := BatchProducer{ID: noProducer}
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
			to = appendSized(to, record.body)
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

// readDelayEntry returns the moves of an entry. Bodies alias it. The error is an
// ErrCorrupt.
func readDelayEntry(entry []byte) ([]delayMove, error) {
	if len(entry) < delayHeader || entry[0] != delayVersion {
		return nil, fmt.Errorf("%w: not an entry of a delay log of version %d", ErrCorrupt, delayVersion)
	}
	if got, want := crc32.Checksum(entry[5:], castagnoli), binary.BigEndian.Uint32(entry[1:]); got != want {
		return nil, fmt.Errorf("%w: delay log has checksum %08x, want %08x", ErrCorrupt, got, want)
	}
	in := delayReader{varints{rest: entry[delayHeader:]}}
	var moves []delayMove
	for len(in.rest) > 0 {
		move := in.move()
		if in.err != nil {
			return nil, fmt.Errorf("%w: move %d of a delay log: %w", ErrCorrupt, len(moves), in.err)
		}
		moves = append(moves, move)
	}
	return moves, nil
}

// delayReader reads moves.
type delayReader struct{ varints }

func (r *delayReader) move() delayMove {
	move := delayMove{kind: delayKind(r.take(1)[0])}
	switch move.kind {
	case delayAdd:
		producer := BatchProducer{r.varint(), int16(r.bounded(math.MinInt16, math.MaxInt16)), int32(r.bounded(math.MinInt32, math.MaxInt32))}
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
		r.err = fmt.Errorf("kind %q is unknown", move.kind)
	}
	return move
}

// records reads records; with orders, theirs too.
func (r *delayReader) records(orders *[]uint64) []DelayedRecord {
	count := r.count(3)
	records := make([]DelayedRecord, 0, count)
	for range count {
		if orders != nil {
			*orders = append(*orders, r.uvarint())
		}
		record := DelayedRecord{Due: r.varint(), ID: string(r.sized()), body: r.sized()}
		if r.err != nil {
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

// count reads how many things of at least some bytes follow.
func (r *delayReader) count(least int) int {
	count := r.uvarint()
	if r.err == nil && count > uint64(len(r.rest)/least) {
		r.err = errTruncated
	}
	if r.err != nil {
		return 0
	}
	return int(count)
}

func (r *delayReader) bounded(least, most int64) int64 {
	value := r.varint()
	if r.err == nil && (value < least || value > most) {
		r.err = fmt.Errorf("%d is not from %d to %d", value, least, most)
	}
	return value
}

func (r *delayReader) uvarint() uint64 {
	if r.err != nil {
		return 0
	}
	value, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.err = errTruncated
		return 0
	}
	r.rest = r.rest[n:]
	return value
}

func (r *delayReader) sized() []byte {
	length := r.uvarint()
	if length > math.MaxInt32 {
		r.err = errTruncated
	}
	return r.take(int64(length))
}
