package kafka

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
	"slices"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/sluice-project/sluice/topic"
)

// maxInflated bounds the size of the messages in one compressed message.
const maxInflated = 32 << 20

// decompress decompresses the content of a message of format 0 or 1. The error is ErrCorrupt,
// ErrRecordTooLarge, or names an unknown codec.
func decompress(codec int, magic byte, data []byte) ([]byte, error) {
	switch codec {
	case 1:
		from, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			return nil, fmt.Errorf("%w: gzip: %w", topic.ErrCorrupt, err)
		}
		return inflate(from, "gzip")
	case 2:
		return unsnap(data)
	case 3:
		if magic == 0 {
			data = withHeaderChecksum(data)
		}
		return inflate(lz4.NewReader(bytes.NewReader(data)), "lz4")
	}
	return nil, fail(kerr.UnsupportedCompressionType, fmt.Sprintf("compression %d in a message set: want 0 to 3", codec))
}

// inflate reads all, up to the limit.
func inflate(from io.Reader, name string) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(from, maxInflated+1))
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", topic.ErrCorrupt, name, err)
	}
	if len(data) > maxInflated {
		return nil, errInflated
	}
	return data, nil
}

var errInflated = fmt.Errorf("%w: compressed messages have more than %d bytes", topic.ErrRecordTooLarge, maxInflated)

// xerial begins the framing of Java's snappy: this, two versions of four bytes,
// then blocks with their lengths before them.
var xerial = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const xerialHeader = 16

// unsnap decompresses snappy, with and without the framing of Java.
func unsnap(data []byte) ([]byte, error) {
	if !bytes.HasPrefix(data, xerial) || len(data) < xerialHeader {
		return appendUnsnapped(nil, data)
	}
	var all []byte
	for rest := data[xerialHeader:]; len(rest) > 0; {
		if len(rest) < 4 {
			return nil, fmt.Errorf("%w: snappy: a length of %d bytes", topic.ErrCorrupt, len(rest))
		}
		length := int64(binary.BigEndian.Uint32(rest))
		if rest = rest[4:]; length > int64(len(rest)) {
			return nil, fmt.Errorf("%w: snappy: a block of %d bytes, in %d", topic.ErrCorrupt, length, len(rest))
		}
		var err error
		if all, err = appendUnsnapped(all, rest[:length]); err != nil {
			return nil, err
		}
		rest = rest[length:]
	}
	return all, nil
}

func appendUnsnapped(to, block []byte) ([]byte, error) {
	length, err := snappy.DecodedLen(block)
	if err != nil {
		return nil, fmt.Errorf("%w: snappy: %w", topic.ErrCorrupt, err)
	}
	if len(to)+length > maxInflated {
		return nil, errInflated
	}
	data, err := snappy.Decode(nil, block)
	if err != nil {
		return nil, fmt.Errorf("%w: snappy: %w", topic.ErrCorrupt, err)
	}
	return append(to, data...), nil
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
