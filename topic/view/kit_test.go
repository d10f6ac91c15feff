package view

import (
	"fmt"
	"iter"
	"math"

	"golang.org/x/sync/semaphore"
	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/topic"
)

// codecs are the codecs of batches.
var codecs = map[int]string{topic.CodecNone: "none", topic.CodecGzip: "gzip", topic.CodecSnappy: "snappy", topic.CodecLZ4: "lz4", topic.CodecZstd: "zstd"}

// collect returns the records up to the first error.
func collect(records iter.Seq2[topic.Record, error]) (found []topic.Record, err error) {
	for record, err := range records {
		if err != nil {
			return found, err
		}
		found = append(found, record)
	}
	return found, nil
}

// drawnBytes draws nil, empty and other values.
func drawnBytes(t *rapid.T, name string) []byte {
	if rapid.Bool().Draw(t, name+" is nil") {
		return nil
	}
	return rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, name)
}

// drawnRecords draws records with offsets from base on, with gaps.
func drawnRecords(t *rapid.T, base int64) (records []topic.Record, next int64) {
	offset := base
	for i := range rapid.IntRange(1, 30).Draw(t, "records") {
		offset += rapid.Int64Range(0, 3).Draw(t, "gap")
		record := topic.Record{
			Offset:    offset,
			Timestamp: rapid.Int64Range(0, math.MaxInt64/2).Draw(t, "timestamp"),
			Key:       drawnBytes(t, "key"),
			Value:     drawnBytes(t, "value"),
		}
		for range rapid.IntRange(0, 3).Draw(t, "headers") {
			record.Headers = append(record.Headers, topic.Header{Key: rapid.SampledFrom([]string{"", "a", "tag", "été"}).Draw(t, "name"), Value: drawnBytes(t, fmt.Sprint("header of ", i))})
		}
		records = append(records, record)
		offset++
	}
	return records, offset + rapid.Int64Range(0, 3).Draw(t, "last gap")
}

// unpacker decompresses records for all scans.
var unpacker = topic.NewUnpacker(semaphore.NewWeighted(topic.LeastUnpackBytes))
