package topic

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"math"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

var codecNames = map[int]string{CodecNone: "none", CodecGzip: "gzip", CodecSnappy: "snappy", CodecLZ4: "lz4", CodecZstd: "zstd"}

// all returns the records up to the first error.
func all(records iter.Seq2[Record, error]) (found []Record, err error) {
	for record, err := range records {
		if err != nil {
			return found, err
		}
		found = append(found, record)
	}
	return found, nil
}

// drawBytes draws nil, empty and other values.
func drawBytes(t *rapid.T, name string) []byte {
	if rapid.Bool().Draw(t, name+" is nil") {
		return nil
	}
	return rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, name)
}

// drawRecords draws records with offsets from base on, with gaps.
func drawRecords(t *rapid.T, base int64) (records []Record, next int64) {
	offset := base
	for i := range rapid.IntRange(1, 30).Draw(t, "records") {
		offset += rapid.Int64Range(0, 3).Draw(t, "gap")
		record := Record{
			Offset:    offset,
			Timestamp: rapid.Int64Range(0, math.MaxInt64/2).Draw(t, "timestamp"),
			Key:       drawBytes(t, "key"),
			Value:     drawBytes(t, "value"),
		}
		for range rapid.IntRange(0, 3).Draw(t, "headers") {
			record.Headers = append(record.Headers, Header{rapid.SampledFrom([]string{"", "a", "tag", "été"}).Draw(t, "name"), drawBytes(t, fmt.Sprint("header of ", i))})
		}
		records = append(records, record)
		offset++
	}
	return records, offset + rapid.Int64Range(0, 3).Draw(t, "last gap")
}

func TestRecordsAreThoseOfTheBatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.Int64Range(0, math.MaxInt32).Draw(t, "base")
		records, next := drawRecords(t, base)
		options := BatchOptions{
			Base: base, Next: next, Epoch: rapid.Int32().Draw(t, "epoch"), Codec: rapid.IntRange(CodecNone, CodecZstd).Draw(t, "codec"),
			Transactional: rapid.Bool().Draw(t, "transactional"), Control: rapid.Bool().Draw(t, "control"),
		}
		if rapid.Bool().Draw(t, "idempotent") {
			options.Producer = &BatchProducer{rapid.Int64Min(0).Draw(t, "id"), rapid.Int16Min(0).Draw(t, "producer's epoch"), rapid.Int32Min(0).Draw(t, "sequence")}
		}
		batch, err := NewBatch(records, options)
		if err != nil {
			t.Fatal(err)
		}
		checkBatch(t, batch, options, records)
		checkAsKmsg(t, batch, records)

		got, err := all(batch.Records())
		if err != nil || !reflect.DeepEqual(got, records) {
			t.Fatalf("records %v, %v; want %v", got, err, records)
		}
		batch.StampTime(12345)
		for record, err := range batch.Records() {
			if err != nil || record.Timestamp != 12345 {
				t.Fatalf("with the time of the append: %v, %v; want timestamp 12345", record, err)
			}
		}
	})
}

func checkBatch(t *rapid.T, batch Batch, options BatchOptions, records []Record) {
	if split, err := SplitBatches(batch); err != nil || len(split) != 1 || batch.Check() != nil {
		t.Fatalf("not a whole batch: %v, %v", err, batch.Check())
	}
	highest := int64(NoTimestamp)
	for _, record := range records {
		highest = max(highest, record.Timestamp)
	}
	want := []any{options.Base, options.Next, options.Epoch, options.Codec, int32(len(records)), highest, options.Transactional, options.Control, false}
	got := []any{batch.Base(), batch.Next(), batch.Epoch(), batch.Compression(), batch.Count(), batch.MaxTimestamp(), batch.Transactional(), batch.Control(), batch.LogAppendTime()}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("batch has %v, want %v", got, want)
	}
	producer := BatchProducer{-1, -1, -1}
	if options.Producer != nil {
		producer = *options.Producer
	}
	if id, epoch, sequence := batch.Producer(); (BatchProducer{id, epoch, sequence}) != producer {
		t.Fatalf("producer %d, %d, %d; want %v", id, epoch, sequence, producer)
	}
}

// checkAsKmsg reads the batch with the library that clients use.
func checkAsKmsg(t *rapid.T, batch Batch, want []Record) {
	var theirs kmsg.RecordBatch
	if err := theirs.ReadFrom(batch); err != nil {
		t.Fatal(err)
	}
	data, err := kgo.DefaultDecompressor().Decompress(theirs.Records, kgo.CompressionCodecType(batch.Compression()))
	if err != nil {
		t.Fatal(err)
	}
	for _, record := range want {
		var their kmsg.Record
		if err := their.ReadFrom(data); err != nil {
			t.Fatal(err)
		}
		data = data[int(their.Length)+varintLength(int64(their.Length)):]
		got := Record{Offset: batch.Base() + int64(their.OffsetDelta), Timestamp: batch.FirstTimestamp() + their.TimestampDelta64, Key: their.Key, Value: their.Value}
		for _, header := range their.Headers {
			got.Headers = append(got.Headers, Header(header))
		}
		if !reflect.DeepEqual(got, record) {
			t.Fatalf("they read %v, want %v", got, record)
		}
	}
	if len(data) > 0 {
		t.Fatalf("%d bytes left", len(data))
	}
}

