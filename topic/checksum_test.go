package topic

import (
	"hash/crc32"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The sum of batches that is made of their checksums is that of their bytes, whatever the leader stamps.
func TestTheSumOfBatchesIsThatOfTheirBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.SliceOfN(rapid.Byte(), 0, 3000).Draw(t, "value")
		times := rapid.IntRange(1, 400).Draw(t, "records")
		records := make([]Record, times)
		for i := range records {
			records[i] = Record{Offset: int64(i), Value: value}
		}
		b, err := NewBatch(records, BatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		b.Stamp(rapid.Int64Min(0).Draw(t, "base"), rapid.Int32Min(0).Draw(t, "epoch"))
		batches := slices.Repeat([]Batch{b}, rapid.IntRange(0, 3).Draw(t, "batches"))
		bytes := slices.Repeat(b, len(batches))
		if got, want := SumOf(batches...), crc32.Checksum(bytes, Castagnoli); got != want {
			t.Errorf("%d batches of %d bytes: sum %08x, want %08x", len(batches), len(b), got, want)
		}
	})
}

func TestJoinSums(t *testing.T) {
	data := make([]byte, 1<<17+5)
	for i := range data {
		data[i] = byte(i * i / 7)
	}
	sum := func(b []byte) uint32 { return crc32.Checksum(b, Castagnoli) }
	for _, at := range []int{0, 1, 21, 4096, 1 << 16, len(data) - 1, len(data)} {
		if got := joinSums(sum(data[:at]), sum(data[at:]), len(data)-at); got != sum(data) {
			t.Errorf("in two at byte %d: %08x, want %08x", at, got, sum(data))
		}
	}
}
