package kafka

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/pierrec/lz4/v4"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/semaphore"

	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/storetest"
)

// produced sends one request and returns the answer for its partition.
func produced(p *peer, version int16, r *kmsg.ProduceRequest) kmsg.ProduceResponseTopicPartition {
	p.t.Helper()
	return ask[*kmsg.ProduceResponse](p, version, r).Topics[0].Partitions[0]
}

// fetched returns the values from an offset on.
func fetched(p *peer, name string, offset int64) []string {
	p.t.Helper()
	answer := ask[*kmsg.FetchResponse](p, 12, fetchRequest(name, 0, offset))
	got := answer.Topics[0].Partitions[0]
	wantCode(p.t, "fetch", got.ErrorCode, nil)
	values, _ := valuesOf(got.RecordBatches)
	return values
}

func TestProduceAnswersInEachVersion(t *testing.T) {
	s, b := serve(t, topic.Config{})
	made := create(t, b, "orders", 1)
	p := dial(t, s)
	for version := range int16(14) {
		for _, acks := range []int16{1, -1} {
			r := produceRequest("orders", 0, batchOf([]byte("a"), []byte("b")))
			r.Acks, r.Topics[0].TopicID = acks, made.ID()
			want := made.Partitions()[0].Ends().HighWatermark
			got := produced(p, version, r)
			wantCode(t, fmt.Sprintf("version %d acks %d", version, acks), got.ErrorCode, nil)
			if got.BaseOffset != want {
				t.Errorf("version %d: offset %d, want %d", version, got.BaseOffset, want)
			}
		}
	}
}

// refusal is a request that is refused, and its error.
type refusal struct {
	request *kmsg.ProduceRequest
	version int16
	want    *kerr.Error
}

// refusals are for a topic where a producer 1 has sent one record and a
// producer 2 is at epoch 5.
func refusals() map[string]refusal {
	good := batchOf([]byte("x"))
	broken := slices.Clone(good)
	broken[len(broken)-1] ^= 1
	with := func(change func(*kmsg.RecordBatch)) []byte { return batchWith(change, []byte("x")) }
	request := func(name string, records []byte, change func(*kmsg.ProduceRequest)) *kmsg.ProduceRequest {
		r := produceRequest(name, 0, records)
		if change != nil {
			change(r)
		}
		return r
	}
	return map[string]refusal{
		"acks 2":        {request("orders", good, func(r *kmsg.ProduceRequest) { r.Acks = 2 }), 11, kerr.InvalidRequiredAcks},
		"unknown topic": {request("nothing", good, nil), 11, kerr.UnknownTopicOrPartition},
		"unknown id":    {request("orders", good, nil), 13, kerr.UnknownTopicID},
		"partition":     {request("orders", good, func(r *kmsg.ProduceRequest) { r.Topics[0].Partitions[0].Partition = 7 }), 11, kerr.UnknownTopicOrPartition},
		"a view":        {request("paid", good, nil), 11, kerr.PolicyViolation},
		"checksum":      {request("orders", broken, nil), 11, kerr.CorruptMessage},
		"cut off":       {request("orders", good[:len(good)-1], nil), 11, kerr.CorruptMessage},
		"no records":    {request("orders", nil, nil), 11, kerr.InvalidRecord},
		"too large":     {request("orders", batchOf(make([]byte, 2000)), nil), 11, kerr.MessageTooLarge},
		"control":       {request("orders", with(func(b *kmsg.RecordBatch) { b.Attributes = 1 << 5 }), nil), 11, kerr.InvalidRecord},
		"transactional": {request("orders", with(func(b *kmsg.RecordBatch) { b.Attributes = 1 << 4 }), nil), 11, kerr.InvalidRecord},
		"no transaction": {request("orders", with(func(b *kmsg.RecordBatch) {
			b.Attributes, b.ProducerID, b.ProducerEpoch, b.FirstSequence = 1<<4, 99, 0, 0
		}), func(r *kmsg.ProduceRequest) {
			r.TransactionID = kmsg.StringPtr("t")
		}), 11, kerr.InvalidTxnState},
		"codec":             {request("orders", with(func(b *kmsg.RecordBatch) { b.Attributes = 5 }), nil), 11, kerr.UnsupportedCompressionType},
		"zstd too early":    {request("orders", with(func(b *kmsg.RecordBatch) { b.Attributes = 4 }), nil), 6, kerr.UnsupportedCompressionType},
		"counts":            {request("orders", with(func(b *kmsg.RecordBatch) { b.LastOffsetDelta = 3 }), nil), 11, kerr.InvalidRecord},
		"a message set":     {request("orders", messageSet(1, legacyMessage{value: []byte("x")}), nil), 3, kerr.CorruptMessage},
		"broken set":        {request("orders", messageSet(1, legacyMessage{value: []byte("x")})[:30], nil), 2, kerr.CorruptMessage},
		"out of order":      {request("orders", with(func(b *kmsg.RecordBatch) { b.ProducerID, b.ProducerEpoch, b.FirstSequence = 1, 0, 7 }), nil), 11, kerr.OutOfOrderSequenceNumber},
		"an older epoch":    {request("orders", with(func(b *kmsg.RecordBatch) { b.ProducerID, b.ProducerEpoch, b.FirstSequence = 2, 0, 0 }), nil), 11, kerr.InvalidProducerEpoch},
		"far in the future": {request("orders", with(func(b *kmsg.RecordBatch) { b.FirstTimestamp, b.MaxTimestamp = 1<<60, 1<<60 }), nil), 11, kerr.InvalidTimestamp},
	}
}