func TestRecordsThatKmsgWrote(t *testing.T) {
	for codec, name := range codecNames {
		for _, value := range []string{"", "v", strings.Repeat("sluice ", 20_000)} {
			t.Run(fmt.Sprintf("%s %d", name, len(value)), func(t *testing.T) {
				body := kmsg.Record{TimestampDelta64: -7, OffsetDelta: 2, Value: []byte(value), Headers: []kmsg.Header{{Key: "h"}}}
				body.Length = int32(len(body.AppendTo(nil)) - 1) // without the length, one byte of 0
				theirs := kmsg.RecordBatch{
					FirstOffset: 40, PartitionLeaderEpoch: 3, Magic: 2, Attributes: int16(codec), LastOffsetDelta: 4,
					FirstTimestamp: 100, MaxTimestamp: 100, ProducerID: 9, ProducerEpoch: 1, FirstSequence: 5, NumRecords: 1,
				}
				theirs.Records = compressTheirs(t, codec, body.AppendTo(nil))
				batch := Batch(theirs.AppendTo(nil))
				batch.seal()
				want := []Record{{Offset: 42, Timestamp: 93, Value: []byte(value), Headers: []Header{{Key: "h"}}}}
				if got, err := all(batch.Records()); err != nil || !reflect.DeepEqual(got, want) {
					t.Fatalf("records %.200v, %v", got, err)
				}
			})
		}
	}
}

func compressTheirs(t *testing.T, codec int, data []byte) []byte {
	t.Helper()
	if codec == CodecNone {
		return data
	}
	codecs := map[int]kgo.CompressionCodec{
		CodecGzip: kgo.GzipCompression(), CodecSnappy: kgo.SnappyCompression(), CodecLZ4: kgo.Lz4Compression(), CodecZstd: kgo.ZstdCompression(),
	}
	compressor, err := kgo.DefaultCompressor(codecs[codec])
	if err != nil {
		t.Fatal(err)
	}
	out, used := compressor.Compress(new(bytes.Buffer), data)
	if int(used) != codec {
		t.Fatalf("codec %d, want %d", used, codec)
	}
	return out
}

func TestNoBatchOfWrongOffsets(t *testing.T) {
	for name, options := range map[string]BatchOptions{
		"below base": {Base: 6}, "after next": {Next: 4}, "too many": {Next: math.MaxInt32 + 1}, "unknown codec": {Codec: 5},
	} {
		if batch, err := NewBatch([]Record{{Offset: 5}}, options); err == nil {
			t.Errorf("%s: made %x", name, batch)
		}
	}
	if _, err := NewBatch([]Record{{Offset: 5}, {Offset: 5}}, BatchOptions{}); err == nil {
		t.Error("made a batch with the same offset twice")
	}
	if _, err := NewBatch(nil, BatchOptions{Base: 5}); err == nil {
		t.Error("made a batch without offsets")
	}
}

func TestRecordsOfCorruptBatches(t *testing.T) {
	whole, err := NewBatch([]Record{{Offset: 0, Value: []byte("value")}, {Offset: 1, Headers: []Header{{Key: "k"}}}}, BatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(b Batch) Batch{
		"count too high":    func(b Batch) Batch { b.put32(atCount, 3); b.put32(atLastDelta, 9); return b },
		"count too low":     func(b Batch) Batch { b.put32(atCount, 1); return b },
		"delta beyond last": func(b Batch) Batch { b.put32(atLastDelta, 0); return b },
		"cut":               func(b Batch) Batch { return b[:len(b)-1] },
		"more":              func(b Batch) Batch { return append(b, 0) },
		"length negative":   func(b Batch) Batch { b[RecordsAt] = 1; return b },
		"unknown codec":     func(b Batch) Batch { b[atAttributes+1] = 7; return b },
		"not gzip":          func(b Batch) Batch { b[atAttributes+1] = CodecGzip; return b },
		"not snappy":        func(b Batch) Batch { b[atAttributes+1] = CodecSnappy; return b },
		"not lz4":           func(b Batch) Batch { b[atAttributes+1] = CodecLZ4; return b },
		"not zstd":          func(b Batch) Batch { b[atAttributes+1] = CodecZstd; return b },
		"same offset twice": func(b Batch) Batch { b[len(b)-7] = 0; return b },
		"headers negative":  func(b Batch) Batch { b[len(b)-4] = 1; return b },
		"many headers":      func(b Batch) Batch { b[len(b)-4] = 100; return b },
		"nameless header":   func(b Batch) Batch { b[len(b)-3] = 1; return b },
	} {
		if found, err := all(change(bytes.Clone(whole)).Records()); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %d records, %v; want an ErrCorrupt", name, len(found), err)
		}
	}
}

