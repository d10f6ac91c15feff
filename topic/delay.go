package topic

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Headers that delay a record, in topics that have sluice.delay.enable=true.
const (
	// HeaderDeliverAt is the time at which the record appears: milliseconds since
	// the epoch, or RFC 3339.
	HeaderDeliverAt = "sluice-deliver-at"
	// HeaderDelay is the delay after the record's arrival: a duration such as 30m.
	HeaderDelay = "sluice-delay"
	// HeaderDelayID names the record, so that it can be canceled; at most
	// 256 bytes of UTF-8. Records without an id are given one.
	HeaderDelayID = "sluice-id"
)

const (
	maxDelayID = 256
	// maxDelayedBytes bounds the size of one delayed record, which has to fit into
	// an entry together with its due time.
	maxDelayedBytes = MaxBatchBytes - 1024
)

// ErrDelaysFull reports that a partition holds the maximum of delayed records.
var ErrDelaysFull = errors.New("too many delayed records")

// DelayConfig holds the bounds of delayed records. The zero value of each field
// means its default.
type DelayConfig struct {
	// Max is how far in the future a record may be due. Default 366 days.
	Max time.Duration
	// Pending bounds the delayed records of one partition; each takes about
	// 200 bytes of memory. Default 1,000,000.
	Pending int
	// ReleaseRecords and ReleaseBytes bound one release: due records beyond them
	// follow in the next. Defaults 1,000 and 1 MiB; a record that is larger is
	// released alone.
	ReleaseRecords, ReleaseBytes int
	// CacheBytes bounds the memory for one partition's records that are due soon,
	// which saves reading them, or reading each alone. Half of it is for records
	// that have just arrived. Default 4 MiB.
	CacheBytes int
	// CompactBytes is the size from which a log is compacted: its live records are
	// written again once more than three quarters of it are obsolete. Default 16 MiB.
	CompactBytes int64
}

// WithDefaults returns the config with every unset field at its default.
func (c DelayConfig) WithDefaults() DelayConfig {
	orDefault(&c.Max, 366*24*time.Hour)
	orDefault(&c.Pending, 1_000_000)
	orDefault(&c.ReleaseRecords, 1000)
	orDefault(&c.ReleaseBytes, 1<<20)
	orDefault(&c.CacheBytes, 4<<20)
	orDefault(&c.CompactBytes, 16<<20)
	return c
}

// DelayedBatch holds the delayed records of one batch.
type DelayedBatch struct {
	// Producer is the batch's sender, with the sequence of the batch's last record;
	// nil if the producer is not idempotent.
	Producer *BatchProducer
	Records  []DelayedRecord
}

// DelayedRecord is a record that is due later.
type DelayedRecord struct {
	ID string
	// Due is the time at which the record appears, in milliseconds since the epoch.
	Due int64
	// Body is the record from its key on, as it is in a batch.
	Body []byte
}

// Split takes the delayed records out of a batch that arrived at now; data is its
// records, uncompressed, of which Split keeps nothing. Records that set no delay
// themselves are delayed by usual. The returned batch keeps the offsets and the
// producer's sequence numbers of all records; if no record is delayed, it is the batch
// itself and the DelayedBatch is nil. Errors: *RecordError, ErrRecordTooLarge,
// ErrCorrupt.
func (c DelayConfig) Split(batch Batch, data []byte, now time.Time, usual time.Duration) (Batch, *DelayedBatch, error) {
	if batch.Control() {
		return batch, nil, nil
	}
	delayed := &DelayedBatch{Producer: delayedProducer(batch)}
	reader := NewRecordReader(batch, data)
	var kept []byte
	count, highest := int32(0), int64(NoTimestamp)
	for i := 0; reader.Next(); i++ {
		due, err := c.due(&reader.Record, now, usual)
		if err == nil && due > now.UnixMilli() {
			var record DelayedRecord
			if record, err = delay(batch, &reader, due); err == nil {
				delayed.Records = append(delayed.Records, record)
				continue
			}
		}
		if err != nil {
			return nil, nil, ofRecord(err, i)
		}
		count++
		highest = max(highest, reader.Record.Timestamp)
		kept = append(kept, reader.Raw...)
	}
	if reader.Err != nil {
		return nil, nil, reader.Err
	}
	if len(delayed.Records) == 0 {
		return batch, nil, nil
	}
	rest, err := batch.WithRecords(count, batch.Next(), kept)
	if err != nil {
		return nil, nil, err
	}
	rest.put64(atMaxTime, highest)
	rest.seal()
	return rest, delayed, nil
}

func ofRecord(err error, index int) error {
	var wrong *RecordError
	if errors.As(err, &wrong) {
		wrong.Record = index
	}
	return err
}

