package topic

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// Batch is one record batch of Kafka's format 2, as it is on the wire and on
// disk. Its methods may be called once [SplitBatches] has accepted it.
//
// See https://kafka.apache.org/documentation/#recordbatch.
type Batch []byte

// Where the fields of a batch are. What comes before atAttributes is not
// covered by the checksum, so that offset and epoch can be stamped.
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
	atRecords       = 61
)

// BatchOverhead is the length of a batch without records.
const BatchOverhead = atRecords

// Bits of a batch's attributes.
const (
	compressionBits   = 0x7
	logAppendTimeBit  = 1 << 3
	transactionalBit  = 1 << 4
	controlBit        = 1 << 5
	batchFormat       = 2
	noProducer        = -1
	lengthBeforeField = atLength + 4 // the length field counts what follows it
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrCorrupt says that data is not whole batches, or that a checksum is wrong.
var ErrCorrupt = errors.New("corrupt record batch")

// SplitBatches returns the batches of data, which must be whole ones of format
// 2. It looks at their headers only; see [Batch.Check]. The error is an
// ErrCorrupt.
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
	if batch.lastDelta() < 0 || batch.Count() < 0 || int64(batch.Count()) > int64(batch.lastDelta())+1 {
		return nil, fmt.Errorf("%w: %d records in %d offsets", ErrCorrupt, batch.Count(), int64(batch.lastDelta())+1)
	}
	return batch, nil
}

// Check returns an ErrCorrupt if the batch's checksum is wrong.
func (b Batch) Check() error {
	if got, want := crc32.Checksum(b[atAttributes:], castagnoli), b.uint32(atChecksum); got != want {
		return fmt.Errorf("%w: checksum %08x, want %08x", ErrCorrupt, got, want)
	}
	return nil
}

// Base returns the offset of the first record, and Next that after the last:
// compaction and views may have taken out any of them.
func (b Batch) Base() int64 { return b.int64(atBase) }

// Next returns the offset after the batch's last.
func (b Batch) Next() int64 { return b.Base() + int64(b.lastDelta()) + 1 }

// Epoch returns the leader epoch under which it was appended.
func (b Batch) Epoch() int32 { return int32(b.uint32(atEpoch)) }

// Count returns the number of its records.
func (b Batch) Count() int32 { return int32(b.uint32(atCount)) }

// FirstTimestamp returns the timestamp that those of the records are relative
// to, in milliseconds since the epoch.
func (b Batch) FirstTimestamp() int64 { return b.int64(atFirstTime) }

// MaxTimestamp returns the highest timestamp of its records.
func (b Batch) MaxTimestamp() int64 { return b.int64(atMaxTime) }

// Compression returns the number of the codec of its records: 0 none, 1 gzip,
// 2 snappy, 3 lz4, 4 zstd.
func (b Batch) Compression() int { return int(b.attributes() & compressionBits) }

// LogAppendTime tells whether MaxTimestamp is that of the append, and counts
// for all records.
func (b Batch) LogAppendTime() bool { return b.attributes()&logAppendTimeBit != 0 }

// Transactional tells whether the batch is of a transaction.
func (b Batch) Transactional() bool { return b.attributes()&transactionalBit != 0 }

// Control tells whether the records are markers of the broker.
func (b Batch) Control() bool { return b.attributes()&controlBit != 0 }

// Producer returns the idempotent producer's id, its epoch, and the sequence
// number of the first record. The id is negative if the producer is not
// idempotent.
func (b Batch) Producer() (id int64, epoch int16, sequence int32) {
	return b.int64(atProducerID), int16(binary.BigEndian.Uint16(b[atProducerEpoch:])), int32(b.uint32(atSequence))
}

// stamp sets what the leader decides.
func (b Batch) stamp(base int64, epoch int32) {
	binary.BigEndian.PutUint64(b[atBase:], uint64(base))
	binary.BigEndian.PutUint32(b[atEpoch:], uint32(epoch))
}

// stampTime makes the time of the append, in milliseconds, the timestamp of all
// records.
func (b Batch) stampTime(now int64) {
	binary.BigEndian.PutUint16(b[atAttributes:], b.attributes()|logAppendTimeBit)
	binary.BigEndian.PutUint64(b[atMaxTime:], uint64(now))
	b.seal()
}

// seal sets the length and the checksum.
func (b Batch) seal() {
	binary.BigEndian.PutUint32(b[atLength:], uint32(len(b)-lengthBeforeField))
	binary.BigEndian.PutUint32(b[atChecksum:], crc32.Checksum(b[atAttributes:], castagnoli))
}

func (b Batch) attributes() uint16   { return binary.BigEndian.Uint16(b[atAttributes:]) }
func (b Batch) lastDelta() int32     { return int32(b.uint32(atLastDelta)) }
func (b Batch) int64(at int) int64   { return int64(binary.BigEndian.Uint64(b[at:])) }
func (b Batch) uint32(at int) uint32 { return binary.BigEndian.Uint32(b[at:]) }

// length returns the length that the batch says it has.
func (b Batch) length() int { return int(b.uint32(atLength)) + lengthBeforeField }
