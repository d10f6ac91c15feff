package topic

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// BatchOptions configure [NewBatch].
type BatchOptions struct {
	// Base is the first offset, Next the offset after the last. Default of Next:
	// after the last record, or Base without records.
	Base, Next int64
	// Epoch is the leader epoch.
	Epoch int32
	// Codec compresses the records; default none.
	Codec int
	// Producer is the idempotent producer; nil for none.
	Producer *BatchProducer
	// Transactional and Control set the attributes with those names.
	Transactional, Control bool
}

// BatchProducer is the idempotent producer that sent a batch, with the sequence
// of the first record.
type BatchProducer struct {
	ID       int64
	Epoch    int16
	Sequence int32
}

// NewBatch returns a sealed batch of the records, whose offsets must rise and be
// at least Base. Its last offset is Next-1. A batch without records covers a gap
// in the offsets, which must not be empty.
func NewBatch(records []Record, options BatchOptions) (Batch, error) {
	base, next := options.Base, options.Next
	if next == 0 {
		next = base
		if len(records) > 0 {
			next = records[len(records)-1].Offset + 1
		}
	}
	if next <= base || next-base > math.MaxInt32 {
		return nil, fmt.Errorf("batch from offset %d to %d: want 1 to %d offsets", base, next, math.MaxInt32)
	}
	first, highest := int64(NoTimestamp), int64(NoTimestamp)
	for i, record := range records {
		if record.Offset < base || record.Offset >= next || i > 0 && record.Offset <= records[i-1].Offset {
			return nil, fmt.Errorf("record %d has offset %d: want offsets that rise, from %d to %d", i, record.Offset, base, next-1)
		}
		if i == 0 {
			first = record.Timestamp
		}
		highest = max(highest, record.Timestamp)
	}
	var data []byte
	for _, record := range records {
		data = appendRecord(data, record.Timestamp-first, record.Offset-base, appendBody(nil, record.Key, record.Value, record.Headers))
	}
	batch := emptyBatch(base, next, options.Epoch)
	batch.put64(atFirstTime, first)
	batch.put64(atMaxTime, highest)
	batch.put32(atCount, int32(len(records)))
	if producer := options.Producer; producer != nil {
		batch.put64(atProducerID, producer.ID)
		binary.BigEndian.PutUint16(batch[atProducerEpoch:], uint16(producer.Epoch))
		batch.put32(atSequence, producer.Sequence)
	}
	attributes := uint16(options.Codec)
	if options.Transactional {
		attributes |= transactionalBit
	}
	if options.Control {
		attributes |= controlBit
	}
	binary.BigEndian.PutUint16(batch[atAttributes:], attributes)
	batch, err := compress(batch, options.Codec, data)
	if err != nil {
		return nil, err
	}
	batch.seal()
	return batch, nil
}

// emptyBatch returns a sealed batch without records, producer or timestamps that
// covers the offsets from base to next-1.
func emptyBatch(base, next int64, epoch int32) Batch {
	batch := make(Batch, BatchOverhead, 256)
	batch[atMagic] = batchFormat
	batch.Stamp(base, epoch)
	batch.put32(atLastDelta, int32(next-base-1))
	batch.put64(atFirstTime, NoTimestamp)
	batch.put64(atMaxTime, NoTimestamp)
	batch.put64(atProducerID, NoProducer)
	binary.BigEndian.PutUint16(batch[atProducerEpoch:], math.MaxUint16) // -1
	batch.put32(atSequence, -1)
	batch.seal()
	return batch
}

// tinyRecords is the size up to which records are not compressed.
const tinyRecords = 256

// WithRecords returns a copy of the batch with only these records, as after
// compaction, that covers its offsets up to next-1: records holds count
// uncompressed records in the batch's encoding. The batch's codec is kept unless
// compression would not make the batch smaller.
func (b Batch) WithRecords(count int32, next int64, records []byte) (Batch, error) {
	codec := b.Compression()
	if len(records) < tinyRecords {
		codec = CodecNone
	}
	made := make(Batch, BatchOverhead, BatchOverhead+len(records))
	copy(made, b[:BatchOverhead])
	made.put32(atCount, count)
	made.put32(atLastDelta, int32(next-b.Base()-1))
	made, err := compress(made, codec, records)
	if err != nil {
		return nil, err
	}
	if codec != CodecNone && len(made) >= BatchOverhead+len(records) {
		made, codec = append(made[:BatchOverhead], records...), CodecNone
	}
	made.setCodec(codec)
	return made, nil
}

// Compacted is [Batch.WithRecords] for what compaction keeps of a batch: it
// covers the same offsets. Unless horizon is negative it is the batch's delete horizon, and records
// are encoded as if it were the first timestamp. Highest is the highest timestamp of the records.
func (b Batch) Compacted(count int32, records []byte, horizon, highest int64) (Batch, error) {
	made, err := b.WithRecords(count, b.Next(), records)
	if err != nil {
		return nil, err
	}
	if horizon >= 0 {
		made.put64(atFirstTime, horizon)
		binary.BigEndian.PutUint16(made[atAttributes:], made.attributes()|deleteHorizonBit)
	}
	if !b.LogAppendTime() {
		made.put64(atMaxTime, highest)
	}
	made.seal()
	return made, nil
}

// Recompressed returns a copy of the batch with another codec. The data are its records without
// compression.
func (b Batch) Recompressed(codec int, data []byte) (Batch, error) {
	bytes, err := compress(slices.Clone(b[:BatchOverhead]), codec, data)
	if err != nil {
		return nil, err
	}
	made := Batch(bytes)
	made.setCodec(codec)
	return made, nil
}

// setCodec seals a batch whose records are compressed with a codec.
func (b Batch) setCodec(codec int) {
	binary.BigEndian.PutUint16(b[atAttributes:], b.attributes()&^compressionBits|uint16(codec))
	b.seal()
}

// appendRecord appends a record in the encoding of a batch. The body is the
// record from its key on.
func appendRecord(to []byte, timestampDelta, offsetDelta int64, body []byte) []byte {
	length := 1 + varintLength(timestampDelta) + varintLength(offsetDelta) + len(body)
	to = binary.AppendVarint(to, int64(length))
	to = append(to, 0) // attributes
	to = binary.AppendVarint(to, timestampDelta)
	to = binary.AppendVarint(to, offsetDelta)
	return append(to, body...)
}

func appendBody(to, key, value []byte, headers []Header) []byte {
	to = appendBytes(to, key)
	to = appendBytes(to, value)
	to = binary.AppendVarint(to, int64(len(headers)))
	for _, header := range headers {
		to = binary.AppendVarint(to, int64(len(header.Key)))
		to = append(to, header.Key...)
		to = appendBytes(to, header.Value)
	}
	return to
}

func appendBytes(to, bytes []byte) []byte {
	if bytes == nil {
		return binary.AppendVarint(to, -1)
	}
	to = binary.AppendVarint(to, int64(len(bytes)))
	return append(to, bytes...)
}

func varintLength(value int64) int {
	var buffer [binary.MaxVarintLen64]byte
	return binary.PutVarint(buffer[:], value)
}

func (b Batch) put64(at int, value int64) { binary.BigEndian.PutUint64(b[at:], uint64(value)) }
func (b Batch) put32(at int, value int32) { binary.BigEndian.PutUint32(b[at:], uint32(value)) }
