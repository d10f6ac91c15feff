package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/topic"
)

// transactional returns a client that produces transactionally.
func transactional(t testing.TB, s *Server, id string, options ...kgo.Opt) *kgo.Client {
	t.Helper()
	return client(t, s, append(options, kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
}

// inTransaction produces values to both partitions of "orders", and ends the transaction.
func inTransaction(t *testing.T, c *kgo.Client, commit kgo.TransactionEndTry, values ...string) {
	t.Helper()
	if err := c.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for i, value := range values {
		c.Produce(t.Context(), &kgo.Record{Topic: "orders", Partition: int32(i % 2), Value: []byte(value)}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Errorf("produce %s: %v", value, err)
			}
		})
	}
	if err := c.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.EndTransaction(t.Context(), commit); err != nil {
		t.Fatal(err)
	}
}

// values returns the first values that a new consumer of a topic sees, in order of their text.
func values(t *testing.T, s *Server, name string, count int, options ...kgo.Opt) []string {
	t.Helper()
	c := client(t, s, append(options, kgo.ConsumeTopics(name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var seen []string
	for len(seen) < count {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("consume after %q: %v", seen, err)
		}
		fetches.EachRecord(func(r *kgo.Record) { seen = append(seen, string(r.Value)) })
	}
	slices.Sort(seen)
	return seen
}

var committed = kgo.FetchIsolationLevel(kgo.ReadCommitted())

func TestCommittedRecordsAreReadAndAbortedOnesAreNot(t *testing.T) {
	s, b := serve(t, topic.Config{})
	create(t, b, "orders", 2)
	c := transactional(t, s, "till-1")
	inTransaction(t, c, kgo.TryCommit, "a1", "a2", "a3")
	inTransaction(t, c, kgo.TryAbort, "b1", "b2")
	inTransaction(t, c, kgo.TryCommit, "c1", "c2")
	if got, want := values(t, s, "orders", 5, committed), []string{"a1", "a2", "a3", "c1", "c2"}; !slices.Equal(got, want) {
		t.Errorf("read_committed: %q, want %q", got, want)
	}
	if got := values(t, s, "orders", 7); len(got) != 7 || !slices.Contains(got, "b1") {
		t.Errorf("read_uncommitted: %q, want 7 values with the aborted ones", got)
	}
}

func TestCommittedReadsStopAtAnOpenTransaction(t *testing.T) {
	s, b := serve(t, topic.Config{})
	create(t, b, "orders", 2)
	admin := kadm.NewClient(client(t, s))
	inTransaction(t, transactional(t, s, "till-1"), kgo.TryCommit, "a1", "a2")
	c := transactional(t, s, "till-2")
	if err := c.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := c.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte("open")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	end := func(list func(context.Context, ...string) (kadm.ListedOffsets, error)) int64 {
		t.Helper()
		listed, err := list(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		at, _ := listed.Lookup("orders", 0)
		return at.Offset
	}
	// A record, its marker, and the open record.
	if stable, high := end(admin.ListCommittedOffsets), end(admin.ListEndOffsets); stable != 2 || high != 3 {
		t.Errorf("the last stable offset is %d, the high watermark %d; want 2 and 3", stable, high)
	}
	described, err := admin.DescribeTransactions(t.Context(), "till-2")
	if err != nil || described["till-2"].State != "Ongoing" || !described["till-2"].Topics.Lookup("orders", 0) {
		t.Errorf("described %+v, %v; want it ongoing with partition 0", described["till-2"], err)
	}
	if err := c.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	if stable, high := end(admin.ListCommittedOffsets), end(admin.ListEndOffsets); stable != 4 || high != 4 {
		t.Errorf("after the commit the last stable offset is %d, the high watermark %d; want 4", stable, high)
	}
	listed, err := admin.ListTransactions(t.Context(), nil, []string{"CompleteCommit"})
	if err != nil || len(listed) != 2 {
		t.Errorf("listed %v, %v; want both transactional ids", listed, err)
	}
}

func TestALaterProducerFencesAnEarlierOne(t *testing.T) {
	s, b := serve(t, topic.Config{})
	create(t, b, "orders", 2)
	first, second := transactional(t, s, "till-1"), transactional(t, s, "till-1")
	if err := first.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := first.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte("first")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	inTransaction(t, second, kgo.TryCommit, "second")
	if err := first.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte("late")}).FirstErr(); !errors.Is(err, kerr.InvalidProducerEpoch) && !errors.Is(err, kerr.ProducerFenced) {
		t.Errorf("the fenced producer's record: %v, want that it is fenced", err)
	}
	if err := first.EndTransaction(t.Context(), kgo.TryCommit); err == nil {
		t.Error("the fenced producer committed")
	}
	if got := values(t, s, "orders", 1, committed); !slices.Equal(got, []string{"second"}) {
		t.Errorf("read_committed: %q, want second", got)
	}
}

func TestATransactionThatTakesTooLongIsAborted(t *testing.T) {
	s, b := serve(t, topic.Config{})
	create(t, b, "orders", 2)
	var slow *kgo.Client
	until.Succeeds(t, "a record comes before the timeout", func() error { // a busy machine may take longer
		slow = transactional(t, s, "slow", kgo.TransactionTimeout(100*time.Millisecond))
		err := slow.BeginTransaction()
		if err == nil {
			err = slow.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte("slow")}).FirstErr()
		}
		return err
	})
	inTransaction(t, transactional(t, s, "quick"), kgo.TryCommit, "quick")
	if got := values(t, s, "orders", 1, committed); !slices.Equal(got, []string{"quick"}) {
		t.Errorf("read_committed: %q, want quick", got)
	}
	if err := slow.EndTransaction(t.Context(), kgo.TryCommit); err == nil {
		t.Error("committed after the timeout")
	}
}

