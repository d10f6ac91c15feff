package topic

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy/xerial"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// The codecs of a batch, as returned by [Batch.Compression].
const (
	CodecNone = iota
	CodecGzip
	CodecSnappy
	CodecLZ4
	CodecZstd
)

// Compression is how the batches of a topic are kept. The zero value keeps them as their
// producers sent them.
type Compression int

// compressionNames are the names of compressions in settings: after the producer's, those of
// the codecs.
var compressionNames = []string{"producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"}

// Codec returns the codec that a batch is kept with, if it was sent with another one.
func (c Compression) Codec(sent int) int {
	if c == 0 {
		return sent
	}
	return int(c) - 1
}

// MaxUncompressed bounds the decompressed size of one batch's records, where the
// broker has to decompress them.
const MaxUncompressed = 64 << 20

// ErrUncompressedSize reports a batch that decompresses to more than MaxUncompressed.
var ErrUncompressedSize = fmt.Errorf("record batch has more than %d bytes uncompressed", MaxUncompressed)

// errNoSpace reports that a buffer is too small for what is decompressed into it.
var errNoSpace = errors.New("the buffer is too small")

// Decompress decompresses src; with codec 0 it returns src. A broker uses an
// [Unpacker], which bounds the memory of all batches. Errors: ErrCorrupt,
// ErrUncompressedSize.
func Decompress(codec int, src []byte) ([]byte, error) {
	if codec == CodecNone {
		return src, nil
	}
	for size := firstSize(src); ; size *= sizeStep {
		dst, err := decompress(make([]byte, 0, size), codec, src)
		if !errors.Is(err, errNoSpace) {
			return dst, err
		}
	}
}

// DecompressInto decompresses src into the capacity of dst, from its start; with codec 0 it returns src. It is an error if dst
// has no space for all of it. Others: ErrCorrupt, ErrUncompressedSize.
func DecompressInto(dst []byte, codec int, src []byte) ([]byte, error) {
	if codec == CodecNone {
		return src, nil
	}
	return decompress(dst[:0], codec, src)
}

// decompress decompresses src into dst, as far as that has space. Errors: those of
// Decompress; errNoSpace if dst is smaller than MaxUncompressed and too small.
func decompress(dst []byte, codec int, src []byte) ([]byte, error) {
	space := cap(dst)
	var err error
	switch codec {
	case CodecGzip:
		dst, err = gunzip(dst, src)
	case CodecSnappy:
		dst, err = xerial.DecodeCapped(dst, src)
	case CodecLZ4:
		dst, err = unlz4(dst, src)
	case CodecZstd:
		dst, err = zstdDecoder.DecodeAll(src, dst)
	default:
		err = fmt.Errorf("codec %d is unknown", codec)
	}
	switch {
	case err == nil:
		return dst, nil
	case errors.Is(err, zstd.ErrWindowSizeExceeded):
		return nil, ErrUncompressedSize
	case errors.Is(err, errNoSpace), errors.Is(err, xerial.ErrDstTooSmall), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		if space >= MaxUncompressed {
			return nil, ErrUncompressedSize
		}
		return nil, errNoSpace
	}
	return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
}

// streamDecoder is a decoder with the reader that feeds it.
type streamDecoder[D io.Reader] struct {
	decoder D
	src     bytes.Reader
}

var (
	gzipDecoders = sync.Pool{New: func() any { return &streamDecoder[*gzip.Reader]{decoder: new(gzip.Reader)} }}
	lz4Decoders  = sync.Pool{New: func() any { return &streamDecoder[*lz4.Reader]{decoder: lz4.NewReader(nil)} }}
)

// The zstd coders are shared and synchronize by channels. They are made here, not
// on first use: a test in virtual time may not use a channel that another such
// test has made.
var (
	zstdDecoder = newZstdDecoder()
	zstdEncoder = newZstdEncoder()
)

func newZstdDecoder() *zstd.Decoder {
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(MaxUncompressed), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		panic(err) // the options are constants
	}
	return decoder
}

func newZstdEncoder() *zstd.Encoder {
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(min(runtime.GOMAXPROCS(0), 4)),
		zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(64<<10), zstd.WithZeroFrames(true))
	if err != nil {
		panic(err) // the options are constants
	}
	encoder.EncodeAll(nil, nil) // makes its channel
	return encoder
}

func gunzip(dst, src []byte) ([]byte, error) {
	d := gzipDecoders.Get().(*streamDecoder[*gzip.Reader])
	defer gzipDecoders.Put(d)
	defer d.src.Reset(nil)
	d.src.Reset(src)
	if err := d.decoder.Reset(&d.src); err != nil {
		return nil, err
	}
	return readAll(dst, d.decoder)
}

func unlz4(dst, src []byte) ([]byte, error) {
	d := lz4Decoders.Get().(*streamDecoder[*lz4.Reader])
	defer lz4Decoders.Put(d)
	defer d.src.Reset(nil)
	d.src.Reset(src)
	d.decoder.Reset(&d.src)
	return readAll(dst, d.decoder)
}

// readAll reads all, as far as dst has space. It does not use io.ReadFull, after
// which the end of what was cut short would look like the end.
func readAll(dst []byte, from io.Reader) ([]byte, error) {
	var beyond [1]byte
	for {
		space := dst[len(dst):cap(dst)]
		full := len(space) == 0
		if full {
			space = beyond[:]
		}
		n, err := from.Read(space)
		switch {
		case full && n > 0:
			return dst, errNoSpace
		case errors.Is(err, io.EOF):
			return dst[:len(dst)+n], nil
		case err != nil:
			return dst, err
		}
		dst = dst[:len(dst)+n]
	}
}

var (
	gzipEncoders = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}
	lz4Encoders  = sync.Pool{New: func() any { return lz4.NewWriter(nil) }}
)

// compress appends src, compressed, to dst.
func compress(dst []byte, codec int, src []byte) ([]byte, error) {
	switch codec {
	case CodecNone:
		return append(dst, src...), nil
	case CodecGzip:
		encoder := gzipEncoders.Get().(*gzip.Writer)
		defer gzipEncoders.Put(encoder)
		return writeAll(dst, encoder, src)
	case CodecSnappy:
		return append(dst, xerial.Encode(nil, src)...), nil
	case CodecLZ4:
		encoder := lz4Encoders.Get().(*lz4.Writer)
		defer lz4Encoders.Put(encoder)
		return writeAll(dst, encoder, src)
	case CodecZstd:
		return zstdEncoder.EncodeAll(src, dst), nil
	}
	return nil, fmt.Errorf("codec %d: want %d to %d", codec, CodecNone, CodecZstd)
}

// streamEncoder is the interface shared by the encoders of gzip and lz4.
type streamEncoder interface {
	io.WriteCloser
	Reset(to io.Writer)
}

func writeAll(dst []byte, encoder streamEncoder, src []byte) ([]byte, error) {
	buffer := bytes.NewBuffer(dst)
	encoder.Reset(buffer)
	if _, err := encoder.Write(src); err != nil {
		return nil, err
	}
	if err := encoder.Close(); err != nil {
		return nil, err
	}
	encoder.Reset(io.Discard)
	return buffer.Bytes(), nil
}
