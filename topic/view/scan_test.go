package view

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/topic"
)

// drawSource draws the batches of a partition, from offset 0 on, and the
// records of them that are tagged "paid".
func drawSource(t *rapid.T) (batches []topic.Batch, paid []topic.Record) {
	next := int64(0)
	for range rapid.IntRange(0, 12).Draw(t, "batches") {
		next += rapid.Int64Range(0, 2).Draw(t, "gap between batches")
		records, end := drawnRecords(t, next)
		tagged := rapid.SampledFrom([]string{"none", "some", "all"}).Draw(t, "paid")
		control := rapid.IntRange(0, 9).Draw(t, "control") == 0
		if rapid.IntRange(0, 9).Draw(t, "empty") == 0 {
			records = nil
		}
		for i := range records {
			if !control && (tagged == "all" || tagged == "some" && rapid.Bool().Draw(t, "is paid")) {
				records[i].Headers = append(records[i].Headers, topic.Header{Key: "tag", Value: []byte("paid")})
				paid = append(paid, records[i])
			} else if n := len(records[i].Headers); n > 0 && records[i].Headers[n-1].Key == "tag" {
				records[i].Headers[n-1].Value = []byte("new")
			}
		}
		batch, err := topic.NewBatch(records, topic.BatchOptions{
			Base: next, Next: end, Epoch: 4, Codec: rapid.IntRange(topic.CodecNone, topic.CodecZstd).Draw(t, "codec"),
			Control: control, Producer: &topic.BatchProducer{ID: 77, Epoch: 2, Sequence: int32(next)},
		})
		if err != nil {
			t.Fatal(err)
		}
		batches = append(batches, batch)
		next = end
	}
	return batches, paid
}

// A consumer that reads a view from anywhere, in reads of any size, gets each
// record that passes from there on once, in order, and comes to the end.
func TestScanShowsWhatPasses(t *testing.T) {
	filter := compile(t, `headers.tag == "paid"`)
	rapid.Check(t, func(t *rapid.T) {
		source, paid := drawSource(t)
		end := int64(0)
		if len(source) > 0 {
			end = source[len(source)-1].Next()
		}
		position := rapid.Int64Range(0, end).Draw(t, "position")
		paid = slices.DeleteFunc(paid, func(r topic.Record) bool { return r.Offset < position })
		maxBytes := rapid.SampledFrom([]int{0, 300, 1 << 20}).Draw(t, "max bytes")
		var got []topic.Record
		for position < end {
			s := NewScan(filter, unpacker, position, maxBytes)
			from := slices.IndexFunc(source, func(b topic.Batch) bool { return b.Next() > position })
			if err := s.add(t.Context(), source[from:]); err != nil {
				t.Fatal(err)
			}
			got = append(got, checkScan(t, s, source)...)
			if s.Next <= position {
				t.Fatalf("from %d to %d", position, s.Next)
			}
			position = s.Next
		}
		if !slices.EqualFunc(got, paid, func(a, b topic.Record) bool { return reflect.DeepEqual(a, b) }) {
			t.Fatalf("got %v\nwant %v", got, paid)
		}
	})
}

// checkScan checks the batches that a scan found, and returns the records of
// them that a consumer at the position shows.
func checkScan(t *rapid.T, s *Scan, source []topic.Batch) (shown []topic.Record) {
	batches, err := topic.SplitBatches(bytes.Join(s.Data, nil))
	if err != nil || s.Size != len(bytes.Join(s.Data, nil)) {
		t.Fatalf("%d bytes: %v", s.Size, err)
	}
	if len(batches) > 1 && s.Size > s.maxBytes {
		t.Fatalf("%d bytes, want at most %d", s.Size, s.maxBytes)
	}
	for _, batch := range batches {
		original := source[slices.IndexFunc(source, func(b topic.Batch) bool { return b.Base() == batch.Base() })]
		records, err := collect(batch.Records())
		if err != nil || batch.Check() != nil {
			t.Fatalf("%v, %v", err, batch.Check())
		}
		if batch.Count() == original.Count() && &batch[0] == &original[0] && !bytes.Equal(batch, original) {
			t.Fatal("a batch that passes was changed")
		}
		if batch.Compression() > 0 && batch.Compression() != original.Compression() || !bytes.Equal(headerOf(batch), headerOf(original)) {
			t.Fatalf("rebuilt batch has %x, want %x", batch[:topic.BatchOverhead], original[:topic.BatchOverhead])
		}
		before := len(shown)
		for _, record := range records {
			if record.Offset >= s.position {
				shown = append(shown, record)
			}
		}
		if len(shown) == before && !batch.Control() {
			t.Fatalf("batch at %d has nothing for a consumer at %d", batch.Base(), s.position)
		}
	}
	return shown
}

