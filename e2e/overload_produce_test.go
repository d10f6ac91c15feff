package e2e

import (
	"bufio"
	encoding "encoding/binary"
	"hash/crc32"
	"io"
	"net"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// rushPartitions is how many partitions the topic of a rush of producers has.
const rushPartitions = 4

// produceFrame returns a Produce request for one record with a value of that many bytes.
func produceFrame(topic string, partition int32, size int) []byte {
	record := kmsg.Record{Value: make([]byte, size)}
	record.Length = int32(len(record.AppendTo(nil)) - 1)
	batch := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, FirstTimestamp: 1, MaxTimestamp: 1, ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1,
		NumRecords: 1, Records: record.AppendTo(nil),
	}
	batch.Length = int32(49 + len(batch.Records)) // of what follows the length
	data := batch.AppendTo(nil)
	encoding.BigEndian.PutUint32(data[17:], crc32.Checksum(data[21:], crc32.MakeTable(crc32.Castagnoli)))
	r := kmsg.NewPtrProduceRequest()
	r.Version, r.Acks, r.TimeoutMillis = 9, -1, 60_000
	to, part := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
	part.Partition, part.Records = partition, data
	to.Topic, to.Partitions = topic, append(to.Partitions, part)
	r.Topics = append(r.Topics, to)
	return kmsg.NewRequestFormatter().AppendRequest(nil, r, 1)
}

// produceOne sends a Produce request and reads its answer.
func produceOne(conn net.Conn, input *bufio.Reader, frame []byte) (taken bool, wrong string, err error) {
	if _, err = conn.Write(frame); err != nil {
		return false, "", err
	}
	var size [4]byte
	if _, err = io.ReadFull(input, size[:]); err != nil {
		return false, "", err
	}
	body := make([]byte, encoding.BigEndian.Uint32(size[:]))
	if _, err = io.ReadFull(input, body); err != nil {
		return false, "", err
	}
	answer := kmsg.NewPtrProduceResponse()
	answer.Version = 9
	if err = answer.ReadFrom(body[5:]); err != nil { // after the correlation id and the tags of the header
		return false, "", err
	}
	if refused := kerr.ErrorForCode(answer.Topics[0].Partitions[0].ErrorCode); refused != nil {
		wrong = refused.Error()
	}
	return wrong == "", wrong, nil
}
