package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/kafka/auth"
	"github.com/sluice-project/sluice/topic/spans"
	"github.com/sluice-project/sluice/topic/txn"
)

const (
	// produceTimeout is the timeout of a producer that gives none, and maxProduceTimeout the
	// longest.
	produceTimeout    = 30 * time.Second
	maxProduceTimeout = 5 * time.Minute
	// zstdSince is the version of Produce from which on zstd is allowed.
	zstdSince = 7
	// leaderSince is the version from which on an answer names the leader of a partition that this
	// node does not lead.
	leaderSince = 10
	// perConverted is the memory that becomes of each byte of decompressed messages: batches, which
	// may have few records each.
	perConverted = 2
	// joinsSince is the version from which on records add their partition to the transaction.
	joinsSince = 12
	zstd       = 4
)

// Produce: versions 0 to 13.
//
// Batches are appended unchanged after checks of their checksums and headers. Acks 1 and all (-1)
// are answered when the records are durable. Acks 0 has no answer, so an error closes the
// connection. After its timeout a producer gets REQUEST_TIMED_OUT; the records may be written
// nevertheless. Refused are control batches (INVALID_RECORD), batches of a transaction that is not
// ongoing or does not have the partition (INVALID_TXN_STATE), those for a topic whose records may be
// delayed (INVALID_RECORD), and batches for a view (POLICY_VIOLATION: produce to its source).
//
//   - 0 to 2: message sets of format 0 and 1, which are rewritten as batches of
//     format 2 without compression.
//   - 2: the time of the append. 5: the first offset. 8: messages with errors.
//   - 7: zstd.
//   - 10: with NOT_LEADER_OR_FOLLOWER, the leader of the partition and its address.
//   - 12: the first batch of a transaction in a partition adds that to the transaction, unless the cluster
//     has nodes that know version 1 of transactions only.
//   - 13: topic ids.
func (s *Server) produce(c *call, r *kmsg.ProduceRequest) answer {
	p := &producing{call: c, request: r, response: r.ResponseKind().(*kmsg.ProduceResponse), began: time.Now()}
	p.started = make([][]started, len(r.Topics))
	p.response.Topics = make([]kmsg.ProduceResponseTopic, len(r.Topics))
	p.response.ThrottleMillis = c.spend(c.meter(auth.ProducerRate), int64(c.size))
	unfit := checkProduce(c, r)
	for i := range r.Topics {
		asked, answered := &r.Topics[i], &p.response.Topics[i]
		answered.Topic, answered.TopicID = asked.Topic, asked.TopicID
		answered.Partitions = make([]kmsg.ProduceResponseTopicPartition, len(asked.Partitions))
		p.started[i] = make([]started, len(asked.Partitions))
		t, refused := (*broker.Topic)(nil), unfit
		if refused == nil {
			t, refused = produceTo(c, r, asked)
		}
		for j := range asked.Partitions {
			number := asked.Partitions[j].Partition
			answered.Partitions[j] = kmsg.NewProduceResponseTopicPartition()
			answered.Partitions[j].Partition, answered.Partitions[j].BaseOffset = number, -1
			p.started[i][j] = started{topic: t, partition: number, err: refused}
		}
	}
	if r.Version >= joinsSince && r.TransactionID != nil && s.broker.TransactionsVersion() >= txn.Version {
		p.join(s)
	}
	p.start(s)
	if r.Acks == 0 {
		return func(ctx context.Context) kmsg.Response { return p.unanswered(ctx, s, c) }
	}
	return func(ctx context.Context) kmsg.Response { return p.answer(ctx, s) }
}

// start starts to append what is not refused.
func (p *producing) start(s *Server) {
	c, r := p.call, p.request
	for i := range r.Topics {
		for j := range r.Topics[i].Partitions {
			part, started := &r.Topics[i].Partitions[j], &p.started[i][j]
			switch {
			case started.err != nil:
			case started.topic.Settings().Delays:
				started.begin = func(ctx context.Context) (*broker.Appending, error) {
					return s.appendTo(ctx, c, started.topic, r, part)
				}
			default:
				started.appending, started.err = s.appendTo(c.session.ctx, c, started.topic, r, part)
			}
		}
	}
}