func TestProduceRefuses(t *testing.T) {
	s, b := serve(t, topic.Config{MaxMessageBytes: 2000})
	made := create(t, b, "orders", 1)
	if _, err := b.Create(t.Context(), topic.Spec{Name: "paid", Settings: map[string]string{
		topic.SettingViewOf: "orders", topic.SettingViewWhere: `headers.tag == "paid"`}}, false); err != nil {
		t.Fatal(err)
	}
	p := dial(t, s)
	for id, epoch := range map[int64]int16{1: 0, 2: 5} { // the producers' state
		first := batchWith(func(b *kmsg.RecordBatch) { b.ProducerID, b.ProducerEpoch, b.FirstSequence = id, epoch, 0 }, []byte("x"))
		wantCode(t, "first batch of a producer", produced(p, 11, produceRequest("orders", 0, first)).ErrorCode, nil)
	}
	end := made.Partitions()[0].Ends().HighWatermark
	for name, c := range refusals() {
		t.Run(name, func(t *testing.T) {
			got := produced(dial(t, s), c.version, c.request)
			wantCode(t, name, got.ErrorCode, c.want)
			if c.version >= 8 && (got.ErrorMessage == nil || *got.ErrorMessage == "") {
				t.Error("the answer says nothing about the error")
			}
			if got.BaseOffset != -1 {
				t.Errorf("offset %d, want -1", got.BaseOffset)
			}
		})
	}
	if now := made.Partitions()[0].Ends().HighWatermark; now != end {
		t.Errorf("what was refused moved the end from %d to %d", end, now)
	}
}

// Each partition of a request has its own outcome.
func TestProduceToSeveralPartitions(t *testing.T) {
	s, b := serve(t, topic.Config{})
	create(t, b, "orders", 2)
	r := produceRequest("orders", 0, batchOf([]byte("x")))
	for _, number := range []int32{5, 1} {
		p := kmsg.NewProduceRequestTopicPartition()
		p.Partition, p.Records = number, batchOf([]byte("y"))
		r.Topics[0].Partitions = append(r.Topics[0].Partitions, p)
	}
	other := produceRequest("nothing", 0, batchOf([]byte("x")))
	r.Topics = append(r.Topics, other.Topics...)
	got := ask[*kmsg.ProduceResponse](dial(t, s), 11, r)
	wantCode(t, "orders/0", got.Topics[0].Partitions[0].ErrorCode, nil)
	wantCode(t, "orders/5", got.Topics[0].Partitions[1].ErrorCode, kerr.UnknownTopicOrPartition)
	wantCode(t, "orders/1", got.Topics[0].Partitions[2].ErrorCode, nil)
	wantCode(t, "nothing/0", got.Topics[1].Partitions[0].ErrorCode, kerr.UnknownTopicOrPartition)
}

