package topic

import (
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
	// HeaderDeliverAt is when the record is to appear: milliseconds since the
	// epoch, or RFC 3339.
	HeaderDeliverAt = "sluice-deliver-at"
	// HeaderDelay is how long after its arrival: a duration such as 30m.
	HeaderDelay = "sluice-delay"
	// HeaderDelayID names the record, so that it can be canceled; at most
	// 256 bytes of UTF-8. Records that have none are given one.
	HeaderDelayID = "sluice-id"
)

const (
	maxDelayID = 256
	// maxDelayedBytes is the most bytes of one delayed record: it has to fit
	// into an entry with what says when it is due.
	maxDelayedBytes = maxBatchBytes - 1024
)

// ErrDelaysFull says that a partition has as many delayed records as it may.
var ErrDelaysFull = errors.New("too many delayed records")

// DelayError says why a record cannot be delayed. It is an ErrInvalidRecord.
type DelayError struct {
	// Record is its index in the batch.
	Record int
	// Problem says what is wrong with it, and what would be right.
	Problem string
}

func (e *DelayError) Error() string {
	return fmt.Sprintf("%v %d of its batch: %s", ErrInvalidRecord, e.Record, e.Problem)
}

// Unwrap makes it an ErrInvalidRecord.
func (e *DelayError) Unwrap() error { return ErrInvalidRecord }

// DelayConfig holds the bounds of delayed records. The zero value of each field
// means its default.
type DelayConfig struct {
	// Max is how far in the future a record may be due. Default 366 days.
	Max time.Duration
	// Pending is the most records that wait in one partition; each takes about
	// 200 bytes of memory. Default 1,000,000.
	Pending int
	// ReleaseRecords and ReleaseBytes bound what is released at once: due
	// records beyond them follow in the next release. Defaults 1,000, 1 MiB; a
	// record that is larger is released alone.
	ReleaseRecords, ReleaseBytes int
	// CacheBytes bounds the memory for records of one partition that are due
	// soon, so that they need not be read, or not each alone. Half of it is
	// for those that have just arrived. Default 4 MiB.
	CacheBytes int
	// CompactBytes is how large a log may become before live records are
	// written anew because more than three quarters of it are not needed any
	// more. Default 16 MiB.
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

// DelayedBatch is the delayed records of one batch.
type DelayedBatch struct {
	// Producer is who sent the batch, with the sequence of its last record; nil
	// if the producer is not idempotent.
	Producer *BatchProducer
	Records  []DelayedRecord
}

// DelayedRecord is a record that is due later.
type DelayedRecord struct {
	ID string
	// Due is when it is to appear, in milliseconds since the epoch.
	Due int64
	// body is the record from its key on, as it is in a batch.
	body []byte
}

// Split takes the delayed records out of a batch that arrived now, in a topic
// whose records are delayed by usual if they do not say. The batch that is
// returned keeps the offsets, and the producer's sequence numbers, of all records;
// if none is delayed, it is the batch itself and the rest is nil. Errors:
// *DelayError, ErrRecordTooLarge, and those of [Batch.Records].
func (c DelayConfig) Split(batch Batch, now time.Time, usual time.Duration) (Batch, *DelayedBatch, error) {
	if batch.Control() {
		return batch, nil, nil
	}
	data, err := decompress(nil, batch.Compression(), batch[atRecords:])
	if err != nil {
		return nil, nil, err
	}
	delayed := &DelayedBatch{Producer: delayedProducer(batch)}
	reader := newRecordReader(batch, data)
	var kept []byte
	count, highest := int32(0), int64(NoTimestamp)
	for i := 0; reader.next(); i++ {
		due, err := c.due(&reader.record, now, usual)
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
		highest = max(highest, reader.record.Timestamp)
		kept = append(kept, reader.raw...)
	}
	if reader.err != nil {
		return nil, nil, reader.err
	}
	if len(delayed.Records) == 0 {
		return batch, nil, nil
	}
	rest, err := batch.withRecords(count, kept)
	if err != nil {
		return nil, nil, err
	}
	rest.put64(atMaxTime, highest)
	rest.seal()
	return rest, delayed, nil
}

func ofRecord(err error, index int) error {
	var wrong *DelayError
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
	return &BatchProducer{id, epoch, lastSequence(batch)}
}

// due returns when a record is to appear, in milliseconds.
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
		return 0, &DelayError{Problem: fmt.Sprintf("it has the headers %s and %s: want one of them", HeaderDeliverAt, HeaderDelay)}
	case at != nil:
		due, err = parseDeliverAt(*at)
	case after != nil:
		var wait time.Duration
		wait, err = time.ParseDuration(*after)
		if err != nil || wait < 0 {
			return 0, &DelayError{Problem: fmt.Sprintf("header %s is %q: want a duration such as 90s or 30m, not less than 0", HeaderDelay, *after)}
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
		return 0, &DelayError{Problem: fmt.Sprintf("it is due in %v: want at most %v", due.Sub(now).Round(time.Second), most)}
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
	return time.Time{}, &DelayError{Problem: fmt.Sprintf("header %s is %q: want milliseconds since 1970, or a time such as 2030-01-31T12:00:00Z", HeaderDeliverAt, text)}
}

// delay makes a delayed record of the one that a reader has found.
func delay(batch Batch, reader *recordReader, due int64) (DelayedRecord, error) {
	if batch.Transactional() {
		return DelayedRecord{}, &DelayError{Problem: "a record of a transaction cannot be delayed"}
	}
	record := &reader.record
	delayed := DelayedRecord{Due: due, body: reader.body}
	given := false
	for _, header := range record.Headers {
		if header.Key == HeaderDelayID {
			delayed.ID, given = string(header.Value), true
		}
	}
	if given && (delayed.ID == "" || len(delayed.ID) > maxDelayID || !utf8.ValidString(delayed.ID)) {
		return DelayedRecord{}, &DelayError{Problem: fmt.Sprintf("header %s has %d bytes: want 1 to %d bytes of UTF-8", HeaderDelayID, len(delayed.ID), maxDelayID)}
	}
	if !given {
		delayed.ID = madeID(batch, record.Offset-batch.Base())
		headers := slices.Concat(record.Headers, []Header{{HeaderDelayID, []byte(delayed.ID)}})
		delayed.body = appendBody(nil, record.Key, record.Value, headers)
	}
	if len(delayed.body) > maxDelayedBytes {
		return DelayedRecord{}, fmt.Errorf("%w: a delayed record of %d bytes, want at most %d", ErrRecordTooLarge, len(delayed.body), maxDelayedBytes)
	}
	return delayed, nil
}

// madeID returns the id of a record that has none: for an idempotent producer
// one that is the same when the batch is sent again.
func madeID(batch Batch, delta int64) string {
	id, epoch, first := batch.Producer()
	if id < 0 {
		return strings.ToLower(rand.Text())
	}
	return fmt.Sprintf("%d-%d-%d", id, epoch, (int64(first)+delta)&math.MaxInt32)
}
