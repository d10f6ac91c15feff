package topic

import (
	"math/bits"
	"sync"
)

// Block is memory for requests, and for what is read of logs: it is used again, since new memory has to be cleared,
// and collected.
type Block struct {
	// Bytes has the length that was asked for. Its content is left from earlier uses.
	Bytes []byte
	all   []byte
	home  *sync.Pool // nil: it is used once
}

// blocks has those that are free: of leastBlock bytes, and of twice as many each. There are at most as many as were in use at
// once, and what nobody has used for a while is collected.
var blocks [9]sync.Pool

// leastBlock is such that a batch of 1 MiB and the envelope of its request fit into one of blocks, and hardly less.
const leastBlock = 65 << 10

// TakeBlock returns a block of size bytes. It takes at most twice as much memory.
func TakeBlock(size int) *Block {
	k := bits.Len(uint(size-1) / leastBlock)
	if size <= leastBlock/2 || k >= len(blocks) {
		return &Block{Bytes: make([]byte, size)}
	}
	b, _ := blocks[k].Get().(*Block)
	if b == nil {
		b = &Block{all: make([]byte, leastBlock<<k), home: &blocks[k]}
	}
	b.Bytes = b.all[:size:size]
	return b
}

// Free gives the block, or nil, to the next who takes one. Nobody may use its bytes any more. A block that is not freed is
// left to the collector.
func (b *Block) Free() {
	if b != nil && b.home != nil {
		b.home.Put(b)
	}
}
