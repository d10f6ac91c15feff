package topic

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const hour = 3_600_000 // milliseconds

// In these tests, now is 1,700,000,000,000.
var delayHeaderTests = []struct {
	name    string
	headers []Header
	usual   time.Duration
	due     int64 // after now, in milliseconds; 0: not delayed
	says    string
}{
	{"none", nil, 0, 0, ""},
	{"the topic's", nil, time.Hour, hour, ""},
	{"delay", []Header{{HeaderDelay, []byte("90s")}}, 0, 90_000, ""},
	{"delay before the topic's", []Header{{HeaderDelay, []byte("90s")}}, time.Hour, 90_000, ""},
	{"no delay in spite of the topic's", []Header{{HeaderDelay, []byte("0s")}}, time.Hour, 0, ""},
	{"part of a millisecond", []Header{{HeaderDelay, []byte("1500us")}}, 0, 2, ""},
	{"the last of a name", []Header{{HeaderDelay, []byte("1s")}, {HeaderDelay, []byte("2s")}}, 0, 2000, ""},
	{"milliseconds", []Header{{HeaderDeliverAt, []byte("1700003600000")}}, 0, hour, ""},
	{"RFC 3339", []Header{{HeaderDeliverAt, []byte("2023-11-14T23:13:20Z")}}, 0, hour, ""},
	{"with a zone", []Header{{HeaderDeliverAt, []byte("2023-11-15T00:13:20.5+01:00")}}, 0, hour + 500, ""},
	{"in the past", []Header{{HeaderDeliverAt, []byte("1600000000000")}}, time.Hour, 0, ""},
	{"now", []Header{{HeaderDeliverAt, []byte("1700000000000")}}, 0, 0, ""},
	{"not a duration", []Header{{HeaderDelay, []byte("soon")}}, 0, 0, `header sluice-delay is "soon": want a duration such as 90s`},
	{"no unit", []Header{{HeaderDelay, []byte("90")}}, 0, 0, "want a duration"},
	{"negative", []Header{{HeaderDelay, []byte("-1s")}}, 0, 0, "not less than 0"},
	{"null", []Header{{HeaderDelay, nil}}, 0, 0, "want a duration"},
	{"not a time", []Header{{HeaderDeliverAt, []byte("tomorrow")}}, 0, 0, "want milliseconds since 1970, or a time such as"},
	{"both", []Header{{HeaderDeliverAt, []byte("1")}, {HeaderDelay, []byte("1s")}}, 0, 0, "want one of them"},
	{"far", []Header{{HeaderDelay, []byte("8785h")}}, 0, 0, "want at most 8784h0m0s"},
	{"as far as can be", []Header{{HeaderDelay, []byte("8784h")}}, 0, 8784 * hour, ""},
	{"beyond all clocks", []Header{{HeaderDeliverAt, []byte("9223372036854775807")}}, 0, 0, "want at most"},
	{"before all clocks", []Header{{HeaderDeliverAt, []byte("-9223372036854775808")}}, 0, 0, ""},
	{"empty id", []Header{{HeaderDelay, []byte("1s")}, {HeaderDelayID, nil}}, 0, 0, "want 1 to 256 bytes"},
	{"long id", []Header{{HeaderDelay, []byte("1s")}, {HeaderDelayID, bytes.Repeat([]byte("x"), 257)}}, 0, 0, "want 1 to 256 bytes"},
	{"id that is no text", []Header{{HeaderDelay, []byte("1s")}, {HeaderDelayID, []byte{0xff}}}, 0, 0, "UTF-8"},
	{"strange id of a record that is not delayed", []Header{{HeaderDelayID, nil}}, 0, 0, ""},
}

