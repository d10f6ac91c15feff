package topic

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// drawSource draws the batches of a partition, from offset 0 on, and the
// records of them that are tagged "paid".
func drawSource(t *rapid.T) (batches []Batch, paid []Record) {
	next := int64(0)
	for range rapid.IntRange(0, 12).Draw(t, "batches") {
		next += rapid.Int64Range(0, 2).Draw(t, "gap between batches")
		records, end := drawRecords(t, next)
		tagged := rapid.SampledFrom([]string{"none", "some", "all"}).Draw(t, "paid")
		control := rapid.IntRange(0, 9).Draw(t, "control") == 0
		if rapid.IntRange(0, 9).Draw(t, "empty") == 0 {
			records = nil
		}
		for i := range records {
			if !control && (tagged == "all" || tagged == "some" && rapid.Bool().Draw(t, "is paid")) {
				records[i].Headers = append(records[i].Headers, Header{"tag", []byte("paid")})
				paid = append(paid, records[i])
			} else if n := len(records[i].Headers); n > 0 && records[i].Headers[n-1].Key == "tag" {
				records[i].Headers[n-1].Value = []byte("new")
			}
			if control {
				paid = append(paid, records[i]) // they always pass
			}
		}
		batch, err := NewBatch(records, BatchOptions{
			Base: next, Next: end, Epoch: 4, Codec: rapid.IntRange(CodecNone, CodecZstd).Draw(t, "codec"),
			Control: control, Producer: &BatchProducer{77, 2, int32(next)},
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
		paid = slices.DeleteFunc(paid, func(r Record) bool { return r.Offset < position })
		maxBytes := rapid.SampledFrom([]int{0, 300, 1 << 20}).Draw(t, "max bytes")
		var got []Record
		for position < end {
			s := newScan(filter, position, maxBytes)
			from := slices.IndexFunc(source, func(b Batch) bool { return b.Next() > position })
			if err := s.add(source[from:]); err != nil {
				t.Fatal(err)
			}
			got = append(got, checkScan(t, s, source)...)
			if s.next <= position {
				t.Fatalf("from %d to %d", position, s.next)
			}
			position = s.next
		}
		if !slices.EqualFunc(got, paid, func(a, b Record) bool { return reflect.DeepEqual(a, b) }) {
			t.Fatalf("got %v\nwant %v", got, paid)
		}
	})
}

// checkScan checks the batches that a scan found, and returns the records of
// them that a consumer at the position shows.
func checkScan(t *rapid.T, s *scan, source []Batch) (shown []Record) {
	batches, err := SplitBatches(bytes.Join(s.data, nil))
	if err != nil || s.size != len(bytes.Join(s.data, nil)) {
		t.Fatalf("%d bytes: %v", s.size, err)
	}
	if len(batches) > 1 && s.size > s.maxBytes {
		t.Fatalf("%d bytes, want at most %d", s.size, s.maxBytes)
	}
	for _, batch := range batches {
		original := source[slices.IndexFunc(source, func(b Batch) bool { return b.Base() == batch.Base() })]
		records, err := all(batch.Records())
		if err != nil || batch.Check() != nil {
			t.Fatalf("%v, %v", err, batch.Check())
		}
		if batch.Count() == original.Count() && &batch[0] == &original[0] && !bytes.Equal(batch, original) {
			t.Fatal("a batch that passes was changed")
		}
		if batch.Compression() > 0 && batch.Compression() != original.Compression() || !bytes.Equal(headerOf(batch), headerOf(original)) {
			t.Fatalf("rebuilt batch has %x, want %x", batch[:BatchOverhead], original[:BatchOverhead])
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
func headerOf(b Batch) []byte {
	header := bytes.Clone(b[:BatchOverhead])
	clear(header[atLength:atEpoch])
	clear(header[atChecksum:atAttributes])
	header[atAttributes+1] &^= compressionBits
	clear(header[atCount:])
	return header
}

func TestScanIsBounded(t *testing.T) {
	filter := compile(t, `key == "never"`)
	large, err := NewBatch([]Record{{Value: bytes.Repeat([]byte("x"), 1<<20)}}, BatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	small, err := NewBatch([]Record{{}}, BatchOptions{Next: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name  string
		batch Batch
		next  int64
	}{{"bytes", large, 8}, {"offsets", small, 10_000}} {
		var batches []Batch
		for i := range int64(20) {
			batch := bytes.Clone(test.batch)
			Batch(batch).stamp(i*Batch(batch).Next(), 0)
			batches = append(batches, batch)
		}
		s := newScan(filter, 0, 1)
		s.deadline = s.deadline.Add(scanTime * 1000) // a slow machine is not what this is about
		if err := s.add(batches); err != nil || s.next != test.next || !s.full() {
			t.Errorf("%s: up to %d, %v; want %d", test.name, s.next, err, test.next)
		}
	}
	s := newScan(filter, 0, 1)
	s.deadline = s.deadline.Add(-scanTime)
	if err := s.add([]Batch{small, large}); err != nil || s.next != 1000 || !s.full() {
		t.Errorf("time: up to %d, %v; want one batch", s.next, err)
	}
}

func TestScanStopsAtCorruption(t *testing.T) {
	filter := compile(t, `true`)
	batch, err := NewBatch([]Record{{Value: []byte("v")}}, BatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wrong := Batch(bytes.Clone(batch))
	wrong.stamp(1, 0)
	wrong[len(wrong)-2] ^= 1
	s := newScan(filter, 0, 1<<20)
	if err := s.add([]Batch{batch, wrong}); err == nil || s.next != 1 || s.size != len(batch) {
		t.Errorf("up to %d, %d bytes, %v; want the batch before the corrupt one, and an error", s.next, s.size, err)
	}
}

// Batches of a producer that writes nonsense, or more than is unpacked, keep
// nobody from what follows.
func TestScanPassesOverWhatCannotBeUnpacked(t *testing.T) {
	filter := compile(t, `true`)
	whole, err := NewBatch([]Record{{Offset: 2, Value: []byte("v")}}, BatchOptions{Base: 2})
	if err != nil {
		t.Fatal(err)
	}
	nonsense := Batch(append(bytes.Clone(whole[:atRecords]), "nonsense"...))
	nonsense.stamp(0, 0)
	nonsense.seal()
	zeros := emptyBatch(1, 2, 0)
	zeros.put32(atCount, 1)
	zeros[atAttributes+1] = CodecZstd
	if zeros, err = compress(zeros, CodecZstd, make([]byte, MaxUncompressed+1)); err != nil {
		t.Fatal(err)
	}
	zeros.seal()
	s := newScan(filter, 0, 1<<20)
	err = s.add([]Batch{nonsense, zeros, whole})
	if err != nil || s.next != 3 || s.size != len(whole) || s.first != 2 || s.unreadable == nil {
		t.Errorf("up to %d, %d bytes from %d, %v, %v; want the last batch", s.next, s.size, s.first, err, s.unreadable)
	}
	if counts := filter.Counts(); counts != (FilterCounts{Records: 3, Matched: 1, Failed: 2}) {
		t.Errorf("%+v, want 2 of 3 to have failed", counts)
	}
}

func TestHiddenMarker(t *testing.T) {
	marker, err := HiddenMarker(10, 100_010, 3)
	if err != nil {
		t.Fatal(err)
	}
	if split, err := SplitBatches(marker); err != nil || len(split) != 1 || marker.Check() != nil {
		t.Fatalf("%v, %v", err, marker.Check())
	}
	id, epoch, _ := marker.Producer()
	records, err := all(marker.Records())
	if marker.attributes() != 0x30 || id != -1 || epoch != -1 || marker.Base() != 10 || marker.Next() != 100_010 || marker.Epoch() != 3 || len(marker) != 80 ||
		err != nil || len(records) != 1 || records[0].Offset != 100_009 || !bytes.Equal(records[0].Key, []byte{0, 0, 0, 1}) || len(records[0].Value) != 6 {
		t.Errorf("%x: %v, %v", marker, records, err)
	}
	if long, err := HiddenMarker(10, 1<<40, 3); err != nil || long.Next() != 10+math.MaxInt32 {
		t.Errorf("of a long gap: to %d, %v", long.Next(), err)
	}
}

// hiddenRanges knows no more than it was told, and is never larger than it may.
func TestHiddenRanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var ranges hiddenRanges
		hidden := map[int64]bool{}
		for range rapid.IntRange(0, 30).Draw(t, "ranges") {
			from := rapid.Int64Range(0, 100).Draw(t, "from")
			to := from + rapid.Int64Range(0, 10).Draw(t, "length")
			ranges.add(from, to)
			for offset := from; offset < to; offset++ {
				hidden[offset] = true
			}
		}
		for offset := range int64(120) {
			want := offset
			for hidden[want] {
				want++
			}
			if got := ranges.after(offset, 1000); got != want {
				t.Fatalf("after %d comes %d, want %d: %v", offset, got, want, ranges.ranges)
			}
		}
	})
	var ranges hiddenRanges
	for i := range int64(hiddenRangesMax + 10) {
		ranges.add(3*i, 3*i+1)
		ranges.after(0, math.MaxInt64)
	}
	if len(ranges.ranges) != hiddenRangesMax || ranges.after(0, math.MaxInt64) != 1 || ranges.after(3, math.MaxInt64) != 3 {
		t.Errorf("%d ranges, %d, %d; want those used last", len(ranges.ranges), ranges.after(0, math.MaxInt64), ranges.after(3, math.MaxInt64))
	}
	if got := ranges.after(0, 10); got != 0 {
		t.Errorf("after the log was cut back: %d, want nothing known", got)
	}
}

func BenchmarkScan(b *testing.B) {
	for codec, name := range codecNames {
		var source []Batch
		for i := range int64(10) {
			var records []Record
			for j := range int64(1000) {
				tag := "new"
				if j%100 == 0 {
					tag = "paid"
				}
				records = append(records, Record{Offset: i*1000 + j, Value: fmt.Appendf(nil, "%0100d", j), Headers: []Header{{"tag", []byte(tag)}}})
			}
			batch, err := NewBatch(records, BatchOptions{Codec: codec})
			if err != nil {
				b.Fatal(err)
			}
			batch.stamp(i*1000, 0)
			source = append(source, batch)
		}
		filter := compile(b, `headers.tag == "paid"`)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s := newScan(filter, 0, 1<<20)
				if err := s.add(source); err != nil || len(s.data) == 0 {
					b.Fatal(err)
				}
			}
		})
	}
}
