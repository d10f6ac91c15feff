package migrate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"

	"github.com/sluice-project/sluice/topic"
)

// Entries and items are sent as frames, as docs/formats/topic-migrate.md describes.

// framesType is the media type of frames.
const framesType = "application/vnd.sluice.frames"

const (
	frameEntry byte = 'e'
	frameItem  byte = 'i'
	frameEnd   byte = '.'

	frameHeader = 4 + 4
	// maxFrame bounds the length of a frame: the largest entry, or item, with its
	// header.
	maxFrame = 9 << 20
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	errFrame   = errors.New("what arrived is not what was sent")
)

// frameWriter writes frames. It keeps the first error.
type frameWriter struct {
	to     io.Writer
	buffer []byte
	count  uint64
	err    error
}

func (w *frameWriter) entry(entry topic.Entry) {
	b := w.begin(frameEntry)
	b = binary.AppendUvarint(b, entry.Sequence)
	m := entry.Mark
	for _, field := range [...]int64{m.Base, m.Next, int64(m.Epoch), m.MaxTimestamp, m.Bytes, m.Released} {
		b = binary.AppendVarint(b, field)
	}
	w.write(append(b, entry.Data...))
	w.count++
}

func (w *frameWriter) item(item topic.Item) {
	b := w.begin(frameItem)
	b = binary.AppendUvarint(b, uint64(len(item.Key)))
	b = append(b, item.Key...)
	w.write(append(b, item.Value...))
	w.count++
}

// end writes the number of frames: without it some are missing.
func (w *frameWriter) end() error {
	w.write(binary.AppendUvarint(w.begin(frameEnd), w.count))
	return w.err
}

func (w *frameWriter) begin(kind byte) []byte {
	return append(append(w.buffer[:0], make([]byte, frameHeader)...), kind)
}

func (w *frameWriter) write(b []byte) {
	w.buffer = b
	if w.err != nil {
		return
	}
	payload := b[frameHeader:]
	if len(payload) > maxFrame {
		w.err = fmt.Errorf("a frame of %d bytes: want at most %d", len(payload), maxFrame)
		return
	}
	binary.BigEndian.PutUint32(b, uint32(len(payload)))
	binary.BigEndian.PutUint32(b[4:], crc32.Checksum(payload, castagnoli))
	_, w.err = w.to.Write(b)
}

// readFrames reads frames to their end, and calls entry or item with each, which owns the
// data. Frames whose function is nil are not expected.
func readFrames(from io.Reader, entry func(topic.Entry), item func(topic.Item)) error {
	for count := uint64(0); ; count++ {
		payload, err := readFrame(from)
		if err != nil {
			return err
		}
		in := frameReader{rest: payload[1:]}
		switch kind := payload[0]; {
		case kind == frameEntry && entry != nil:
			read := in.entry()
			if in.failed {
				return fmt.Errorf("%w: frame %d", errFrame, count)
			}
			entry(read)
		case kind == frameItem && item != nil:
			key := in.bytes()
			if in.failed {
				return fmt.Errorf("%w: frame %d", errFrame, count)
			}
			item(topic.Item{Key: string(key), Value: in.rest})
		case kind == frameEnd:
			if in.uvarint() != count || in.failed || len(in.rest) > 0 {
				return fmt.Errorf("%w: %d frames are not all", errFrame, count)
			}
			return nil
		default:
			return fmt.Errorf("%w: frame %d is of kind %q", errFrame, count, kind)
		}
	}
}

// readFrame reads one frame and checks its checksum.
func readFrame(from io.Reader) ([]byte, error) {
	var header [frameHeader]byte
	if _, err := io.ReadFull(from, header[:]); err != nil {
		return nil, fmt.Errorf("%w: no end: %w", errFrame, err)
	}
	length := binary.BigEndian.Uint32(header[:])
	if length == 0 || length > maxFrame {
		return nil, fmt.Errorf("%w: a frame of %d bytes", errFrame, length)
	}
	payload := make([]byte, length)
	if _, err := io.ReadFull(from, payload); err != nil {
		return nil, fmt.Errorf("%w: no end: %w", errFrame, err)
	}
	if crc32.Checksum(payload, castagnoli) != binary.BigEndian.Uint32(header[4:]) {
		return nil, fmt.Errorf("%w: wrong checksum", errFrame)
	}
	return payload, nil
}

// frameReader reads the fields of a frame, until one is incomplete.
type frameReader struct {
	rest   []byte
	failed bool
}

func (r *frameReader) entry() topic.Entry {
	entry := topic.Entry{Sequence: r.uvarint()}
	m := &entry.Mark
	m.Base, m.Next = r.varint(), r.varint()
	epoch := r.varint()
	if epoch < math.MinInt32 || epoch > math.MaxInt32 {
		r.failed = true
	}
	m.Epoch = int32(epoch)
	m.MaxTimestamp, m.Bytes, m.Released = r.varint(), r.varint(), r.varint()
	entry.Data = r.rest
	return entry
}

func (r *frameReader) uvarint() uint64 {
	number, n := binary.Uvarint(r.rest)
	r.skip(n)
	return number
}

func (r *frameReader) varint() int64 {
	number, n := binary.Varint(r.rest)
	r.skip(n)
	return number
}

// skip skips a number of n bytes.
func (r *frameReader) skip(n int) {
	if n <= 0 || r.failed {
		r.failed = true
		return
	}
	r.rest = r.rest[n:]
}

func (r *frameReader) bytes() []byte {
	length := r.uvarint()
	if r.failed || length > uint64(len(r.rest)) {
		r.failed = true
		return nil
	}
	b := r.rest[:length]
	r.rest = r.rest[length:]
	return b
}
