package broker_test

import (
	"errors"
	"hash/crc32"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/topic"
)

// sender is the idempotent producer of a batch, with the batch's sequence number.
type sender struct {
	id       int64
	epoch    int16
	sequence int32
}

var anybody = sender{id: -1, epoch: -1, sequence: -1}

// batchOf encodes records as a client does: one for each value, a millisecond
// apart, starting at at.
func batchOf(from sender, at int64, values ...string) topic.Batch {
	var records []byte
	for i, value := range values {
		record := kmsg.Record{TimestampDelta64: int64(i), OffsetDelta: int32(i), Value: []byte(value)}
		record.Length = int32(len(record.AppendTo(nil)) - 1) // the length 0 takes a byte
		records = record.AppendTo(records)
	}
	encoded := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2,
		LastOffsetDelta: int32(len(values) - 1),
		FirstTimestamp:  at, MaxTimestamp: at + int64(len(values)-1),
		ProducerID: from.id, ProducerEpoch: from.epoch, FirstSequence: from.sequence,
		NumRecords: int32(len(values)), Records: records,
	}
	encoded.Length = int32(len(encoded.AppendTo(nil)) - 12)
	raw := encoded.AppendTo(nil)
	encoded.CRC = int32(crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return encoded.AppendTo(nil)
}

// valuesOf returns the offsets and values of all records of data.
func valuesOf(t rapid.TB, data ...[]byte) (offsets []int64, values []string) {
	t.Helper()
	batches, err := topic.SplitBatches(slices.Concat(data...))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range batches {
		if err := b.Check(); err != nil {
			t.Fatal(err)
		}
		var decoded kmsg.RecordBatch
		if err := decoded.ReadFrom(b); err != nil {
			t.Fatal(err)
		}
		records := decoded.Records
		for range decoded.NumRecords {
			var record kmsg.Record
			if err := record.ReadFrom(records); err != nil {
				t.Fatal(err)
			}
			records = records[len(record.AppendTo(nil)):]
			offsets = append(offsets, b.Base()+int64(record.OffsetDelta))
			values = append(values, string(record.Value))
		}
	}
	return offsets, values
}

func TestSplitBatchesTakesWholeBatches(t *testing.T) {
	one, two := batchOf(anybody, 1000, "a", "b"), batchOf(sender{7, 3, 40}, 2000, "c")
	batches, err := topic.SplitBatches(slices.Concat([]byte(one), two))
	if err != nil || len(batches) != 2 {
		t.Fatalf("%d batches, %v", len(batches), err)
	}
	b := batches[1]
	if id, epoch, sequence := b.Producer(); id != 7 || epoch != 3 || sequence != 40 {
		t.Errorf("producer %d, epoch %d, sequence %d", id, epoch, sequence)
	}
	if b.Count() != 1 || b.Base() != 0 || b.Next() != 1 || b.MaxTimestamp() != 2000 {
		t.Errorf("count %d, offsets %d to %d, timestamp %d", b.Count(), b.Base(), b.Next(), b.MaxTimestamp())
	}
}

func TestSplitBatchesRefusesWhatIsNotWhole(t *testing.T) {
	good := batchOf(anybody, 1000, "a", "b")
	change := func(at int, value byte) []byte {
		bad := slices.Clone([]byte(good))
		bad[at] = value
		return bad
	}
	for name, bad := range map[string][]byte{
		"cut off":                   good[:len(good)-1],
		"a byte too many":           append(slices.Clone([]byte(good)), 0),
		"header only in part":       good[:60],
		"length below header":       change(11, 1),
		"negative length":           change(8, 0xff),
		"old format":                change(16, 1),
		"negative offsets":          change(23, 0xff),
		"more records than offsets": change(60, 9),
	} {
		if _, err := topic.SplitBatches(bad); !errors.Is(err, topic.ErrCorrupt) {
			t.Errorf("%s: %v, want ErrCorrupt", name, err)
		}
	}
	bad := change(len(good)-1, 99)
	batches, err := topic.SplitBatches(bad)
	if err != nil {
		t.Fatal(err)
	}
	if err := batches[0].Check(); !errors.Is(err, topic.ErrCorrupt) {
		t.Errorf("changed record: %v, want ErrCorrupt", err)
	}
}