// delayedProducer returns the batch's producer with its last sequence.
func delayedProducer(batch Batch) *BatchProducer {
	id, epoch, _ := batch.Producer()
	if id < 0 {
		return nil
	}
	return &BatchProducer{id, epoch, LastSequence(batch)}
}

// due returns the time at which a record appears, in milliseconds.
func (c DelayConfig) due(record *Record, now time.Time, usual time.Duration) (int64, error) {
	var at, after *string
	for _, header := range record.Headers {
		value := string(header.Value)
		switch header.Key {
		case HeaderDeliverAt:
			at = &value
		case HeaderDelay:
			after = &value
		}
	}
	due := now.Add(usual)
	var err error
	switch {
	case at != nil && after != nil:
		return 0, &RecordError{Problem: fmt.Sprintf("it has the headers %s and %s: want one of them", HeaderDeliverAt, HeaderDelay)}
	case at != nil:
		due, err = parseDeliverAt(*at)
	case after != nil:
		var wait time.Duration
		wait, err = time.ParseDuration(*after)
		if err != nil || wait < 0 {
			return 0, &RecordError{Problem: fmt.Sprintf("header %s is %q: want a duration such as 90s or 30m, not less than 0", HeaderDelay, *after)}
		}
		due = now.Add(wait)
	}
	if err != nil {
		return 0, err
	}
	if !due.After(now) {
		return 0, nil // rounded up below, it would wait
	}
	if most := c.WithDefaults().Max; due.Sub(now) > most {
		return 0, &RecordError{Problem: fmt.Sprintf("it is due in %v: want at most %v", due.Sub(now).Round(time.Second), most)}
	}
	return due.Add(time.Millisecond - 1).UnixMilli(), nil // never too early
}

func parseDeliverAt(text string) (time.Time, error) {
	if milliseconds, err := strconv.ParseInt(text, 10, 64); err == nil {
		return time.UnixMilli(milliseconds), nil
	}
	if due, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return due, nil
	}
	return time.Time{}, &RecordError{Problem: fmt.Sprintf("header %s is %q: want milliseconds since 1970, or a time such as 2030-01-31T12:00:00Z", HeaderDeliverAt, text)}
}

// delay returns the reader's current record as a delayed record.
func delay(batch Batch, reader *RecordReader, due int64) (DelayedRecord, error) {
	if batch.Transactional() {
		return DelayedRecord{}, &RecordError{Problem: "a record of a transaction cannot be delayed"}
	}
	record := &reader.Record
	delayed := DelayedRecord{Due: due, Body: bytes.Clone(reader.body)} // data may be a buffer
	given := false
	for _, header := range record.Headers {
		if header.Key == HeaderDelayID {
			delayed.ID, given = string(header.Value), true
		}
	}
	if given && (delayed.ID == "" || len(delayed.ID) > maxDelayID || !utf8.ValidString(delayed.ID)) {
		return DelayedRecord{}, &RecordError{Problem: fmt.Sprintf("header %s has %d bytes: want 1 to %d bytes of UTF-8", HeaderDelayID, len(delayed.ID), maxDelayID)}
	}
	if !given {
		delayed.ID = madeID(batch, record.Offset-batch.Base())
		headers := slices.Concat(record.Headers, []Header{{HeaderDelayID, []byte(delayed.ID)}})
		delayed.Body = appendBody(nil, record.Key, record.Value, headers)
	}
	if len(delayed.Body) > maxDelayedBytes {
		return DelayedRecord{}, fmt.Errorf("%w: a delayed record of %d bytes, want at most %d", ErrRecordTooLarge, len(delayed.Body), maxDelayedBytes)
	}
	return delayed, nil
}

// madeID returns an id for a record without one. For an idempotent producer, the
// id is the same when the batch is sent again.
func madeID(batch Batch, delta int64) string {
	id, epoch, first := batch.Producer()
	if id < 0 {
		return strings.ToLower(rand.Text())
	}
	return fmt.Sprintf("%d-%d-%d", id, epoch, (int64(first)+delta)&math.MaxInt32)
}

// ReleasedBatch returns a batch of released records, of which there is at least
// one, in the order of their due times, which become their timestamps.
func ReleasedBatch(records []DelayedRecord) Batch {
	first, last := records[0].Due, records[len(records)-1].Due
	batch := emptyBatch(0, int64(len(records)), 0)
	for i, record := range records {
		batch = appendRecord(batch, record.Due-first, int64(i), record.Body)
	}
	batch.put64(atFirstTime, first)
	batch.put64(atMaxTime, last)
	batch.put32(atCount, int32(len(records)))
	batch.seal()
	return batch
}
