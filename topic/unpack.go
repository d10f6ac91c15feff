package topic

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Records are decompressed into buffers of leastSize, or that times a power of
// sizeStep, up to MaxUncompressed.
const (
	leastSize = 64 << 10
	sizeStep  = 4
	// usualRatio is how much larger than src a first buffer is: records that
	// compress better need a second attempt.
	usualRatio = 8
	// perByte is the memory that is reserved for each byte of a buffer: itself, and
	// what its user makes of it.
	perByte = 2
)

// Memory is an amount of memory that is shared, such as a semaphore.Weighted.
type Memory interface {
	// Acquire waits until n bytes are free, and takes them.
	Acquire(ctx context.Context, n int64) error
	Release(n int64)
}

// LeastUnpackBytes is the least memory of an [Unpacker]: what the largest batch takes.
const LeastUnpackBytes = perByte * MaxUncompressed

// firstSize returns the size of the first buffer for what decompresses from src.
func firstSize(src []byte) int {
	size := leastSize
	for size < MaxUncompressed && size < usualRatio*len(src) {
		size *= sizeStep
	}
	return size
}

// Unpacker decompresses records for all parts of a broker within a bound of memory.
// It is safe for concurrent use.
type Unpacker struct {
	memory  Memory
	buffers sync.Map // pools of *[]byte, by size
}

// NewUnpacker returns an unpacker that takes the memory for its buffers, and for what is
// made of their content, from an amount of at least LeastUnpackBytes.
func NewUnpacker(memory Memory) *Unpacker { return &Unpacker{memory: memory} }

// Unpack decompresses src, waiting for memory, and calls use, whose error it returns.
// The data must not be used after that; with codec 0 it is src. use must not call
// Unpack. Errors: ErrCorrupt, ErrUncompressedSize, and that of ctx.
func (u *Unpacker) Unpack(ctx context.Context, codec int, src []byte, use func(data []byte) error) error {
	if codec == CodecNone {
		return use(src)
	}
	for size := firstSize(src); ; size *= sizeStep {
		if err := u.within(ctx, size, codec, src, use); !errors.Is(err, errNoSpace) {
			return err
		}
	}
}

// within is Unpack with a buffer of a size; errNoSpace if that is too small.
func (u *Unpacker) within(ctx context.Context, size, codec int, src []byte, use func(data []byte) error) error {
	if err := u.memory.Acquire(ctx, perByte*int64(size)); err != nil {
		return fmt.Errorf("memory to decompress records: %w", err)
	}
	defer u.memory.Release(perByte * int64(size))
	pool, _ := u.buffers.LoadOrStore(size, new(sync.Pool))
	buffer, _ := pool.(*sync.Pool).Get().(*[]byte)
	if buffer == nil {
		made := make([]byte, 0, size)
		buffer = &made
	}
	defer pool.(*sync.Pool).Put(buffer)
	data, err := decompress(*buffer, codec, src)
	if err != nil {
		return err
	}
	return use(data)
}
