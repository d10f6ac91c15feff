package topic

import "testing"

func TestBlocks(t *testing.T) {
	for _, size := range []int{0, 1, leastBlock / 2, leastBlock/2 + 1, leastBlock, leastBlock + 1, 1 << 20, 5_700_000, leastBlock << 8, leastBlock<<8 + 1, 100 << 20} {
		b := TakeBlock(size)
		if len(b.Bytes) != size || cap(b.Bytes) != size || len(b.all) > 2*size {
			t.Errorf("a block of %d bytes has %d, of %d", size, len(b.Bytes), len(b.all))
		}
		b.Free()
	}
	(*Block)(nil).Free()
}
