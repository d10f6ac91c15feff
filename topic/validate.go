package topic

import (
	"encoding/binary"
	"fmt"
	"math"
)

// RecordError reports a record that is not as it has to be. It is an ErrInvalidRecord.
type RecordError struct {
	// Record is the record's index in the batch.
	Record int
	// Problem describes what is wrong and what would be right.
	Problem string
}

func (e *RecordError) Error() string {
	return fmt.Sprintf("%v %d of its batch: %s", ErrInvalidRecord, e.Record, e.Problem)
}

// Unwrap returns ErrInvalidRecord.
func (e *RecordError) Unwrap() error { return ErrInvalidRecord }

// Validate returns an error unless data, the batch's records without compression, is
// what the batch's header and the format say: as many whole records as it counts, with
// the offsets 0, 1, 2 and so on from its first. It returns the highest timestamp of the
// records. The error is a *RecordError, or another ErrInvalidRecord.
func (b Batch) Validate(data []byte) (highest int64, err error) {
	if b.Count() < 0 {
		return 0, fmt.Errorf("%w: its batch counts %d records", ErrInvalidRecord, b.Count())
	}
	highest = math.MinInt64
	for i := range int64(b.Count()) {
		length, n := binary.Varint(data)
		if n <= 0 || length < 0 || length > int64(len(data)-n) {
			return 0, &RecordError{int(i), fmt.Sprintf("want %d whole records, %d bytes are left", b.Count(), len(data))}
		}
		end := n + int(length)
		timestamp, problem := checkRecord(data[n:end], i)
		if problem != "" {
			return 0, &RecordError{int(i), problem}
		}
		highest = max(highest, timestamp)
		data = data[end:]
	}
	if len(data) > 0 {
		return 0, fmt.Errorf("%w: %d bytes follow the %d records of its batch", ErrInvalidRecord, len(data), b.Count())
	}
	return b.FirstTimestamp() + highest, nil
}

// CheckKeys returns a *RecordError if a record has no key, as those of a compacted topic must. Data
// is as for Validate, which accepts it.
func (b Batch) CheckKeys(data []byte) error {
	reader := NewRecordReader(b, data)
	reader.WithoutHeaders = true
	for i := 0; reader.Next(); i++ {
		if reader.Record.Key == nil {
			return &RecordError{i, "it has no key, which compaction needs"}
		}
	}
	return reader.Err
}

// checkRecord returns the timestamp of a record relative to its batch's first, and what
// is wrong with the record, if anything.
func checkRecord(data []byte, offset int64) (timestamp int64, problem string) {
	in := NewVarints(data)
	in.Take(1) // attributes, which are unused
	timestamp = in.Varint()
	delta := in.Varint()
	in.skip() // key
	in.skip() // value
	headers := in.Varint()
	if most := min(MaxHeaders, int64(len(in.Rest()))/2); in.Err == nil && (headers < 0 || headers > most) { // a header has 2 bytes or more
		return 0, fmt.Sprintf("%d headers in %d bytes: want 0 to %d", headers, len(in.Rest()), most)
	}
	for range headers {
		name := in.Varint()
		if name < 0 {
			return 0, "a header has no name"
		}
		in.Take(name)
		in.skip() // value
	}
	switch {
	case in.Err != nil:
		return 0, fmt.Sprintf("its %d bytes end before its fields do", len(data))
	case len(in.Rest()) > 0:
		return 0, fmt.Sprintf("%d bytes follow its last field", len(in.Rest()))
	case delta != offset:
		return 0, fmt.Sprintf("offset %d in its batch, want %d", delta, offset)
	}
	return timestamp, ""
}

// skip reads a length and that many bytes; none if the length is negative.
func (v *Varints) skip() {
	if length := v.Varint(); length > 0 {
		v.Take(length)
	}
}
