package kafka

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
)

// The hand-written encoding of Fetch answers is the same as the codec's.
func TestFetchAnswersAreEncodedAsByTheCodec(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for version := int16(4); version <= 17; version++ {
		for range 50 {
			ours := &fetchResponse{FetchResponse: kmsg.NewPtrFetchResponse()}
			theirs := kmsg.NewPtrFetchResponse()
			ours.Version, theirs.Version = version, version
			ours.ErrorCode, theirs.ErrorCode = 3, 3
			ours.SessionID, theirs.SessionID = 1234567, 1234567
			for range random.IntN(3) {
				topics := kmsg.NewFetchResponseTopic()
				topics.Topic, topics.TopicID = "orders", [16]byte{1, 2, 3}
				full := topics
				var ofTopic []pieces
				for range random.IntN(3) {
					p := kmsg.NewFetchResponseTopicPartition()
					p.Partition, p.HighWatermark, p.LastStableOffset, p.LogStartOffset = 1, random.Int64(), random.Int64(), random.Int64()
					p.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{}
					if version >= 12 && random.IntN(2) == 0 {
						p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = random.Int32(), random.Int32()
					}
					topics.Partitions = append(topics.Partitions, p)
					var records pieces
					for range random.IntN(4) {
						piece := bytes.Repeat([]byte{byte(random.IntN(256))}, 1+random.IntN(300))
						records.data = append(records.data, piece)
						records.size += len(piece)
					}
					ofTopic = append(ofTopic, records)
					p.RecordBatches = bytes.Join(records.data, nil)
					if p.RecordBatches == nil {
						p.RecordBatches = []byte{}
					}
					full.Partitions = append(full.Partitions, p)
				}
				ours.Topics, ours.records = append(ours.Topics, topics), append(ours.records, ofTopic)
				theirs.Topics = append(theirs.Topics, full)
			}
			for range random.IntN(3) * int(version/endpointsSince) {
				b := kmsg.NewFetchResponseBroker()
				b.NodeID, b.Host, b.Port, b.Rack = random.Int32(), "node.example", 9092, []*string{nil, kmsg.StringPtr("a")}[random.IntN(2)]
				ours.Brokers, theirs.Brokers = append(ours.Brokers, b), append(theirs.Brokers, b)
			}
			parts, _ := ours.frame(nil, 77)
			if got, want := bytes.Join(parts, nil), appendAnswer(nil, 77, theirs); !bytes.Equal(got, want) {
				t.Fatalf("version %d: got\n%x, want\n%x", version, got, want)
			}
		}
	}
}

