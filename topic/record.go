package topic

import (
	"encoding/binary"
	"fmt"
	"iter"
)

// MaxHeaders bounds the headers of one record.
const MaxHeaders = 1 << 16

// Record is one record of a batch.
type Record struct {
	// Offset is the record's position in the partition.
	Offset int64
	// Timestamp is in milliseconds since the epoch: the producer's, or the time of
	// the append if the batch uses that.
	Timestamp int64
	// Key and Value are nil if the producer gave none; an empty one is not nil.
	Key, Value []byte
	Headers    []Header
}

// Header is one header of a record. A name may occur more than once.
type Header struct {
	Key   string
	Value []byte
}

// Records returns the batch's records in order. The slices of a record alias the
// batch, or a buffer made for this call if the batch is compressed. After an
// error, which is an ErrCorrupt or ErrUncompressedSize, no record follows.
func (b Batch) Records() iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		data, err := Decompress(b.Compression(), b[RecordsAt:])
		if err != nil {
			yield(Record{}, err)
			return
		}
		reader := NewRecordReader(b, data)
		for reader.Next() {
			record := reader.Record
			reader.Slab = reader.Slab[len(record.Headers):]
			if !yield(record, nil) {
				return
			}
		}
		if reader.Err != nil {
			yield(Record{}, reader.Err)
		}
	}
}

// RecordReader reads the records of a batch. It does not use kmsg, which allocates
// as many headers as a record claims to have before it checks that they are there.
type RecordReader struct {
	batch Batch
	rest  []byte
	left  int32 // records not yet read
	last  int64 // offset delta of the last one, -1 before the first
	time  int64 // the last one's own timestamp
	// WithoutHeaders skips the headers and leaves Headers empty.
	WithoutHeaders bool

	// Set by Next: the record, its encoding in the batch, its part from the key
	// on, and its offset delta.
	Record Record
	Raw    []byte
	body   []byte
	Err    error

	// Slab holds the headers, so that many records share an allocation. A caller
	// that keeps a record takes its part off the slab.
	Slab []Header
}

// NewRecordReader returns a reader of the records of a batch, whose uncompressed data is
// given.
func NewRecordReader(batch Batch, data []byte) RecordReader {
	return RecordReader{batch: batch, rest: data, left: batch.Count(), last: -1}
}

// Next reads the next record. It returns false at the end, and after an error.
func (r *RecordReader) Next() bool {
	if r.Err != nil {
		return false
	}
	if r.left == 0 {
		if len(r.rest) > 0 {
			r.Err = fmt.Errorf("%w: %d bytes after the last record", ErrCorrupt, len(r.rest))
		}
		return false
	}
	if err := r.read(); err != nil {
		r.Err = fmt.Errorf("%w: record %d of %d: %w", ErrCorrupt, r.batch.Count()-r.left+1, r.batch.Count(), err)
		return false
	}
	r.left--
	return true
}

// AppendTo appends the record to records of its batch, as if the batch's first timestamp were
// first.
func (r *RecordReader) AppendTo(records []byte, first int64) []byte {
	if first == r.batch.FirstTimestamp() {
		return append(records, r.Raw...)
	}
	return appendRecord(records, r.time-first, r.last, r.body)
}

func (r *RecordReader) read() error {
	whole := NewVarints(r.rest)
	length := whole.Varint()
	content := whole.Take(length)
	if whole.Err != nil {
		return whole.Err
	}
	r.Raw = r.rest[:whole.at]
	r.rest = whole.Rest()

	in := NewVarints(content)
	in.Take(1) // attributes, which are unused
	timestamp := in.Varint()
	delta := in.Varint()
	r.body = in.Rest()
	r.Record.Key = in.bytes()
	r.Record.Value = in.bytes()
	if in.Err != nil {
		return in.Err
	}
	if delta <= r.last || delta > int64(r.batch.LastDelta()) {
		return fmt.Errorf("offset delta %d after %d, of %d", delta, r.last, r.batch.LastDelta())
	}
	r.last = delta
	r.Record.Offset = r.batch.Base() + delta
	r.time = r.batch.FirstTimestamp() + timestamp
	r.Record.Timestamp = r.time
	if r.batch.LogAppendTime() {
		r.Record.Timestamp = r.batch.MaxTimestamp()
	}
	if r.WithoutHeaders {
		return nil
	}
	return r.readHeaders(&in)
}

// headerSlab is the number of headers allocated at once.
const headerSlab = 128

func (r *RecordReader) readHeaders(in *Varints) error {
	count := in.Varint()
	if in.Err == nil && (count < 0 || count > MaxHeaders) {
		return fmt.Errorf("%d headers, of at most %d", count, MaxHeaders)
	}
	if in.Err == nil && count > int64(len(in.Rest()))/2 { // a header has 2 bytes or more
		return fmt.Errorf("%d headers in %d bytes", count, len(in.Rest()))
	}
	before := r.Record.Headers
	r.Record.Headers = nil
	if count > 0 && in.Err == nil {
		if int64(len(r.Slab)) < count {
			r.Slab = make([]Header, max(count, headerSlab))
		}
		r.Record.Headers = r.Slab[:count:count]
	}
	for i := range r.Record.Headers {
		name, value := in.bytes(), in.bytes()
		if in.Err == nil && name == nil {
			return fmt.Errorf("header %d has no name", i)
		}
		// Names repeat from record to record: share the string.
		if i < len(before) && before[i].Key == string(name) {
			r.Record.Headers[i] = Header{before[i].Key, value}
		} else {
			r.Record.Headers[i] = Header{string(name), value}
		}
	}
	if in.Err == nil && len(in.Rest()) > 0 {
		return fmt.Errorf("%d bytes after its end", len(in.Rest()))
	}
	return in.Err
}

// Varints reads the fields of records. After the first error it returns zeros. It keeps a place in the
// data, not what follows: to store that would cost a write barrier for each field.
type Varints struct {
	Err  error
	data []byte
	at   int
}

// NewVarints returns a reader of the fields in data.
func NewVarints(data []byte) Varints { return Varints{data: data} }

// Rest returns what was not read.
func (v *Varints) Rest() []byte { return v.data[v.at:] }

// Varint reads a zigzag varint; 0 after an error.
func (v *Varints) Varint() int64 {
	if v.Err != nil {
		return 0
	}
	if v.at < len(v.data) && v.data[v.at] < 0x80 { // most fields
		b := v.data[v.at]
		v.at++
		return int64(b>>1) ^ -int64(b&1)
	}
	value, n := binary.Varint(v.data[v.at:])
	if n <= 0 {
		v.Err = ErrTruncated
		return 0
	}
	v.at += n
	return value
}

// Take reads n bytes; nil after an error.
func (v *Varints) Take(n int64) []byte {
	if v.Err != nil {
		return nil
	}
	if n < 0 || n > int64(len(v.data)-v.at) {
		v.Err = ErrTruncated
		return nil
	}
	from := v.at
	v.at += int(n)
	return v.data[from:v.at:v.at]
}

// bytes reads a length and that many bytes; nil if the length is negative.
func (v *Varints) bytes() []byte {
	length := v.Varint()
	if v.Err != nil || length < 0 {
		return nil
	}
	return v.Take(length)
}

// ErrTruncated reports a record that ends before its fields do.
var ErrTruncated = fmt.Errorf("ends too early")
