package topic

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
)

// Batch is one record batch of Kafka's format 2, as it is on the wire and on
// disk. Its methods may be called once [SplitBatches] has accepted it.
//
// See https://kafka.apache.org/documentation/#recordbatch.
type Batch []byte

// Positions of a batch's fields. The checksum does not cover the fields before
// atAttributes, so that the leader can stamp offset and epoch.
const (
	atBase          = 0
	atLength        = 8
	atEpoch         = 12
	atMagic         = 16
	atChecksum      = 17
	atAttributes    = 21
	atLastDelta     = 23
	atFirstTime     = 27
	atMaxTime       = 35
	atProducerID    = 43
	atProducerEpoch = 51
	atSequence      = 53
	atCount         = 57
	RecordsAt       = 61
)

// BatchOverhead is the length of a batch without records.
const BatchOverhead = RecordsAt

// Bits of a batch's attributes.
const (
	compressionBits   = 0x7
	logAppendTimeBit  = 1 << 3
	transactionalBit  = 1 << 4
	controlBit        = 1 << 5
	deleteHorizonBit  = 1 << 6
	batchFormat       = 2
	NoProducer        = -1
	lengthBeforeField = atLength + 4 // the length field counts what follows it
)

// Castagnoli is the table of the checksums of batches, CRC-32C.
var Castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrCorrupt reports data that is not a series of whole batches, or a wrong checksum.
var ErrCorrupt = errors.New("corrupt record batch")

// SplitBatches splits data into its batches, which must be whole and of format 2.
// It checks their headers only; see [Batch.Check]. The error is an ErrCorrupt.
func SplitBatches(data []byte) ([]Batch, error) {
	var batches []Batch
	for at := 0; at < len(data); {
		batch, err := firstBatch(data[at:])
		if err != nil {
			return nil, fmt.Errorf("at byte %d: %w", at, err)
		}
		batches = append(batches, batch)
		at += len(batch)
	}
	return batches, nil
}

// firstBatch returns the batch that data begins with.
func firstBatch(data []byte) (Batch, error) {
	if len(data) < BatchOverhead {
		return nil, fmt.Errorf("%w: %d bytes, a batch has at least %d", ErrCorrupt, len(data), BatchOverhead)
	}
	length := int64(int32(binary.BigEndian.Uint32(data[atLength:]))) + lengthBeforeField
	if length < BatchOverhead || length > int64(len(data)) {
		return nil, fmt.Errorf("%w: says it has %d bytes, of %d", ErrCorrupt, length, len(data))
	}
	batch := Batch(data[:length:length])
	if format := batch[atMagic]; format != batchFormat {
		return nil, fmt.Errorf("%w: message format %d, want %d", ErrCorrupt, format, batchFormat)
	}
	if batch.LastDelta() < 0 || batch.Count() < 0 || int64(batch.Count()) > int64(batch.LastDelta())+1 {
		return nil, fmt.Errorf("%w: %d records in %d offsets", ErrCorrupt, batch.Count(), int64(batch.LastDelta())+1)
	}
	return batch, nil
}

// Check returns an ErrCorrupt if the batch's checksum is wrong.
func (b Batch) Check() error {
	if got, want := crc32.Checksum(b[atAttributes:], Castagnoli), b.uint32(atChecksum); got != want {
		return fmt.Errorf("%w: checksum %08x, want %08x", ErrCorrupt, got, want)
	}
	return nil
}

// Base returns the offset of the batch's first record. Compaction and views may
// have removed that record and any other.
func (b Batch) Base() int64 { return b.int64(atBase) }

// Next returns the offset after the batch's last record.
func (b Batch) Next() int64 { return b.Base() + int64(b.LastDelta()) + 1 }

// Epoch returns the leader epoch under which the batch was appended.
func (b Batch) Epoch() int32 { return int32(b.uint32(atEpoch)) }

// Count returns the number of records.
func (b Batch) Count() int32 { return int32(b.uint32(atCount)) }

// FirstTimestamp returns the timestamp that the records' timestamps are relative
// to, in milliseconds since the epoch.
func (b Batch) FirstTimestamp() int64 { return b.int64(atFirstTime) }

// MaxTimestamp returns the highest timestamp of the records.
func (b Batch) MaxTimestamp() int64 { return b.int64(atMaxTime) }

// Compression returns the codec of the records: 0 none, 1 gzip, 2 snappy, 3 lz4,
// 4 zstd.
func (b Batch) Compression() int { return int(b.attributes() & compressionBits) }

// LogAppendTime reports whether MaxTimestamp is the time of the append and
// applies to all records.
func (b Batch) LogAppendTime() bool { return b.attributes()&logAppendTimeBit != 0 }

// Transactional reports whether the batch belongs to a transaction.
func (b Batch) Transactional() bool { return b.attributes()&transactionalBit != 0 }

// Control reports whether the records are control markers of the broker.
func (b Batch) Control() bool { return b.attributes()&controlBit != 0 }

// DeleteHorizon returns from when on the batch's tombstones or markers may be removed, in
// milliseconds since the epoch, if compaction has set that: the batch's first timestamp is
// it then (KIP-534).
func (b Batch) DeleteHorizon() (at int64, set bool) {
	return b.FirstTimestamp(), b.attributes()&deleteHorizonBit != 0
}

// Producer returns the idempotent producer's id, its epoch, and the sequence
// number of the first record. The id is negative if the producer is not
// idempotent.
func (b Batch) Producer() (id int64, epoch int16, sequence int32) {
	return b.int64(atProducerID), int16(binary.BigEndian.Uint16(b[atProducerEpoch:])), int32(b.uint32(atSequence))
}

// Stamp sets the fields that the leader decides.
func (b Batch) Stamp(base int64, epoch int32) {
	binary.BigEndian.PutUint64(b[atBase:], uint64(base))
	binary.BigEndian.PutUint32(b[atEpoch:], uint32(epoch))
}

// StampTime sets the timestamp of all records to the time of the append, in
// milliseconds.
func (b Batch) StampTime(now int64) {
	binary.BigEndian.PutUint16(b[atAttributes:], b.attributes()|logAppendTimeBit)
	binary.BigEndian.PutUint64(b[atMaxTime:], uint64(now))
	b.seal()
}

// SetMaxTimestamp sets the highest timestamp of the records, in milliseconds.
func (b Batch) SetMaxTimestamp(highest int64) {
	b.put64(atMaxTime, highest)
	b.seal()
}

// seal sets the length and the checksum.
func (b Batch) seal() {
	binary.BigEndian.PutUint32(b[atLength:], uint32(len(b)-lengthBeforeField))
	binary.BigEndian.PutUint32(b[atChecksum:], crc32.Checksum(b[atAttributes:], Castagnoli))
}

func (b Batch) attributes() uint16 { return binary.BigEndian.Uint16(b[atAttributes:]) }

// LastDelta returns the offset of the last record relative to the first.
func (b Batch) LastDelta() int32     { return int32(b.uint32(atLastDelta)) }
func (b Batch) int64(at int) int64   { return int64(binary.BigEndian.Uint64(b[at:])) }
func (b Batch) uint32(at int) uint32 { return binary.BigEndian.Uint32(b[at:]) }

// Length returns the batch's length according to its header.
func (b Batch) Length() int { return int(b.uint32(atLength)) + lengthBeforeField }

// LastSequence returns the sequence number of a batch's last record. Sequence
// numbers wrap at 2³¹.
func LastSequence(b Batch) int32 {
	_, _, first := b.Producer()
	return int32((int64(first) + int64(b.LastDelta())) & math.MaxInt32)
}
