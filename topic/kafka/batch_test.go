package kafka

import (
	"encoding/binary"
	"hash/crc32"
	"io"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
)

// batchOf returns a batch with a record for each value.
func batchOf(values ...[]byte) topic.Batch {
	return batchWith(func(*kmsg.RecordBatch) {}, values...)
}

// batchWith returns a batch that is changed before its checksum is computed.
func batchWith(change func(*kmsg.RecordBatch), values ...[]byte) topic.Batch {
	batch := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, FirstTimestamp: 1000, MaxTimestamp: 1000 + int64(len(values)) - 1,
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1,
		NumRecords: int32(len(values)), LastOffsetDelta: int32(len(values)) - 1,
	}
	for i, value := range values {
		record := kmsg.Record{TimestampDelta64: int64(i), OffsetDelta: int32(i), Value: value}
		record.Length = int32(len(record.AppendTo(nil)) - 1)
		batch.Records = record.AppendTo(batch.Records)
	}
	batch.Length = int32(topic.BatchOverhead - 12 + len(batch.Records))
	change(&batch)
	data := batch.AppendTo(nil)
	binary.BigEndian.PutUint32(data[17:], crc32.Checksum(data[21:], crc32.MakeTable(crc32.Castagnoli)))
	return data
}

// valuesOf returns the values of the records in whole batches without
// compression.
func valuesOf(data []byte) (values []string, batches []topic.Batch) {
	batches, err := topic.SplitBatches(data)
	if err != nil {
		panic(err)
	}
	for _, b := range batches {
		if err := b.Check(); err != nil {
			panic(err)
		}
		var batch kmsg.RecordBatch
		if err := batch.ReadFrom(b); err != nil {
			panic(err)
		}
		for rest := batch.Records; len(rest) > 0; {
			var record kmsg.Record
			length, n := binary.Varint(rest)
			if err := record.ReadFrom(rest[:n+int(length)]); err != nil {
				panic(err)
			}
			values = append(values, string(record.Value))
			rest = rest[n+int(length):]
		}
	}
	return values, batches
}

func produceRequest(name string, partition int32, records []byte) *kmsg.ProduceRequest {
	r := kmsg.NewPtrProduceRequest()
	r.Version, r.Acks, r.TimeoutMillis = 11, -1, 120_000
	t := kmsg.NewProduceRequestTopic()
	t.Topic = name
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, records
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	return r
}

func fetchRequest(name string, partition int32, offset int64) *kmsg.FetchRequest {
	r := kmsg.NewPtrFetchRequest()
	r.Version, r.SessionEpoch, r.MinBytes, r.MaxWaitMillis = 12, -1, 1, 0
	t := kmsg.NewFetchRequestTopic()
	t.Topic = name
	t.Partitions = append(t.Partitions, wantFrom(partition, offset))
	r.Topics = append(r.Topics, t)
	return r
}

func wantFrom(partition int32, offset int64) kmsg.FetchRequestTopicPartition {
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch = partition, offset, 1<<20, -1
	return p
}

// frameInto reads a frame into memory, which must be large enough.
func (p *peer) frameInto(memory []byte) []byte {
	p.t.Helper()
	if _, err := io.ReadFull(p.conn, memory[:sizeBytes]); err != nil {
		p.t.Fatal(err)
	}
	body := memory[:binary.BigEndian.Uint32(memory)]
	if _, err := io.ReadFull(p.conn, body); err != nil {
		p.t.Fatal(err)
	}
	return body
}