// fillTopic appends batches of the given number of bytes.
func fillTopic(t testing.TB, to *broker.Topic, partition int32, count, size int) {
	t.Helper()
	for i := range count {
		appending, err := to.Append(t.Context(), partition, []topic.Batch{batchOf(append(fmt.Appendf(nil, "%d:", i), make([]byte, size)...))})
		if err == nil {
			_, _, err = appending.Wait(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestFetchAnswersInEachVersion(t *testing.T) {
	s, b := serve(t, topic.Config{})
	made := create(t, b, "orders", 1)
	fillTopic(t, made, 0, 3, 10)
	p := dial(t, s)
	for version := int16(4); version <= 17; version++ {
		r := fetchRequest("orders", 0, 1)
		r.Topics[0].TopicID = made.ID()
		got := ask[*kmsg.FetchResponse](p, version, r).Topics[0].Partitions[0]
		wantCode(t, fmt.Sprintf("version %d", version), got.ErrorCode, nil)
		values, batches := valuesOf(got.RecordBatches)
		if len(values) != 2 || batches[0].Base() != 1 || got.HighWatermark != 3 || got.LastStableOffset != 3 {
			t.Errorf("version %d: %d records from offset %d, high watermark %d, stable %d; want 2 from 1, 3 and 3",
				version, len(values), batches[0].Base(), got.HighWatermark, got.LastStableOffset)
		}
	}
}

func TestFetchTellsWhatIsWrong(t *testing.T) {
	s, b := serve(t, topic.Config{})
	made := create(t, b, "orders", 1)
	fillTopic(t, made, 0, 3, 10)
	epoch := made.Partitions()[0].Ends().Epoch
	cases := map[string]struct {
		name      string
		version   int16
		partition int32
		offset    int64
		epoch     int32
		want      *kerr.Error
	}{
		"topic":          {"nothing", 12, 0, 0, -1, kerr.UnknownTopicOrPartition},
		"id":             {"orders", 13, 0, 0, -1, kerr.UnknownTopicID},
		"partition":      {"orders", 12, 4, 0, -1, kerr.UnknownTopicOrPartition},
		"before":         {"orders", 12, 0, -1, -1, kerr.OffsetOutOfRange},
		"after":          {"orders", 12, 0, 4, -1, kerr.OffsetOutOfRange},
		"at the end":     {"orders", 12, 0, 3, -1, nil},
		"the same epoch": {"orders", 12, 0, 0, epoch, nil},
		"an old epoch":   {"orders", 12, 0, 0, epoch - 1, kerr.FencedLeaderEpoch},
		"a later epoch":  {"orders", 12, 0, 0, epoch + 1, kerr.UnknownLeaderEpoch},
	}
	for name, c := range cases {
		if c.epoch == epoch-1 && epoch == 0 {
			continue // there is no earlier epoch
		}
		r := fetchRequest(c.name, c.partition, c.offset)
		r.Topics[0].Partitions[0].CurrentLeaderEpoch = c.epoch
		if c.want != nil {
			r.MaxWaitMillis = 60_000 // an error is answered at once
		}
		got := ask[*kmsg.FetchResponse](dial(t, s), c.version, r).Topics[0].Partitions[0]
		wantCode(t, name, got.ErrorCode, c.want)
		if c.want == kerr.OffsetOutOfRange && got.HighWatermark != 3 {
			t.Errorf("%s: high watermark %d, want 3", name, got.HighWatermark)
		}
	}
}

func TestFetchKeepsItsLimits(t *testing.T) {
	s, b := serve(t, topic.Config{})
	made := create(t, b, "orders", 3)
	for partition := range int32(3) {
		fillTopic(t, made, partition, 10, 1000)
	}
	one := len(batchOf(append([]byte("0:"), make([]byte, 1000)...)))
	cases := map[string]struct {
		most, partitionMost int32
		want                []int // the number of batches of each partition
	}{
		"all":                             {1 << 20, 1 << 20, []int{10, 10, 10}},
		"less of each":                    {1 << 20, int32(2*one + 10), []int{2, 2, 2}},
		"less of all":                     {int32(13 * one), 1 << 20, []int{10, 3, 0}},
		"less than a batch of all":        {10, 1 << 20, []int{1, 0, 0}},
		"less than a batch of each":       {1 << 20, 10, []int{1, 0, 0}},
		"nothing is asked for but one is": {0, 0, []int{1, 0, 0}},
	}
	for name, c := range cases {
		r := fetchRequest("orders", 0, 0)
		r.MaxBytes = c.most
		r.Topics[0].Partitions = nil
		for partition := range int32(3) {
			p := wantFrom(partition, 0)
			p.PartitionMaxBytes = c.partitionMost
			r.Topics[0].Partitions = append(r.Topics[0].Partitions, p)
		}
		var got []int
		for _, p := range ask[*kmsg.FetchResponse](dial(t, s), 12, r).Topics[0].Partitions {
			_, batches := valuesOf(p.RecordBatches)
			got = append(got, len(batches))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v batches, want %v", name, got, c.want)
		}
	}
	until.True(t, "what the answers held is back", func() bool { return s.answers.Used() == 0 })
}

// A fetch waits for min bytes, and is answered when they have arrived.
func TestFetchWaits(t *testing.T) {
	s, b := serve(t, topic.Config{})
	made := create(t, b, "orders", 2)
	p := dial(t, s)
	r := fetchRequest("orders", 0, 0)
	r.Topics[0].Partitions = append(r.Topics[0].Partitions, wantFrom(1, 0))
	r.MaxWaitMillis, r.MinBytes = 60_000, 3000
	r.SetVersion(12)
	waiting := p.send(r)
	for range 2 { // the first is not enough
		fillTopic(t, made, 1, 1, 1000)
		fillTopic(t, made, 0, 1, 1000)
	}
	got := p.receive(r, waiting).(*kmsg.FetchResponse)
	size := 0
	for _, partition := range got.Topics[0].Partitions {
		size += len(partition.RecordBatches)
	}
	if size < 3000 {
		t.Errorf("got %d bytes, want at least 3000", size)
	}
	r.MaxWaitMillis, r.MinBytes = 50, 1<<20
	began := time.Now()
	ask[*kmsg.FetchResponse](p, 12, r)
	if took := time.Since(began); took < 50*time.Millisecond {
		t.Errorf("took %v, want to wait 50ms for what does not come", took)
	}
}

// session is a consumer with a fetch session.
type session struct {
	*peer
	id, epoch int32
}

func (s *session) fetch(change func(*kmsg.FetchRequest)) *kmsg.FetchResponse {
	s.t.Helper()
	r := fetchRequest("orders", 0, 0)
	r.Topics = nil
	r.SessionID, r.SessionEpoch = s.id, s.epoch
	if change != nil {
		change(r)
	}
	got := ask[*kmsg.FetchResponse](s.peer, 12, r)
	if got.ErrorCode == 0 {
		s.id, s.epoch = got.SessionID, s.epoch+1
	}
	return got
}

func adding(partitions ...kmsg.FetchRequestTopicPartition) func(*kmsg.FetchRequest) {
	return func(r *kmsg.FetchRequest) {
		t := kmsg.NewFetchRequestTopic()
		t.Topic, t.Partitions = "orders", partitions
		r.Topics = append(r.Topics, t)
	}
}

// numbers returns the partitions of an answer.
func numbers(r *kmsg.FetchResponse) (all []int32) {
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			all = append(all, p.Partition)
		}
	}
	return all
}

func TestFetchSessionsTellWhatIsNew(t *testing.T) {
	server, b := serve(t, topic.Config{})
	made := create(t, b, "orders", 3)
	s := &session{peer: dial(t, server)}
	want := func(what string, got *kmsg.FetchResponse, partitions ...int32) {
		t.Helper()
		wantCode(t, what, got.ErrorCode, nil)
		if !slices.Equal(numbers(got), partitions) {
			t.Fatalf("%s: partitions %v, want %v", what, numbers(got), partitions)
		}
	}
	want("the first fetch", s.fetch(adding(wantFrom(0, 0), wantFrom(1, 0), wantFrom(2, 0))), 0, 1, 2)
	if s.id == 0 {
		t.Fatal("no session was made")
	}
	want("nothing new", s.fetch(nil))
	fillTopic(t, made, 1, 1, 10)
	want("records", s.fetch(nil), 1)
	want("records again, as the offset is the same", s.fetch(nil), 1)
	want("the next offset", s.fetch(adding(wantFrom(1, 1))))
	fillTopic(t, made, 0, 1, 10)
	fillTopic(t, made, 1, 1, 10)
	fillTopic(t, made, 2, 1, 10)
	want("who got records last comes last", s.fetch(nil), 0, 2, 1)
	want("forgotten", s.fetch(func(r *kmsg.FetchRequest) {
		forgotten := kmsg.NewFetchRequestForgottenTopic()
		forgotten.Topic, forgotten.Partitions = "orders", []int32{0, 1}
		r.ForgottenTopics = append(r.ForgottenTopics, forgotten)
	}), 2)
	if _, err := made.Partitions()[2].DeleteRecords(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	want("an error", s.fetch(nil), 2)
	want("the error again", s.fetch(nil), 2)

	s.epoch += 5
	wantCode(t, "a wrong epoch", s.fetch(nil).ErrorCode, kerr.InvalidFetchSessionEpoch)
	old := s.id
	s.epoch = epochNoSession
	wantCode(t, "the end", s.fetch(nil).ErrorCode, nil)
	s.id, s.epoch = old, 1
	wantCode(t, "after the end", s.fetch(nil).ErrorCode, kerr.FetchSessionIDNotFound)
}

// The number of sessions and of their partitions is bounded; a session that was unused for long is
// replaced.
func TestFetchSessionsAreBounded(t *testing.T) {
	f := newFetchSessions()
	now := time.Unix(1000, 0)
	begin := func(partitions int) fetchWant {
		r := kmsg.NewPtrFetchRequest()
		r.Version, r.SessionEpoch = 12, epochNewSession
		topics := kmsg.NewFetchRequestTopic()
		for number := range int32(partitions) {
			topics.Partitions = append(topics.Partitions, wantFrom(number, 0))
		}
		r.Topics = append(r.Topics, topics)
		want, err := f.open(r, now)
		if err != nil {
			t.Fatal(err)
		}
		want.done()
		return want
	}
	first := begin(1)
	for range maxSessions - 1 {
		begin(1)
	}
	if len(f.byID) != maxSessions {
		t.Fatalf("%d sessions, want %d", len(f.byID), maxSessions)
	}
	if begin(1).session != nil {
		t.Error("one more session was made, though all are in use")
	}
	now = now.Add(evictAfter)
	if begin(1).session == nil || f.byID[first.session.id] != nil || len(f.byID) != maxSessions {
		t.Error("the session that was used longest ago did not make place")
	}
	if begin(maxSessionPartitions).session != nil || f.partitions > maxSessionPartitions {
		t.Errorf("sessions have %d partitions, want at most %d", f.partitions, maxSessionPartitions)
	}
	for id := range f.byID {
		f.end(id)
	}
	if f.partitions != 0 || f.used.Len() != 0 {
		t.Errorf("%d partitions are counted of no sessions", f.partitions)
	}
}