func TestDelayHeaders(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	for _, test := range delayHeaderTests {
		batch, err := NewBatch([]Record{{Offset: 0}, {Offset: 1, Headers: test.headers}}, BatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		kept, delayed, err := DelayConfig{}.Split(batch, uncompressed(batch), now, 0)
		if test.usual > 0 {
			kept, delayed, err = DelayConfig{}.Split(batch, uncompressed(batch), now, test.usual)
		}
		var wrong *RecordError
		switch {
		case test.says != "":
			if !errors.As(err, &wrong) || !errors.Is(err, ErrInvalidRecord) || wrong.Record != 1 || !strings.Contains(wrong.Problem, test.says) {
				t.Errorf("%s: %v, want %q of record 1", test.name, err, test.says)
			}
		case err != nil:
			t.Errorf("%s: %v", test.name, err)
		case test.due == 0 && test.usual == 0:
			if delayed != nil || !bytes.Equal(kept, batch) {
				t.Errorf("%s: delayed, want not", test.name)
			}
		case test.due > 0:
			last := delayed.Records[len(delayed.Records)-1]
			if last.Due != now.UnixMilli()+test.due {
				t.Errorf("%s: due after %d ms, want %d", test.name, last.Due-now.UnixMilli(), test.due)
			}
		}
	}
}

func TestNoDelayInATransaction(t *testing.T) {
	record := Record{Headers: []Header{{HeaderDelay, []byte("1s")}}}
	batch, err := NewBatch([]Record{record}, BatchOptions{Transactional: true, Producer: &BatchProducer{}})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := (DelayConfig{}).Split(batch, uncompressed(batch), time.Now(), 0); !errors.Is(err, ErrInvalidRecord) {
		t.Errorf("%v, want ErrInvalidRecord", err)
	}
	control, err := NewBatch([]Record{record}, BatchOptions{Control: true})
	if err != nil {
		t.Fatal(err)
	}
	if kept, delayed, err := (DelayConfig{}).Split(control, uncompressed(control), time.Now(), time.Hour); err != nil || delayed != nil || !bytes.Equal(kept, control) {
		t.Errorf("control batch: %v, %v; want it as it is", delayed, err)
	}
}

func TestDelayedRecordsHaveABound(t *testing.T) {
	batch, err := NewBatch([]Record{{Value: make([]byte, maxDelayedBytes)}}, BatchOptions{Codec: CodecZstd})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := (DelayConfig{}).Split(batch, uncompressed(batch), time.Now(), time.Hour); !errors.Is(err, ErrRecordTooLarge) {
		t.Errorf("%v, want ErrRecordTooLarge", err)
	}
}

// The kept and the delayed records together are the records sent; the batch's offsets
// and sequence numbers stay, and ids are the same in a second attempt.
func TestSplitKeepsWhatIsDue(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	rapid.Check(t, func(t *rapid.T) {
		records, _ := drawRecords(t, 0)
		later := map[int64]bool{}
		for i := range records {
			if rapid.Bool().Draw(t, "is delayed") {
				records[i].Headers = append(records[i].Headers, Header{HeaderDelay, []byte("1m")})
				later[records[i].Offset] = true
			}
			if rapid.Bool().Draw(t, "has an id") {
				records[i].Headers = append(records[i].Headers, Header{HeaderDelayID, []byte{'a' + byte(i)}})
			}
		}
		options := BatchOptions{Codec: rapid.IntRange(CodecNone, CodecZstd).Draw(t, "codec")}
		if rapid.Bool().Draw(t, "idempotent") {
			options.Producer = &BatchProducer{5, 1, rapid.SampledFrom([]int32{0, math.MaxInt32 - 3}).Draw(t, "sequence")}
		}
		batch, err := NewBatch(records, options)
		if err != nil {
			t.Fatal(err)
		}
		kept, delayed, err := DelayConfig{}.Split(batch, uncompressed(batch), now, 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(later) == 0 {
			if delayed != nil || !bytes.Equal(kept, batch) {
				t.Fatal("a batch without delayed records was changed")
			}
			return
		}
		checkSplit(t, batch, records, later, kept, delayed)
		if _, again, err := (DelayConfig{}).Split(batch, uncompressed(batch), now.Add(time.Second), 0); err != nil || options.Producer != nil && !slices.EqualFunc(delayed.Records, again.Records, func(a, b DelayedRecord) bool { return a.ID == b.ID }) {
			t.Fatalf("sent again: %v, %v; want the same ids as %v", again, err, delayed)
		}
	})
}

func checkSplit(t *rapid.T, batch Batch, records []Record, later map[int64]bool, kept Batch, delayed *DelayedBatch) {
	if kept.Check() != nil || kept.Next() != batch.Next() || kept.Base() != batch.Base() || !bytes.Equal(kept[atProducerID:atCount], batch[atProducerID:atCount]) {
		t.Fatalf("kept %x of %x", kept, batch)
	}
	stays := slices.DeleteFunc(slices.Clone(records), func(r Record) bool { return later[r.Offset] })
	if got, err := all(kept.Records()); err != nil || len(got) != len(stays) || len(got) > 0 && !reflect.DeepEqual(got, stays) {
		t.Fatalf("kept %v, %v; want %v", got, err, stays)
	}
	highest := int64(NoTimestamp)
	for _, record := range stays {
		highest = max(highest, record.Timestamp)
	}
	if kept.MaxTimestamp() != highest || len(delayed.Records) != len(later) {
		t.Fatalf("highest timestamp %d, want %d; %d delayed, want %d", kept.MaxTimestamp(), highest, len(delayed.Records), len(later))
	}
	released, err := all(ReleasedBatch(delayed.Records).Records())
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, want := range records {
		if !later[want.Offset] {
			continue
		}
		got := released[at]
		headers := len(want.Headers)
		hasID := headers > 0 && want.Headers[headers-1].Key == HeaderDelayID
		if !reflect.DeepEqual(got.Key, want.Key) || !reflect.DeepEqual(got.Value, want.Value) || !reflect.DeepEqual(got.Headers[:headers], want.Headers) ||
			hasID != (len(got.Headers) == headers) || string(got.Headers[len(got.Headers)-1].Value) != delayed.Records[at].ID || got.Timestamp != delayed.Records[at].Due {
			t.Fatalf("released %v, want %v with id %s", got, want, delayed.Records[at].ID)
		}
		at++
	}
}

// uncompressed returns the records of a batch that is not compressed, or those that
// were.
func uncompressed(batch Batch) []byte {
	data, err := Decompress(batch.Compression(), batch[RecordsAt:])
	if err != nil {
		panic(err)
	}
	return data
}