// producing is a Produce request in flight.
type producing struct {
	call     *call
	request  *kmsg.ProduceRequest
	response *kmsg.ProduceResponse
	began    time.Time
	// started has an element for each partition of each topic, in the order of the request.
	started [][]started
}

// started is the append to one partition.
type started struct {
	topic     *broker.Topic
	partition int32
	// begin begins the append when the request's turn to be answered has come, so that other
	// requests of the connection need not wait until delayed records are durable; all of a request
	// wait no longer than its producer. Nil: it has begun.
	begin     func(ctx context.Context) (*broker.Appending, error)
	appending *broker.Appending
	err       error
}

// checkProduce returns the error that refuses all records of a request.
func checkProduce(c *call, r *kmsg.ProduceRequest) error {
	if r.Acks < -1 || r.Acks > 1 {
		return refuse(kerr.InvalidRequiredAcks, "acks %d: want 0, 1 or -1 (all)", r.Acks)
	}
	if r.TransactionID != nil {
		return c.authorize(auth.Transaction, *r.TransactionID)
	}
	return nil
}

// produceTo returns the topic of records.
func produceTo(c *call, r *kmsg.ProduceRequest, asked *kmsg.ProduceRequestTopic) (*broker.Topic, error) {
	if r.Version >= 13 {
		return c.topicByID(asked.TopicID)
	}
	return c.topic(asked.Topic)
}

var errNoRecords = fmt.Errorf("%w: no records", topic.ErrInvalidRecord)

// appendTo checks the records for one partition and starts to append them.
func (s *Server) appendTo(ctx context.Context, c *call, t *broker.Topic, r *kmsg.ProduceRequest, part *kmsg.ProduceRequestTopicPartition) (*broker.Appending, error) {
	if len(part.Records) == 0 {
		return nil, errNoRecords
	}
	records := part.Records
	if r.Version < 3 && isMessageSet(records) {
		var err error
		if records, err = upConvert(records, int(t.Settings().MaxMessageBytes), c.unpack); err != nil {
			return nil, err
		}
	}
	batches, err := topic.SplitBatches(records)
	if err != nil {
		return nil, err
	}
	for _, batch := range batches {
		if err := checkBatch(batch, r.Version); err != nil {
			return nil, err
		}
	}
	return t.AppendTransactional(ctx, orEmpty(r.TransactionID), part.Partition, batches)
}

// unpack decompresses messages of a message set, see upConvert. The memory for what becomes of them
// is taken once for the whole request.
func (c *call) unpack(codec int, data []byte, use func(inside []byte) error) error {
	s := c.session.server
	if c.exchange.converted == 0 {
		got, err := s.converted.Take(c.session.ctx, perConverted*maxInflated, perConverted*maxInflated)
		if err != nil {
			return err
		}
		c.session.account(c.exchange, 0, 0, got)
	}
	return s.broker.Unpacker().Unpack(c.session.ctx, codec, data, func(inside []byte) error {
		if c.inflated += len(inside); c.inflated > maxInflated {
			return errInflated
		}
		return use(inside)
	})
}

// checkBatch checks that clients may send a batch. The topic checks the rest.
func checkBatch(batch topic.Batch, version int16) error {
	switch {
	case batch.Compression() > zstd:
		return fail(kerr.UnsupportedCompressionType, fmt.Sprintf("compression %d: want 0 to %d", batch.Compression(), zstd))
	case batch.Compression() == zstd && version < zstdSince:
		return fail(kerr.UnsupportedCompressionType, fmt.Sprintf("zstd: want Produce version %d or later", zstdSince))
	}
	return nil
}

// timeout returns how long the producer waits.
func (p *producing) timeout() time.Duration {
	if p.request.TimeoutMillis <= 0 {
		return produceTimeout
	}
	return min(time.Duration(p.request.TimeoutMillis)*time.Millisecond, maxProduceTimeout)
}

