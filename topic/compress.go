package topic

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
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

// MaxUncompressed bounds the decompressed size of one batch's records, where the
// broker has to decompress them: for views and delayed records.
const MaxUncompressed = 64 << 20

// ErrUncompressedSize reports a batch that decompresses to more than MaxUncompressed.
var ErrUncompressedSize = fmt.Errorf("record batch has more than %d bytes uncompressed", MaxUncompressed)

// Decompress decompresses src into dst, growing dst if it is too small; with
// codec 0 it returns src. Errors: ErrCorrupt, ErrUncompressedSize.
func Decompress(dst []byte, codec int, src []byte) ([]byte, error) {
	var err error
	switch codec {
	case CodecNone:
		return src, nil
	case CodecGzip:
		dst, err = gunzip(dst, src)
	case CodecSnappy:
		dst, err = unsnappy(dst, src)
	case CodecLZ4:
		dst, err = unlz4(dst, src)
	case CodecZstd:
		dst, err = unzstd(dst, src)
	default:
		err = fmt.Errorf("codec %d is unknown", codec)
	}
	switch {
	case err == nil:
		return dst, nil
	case errors.Is(err, ErrUncompressedSize):
		return nil, err
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
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(MaxUncompressed))
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

// readAll reads up to MaxUncompressed bytes.
func readAll(dst []byte, from io.Reader) ([]byte, error) {
	buffer := bytes.NewBuffer(dst[:0])
	n, err := buffer.ReadFrom(io.LimitReader(from, MaxUncompressed+1))
	if n > MaxUncompressed {
		return nil, ErrUncompressedSize
	}
	return buffer.Bytes(), err
}

func unzstd(dst, src []byte) ([]byte, error) {
	dst, err := zstdDecoder.DecodeAll(src, dst[:0])
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) || errors.Is(err, zstd.ErrWindowSizeExceeded) {
		return nil, ErrUncompressedSize
	}
	return dst, err
}

// unsnappy decodes both forms of snappy: plain, and the blocks of Java's clients,
// whose total length is only known at the end.
func unsnappy(dst, src []byte) ([]byte, error) {
	size := max(cap(dst), 4*len(src), 4096)
	if length, err := s2.DecodedLen(src); err == nil && !bytes.HasPrefix(src, xerialMagic) {
		size = length
	}
	for {
		if size > MaxUncompressed {
			return nil, ErrUncompressedSize
		}
		if cap(dst) < size {
			dst = make([]byte, 0, size)
		}
		out, err := xerial.DecodeCapped(dst[:0], src)
		if !errors.Is(err, xerial.ErrDstTooSmall) {
			return out, err
		}
		if size == MaxUncompressed {
			return nil, ErrUncompressedSize
		}
		size = min(2*size, MaxUncompressed)
	}
}

var xerialMagic = []byte("\x82SNAPPY\x00")

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
