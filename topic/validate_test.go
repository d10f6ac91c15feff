package topic

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// threeRecords returns a batch of three records and its uncompressed records.
func threeRecords(t testing.TB) (Batch, []byte) {
	t.Helper()
	batch, err := NewBatch([]Record{
		{Offset: 0, Timestamp: 1000, Key: []byte("k"), Value: []byte("value")},
		{Offset: 1, Timestamp: 3000, Headers: []Header{{Key: "a", Value: []byte("1")}, {Key: "b"}}},
		{Offset: 2, Timestamp: 2000, Value: []byte{}},
	}, BatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return batch, batch[RecordsAt:]
}

func TestValidateWholeRecords(t *testing.T) {
	batch, data := threeRecords(t)
	if highest, err := batch.Validate(data); err != nil || highest != 3000 {
		t.Errorf("highest timestamp %d, %v; want 3000", highest, err)
	}
	if n := testing.AllocsPerRun(10, func() { _, _ = batch.Validate(data) }); n > 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

// Each mistake of a producer is an ErrInvalidRecord that names the record.
func TestValidateNamesTheRecord(t *testing.T) {
	record := func(offset int64, fields ...byte) []byte {
		return append(binary.AppendVarint([]byte{0, 0}, offset), fields...)
	}
	whole := []byte{1, 1, 0} // no key, no value, no headers
	for name, test := range map[string]struct {
		records [][]byte
		count   int32
		wrong   int // -1: none
		says    string
	}{
		"whole":                  {[][]byte{record(0, whole...), record(1, whole...)}, 2, -1, ""},
		"fewer than counted":     {[][]byte{record(0, whole...)}, 2, 1, "want 2 whole records, 0 bytes are left"},
		"more than counted":      {[][]byte{record(0, whole...), record(1, whole...)}, 1, -1, "7 bytes follow the 1 records"},
		"an offset left out":     {[][]byte{record(0, whole...), record(2, whole...)}, 2, 1, "offset 2 in its batch, want 1"},
		"an offset twice":        {[][]byte{record(0, whole...), record(0, whole...)}, 2, 1, "offset 0 in its batch, want 1"},
		"nothing":                {[][]byte{{}}, 1, 0, "its 0 bytes end before its fields do"},
		"a key beyond the end":   {[][]byte{record(0, 20)}, 1, 0, "end before its fields do"},
		"a value beyond the end": {[][]byte{record(0, 1, 20)}, 1, 0, "end before its fields do"},
		"bytes after the fields": {[][]byte{record(0, 1, 1, 0, 9)}, 1, 0, "1 bytes follow its last field"},
		"headers negative":       {[][]byte{record(0, 1, 1, 1)}, 1, 0, "-1 headers in 0 bytes: want 0 to 0"},
		"many headers":           {[][]byte{record(0, 1, 1, 100, 0, 0)}, 1, 0, "50 headers in 2 bytes: want 0 to 1"},
		"a header without name":  {[][]byte{record(0, 1, 1, 2, 1, 1)}, 1, 0, "a header has no name"},
		"a header cut off":       {[][]byte{record(0, 1, 1, 2, 8, 'k')}, 1, 0, "end before its fields do"},
	} {
		t.Run(name, func(t *testing.T) {
			var data []byte
			for _, r := range test.records {
				data = append(binary.AppendVarint(data, int64(len(r))), r...)
			}
			batch, _ := threeRecords(t)
			batch.put32(atCount, test.count)
			batch.put32(atLastDelta, test.count-1)
			_, err := batch.Validate(data)
			if test.says == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, ErrInvalidRecord) || !strings.Contains(err.Error(), test.says) {
				t.Fatalf("%v, want an ErrInvalidRecord that says %q", err, test.says)
			}
			if wrong, ok := errors.AsType[*RecordError](err); ok != (test.wrong >= 0) || ok && wrong.Record != test.wrong {
				t.Errorf("it names record %v, want %d", wrong, test.wrong)
			}
		})
	}
}

// Records that pass can be read by all who unpack them: views, delays, consumers.
func FuzzValidate(f *testing.F) {
	batch, data := threeRecords(f)
	f.Add(int32(3), data)
	f.Add(int32(-91), []byte{})
	for at := range data {
		changed := bytes.Clone(data)
		changed[at] ^= 3
		f.Add(int32(3), changed)
	}
	f.Fuzz(func(t *testing.T, count int32, data []byte) {
		b := append(bytes.Clone(batch[:BatchOverhead]), data...)
		Batch(b).put32(atCount, count)
		Batch(b).put32(atLastDelta, count-1)
		highest, err := Batch(b).Validate(data)
		if err != nil {
			return
		}
		found, err := all(Batch(b).Records())
		if err != nil || len(found) != int(count) {
			t.Fatalf("%d of %d records can be read: %v", len(found), count, err)
		}
		for i, record := range found {
			if record.Timestamp > highest || record.Offset != int64(i) {
				t.Fatalf("record %d: offset %d, timestamp %d of at most %d", i, record.Offset, record.Timestamp, highest)
			}
		}
	})
}

// noBound is memory that never runs out.
type noBound struct{}

func (noBound) Acquire(context.Context, int64) error { return nil }
func (noBound) Release(int64)                        {}

func BenchmarkValidate(b *testing.B) {
	for _, size := range []int{10, 100, 1000} {
		var records []Record
		for i := range int64(500) {
			records = append(records, Record{Offset: i, Timestamp: i, Value: bytes.Repeat([]byte("x"), size)})
		}
		for codec, name := range codecNames {
			batch, err := NewBatch(records, BatchOptions{Codec: codec})
			if err != nil {
				b.Fatal(err)
			}
			u := NewUnpacker(noBound{})
			b.Run(fmt.Sprintf("%s of %d bytes", name, size), func(b *testing.B) {
				b.SetBytes(int64(500 * size))
				b.ReportAllocs()
				for b.Loop() {
					if err := u.Unpack(b.Context(), batch.Compression(), batch[RecordsAt:], func(data []byte) error {
						_, err := batch.Validate(data)
						return err
					}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