// headerOf returns the header without what may differ: length, checksum, codec
// and count.
func headerOf(b topic.Batch) []byte {
	header := bytes.Clone(b[:topic.BatchOverhead])
	clear(header[8:12])  // length
	clear(header[17:21]) // checksum
	header[22] &^= 7     // codec
	clear(header[57:])   // count
	return header
}

// patient gives a scan the time that it takes on the slowest of machines.
func patient(s *Scan) *Scan {
	s.deadline = s.deadline.Add(1000 * scanTime)
	return s
}

func TestScanIsBounded(t *testing.T) {
	filter := compile(t, `key == "never"`)
	large, err := topic.NewBatch([]topic.Record{{Value: bytes.Repeat([]byte("x"), 1<<20)}}, topic.BatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	small, err := topic.NewBatch([]topic.Record{{}}, topic.BatchOptions{Next: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name  string
		batch topic.Batch
		next  int64
	}{{"bytes", large, 8}, {"offsets", small, 10_000}} {
		var batches []topic.Batch
		for i := range int64(20) {
			batch := bytes.Clone(test.batch)
			topic.Batch(batch).Stamp(i*topic.Batch(batch).Next(), 0)
			batches = append(batches, batch)
		}
		s := patient(NewScan(filter, unpacker, 0, 1))
		if err := s.add(t.Context(), batches); err != nil || s.Next != test.next || !s.Full() {
			t.Errorf("%s: up to %d, %v; want %d", test.name, s.Next, err, test.next)
		}
	}
	s := NewScan(filter, unpacker, 0, 1)
	s.deadline = s.deadline.Add(-scanTime)
	if err := s.add(t.Context(), []topic.Batch{small, large}); err != nil || s.Next != 1000 || !s.Full() {
		t.Errorf("time: up to %d, %v; want one batch", s.Next, err)
	}
}

// A filter that takes long for a record keeps a read no longer than that: the
// next read goes on at the next record.
func TestScanEndsWithinABatch(t *testing.T) {
	filter := compile(t, `!key.matches("(x?){200}y$")`)
	if !filter.costly {
		t.Fatal("the filter counts as cheap")
	}
	batch, err := topic.NewBatch([]topic.Record{{Offset: 5}, {Offset: 6, Key: []byte("y")}, {Offset: 8}}, topic.BatchOptions{Base: 5, Next: 20})
	if err != nil {
		t.Fatal(err)
	}
	var got []int64
	var reads [][2]int64
	for position := int64(0); position < 20; {
		s := NewScan(filter, unpacker, position, 1<<20)
		s.deadline = s.deadline.Add(-scanTime)
		if err := s.add(t.Context(), []topic.Batch{batch}); err != nil || !s.Full() {
			t.Fatalf("from %d: %v", position, err)
		}
		for _, data := range s.Data {
			records, err := collect(topic.Batch(data).Records())
			if err != nil || topic.Batch(data).Check() != nil || topic.Batch(data).Next() != s.Next {
				t.Fatalf("%v, %v, up to %d", err, topic.Batch(data).Check(), topic.Batch(data).Next())
			}
			for _, record := range records {
				got = append(got, record.Offset)
			}
		}
		reads = append(reads, [2]int64{position, s.Next})
		position = s.Next
	}
	if !slices.Equal(got, []int64{5, 8}) || !slices.Equal(reads, [][2]int64{{0, 6}, {6, 8}, {8, 20}}) {
		t.Errorf("records %v in reads %v", got, reads)
	}
}

func TestScanStopsAtCorruption(t *testing.T) {
	filter := compile(t, `true`)
	batch, err := topic.NewBatch([]topic.Record{{Value: []byte("v")}}, topic.BatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wrong := topic.Batch(bytes.Clone(batch))
	wrong.Stamp(1, 0)
	wrong[len(wrong)-2] ^= 1
	s := patient(NewScan(filter, unpacker, 0, 1<<20))
	if err := s.add(t.Context(), []topic.Batch{batch, wrong}); err == nil || s.Next != 1 || s.Size != len(batch) {
		t.Errorf("up to %d, %d bytes, %v; want the batch before the corrupt one, and an error", s.Next, s.Size, err)
	}
}

// Batches of a producer that writes nonsense, or more than is unpacked, keep
// nobody from what follows.
func TestScanPassesOverWhatCannotBeUnpacked(t *testing.T) {
	filter := compile(t, `true`)
	whole, err := topic.NewBatch([]topic.Record{{Offset: 2, Value: []byte("v")}}, topic.BatchOptions{Base: 2})
	if err != nil {
		t.Fatal(err)
	}
	nonsense := topic.Batch(append(bytes.Clone(whole[:topic.BatchOverhead]), "nonsense"...))
	nonsense.Stamp(0, 0)
	binary.BigEndian.PutUint32(nonsense[8:], uint32(len(nonsense)-12))
	binary.BigEndian.PutUint32(nonsense[17:], crc32.Checksum(nonsense[21:], crc32.MakeTable(crc32.Castagnoli)))
	zeros, err := topic.NewBatch([]topic.Record{{Offset: 1, Value: make([]byte, topic.MaxUncompressed+1)}}, topic.BatchOptions{Base: 1, Codec: topic.CodecZstd})
	if err != nil {
		t.Fatal(err)
	}
	s := patient(NewScan(filter, unpacker, 0, 1<<20))
	err = s.add(t.Context(), []topic.Batch{nonsense, zeros, whole})
	if err != nil || s.Next != 3 || s.Size != len(whole) || s.First != 2 || s.Unreadable == nil {
		t.Errorf("up to %d, %d bytes from %d, %v, %v; want the last batch", s.Next, s.Size, s.First, err, s.Unreadable)
	}
	if counts := filter.Counts(); counts != (Counts{Records: 3, Matched: 1, Failed: 2}) {
		t.Errorf("%+v, want 2 of 3 to have failed", counts)
	}
}

func TestHiddenMarker(t *testing.T) {
	marker, err := HiddenMarker(10, 100_010, 3)
	if err != nil {
		t.Fatal(err)
	}
	if split, err := topic.SplitBatches(marker); err != nil || len(split) != 1 || marker.Check() != nil {
		t.Fatalf("%v, %v", err, marker.Check())
	}
	id, epoch, _ := marker.Producer()
	records, err := collect(marker.Records())
	if binary.BigEndian.Uint16(marker[21:]) != 0x30 || id != -1 || epoch != -1 || marker.Base() != 10 || marker.Next() != 100_010 || marker.Epoch() != 3 || len(marker) != 80 ||
		err != nil || len(records) != 1 || records[0].Offset != 100_009 || !bytes.Equal(records[0].Key, []byte{0, 0, 0, 1}) || len(records[0].Value) != 6 {
		t.Errorf("%x: %v, %v", marker, records, err)
	}
	if long, err := HiddenMarker(10, 1<<40, 3); err != nil || long.Next() != 10+math.MaxInt32 {
		t.Errorf("of a long gap: to %d, %v", long.Next(), err)
	}
}

// HiddenRanges knows no more than it was told, and is never larger than it may.
func TestHiddenRanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var ranges HiddenRanges
		hidden := map[int64]bool{}
		for range rapid.IntRange(0, 30).Draw(t, "ranges") {
			from := rapid.Int64Range(0, 100).Draw(t, "from")
			to := from + rapid.Int64Range(0, 10).Draw(t, "length")
			ranges.Add(from, to)
			for offset := from; offset < to; offset++ {
				hidden[offset] = true
			}
		}
		for offset := range int64(120) {
			want := offset
			for hidden[want] {
				want++
			}
			if got := ranges.After(offset, 1000); got != want {
				t.Fatalf("after %d comes %d, want %d: %v", offset, got, want, ranges.ranges)
			}
		}
	})
	var ranges HiddenRanges
	for i := range int64(hiddenRangesMax + 10) {
		ranges.Add(3*i, 3*i+1)
		ranges.After(0, math.MaxInt64)
	}
	if len(ranges.ranges) != hiddenRangesMax || ranges.After(0, math.MaxInt64) != 1 || ranges.After(3, math.MaxInt64) != 3 {
		t.Errorf("%d ranges, %d, %d; want those used last", len(ranges.ranges), ranges.After(0, math.MaxInt64), ranges.After(3, math.MaxInt64))
	}
	if got := ranges.After(0, 10); got != 0 {
		t.Errorf("after the log was cut back: %d, want nothing known", got)
	}
}

func BenchmarkScan(b *testing.B) {
	for codec, name := range codecs {
		var source []topic.Batch
		for i := range int64(10) {
			var records []topic.Record
			for j := range int64(1000) {
				tag := "new"
				if j%100 == 0 {
					tag = "paid"
				}
				records = append(records, topic.Record{Offset: i*1000 + j, Value: fmt.Appendf(nil, "%0100d", j), Headers: []topic.Header{{Key: "tag", Value: []byte(tag)}}})
			}
			batch, err := topic.NewBatch(records, topic.BatchOptions{Codec: codec})
			if err != nil {
				b.Fatal(err)
			}
			batch.Stamp(i*1000, 0)
			source = append(source, batch)
		}
		filter := compile(b, `headers.tag == "paid"`)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s := NewScan(filter, unpacker, 0, 1<<20)
				if err := s.add(b.Context(), source); err != nil || len(s.Data) == 0 {
					b.Fatal(err)
				}
			}
		})
	}
}