// A request is read into the memory of one before it, whose records consumers read from memory or from the log.
func TestMemoryOfRequestsIsUsedAgain(t *testing.T) {
	for name, config := range map[string]topic.Config{
		"records stay in memory": {TailBytes: 64 << 20},
		"records are in the log": {TailBytes: 1 << 20},
	} {
		for _, size := range []struct{ parts, bytes int }{{1, 100}, {1, 100_000}, {1, 1_000_000}, {20, 5_000}, {4, 900_000}} {
			t.Run(fmt.Sprintf("%s, %d batches of %d bytes", name, size.parts, size.bytes), func(t *testing.T) {
				s, b := serve(t, config)
				create(t, b, "orders", int32(size.parts))
				p := dial(t, s)
				records := []byte("abcdefgh")
				for _, letter := range records {
					r := produceRequest("orders", 0, batchOf(bytes.Repeat([]byte{letter}, size.bytes)))
					for i := 1; i < size.parts; i++ {
						more := r.Topics[0].Partitions[0]
						more.Partition = int32(i)
						r.Topics[0].Partitions = append(r.Topics[0].Partitions, more)
					}
					for _, part := range ask[*kmsg.ProduceResponse](p, 9, r).Topics[0].Partitions {
						wantCode(t, "produce", part.ErrorCode, nil)
					}
				}
				for i := range size.parts {
					for offset, letter := range records {
						answer := ask[*kmsg.FetchResponse](p, 12, fetchRequest("orders", int32(i), int64(offset)))
						values, _ := valuesOf(answer.Topics[0].Partitions[0].RecordBatches)
						if want := strings.Repeat(string(letter), size.bytes); len(values) == 0 || values[0] != want {
							t.Errorf("record %d of partition %d is not that of letter %c", offset, i, letter)
						}
					}
				}
			})
		}
	}
}

// Records that are not what their batch says are refused, compressed or not, with the record's number
// and a reason that is final for clients.
func TestInvalidRecordsAreRefused(t *testing.T) {
	s, b := serve(t, topic.Config{})
	orders := create(t, b, "orders", 1)
	p := dial(t, s)
	third := func(change func(records []byte)) func(*kmsg.RecordBatch) {
		return func(batch *kmsg.RecordBatch) {
			change(batch.Records[len(batch.Records)/3*2:])
			batch.Length = int32(topic.BatchOverhead - 12 + len(batch.Records))
		}
	}
	for name, change := range map[string]func(*kmsg.RecordBatch){
		"an offset": third(func(record []byte) { record[3]++ }),
		"a length":  third(func(record []byte) { record[0] += 2 }),
		"gzip": func(batch *kmsg.RecordBatch) {
			batch.Records[len(batch.Records)/3*2+3]++
			batch.Records, batch.Attributes = compressors["gzip"].compress(batch.Records), topic.CodecGzip
			batch.Length = int32(topic.BatchOverhead - 12 + len(batch.Records))
		},
	} {
		got := produced(p, 8, produceRequest("orders", 0, batchWith(change, []byte("a"), []byte("b"), []byte("c"))))
		wantCode(t, name, got.ErrorCode, kerr.InvalidRecord)
		if len(got.ErrorRecords) != 1 || got.ErrorRecords[0].RelativeOffset != 2 || got.ErrorRecords[0].ErrorMessage == nil || got.ErrorMessage == nil {
			t.Errorf("%s: records %+v, want the third, with a message", name, got.ErrorRecords)
		}
	}
	nonsense := batchWith(func(batch *kmsg.RecordBatch) { batch.Attributes = topic.CodecZstd }, []byte("a"))
	wantCode(t, "what does not decompress", produced(p, 8, produceRequest("orders", 0, nonsense)).ErrorCode, kerr.InvalidRecord)
	if end := orders.Partitions()[0].Ends().HighWatermark; end != 0 {
		t.Errorf("%d records were appended, want none", end)
	}
}

