package topic

import (
	"encoding/binary"
	"fmt"
	"iter"
)

// MaxHeaders is the most headers of one record that is unpacked: what views and
// delayed records need. Batches that are not unpacked may have more.
const MaxHeaders = 1 << 16

// Record is one record of a batch.
type Record struct {
	// Offset is its place in the partition.
	Offset int64
	// Timestamp is in milliseconds since the epoch: the producer's, or that of
	// the append if the batch says so.
	Timestamp int64
	// Key and Value are nil if the producer gave none; an empty one is not nil.
	Key, Value []byte
	Headers    []Header
}

// Header is one header of a record. A name may come more than once.
type Header struct {
	Key   string
	Value []byte
}

// Records returns the batch's records in order. The slices of a record alias the
// batch, or a buffer made for this call if the batch is compressed. After an
// error, an ErrCorrupt or ErrUncompressedSize, no record follows.
func (b Batch) Records() iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		data, err := decompress(nil, b.Compression(), b[atRecords:])
		if err != nil {
			yield(Record{}, err)
			return
		}
		reader := newRecordReader(b, data)
		for reader.next() {
			record := reader.record
			reader.slab = reader.slab[len(record.Headers):]
			if !yield(record, nil) {
				return
			}
		}
		if reader.err != nil {
			yield(Record{}, reader.err)
		}
	}
}

// recordReader walks through the records of a batch. It does not take them from
// kmsg because that makes room for as many headers as a record says it has,
// before it looks whether they are there.
type recordReader struct {
	batch Batch
	rest  []byte
	left  int32 // records to come
	last  int64 // offset delta of the last one, -1 before the first
	// withoutHeaders leaves Headers empty and does not look at them.
	withoutHeaders bool

	// What next found: record, the same as it is in the batch, its part from
	// the key on, and its offset delta.
	record Record
	raw    []byte
	body   []byte
	err    error

	// slab is where headers are put, so that many records share an allocation.
	// Records that are kept take their part off it.
	slab []Header
}

func newRecordReader(batch Batch, data []byte) recordReader {
	return recordReader{batch: batch, rest: data, left: batch.Count(), last: -1}
}

// next reads the next record; false at the end, and after an error.
func (r *recordReader) next() bool {
	if r.err != nil {
		return false
	}
	if r.left == 0 {
		if len(r.rest) > 0 {
			r.err = fmt.Errorf("%w: %d bytes after the last record", ErrCorrupt, len(r.rest))
		}
		return false
	}
	if err := r.read(); err != nil {
		r.err = fmt.Errorf("%w: record %d of %d: %w", ErrCorrupt, r.batch.Count()-r.left+1, r.batch.Count(), err)
		return false
	}
	r.left--
	return true
}

func (r *recordReader) read() error {
	whole := varints{rest: r.rest}
	length := whole.varint()
	content := whole.take(length)
	if whole.err != nil {
		return whole.err
	}
	r.raw = r.rest[:len(r.rest)-len(whole.rest)]
	r.rest = whole.rest

	in := varints{rest: content}
	in.take(1) // attributes, of which there are none
	timestamp := in.varint()
	delta := in.varint()
	r.body = in.rest
	r.record.Key = in.bytes()
	r.record.Value = in.bytes()
	if in.err != nil {
		return in.err
	}
	if delta <= r.last || delta > int64(r.batch.lastDelta()) {
		return fmt.Errorf("offset delta %d after %d, of %d", delta, r.last, r.batch.lastDelta())
	}
	r.last = delta
	r.record.Offset = r.batch.Base() + delta
	r.record.Timestamp = r.batch.FirstTimestamp() + timestamp
	if r.batch.LogAppendTime() {
		r.record.Timestamp = r.batch.MaxTimestamp()
	}
	if r.withoutHeaders {
		return nil
	}
	return r.readHeaders(&in)
}

// headerSlab is how many headers are allocated at once.
const headerSlab = 128

func (r *recordReader) readHeaders(in *varints) error {
	count := in.varint()
	if in.err == nil && (count < 0 || count > MaxHeaders) {
		return fmt.Errorf("%d headers, of at most %d", count, MaxHeaders)
	}
	if in.err == nil && count > int64(len(in.rest))/2 { // a header has 2 bytes or more
		return fmt.Errorf("%d headers in %d bytes", count, len(in.rest))
	}
	before := r.record.Headers
	r.record.Headers = nil
	if count > 0 && in.err == nil {
		if int64(len(r.slab)) < count {
			r.slab = make([]Header, max(count, headerSlab))
		}
		r.record.Headers = r.slab[:count:count]
	}
	for i := range r.record.Headers {
		name, value := in.bytes(), in.bytes()
		if in.err == nil && name == nil {
			return fmt.Errorf("header %d has no name", i)
		}
		// Names repeat from record to record: then they share one string.
		if i < len(before) && before[i].Key == string(name) {
			r.record.Headers[i] = Header{before[i].Key, value}
		} else {
			r.record.Headers[i] = Header{string(name), value}
		}
	}
	if in.err == nil && len(in.rest) > 0 {
		return fmt.Errorf("%d bytes after its end", len(in.rest))
	}
	return in.err
}

// varints reads the fields of records. After the first error all are zero.
type varints struct {
	rest []byte
	err  error
}

func (v *varints) varint() int64 {
	if v.err != nil {
		return 0
	}
	value, n := binary.Varint(v.rest)
	if n <= 0 {
		v.err = errTruncated
		return 0
	}
	v.rest = v.rest[n:]
	return value
}

func (v *varints) take(n int64) []byte {
	if v.err != nil {
		return nil
	}
	if n < 0 || n > int64(len(v.rest)) {
		v.err = errTruncated
		return nil
	}
	taken := v.rest[:n:n]
	v.rest = v.rest[n:]
	return taken
}

// bytes reads a length and as many bytes; nil if the length is negative.
func (v *varints) bytes() []byte {
	length := v.varint()
	if v.err != nil || length < 0 {
		return nil
	}
	return v.take(length)
}

var errTruncated = fmt.Errorf("ends too early")