// A small batch may hold much data: the unpacked size is bounded.
func TestDecompressionIsBounded(t *testing.T) {
	bomb := make([]byte, MaxUncompressed+1)
	for codec, name := range codecNames {
		if codec == CodecNone {
			continue
		}
		t.Run(name, func(t *testing.T) {
			packed, err := compress(nil, codec, bomb)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Decompress(codec, packed); !errors.Is(err, ErrUncompressedSize) {
				t.Errorf("%d bytes for %d: %v, want ErrUncompressedSize", len(packed), len(bomb), err)
			}
			packed, err = compress(nil, codec, bomb[1:])
			if err != nil {
				t.Fatal(err)
			}
			if data, err := Decompress(codec, packed); err != nil || len(data) != MaxUncompressed {
				t.Errorf("the most that is allowed: %d bytes, %v", len(data), err)
			}
		})
	}
	t.Run("snappy without frames", func(t *testing.T) {
		if _, err := Decompress(CodecSnappy, s2.EncodeSnappy(nil, bomb)); !errors.Is(err, ErrUncompressedSize) {
			t.Errorf("%v, want ErrUncompressedSize", err)
		}
		if data, err := Decompress(CodecSnappy, s2.EncodeSnappy(nil, []byte("plain"))); string(data) != "plain" {
			t.Errorf("%q, %v", data, err)
		}
	})
}

func TestRecordsAllocateLittle(t *testing.T) {
	var records []Record
	for i := range int64(1000) {
		records = append(records, Record{Offset: i, Key: []byte("key"), Value: []byte("value"), Headers: []Header{{"tag", []byte("paid")}, {"trace", nil}}})
	}
	batch, err := NewBatch(records, BatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	allocations := testing.AllocsPerRun(5, func() {
		for _, err := range batch.Records() {
			if err != nil {
				t.Fatal(err)
			}
			count++
		}
	})
	if count == 0 || allocations > 40 {
		t.Errorf("%v allocations for 1,000 records, want one for each %d headers", allocations, headerSlab)
	}
}

func FuzzSplitBatches(f *testing.F) {
	addBatches(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		batches, err := SplitBatches(data)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("%v, want an ErrCorrupt", err)
			}
			return
		}
		if joined := bytes.Join(toBytes(batches), nil); !bytes.Equal(joined, data) {
			t.Fatalf("batches are %x, data %x", joined, data)
		}
		for _, batch := range batches {
			if batch.Next() <= batch.Base() && batch.Base() < math.MaxInt64-math.MaxInt32 {
				t.Fatalf("from %d to %d", batch.Base(), batch.Next())
			}
		}
	})
}

func toBytes(batches []Batch) (out [][]byte) {
	for _, batch := range batches {
		out = append(out, batch)
	}
	return out
}

func addBatches(f *testing.F) {
	f.Helper()
	for codec := range codecNames {
		batch, err := NewBatch([]Record{{Offset: 7, Key: []byte("k"), Value: bytes.Repeat([]byte("v"), 300)}, {Offset: 9, Headers: []Header{{"h", nil}}}}, BatchOptions{Base: 5, Codec: codec})
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(batch))
	}
	f.Add([]byte(emptyBatch(3, 9, 1)))
}

func FuzzRecords(f *testing.F) {
	addBatches(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		batch, err := firstBatch(data)
		if err != nil {
			return
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		count, last := 0, batch.Base()-1
		for record, err := range batch.Records() {
			if err != nil {
				if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrUncompressedSize) {
					t.Fatalf("%v, want an ErrCorrupt or ErrUncompressedSize", err)
				}
				count = -1
				break
			}
			if batch.Base() >= 0 && batch.Base() < math.MaxInt64-math.MaxInt32 && (record.Offset <= last || record.Offset >= batch.Next()) {
				t.Fatalf("offset %d after %d, below %d", record.Offset, last, batch.Next())
			}
			last = record.Offset
			count++
		}
		if count >= 0 && count != int(batch.Count()) {
			t.Fatalf("%d records, want %d", count, batch.Count())
		}
		runtime.ReadMemStats(&after)
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 32*MaxUncompressed {
			t.Fatalf("%d bytes allocated for %d", grown, len(data))
		}
	})
}