// A topic with a compression.type keeps batches of any codec with that one, within its
// max.message.bytes.
func TestBatchesAreKeptAsTheTopicCompresses(t *testing.T) {
	s, b := serve(t, topic.Config{})
	p := dial(t, s)
	value := bytes.Repeat([]byte("sluice"), 1000)
	for kind, want := range map[string]int{
		"producer": topic.CodecGzip, "uncompressed": topic.CodecNone, "gzip": topic.CodecGzip, "snappy": topic.CodecSnappy, "lz4": topic.CodecLZ4, "zstd": topic.CodecZstd,
	} {
		_, err := b.Create(t.Context(), topic.Spec{Name: kind, Partitions: 1, Settings: map[string]string{"compression.type": kind}}, false)
		if err != nil {
			t.Fatal(err)
		}
		sent := batchWith(func(batch *kmsg.RecordBatch) {
			batch.ProducerID, batch.ProducerEpoch, batch.FirstSequence = 5, 0, 0
			batch.Records, batch.Attributes = compressors["gzip"].compress(batch.Records), topic.CodecGzip
			batch.Length = int32(topic.BatchOverhead - 12 + len(batch.Records))
		}, value, []byte("last"))
		for range 2 { // the second time as a retry
			got := produced(p, 8, produceRequest(kind, 0, bytes.Clone(sent)))
			wantCode(t, kind, got.ErrorCode, nil)
		}
		kept, err := topic.SplitBatches(ask[*kmsg.FetchResponse](p, 12, fetchRequest(kind, 0, 0)).Topics[0].Partitions[0].RecordBatches)
		if err != nil {
			t.Fatal(err)
		}
		var values []string
		batch := kept[0]
		for record, err := range batch.Records() {
			if err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			values = append(values, string(record.Value))
		}
		if batch.Compression() != want || !slices.Equal(values, []string{string(value), "last"}) || batch.Check() != nil || len(kept) != 1 {
			t.Errorf("%s: %d batches with codec %d and %d records, want one with %d and both", kind, len(kept), batch.Compression(), len(values), want)
		}
		limit := "200"
		if err := b.Alter(t.Context(), kind, map[string]*string{"max.message.bytes": &limit}, false, false); err != nil {
			t.Fatal(err)
		}
		refused := (*kerr.Error)(nil)
		if kind == "uncompressed" {
			refused = kerr.MessageTooLarge
		}
		wantCode(t, kind+" within 200 bytes", produced(p, 8, produceRequest(kind, 0, batchWith(func(batch *kmsg.RecordBatch) {
			batch.Records, batch.Attributes = compressors["gzip"].compress(batch.Records), topic.CodecGzip
			batch.Length = int32(topic.BatchOverhead - 12 + len(batch.Records))
		}, value[:600]))).ErrorCode, refused)
	}
}

// The highest timestamp of a batch, by which records are found, is that of its records.
func TestTheHighestTimestampIsCorrected(t *testing.T) {
	s, b := serve(t, topic.Config{})
	create(t, b, "orders", 1)
	p := dial(t, s)
	wrong := batchWith(func(batch *kmsg.RecordBatch) { batch.MaxTimestamp = 500 }, []byte("a"), []byte("b"))
	wantCode(t, "produce", produced(p, 8, produceRequest("orders", 0, wrong)).ErrorCode, nil)
	got := ask[*kmsg.FetchResponse](p, 12, fetchRequest("orders", 0, 0)).Topics[0].Partitions[0]
	if values, batches := valuesOf(got.RecordBatches); len(values) != 2 || batches[0].MaxTimestamp() != 1001 {
		t.Errorf("%q until %d, want two records until 1001", values, batches[0].MaxTimestamp())
	}
	late := batchWith(func(batch *kmsg.RecordBatch) { batch.FirstTimestamp, batch.MaxTimestamp = 1<<50, 500 }, []byte("a"))
	wantCode(t, "a record of the far future", produced(p, 8, produceRequest("orders", 0, late)).ErrorCode, kerr.InvalidTimestamp)
}