func TestAViewShowsCommittedRecordsOnly(t *testing.T) {
	s, b := serve(t, topic.Config{})
	create(t, b, "orders", 2)
	if _, err := b.Create(t.Context(), topic.Spec{Name: "paid", Settings: map[string]string{
		topic.SettingViewOf: "orders", topic.SettingViewWhere: `value != b"unpaid"`}}, false); err != nil {
		t.Fatal(err)
	}
	c := transactional(t, s, "till-1")
	inTransaction(t, c, kgo.TryAbort, "aborted", "aborted")
	inTransaction(t, c, kgo.TryCommit, "unpaid", "a2", "a3")
	if err := c.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := c.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte("open")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if got, want := values(t, s, "paid", 2), []string{"a2", "a3"}; !slices.Equal(got, want) {
		t.Errorf("the view shows %q, want %q", got, want)
	}
	if err := c.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	if got, want := values(t, s, "paid", 3), []string{"a2", "a3", "open"}; !slices.Equal(got, want) {
		t.Errorf("after the commit the view shows %q, want %q", got, want)
	}
}

func TestOffsetsOfATransactionAreCommittedWithIt(t *testing.T) {
	s, b := serve(t, topic.Config{})
	create(t, b, "orders", 2)
	create(t, b, "bills", 1)
	plain := client(t, s)
	for i := range 10 {
		if err := plain.ProduceSync(t.Context(), &kgo.Record{Topic: "bills", Value: fmt.Appendf(nil, "bill %d", i)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	session, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(s.Addr()), kgo.TransactionalID("billing"), kgo.ConsumerGroup("billing"),
		kgo.ConsumeTopics("bills"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	bill := func(end kgo.TransactionEndTry) (count int) {
		if err := session.Begin(); err != nil {
			t.Fatal(err)
		}
		fetches := session.PollFetches(ctx)
		fetches.EachRecord(func(r *kgo.Record) {
			count++
			session.Produce(ctx, &kgo.Record{Topic: "orders", Value: r.Value}, nil)
		})
		if ended, err := session.End(ctx, end); err != nil || ended != bool(end) {
			t.Fatalf("end: %v, %v", ended, err)
		}
		return count
	}
	if count := bill(kgo.TryAbort); count != 10 {
		t.Fatalf("polled %d records, want 10", count)
	}
	admin := kadm.NewClient(plain)
	offsets, err := admin.FetchOffsets(t.Context(), "billing")
	if at, ok := offsets.Lookup("bills", 0); err != nil || ok && at.At >= 0 {
		t.Errorf("after the abort the group is at %d, %v; want no offset", at.At, err)
	}
	if count := bill(kgo.TryCommit); count != 10 {
		t.Fatalf("polled %d records again, want 10", count)
	}
	offsets, err = admin.FetchOffsets(t.Context(), "billing")
	if at, _ := offsets.Lookup("bills", 0); err != nil || at.At != 10 {
		t.Errorf("after the commit the group is at %d, %v; want 10", at.At, err)
	}
	if got := values(t, s, "orders", 10, committed); len(got) != 10 || strings.Join(got, "") == "" {
		t.Errorf("read_committed: %q, want each bill once", got)
	}
}

func TestPendingOffsetsAreUnstable(t *testing.T) {
	s, b := serve(t, topic.Config{})
	create(t, b, "bills", 1)
	p := dial(t, s)
	init := kmsg.NewPtrInitProducerIDRequest()
	init.TransactionalID, init.TransactionTimeoutMillis = kmsg.StringPtr("billing"), 60_000
	got := ask[*kmsg.InitProducerIDResponse](p, 4, init)
	wantCode(t, "init", got.ErrorCode, nil)
	commit := kmsg.NewPtrTxnOffsetCommitRequest()
	commit.TransactionalID, commit.Group, commit.ProducerID, commit.ProducerEpoch, commit.Generation = "billing", "billing", got.ProducerID, got.ProducerEpoch, -1
	of := kmsg.NewTxnOffsetCommitRequestTopic()
	of.Topic = "bills"
	at := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	at.Offset = 7
	of.Partitions = append(of.Partitions, at)
	commit.Topics = append(commit.Topics, of)
	early := ask[*kmsg.TxnOffsetCommitResponse](p, 3, commit)
	wantCode(t, "offsets of a group that was not added", early.Topics[0].Partitions[0].ErrorCode, kerr.InvalidTxnState)
	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.TransactionalID, add.Group, add.ProducerID, add.ProducerEpoch = "billing", "billing", got.ProducerID, got.ProducerEpoch
	wantCode(t, "add", ask[*kmsg.AddOffsetsToTxnResponse](p, 3, add).ErrorCode, nil)
	done := ask[*kmsg.TxnOffsetCommitResponse](p, 3, commit)
	wantCode(t, "offsets", done.Topics[0].Partitions[0].ErrorCode, nil)

	fetch := kmsg.NewPtrOffsetFetchRequest()
	fetch.Group, fetch.RequireStable = "billing", true
	fetch.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: "bills", Partitions: []int32{0}}}
	wantCode(t, "fetch", ask[*kmsg.OffsetFetchResponse](p, 7, fetch).Topics[0].Partitions[0].ErrorCode, kerr.UnstableOffsetCommit)
	end := kmsg.NewPtrEndTxnRequest()
	end.TransactionalID, end.ProducerID, end.ProducerEpoch, end.Commit = "billing", got.ProducerID, got.ProducerEpoch, true
	wantCode(t, "end", ask[*kmsg.EndTxnResponse](p, 3, end).ErrorCode, nil)
	wantCode(t, "end again", ask[*kmsg.EndTxnResponse](p, 3, end).ErrorCode, nil)
	end.Commit = false
	wantCode(t, "the other outcome", ask[*kmsg.EndTxnResponse](p, 3, end).ErrorCode, kerr.InvalidTxnState)
	until.True(t, "the offset is committed", func() bool {
		found := ask[*kmsg.OffsetFetchResponse](p, 7, fetch).Topics[0].Partitions[0]
		return found.ErrorCode == 0 && found.Offset == 7
	})
}
