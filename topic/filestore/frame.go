package filestore

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/sluice-project/sluice/topic"
)

const (
	// MaxEntryBytes is the most data of one entry.
	MaxEntryBytes = 16 << 20

	segmentMagic   = "sluicelg"
	segmentVersion = 1
	// preambleBytes is the length of what begins a segment, headerBytes of what begins a
	// frame, pointBytes of a point in a points file.
	preambleBytes = 32
	headerBytes   = 76
	pointBytes    = 20
	saltBytes     = 8
)

// DamageError reports that a file is not as it was written. It is a topic.ErrCorrupt.
type DamageError struct {
	// Path is the file, Position the place in it, in bytes.
	Path     string
	Position int64
	// Why says what is wrong.
	Why string
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("%s is damaged at byte %d: %s", e.Path, e.Position, e.Why)
}

// Unwrap returns topic.ErrCorrupt.
func (e *DamageError) Unwrap() error { return topic.ErrCorrupt }

// preamble begins a segment.
type preamble struct {
	first uint64 // the sequence of its first frame
	salt  uint64
}

func (p preamble) encode() []byte {
	b := append(make([]byte, 0, preambleBytes), segmentMagic...)
	b = binary.BigEndian.AppendUint32(b, segmentVersion)
	b = binary.BigEndian.AppendUint64(b, p.first)
	b = binary.BigEndian.AppendUint64(b, p.salt)
	return appendSum(b)
}

// parsePreamble returns the preamble, or why it is not one.
func parsePreamble(b []byte) (preamble, error) {
	switch {
	case len(b) < preambleBytes || string(b[:8]) != segmentMagic || !sumHolds(b[:preambleBytes]):
		return preamble{}, fmt.Errorf("it does not begin as a segment")
	case binary.BigEndian.Uint32(b[8:]) != segmentVersion:
		return preamble{}, fmt.Errorf("it has format %d, this program reads %d: use the version of sluice that wrote it", binary.BigEndian.Uint32(b[8:]), segmentVersion)
	}
	return preamble{first: binary.BigEndian.Uint64(b[12:]), salt: binary.BigEndian.Uint64(b[20:])}, nil
}

// frame is an entry in a segment, without its data.
type frame struct {
	sequence uint64
	length   int    // of the data
	sum      uint32 // of the data
	// durable is how much of the segment was durable before the frame was written.
	durable int64
	mark    topic.Mark
}

// size returns the length of the header and the data.
func (f frame) size() int64 { return headerBytes + int64(f.length) }

func appendHeader(b []byte, salt uint64, f frame) []byte {
	from := len(b)
	b = binary.BigEndian.AppendUint64(b, salt)
	b = binary.BigEndian.AppendUint64(b, f.sequence)
	b = binary.BigEndian.AppendUint32(b, uint32(f.length))
	b = binary.BigEndian.AppendUint32(b, f.sum)
	b = binary.BigEndian.AppendUint32(b, uint32(f.durable))
	b = binary.BigEndian.AppendUint32(b, uint32(f.mark.Epoch))
	for _, field := range [...]int64{f.mark.Base, f.mark.Next, f.mark.MaxTimestamp, f.mark.Bytes, f.mark.Released} {
		b = binary.BigEndian.AppendUint64(b, uint64(field))
	}
	return binary.BigEndian.AppendUint32(b, sumOf(b[from:]))
}

// parseHeader returns the frame that begins with b, if b begins with a header.
func parseHeader(b []byte, salt uint64) (f frame, ok bool) {
	if len(b) < headerBytes || binary.BigEndian.Uint64(b) != salt || !sumHolds(b[:headerBytes]) {
		return frame{}, false
	}
	f = frame{
		sequence: binary.BigEndian.Uint64(b[8:]),
		length:   int(binary.BigEndian.Uint32(b[16:])),
		sum:      binary.BigEndian.Uint32(b[20:]),
		durable:  int64(binary.BigEndian.Uint32(b[24:])),
		mark:     topic.Mark{Epoch: int32(binary.BigEndian.Uint32(b[28:]))},
	}
	for i, field := range [...]*int64{&f.mark.Base, &f.mark.Next, &f.mark.MaxTimestamp, &f.mark.Bytes, &f.mark.Released} {
		*field = int64(binary.BigEndian.Uint64(b[32+8*i:]))
	}
	return f, f.length <= MaxEntryBytes
}

// point is the place of the frame with a sequence. The last point of a segment may be where
// its next frame will be.
type point struct {
	sequence uint64
	position int64
}

func appendPoint(b []byte, salt uint64, p point) []byte {
	from := len(b)
	b = binary.BigEndian.AppendUint64(b, p.sequence)
	b = binary.BigEndian.AppendUint64(b, uint64(p.position))
	return binary.BigEndian.AppendUint32(b, pointSum(b[from:], salt))
}

// parsePoints returns the points that a points file begins with. They ascend; those behind
// one that is torn do not count.
func parsePoints(b []byte, salt uint64) []point {
	var points []point
	for ; len(b) >= pointBytes; b = b[pointBytes:] {
		p := point{binary.BigEndian.Uint64(b), int64(binary.BigEndian.Uint64(b[8:]))}
		if binary.BigEndian.Uint32(b[16:]) != pointSum(b[:16], salt) {
			break
		}
		if n := len(points); n > 0 && (p.sequence <= points[n-1].sequence || p.position <= points[n-1].position) {
			break
		}
		points = append(points, p)
	}
	return points
}

// pointSum is the checksum of a point: with the segment's number, so that points of another
// segment do not count.
func pointSum(b []byte, salt uint64) uint32 {
	return crc32.Update(uint32(salt), topic.Castagnoli, b)
}

// sumOf is the checksum of everything but points, CRC-32C.
func sumOf(b []byte) uint32 { return crc32.Checksum(b, topic.Castagnoli) }

// appendSum appends the checksum of b.
func appendSum(b []byte) []byte {
	return binary.BigEndian.AppendUint32(b, sumOf(b))
}

// sumHolds reports whether b ends with the checksum of the rest.
func sumHolds(b []byte) bool {
	n := len(b) - 4
	return binary.BigEndian.Uint32(b[n:]) == sumOf(b[:n])
}