func TestProduceWithoutAcks(t *testing.T) {
	s, b := serve(t, topic.Config{})
	create(t, b, "orders", 1)
	p := dial(t, s)
	r := produceRequest("orders", 0, batchOf([]byte("x")))
	r.Acks = 0
	p.send(r)
	if got := fetched(p, "orders", 0); !slices.Equal(got, []string{"x"}) {
		t.Errorf("the next answer has %q, want what was sent", got)
	}
	bad := produceRequest("nothing", 0, batchOf([]byte("x")))
	bad.Acks = 0
	p.send(bad)
	p.closed()
	failed := s.metrics.failures.WithLabelValues("Produce", "UNKNOWN_TOPIC_OR_PARTITION")
	if got := testutil.ToFloat64(failed); got != 1 {
		t.Errorf("%v errors were counted, want 1", got)
	}
}

func TestProduceTimesOut(t *testing.T) {
	store := storetest.NewMemory()
	b := startBroker(t, store, topic.Config{})
	s := start(t, b, Options{})
	create(t, b, "orders", 1)
	store.Hold()
	defer store.Release()
	r := produceRequest("orders", 0, batchOf([]byte("x")))
	r.TimeoutMillis = 20
	wantCode(t, "produce", produced(dial(t, s), 11, r).ErrorCode, kerr.RequestTimedOut)
}

// Temporary errors of the store are retriable for clients.
func TestProduceTellsWhatToRetry(t *testing.T) {
	for failure, want := range map[error]*kerr.Error{
		topic.ErrFull:      kerr.KafkaStorageError,
		topic.ErrUncertain: kerr.NotLeaderForPartition,
		topic.ErrFenced:    kerr.NotLeaderForPartition,
	} {
		store := storetest.NewMemory()
		b := startBroker(t, store, topic.Config{})
		s := start(t, b, Options{})
		create(t, b, "orders", 1)
		store.FailAppends(failure, false)
		p := dial(t, s)
		for range 3 { // the first fails, the others come while the partition recovers
			got := produced(p, 11, produceRequest("orders", 0, batchOf([]byte("x"))))
			wantCode(t, failure.Error(), got.ErrorCode, want)
			if !kerr.IsRetriable(want) {
				t.Errorf("%v is told as %v, which clients do not retry", failure, want)
			}
		}
		store.FailAppends(nil, false)
	}
}

// messageSet encodes messages in format 0 or 1.
func messageSet(magic byte, messages ...legacyMessage) (set []byte) {
	for i, m := range messages {
		body := []byte{magic, m.attributes}
		if magic == 1 {
			body = binary.BigEndian.AppendUint64(body, uint64(m.timestamp))
		}
		for _, field := range [][]byte{m.key, m.value} {
			length := int32(len(field))
			if field == nil {
				length = -1
			}
			body = append(binary.BigEndian.AppendUint32(body, uint32(length)), field...)
		}
		set = binary.BigEndian.AppendUint64(set, uint64(i))
		set = binary.BigEndian.AppendUint32(set, uint32(len(body)+4))
		set = binary.BigEndian.AppendUint32(set, crc32.ChecksumIEEE(body))
		set = append(set, body...)
	}
	return set
}

