package compact_test

import (
	"context"
	"testing"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/compact"
	"github.com/sluice-project/sluice/topic/storetest"
)

// Whatever records a log has, a pass ends, with whole batches at offsets that were there.
func FuzzPass(f *testing.F) {
	for _, codec := range codecs {
		b, err := topic.NewBatch([]topic.Record{{Key: []byte("a"), Value: []byte("1")}, {Offset: 1, Key: []byte("a")}, {Offset: 2}}, topic.BatchOptions{Codec: codec})
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(b[topic.RecordsAt:]), byte(codec), int32(3))
	}
	f.Fuzz(func(t *testing.T, records []byte, attributes byte, count int32) {
		b, err := topic.NewBatch(nil, topic.BatchOptions{Next: 8})
		if err != nil {
			t.Fatal(err)
		}
		sealed := withRecords(b, records, attributes, count)
		if _, err := topic.SplitBatches(sealed); err != nil {
			return
		}
		log, err := storetest.NewMemory().OpenLog(t.Context(), "log", []int32{1})
		if err != nil {
			t.Fatal(err)
		}
		mark := topic.Mark{Next: 8, Bytes: int64(len(sealed))}
		appended(t, log, topic.Entry{Sequence: 1, Mark: mark, Data: sealed})
		pass := &compact.Pass{
			Options: compact.Options{Now: 1 << 40, Aborted: func(topic.Batch) bool { return false }}, Source: log, Unpacker: unpacker,
			First: mark, FirstSequence: 1, Last: mark, LastSequence: 1, MaxKeys: 2, Pace: func(context.Context) error { return nil },
		}
		if err := pass.Find(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if _, err := pass.Copy(t.Context(), func(e topic.Entry) error {
			batches, err := topic.SplitBatches(e.Data)
			for _, b := range batches {
				if err := b.Check(); err != nil || b.Base() != 0 || b.Next() != 8 {
					t.Errorf("batch from %d to %d: %v", b.Base(), b.Next(), err)
				}
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	})
}

// withRecords returns a batch with other records, and a checksum that holds.
func withRecords(b topic.Batch, records []byte, attributes byte, count int32) topic.Batch {
	made := append(append(topic.Batch{}, b...), records...)
	made[22] = attributes
	made[57], made[58], made[59], made[60] = byte(count>>24), byte(count>>16), byte(count>>8), byte(count)
	made[11] = byte(len(made) - 12)
	made[10], made[9] = byte((len(made)-12)>>8), byte((len(made)-12)>>16)
	made.SetMaxTimestamp(1 << 39)
	return made
}
