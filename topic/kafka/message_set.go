package kafka

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/bits"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
)

// The positions of the fields of a message of format 0 and 1. Format 1 has a timestamp before the
// key.
const (
	messageAtSize       = 8
	messageAtChecksum   = 12
	messageAtMagic      = 16
	messageAtAttributes = 17
	messageAtTimestamp  = 18
	messageLeast        = 26 // of format 0, with null for key and value
	timestampLength     = 8
	compressionMask     = 0x7
	logAppendTimeMask   = 0x8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// legacyMessage is a record of a message set.
type legacyMessage struct {
	magic, attributes byte
	timestamp         int64
	key, value        []byte
}

// isMessageSet reports whether records are messages of format 0 or 1.
func isMessageSet(records []byte) bool {
	return len(records) > messageAtMagic && records[messageAtMagic] < 2
}

// maxInflated bounds the messages in all compressed messages of one request.
const maxInflated = 32 << 20

var errInflated = fmt.Errorf("%w: compressed messages of a request have more than %d bytes", topic.ErrRecordTooLarge, maxInflated)

// unpack decompresses data and calls use; see topic.Unpacker.
type unpack func(codec int, data []byte, use func(inside []byte) error) error

// upConvert returns a message set as batches of format 2, without compression. Each has at most
// limit bytes, or a single record. The error is topic's, or names an unknown codec.
func upConvert(set []byte, limit int, unpack unpack) ([]byte, error) {
	w := batchWriter{limit: limit}
	err := readMessages(set, func(m legacyMessage) error {
		if m.attributes&compressionMask == 0 {
			w.add(m)
			return nil
		}
		return unwrap(m, unpack, w.add)
	})
	if err != nil {
		return nil, err
	}
	w.finish()
	return w.done, nil
}

// unwrap calls add with each message in a compressed message.
func unwrap(wrapper legacyMessage, unpack unpack, add func(legacyMessage)) error {
	codec, data := int(wrapper.attributes&compressionMask), wrapper.value
	switch {
	case codec > topic.CodecLZ4:
		return refuse(kerr.UnsupportedCompressionType, "compression %d in a message set: want 0 to %d", codec, topic.CodecLZ4)
	case codec == topic.CodecLZ4 && wrapper.magic == 0:
		data = withHeaderChecksum(data)
	}
	return unpack(codec, data, func(inside []byte) error {
		return readMessages(inside, func(m legacyMessage) error {
			if m.attributes&compressionMask != 0 {
				return fmt.Errorf("%w: compressed messages inside compressed ones", topic.ErrInvalidRecord)
			}
			if wrapper.attributes&logAppendTimeMask != 0 {
				m.timestamp = wrapper.timestamp
			}
			add(m)
			return nil
		})
	})
}

// readMessages calls found with each message of a set.
func readMessages(set []byte, found func(legacyMessage) error) error {
	for len(set) > 0 {
		if len(set) < messageLeast {
			return fmt.Errorf("%w: %d bytes, a message has at least %d", topic.ErrCorrupt, len(set), messageLeast)
		}
		size := int64(binary.BigEndian.Uint32(set[messageAtSize:])) + messageAtChecksum
		if size < messageLeast || size > int64(len(set)) {
			return fmt.Errorf("%w: a message of %d bytes, in %d", topic.ErrCorrupt, size, len(set))
		}
		m, err := readMessage(set[:size])
		if err != nil {
			return err
		}
		if err := found(m); err != nil {
			return err
		}
		set = set[size:]
	}
	return nil
}

func readMessage(data []byte) (legacyMessage, error) {
	m := legacyMessage{magic: data[messageAtMagic], attributes: data[messageAtAttributes], timestamp: topic.NoTimestamp}
	if m.magic > 1 {
		return m, fmt.Errorf("%w: message format %d in a message set, want 0 or 1", topic.ErrCorrupt, m.magic)
	}
	want := binary.BigEndian.Uint32(data[messageAtChecksum:])
	if got := crc32.ChecksumIEEE(data[messageAtMagic:]); got != want {
		return m, fmt.Errorf("%w: checksum %08x, want %08x", topic.ErrCorrupt, got, want)
	}
	rest := data[messageAtTimestamp:]
	if m.magic == 1 {
		if len(rest) < timestampLength {
			return m, fmt.Errorf("%w: a message without a timestamp", topic.ErrCorrupt)
		}
		m.timestamp = int64(binary.BigEndian.Uint64(rest))
		rest = rest[timestampLength:]
	}
	var err error
	if m.key, rest, err = nullableBytes(rest); err != nil {
		return m, err
	}
	if m.value, rest, err = nullableBytes(rest); err != nil {
		return m, err
	}
	if len(rest) > 0 {
		return m, fmt.Errorf("%w: %d bytes after a message's value", topic.ErrCorrupt, len(rest))
	}
	return m, nil
}

// nullableBytes returns the length-prefixed bytes at the beginning of data, and the rest.
func nullableBytes(data []byte) (value, rest []byte, err error) {
	if len(data) < 4 {
		return nil, nil, fmt.Errorf("%w: a length of %d bytes", topic.ErrCorrupt, len(data))
	}
	length, data := int32(binary.BigEndian.Uint32(data)), data[4:]
	if length == -1 {
		return nil, data, nil
	}
	if length < 0 || int(length) > len(data) {
		return nil, nil, fmt.Errorf("%w: %d bytes of %d", topic.ErrCorrupt, length, len(data))
	}
	return data[:length:length], data[length:], nil
}

// batchWriter writes messages as batches of format 2.
type batchWriter struct {
	limit   int
	done    []byte
	batch   kmsg.RecordBatch
	record  []byte
	records []byte
}

// add adds a message, in a new batch if the present one has no space.
func (w *batchWriter) add(m legacyMessage) {
	if w.batch.NumRecords > 0 {
		w.encode(m)
		if topic.BatchOverhead+len(w.records)+len(w.record) > w.limit {
			w.finish()
		}
	}
	if w.batch.NumRecords == 0 {
		w.batch = kmsg.RecordBatch{
			PartitionLeaderEpoch: -1, Magic: 2, FirstTimestamp: m.timestamp, MaxTimestamp: m.timestamp,
			ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1,
		}
		w.encode(m)
	}
	w.records = append(w.records, w.record...)
	w.batch.LastOffsetDelta = w.batch.NumRecords
	w.batch.NumRecords++
	w.batch.MaxTimestamp = max(w.batch.MaxTimestamp, m.timestamp)
}

// encode writes a message as the next record of the batch.
func (w *batchWriter) encode(m legacyMessage) {
	record := kmsg.Record{
		TimestampDelta64: m.timestamp - w.batch.FirstTimestamp, OffsetDelta: w.batch.NumRecords, Key: m.key, Value: m.value,
	}
	// The length of the record does not include its own field, which is one byte for 0.
	record.Length = int32(len(record.AppendTo(w.record[:0])) - 1)
	w.record = record.AppendTo(w.record[:0])
}

// finish ends the current batch.
func (w *batchWriter) finish() {
	if w.batch.NumRecords == 0 {
		return
	}
	w.batch.Records = w.records
	w.batch.Length = int32(topic.BatchOverhead - messageAtChecksum + len(w.records))
	at := len(w.done)
	w.done = w.batch.AppendTo(w.done)
	const atChecksum, atAttributes = 17, 21
	sum := crc32.Checksum(w.done[at+atAttributes:], castagnoli)
	binary.BigEndian.PutUint32(w.done[at+atChecksum:], sum)
	w.batch, w.records = kmsg.RecordBatch{}, nil
}

// withHeaderChecksum returns an lz4 frame with a right checksum of its header:
// clients that write format 0 take it over the wrong bytes.
func withHeaderChecksum(frame []byte) []byte {
	const (
		magicLength, descriptor = 4, 2
		sizeBit, sizeLength     = 1 << 3, 8
	)
	end := magicLength + descriptor
	if len(frame) > magicLength && frame[magicLength]&sizeBit != 0 {
		end += sizeLength
	}
	if len(frame) <= end {
		return frame // the decoder returns the error
	}
	frame = slices.Clone(frame)
	frame[end] = byte(xxHash32(frame[magicLength:end]) >> 8)
	return frame
}

// xxHash32 is the hash of less than 16 bytes with seed 0, of which lz4 headers
// hold a part.
//
// See https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md.
func xxHash32(data []byte) uint32 {
	const p1, p2, p3, p4, p5 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
	hash := uint32(p5) + uint32(len(data))
	for ; len(data) >= 4; data = data[4:] {
		hash += binary.LittleEndian.Uint32(data) * p3
		hash = bits.RotateLeft32(hash, 17) * p4
	}
	for _, b := range data {
		hash += uint32(b) * p5
		hash = bits.RotateLeft32(hash, 11) * p1
	}
	hash ^= hash >> 15
	hash *= p2
	hash ^= hash >> 13
	hash *= p3
	return hash ^ hash>>16
}