// compressors compress as old clients do.
var compressors = map[string]struct {
	codec    byte
	compress func(data []byte) []byte
}{
	"gzip": {1, func(data []byte) []byte {
		return through(data, func(to io.Writer) io.WriteCloser { return gzip.NewWriter(to) })
	}},
	"snappy": {2, func(data []byte) []byte { return snappy.Encode(nil, data) }},
	"snappy of Java": {2, func(data []byte) []byte {
		framed := []byte("\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
		for part := range slices.Chunk(data, 20) {
			block := snappy.Encode(nil, part)
			framed = append(binary.BigEndian.AppendUint32(framed, uint32(len(block))), block...)
		}
		return framed
	}},
	"lz4": {3, func(data []byte) []byte {
		return through(data, func(to io.Writer) io.WriteCloser { return lz4.NewWriter(to) })
	}},
	"lz4 with a size": {3, func(data []byte) []byte {
		return through(data, func(to io.Writer) io.WriteCloser {
			w := lz4.NewWriter(to)
			if err := w.Apply(lz4.SizeOption(uint64(len(data)))); err != nil {
				panic(err)
			}
			return w
		})
	}},
}

func through(data []byte, writer func(io.Writer) io.WriteCloser) []byte {
	var to bytes.Buffer
	w := writer(&to)
	if _, err := w.Write(data); err != nil {
		panic(err)
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return to.Bytes()
}

// Message sets of old clients become batches of format 2, with the same keys, values and times.
func TestMessageSetsBecomeBatches(t *testing.T) {
	s, b := serve(t, topic.Config{MaxMessageBytes: 300})
	create(t, b, "plain", 1)
	messages := make([]legacyMessage, 30)
	var values []string
	for i := range messages {
		values = append(values, fmt.Sprintf("value %d", i))
		messages[i] = legacyMessage{timestamp: 5000 + int64(i), key: []byte("k"), value: []byte(values[i])}
	}
	p := dial(t, s)
	send := func(name string, set []byte) {
		t.Helper()
		if _, err := b.Topic(name); err != nil {
			create(t, b, name, 1)
		}
		wantCode(t, name, produced(p, 2, produceRequest(name, 0, set)).ErrorCode, nil)
		var got []string
		for offset := int64(0); len(got) < len(values); offset = int64(len(got)) {
			got = append(got, fetched(p, name, offset)...)
		}
		if !slices.Equal(got, values) {
			t.Errorf("%s: got %q, want %q", name, got, values)
		}
	}
	for _, magic := range []byte{0, 1} {
		send(fmt.Sprintf("plain-%d", magic), messageSet(magic, messages...))
		for name, c := range compressors {
			inside := c.compress(messageSet(magic, messages...))
			if magic == 0 && c.codec == 3 {
				wrongHeaderChecksum(inside)
			}
			topicName := fmt.Sprintf("%d-%d-%d", magic, c.codec, len(name))
			send(topicName, messageSet(magic, legacyMessage{attributes: c.codec, timestamp: 9000, value: inside}))
		}
	}
	answer := ask[*kmsg.FetchResponse](p, 12, fetchRequest("plain-1", 0, 0))
	_, batches := valuesOf(answer.Topics[0].Partitions[0].RecordBatches)
	if len(batches) < 2 {
		t.Errorf("%d batches, want several of at most 300 bytes", len(batches))
	}
	if first := batches[0]; first.FirstTimestamp() != 5000 {
		t.Errorf("first timestamp %d, want 5000", first.FirstTimestamp())
	}
}

// wrongHeaderChecksum returns an lz4 frame as clients of format 0 write it.
func wrongHeaderChecksum(frame []byte) {
	end := 6
	if frame[4]&(1<<3) != 0 {
		end += 8
	}
	frame[end] ^= 0x55
}

func TestMessageSetsAreBounded(t *testing.T) {
	nested := messageSet(1, legacyMessage{attributes: 2, value: snappy.Encode(nil, messageSet(1, legacyMessage{attributes: 2}))})
	_, err := upConvert(nested, 1<<20, unpacking())
	wantCode(t, "compressed twice", code(err), kerr.InvalidRecord)
	_, err = upConvert(messageSet(1, legacyMessage{attributes: 4, value: []byte("x")}), 1<<20, unpacking())
	wantCode(t, "zstd", code(err), kerr.UnsupportedCompressionType)
}

// unpacking returns what decompresses messages.
func unpacking() unpack {
	u := topic.NewUnpacker(semaphore.NewWeighted(topic.LeastUnpackBytes))
	return func(codec int, data []byte, use func(inside []byte) error) error {
		return u.Unpack(context.Background(), codec, data, use)
	}
}

// Compressed messages of one request have one bound, however many partitions and wrappers they are
// in, and their memory is given back with the answer.
func TestMessageSetsOfARequestAreBounded(t *testing.T) {
	s, b := serve(t, topic.Config{})
	const partitions = 8
	create(t, b, "orders", partitions)
	p := dial(t, s)
	inside := messageSet(1, legacyMessage{value: make([]byte, 900<<10)})
	three := messageSet(1, legacyMessage{attributes: 1, value: compressors["gzip"].compress(bytes.Repeat(inside, 3))})
	r := produceRequest("orders", 0, slices.Concat(three, three))
	for number := range int32(partitions - 1) {
		part := r.Topics[0].Partitions[0]
		part.Partition = number + 1
		r.Topics[0].Partitions = append(r.Topics[0].Partitions, part)
	}
	if size := len(r.AppendTo(nil)); size > 1<<20 {
		t.Fatalf("the request has %d bytes, want few", size)
	}
	refused := 0
	for _, part := range ask[*kmsg.ProduceResponse](p, 2, r).Topics[0].Partitions {
		if part.ErrorCode != 0 {
			wantCode(t, fmt.Sprint("partition ", part.Partition), part.ErrorCode, kerr.MessageTooLarge)
			refused++
		}
	}
	if refused == 0 || refused == partitions {
		t.Errorf("%d of %d partitions with 5.5 MB each are refused, want those beyond %d bytes", refused, partitions, maxInflated)
	}
	until.True(t, "the memory is back", func() bool { return s.converted.Used()+s.requests.Used() == 0 })
}

// FuzzMessageSet checks that any message set is refused with an error that has a code, or becomes
// whole batches.
func FuzzMessageSet(f *testing.F) {
	f.Add(messageSet(0, legacyMessage{value: []byte("x")}, legacyMessage{key: []byte("k")}))
	for _, c := range compressors {
		inside := c.compress(messageSet(1, legacyMessage{value: []byte("hello"), timestamp: 7}))
		f.Add(messageSet(1, legacyMessage{attributes: c.codec, value: inside}))
		f.Add(messageSet(0, legacyMessage{attributes: c.codec, value: inside}))
	}
	f.Fuzz(func(t *testing.T, set []byte) {
		data, err := upConvert(set, 1000, unpacking())
		if err != nil {
			if kindOf(err) == kerr.UnknownServerError {
				t.Errorf("%v has no code", err)
			}
			return
		}
		batches, err := topic.SplitBatches(data)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range batches {
			if err := b.Check(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A connection whose delayed records are not durable yet begins to append to other topics.
func TestDelayedRecordsHoldNoOtherTopic(t *testing.T) {
	store := storetest.NewMemory()
	b := startBroker(t, store, topic.Config{})
	s := start(t, b, Options{})
	create(t, b, "now", 1)
	_, err := b.Create(t.Context(), topic.Spec{Name: "later", Partitions: 1, Settings: map[string]string{topic.SettingDelays: "true", topic.SettingDelay: "1h"}}, false)
	if err != nil {
		t.Fatal(err)
	}
	store.Hold()
	defer store.Release()
	p := dial(t, s)
	later, now := produceRequest("later", 0, batchOf([]byte("x"))), produceRequest("now", 0, batchOf([]byte("y")))
	first := p.send(later)
	second := p.send(now)
	until.True(t, "both have begun", func() bool { return testutil.ToFloat64(s.metrics.byKind[keyProduce]) == 2 })
	store.Release()
	for _, sent := range []struct {
		request *kmsg.ProduceRequest
		number  int32
	}{{later, first}, {now, second}} {
		answered := p.receive(sent.request, sent.number).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
		wantCode(t, "produce", answered.ErrorCode, nil)
	}
}