// answer waits until all appends are durable or have failed.
func (p *producing) answer(ctx context.Context, s *Server) kmsg.Response {
	ctx, cancel := context.WithDeadline(ctx, p.began.Add(p.timeout()))
	defer cancel()
	for t := range p.started {
		for n := range p.started[t] {
			p.started[t][n].finish(ctx, s, &p.response.Topics[t].Partitions[n])
		}
	}
	if p.request.Version >= leaderSince {
		p.tellLeaders(s)
	}
	if s.spans != nil {
		p.trace(s)
	}
	p.call.exchange.spent = p.spent()
	return p.response
}

// spent reports whether nothing of the request's memory is in use any more.
func (p *producing) spent() bool {
	for _, parts := range p.started {
		for _, started := range parts {
			if started.err != nil || started.begin != nil {
				return false
			}
		}
	}
	return true
}

// trace makes the span of the request.
func (p *producing) trace(s *Server) {
	batch := spans.Batch{Client: p.call.client}
	for t := range p.started {
		for n := range p.started[t] {
			started, name := &p.started[t][n], p.request.Topics[t].Topic
			if started.topic != nil {
				name = started.topic.Name()
			}
			batch.Add(name, len(p.request.Topics[t].Partitions[n].Records), started.err)
		}
	}
	s.spans.Sent(p.began, &batch, p.request.Acks, orEmpty(p.request.TransactionID))
}

// tellLeaders adds the leaders of the partitions that this node does not lead.
func (p *producing) tellLeaders(s *Server) {
	var told leaders
	for t := range p.started {
		for n := range p.started[t] {
			started, done := &p.started[t][n], &p.response.Topics[t].Partitions[n]
			if done.ErrorCode == 0 {
				continue
			}
			if leader, epoch, known := leaderOf(started.err, started.topic, started.partition); known {
				done.CurrentLeader.LeaderID, done.CurrentLeader.LeaderEpoch = leader, epoch
				told.add(leader)
			}
		}
	}
	if told == nil {
		return
	}
	for _, n := range told.nodes(s.nodes(p.call)) {
		broker := kmsg.NewProduceResponseBroker()
		broker.NodeID, broker.Host, broker.Port, broker.Rack = n.ID, n.Host, n.Port, rackOf(n)
		p.response.Brokers = append(p.response.Brokers, broker)
	}
}

// finish waits for the append to one partition and answers it.
func (started *started) finish(ctx context.Context, s *Server, done *kmsg.ProduceResponseTopicPartition) {
	if started.begin != nil {
		started.appending, started.err = started.begin(ctx)
	}
	err := started.err
	if err == nil {
		done.BaseOffset, done.LogAppendTime, err = started.appending.Wait(ctx)
	}
	if err != nil {
		started.err = err
		s.unexpected("append", "", err)
		done.BaseOffset, done.LogAppendTime = -1, topic.NoTimestamp
		done.ErrorCode, done.ErrorMessage = code(err), message(err)
		if wrong, ok := errors.AsType[*topic.RecordError](err); ok {
			record := kmsg.NewProduceResponseTopicPartitionErrorRecord()
			record.RelativeOffset, record.ErrorMessage = int32(wrong.Record), &wrong.Problem
			done.ErrorRecords = append(done.ErrorRecords, record)
		}
		return
	}
	if p, err := started.topic.Partition(started.partition); err == nil {
		done.LogStartOffset = p.Ends().Start
	}
}

// unanswered handles acks=0. It waits as well, so that the memory of requests is bounded and
// an error can close the connection.
func (p *producing) unanswered(ctx context.Context, s *Server, c *call) kmsg.Response {
	p.answer(ctx, s)
	for _, t := range p.response.Topics {
		for _, done := range t.Partitions {
			if done.ErrorCode == 0 {
				continue
			}
			s.metrics.failed(keyProduce, done.ErrorCode)
			if ctx.Err() == nil {
				s.log.Debug("kafka append with acks=0 failed: the connection ends", "topic", t.Topic,
					"partition", done.Partition, "error", *done.ErrorMessage)
				c.session.cancel()
			}
		}
	}
	return nil
}
