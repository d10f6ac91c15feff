package e2e

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// patience bounds an operation of a client that should be immediate.
const patience = 5 * time.Minute

// franz creates clients of franz-go.
type franz struct{ *server }

// client returns a client that is closed when the test ends.
func (f franz) client(t *testing.T, options ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(f.seeds()...), kgo.AlwaysRetryEOF(), kgo.FetchMaxWait(100 * time.Millisecond), kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseAllowingRebalance)
	return client
}

// create creates a topic and returns a client for administration.
func (f franz) create(t *testing.T, name string, partitions int32, settings ...string) *kadm.Client {
	t.Helper()
	admin := kadm.NewClient(f.client(t))
	configs := map[string]*string{}
	for i := 0; i < len(settings); i += 2 {
		configs[settings[i]] = &settings[i+1]
	}
	if _, err := admin.CreateTopic(t.Context(), partitions, f.replicas(), configs, name); err != nil {
		t.Fatalf("create %s: %v", name, err)
	}
	return admin
}

// send produces records, in order.
func (f franz) send(t *testing.T, records []*kgo.Record, options ...kgo.Opt) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := f.client(t, options...).ProduceSync(ctx, records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// numbered returns records with the values from, … to-1.
func numbered(topic string, partition int32, from, to int, headers ...kgo.RecordHeader) (records []*kgo.Record) {
	for i := from; i < to; i++ {
		records = append(records, &kgo.Record{Topic: topic, Partition: partition, Value: fmt.Appendf(nil, "value %d", i), Headers: headers})
	}
	return records
}

// poll returns the next count records, and fails if more arrive at once.
func poll(t *testing.T, client *kgo.Client, count int) []*kgo.Record {
	t.Helper()
	records := pollAtLeast(t, client, count)
	if len(records) > count {
		t.Fatalf("%d records, want %d", len(records), count)
	}
	return records
}

// pollAtLeast returns the next count records, and those that arrive with them.
func pollAtLeast(t *testing.T, client *kgo.Client, count int) (records []*kgo.Record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var last error
	for len(records) < count {
		fetches := client.PollFetches(ctx)
		// The client reports that a broker or its group's coordinator is away, and retries.
		var lost *kgo.ErrDataLoss
		if err := fetches.Err(); err != nil && ctx.Err() == nil {
			last = err
		}
		if ctx.Err() != nil || errors.As(last, &lost) {
			t.Fatalf("after %d of %d records: %v, %v", len(records), count, last, ctx.Err())
		}
		records = append(records, fetches.Records()...)
	}
	return records
}

// quiet fails if a record arrives within a while.
func quiet(t *testing.T, client *kgo.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if fetches := client.PollFetches(ctx); fetches.NumRecords() > 0 || !errors.Is(fetches.Err0(), context.DeadlineExceeded) {
		t.Fatalf("%d records and %v, want none", fetches.NumRecords(), fetches.Err0())
	}
}

func values(records []*kgo.Record) (values []string) {
	for _, record := range records {
		values = append(values, string(record.Value))
	}
	return values
}

func offsets(records []*kgo.Record) (offsets []int64) {
	for _, record := range records {
		offsets = append(offsets, record.Offset)
	}
	return offsets
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %.500q, want %.500q", what, fmt.Sprint(got), fmt.Sprint(want))
	}
}

// franz-go reads the records that it sent unchanged, with their compression.
func TestFranzGoRecords(t *testing.T) { onNodes(t, testFranzGoRecords) }

func testFranzGoRecords(t *testing.T, s *server) {
	f := franz{s}
	f.create(t, "orders", 2)
	codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	var want []*kgo.Record
	for codec := range codecs {
		at := time.UnixMilli(1_700_000_000_000 + int64(codec))
		sent := []*kgo.Record{
			{Key: []byte("key"), Value: []byte("value"), Headers: []kgo.RecordHeader{{Key: "tag", Value: []byte("paid")}, {Key: "tag", Value: nil}, {Key: "", Value: []byte{}}}},
			{Key: []byte("deleted"), Value: nil},
			{Key: nil, Value: []byte{}},
			{Key: []byte{}, Value: slices.Repeat([]byte("long "), 1000)},
		}
		for _, record := range sent {
			record.Topic, record.Partition, record.Timestamp = "orders", 1, at
		}
		f.send(t, sent, kgo.ProducerBatchCompression(codecs[codec]))
		want = append(want, sent...)
	}
	consumer := f.client(t, kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	for i, got := range poll(t, consumer, len(want)) {
		equal(t, "codec", int(got.Attrs.CompressionType()), i/4)
		equal(t, "offset", got.Offset, int64(i))
		equal(t, "time", got.Timestamp, want[i].Timestamp)
		equal(t, "contents", []any{got.Partition, got.Key, got.Value, got.Headers}, []any{int32(1), want[i].Key, want[i].Value, want[i].Headers})
	}
	quiet(t, consumer)
}

// A group resumes at its committed offsets after its member, the connection and the server are
// gone; a second member takes its share and gives it back.
func TestFranzGoGroup(t *testing.T) { onNodes(t, testFranzGoGroup) }

func testFranzGoGroup(t *testing.T, s *server) {
	f := franz{s}
	admin := f.create(t, "orders", 1)
	f.send(t, numbered("orders", 0, 0, 20))
	options := []kgo.Opt{
		kgo.ConsumerGroup("readers"), kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(), kgo.HeartbeatInterval(100 * time.Millisecond), kgo.MetadataMaxAge(500 * time.Millisecond),
		// The group waits for a member that leaves just before its coordinator dies.
		kgo.SessionTimeout(6 * time.Second),
	}
	first := f.client(t, options...)
	read := poll(t, first, 20)
	if err := first.CommitRecords(t.Context(), read[11]); err != nil {
		t.Fatal(err)
	}
	first.Close()
	f.crash(t, "orders", "readers")

	second := f.client(t, options...)
	equal(t, "read on", values(poll(t, second, 8)), values(read[12:]))
	if _, err := admin.UpdatePartitions(t.Context(), 4, "orders"); err != nil {
		t.Fatal(err)
	}
	third := f.client(t, options...)
	shares := func() (shares []int) {
		described, err := admin.DescribeGroups(t.Context(), "readers")
		if err != nil && f.nodes == nil {
			t.Fatal(err)
		}
		for _, member := range described["readers"].Members {
			if assigned, ok := member.Assigned.AsConsumer(); ok && described["readers"].State == "Stable" {
				count := 0
				for _, topic := range assigned.Topics {
					count += len(topic.Partitions)
				}
				shares = append(shares, count)
			}
		}
		return shares
	}
	// Clients take part in rebalances while they are polled.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, member := range []*kgo.Client{second, third} {
		go func() {
			for !member.PollFetches(ctx).IsClientClosed() && ctx.Err() == nil {
			}
		}()
	}
	until.True(t, "two members have two partitions each", func() bool { return slices.Equal(shares(), []int{2, 2}) })
	second.Close()
	until.True(t, "the last member has all", func() bool { return slices.Equal(shares(), []int{4}) })
}

// Seeking goes to an offset, relative to the end, and to the first record at a time.
func TestFranzGoSeek(t *testing.T) { onNodes(t, testFranzGoSeek) }

func testFranzGoSeek(t *testing.T, s *server) {
	f := franz{s}
	f.create(t, "orders", 1)
	records := numbered("orders", 0, 0, 30)
	start := time.UnixMilli(1_700_000_000_000)
	for i, record := range records {
		record.Timestamp = start.Add(time.Duration(i/2) * time.Second)
	}
	f.send(t, records[:17])
	f.send(t, records[17:])
	for name, seek := range map[string]struct {
		to   kgo.Offset
		from int
	}{
		"offset":            {kgo.NewOffset().At(7), 7},
		"offset in a batch": {kgo.NewOffset().At(18), 18},
		"before the end":    {kgo.NewOffset().AtEnd().Relative(-3), 27},
		"time":              {kgo.NewOffset().AfterMilli(start.Add(5 * time.Second).UnixMilli()), 10},
		"between two times": {kgo.NewOffset().AfterMilli(start.Add(5*time.Second + time.Millisecond).UnixMilli()), 12},
		"before all":        {kgo.NewOffset().AfterMilli(1), 0},
		"beyond the end":    {kgo.NewOffset().At(1000), 0}, // out of range: the client starts over
	} {
		client := f.client(t, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"orders": {0: seek.to}}), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		equal(t, name, values(poll(t, client, 30-seek.from)), values(records[seek.from:]))
	}
	client := f.client(t, kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	poll(t, client, 30)
	client.SetOffsets(map[string]map[int32]kgo.EpochOffset{"orders": {0: {Epoch: -1, Offset: 25}}})
	equal(t, "back while it reads", values(poll(t, client, 5)), values(records[25:]))
}

// A view shows matching records at their own offsets, past 20,000 hidden records; its end advances
// with the source's.
func TestFranzGoView(t *testing.T) { onNodes(t, testFranzGoView) }

func testFranzGoView(t *testing.T, s *server) {
	f := franz{s}
	f.create(t, "orders", 1)
	f.create(t, "paid", -1, "sluice.view.of", "orders", "sluice.view.where", `headers.tag == "paid"`)
	paid, open := kgo.RecordHeader{Key: "tag", Value: []byte("paid")}, kgo.RecordHeader{Key: "tag", Value: []byte("open")}
	want := append(numbered("orders", 0, 0, 10, paid), numbered("orders", 0, 20_010, 20_020, paid)...)
	f.send(t, want[:10])
	f.send(t, numbered("orders", 0, 10, 20_010, open))
	f.send(t, want[10:])
	f.send(t, numbered("orders", 0, 20_020, 40_020, open))

	options := []kgo.Opt{
		kgo.ConsumerGroup("readers"), kgo.ConsumeTopics("paid"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(), kgo.HeartbeatInterval(100 * time.Millisecond),
	}
	first := f.client(t, options...)
	got := poll(t, first, 20)
	equal(t, "view", values(got), values(want))
	equal(t, "offsets", offsets(got), offsets(want))
	if err := first.CommitRecords(t.Context(), got[9]); err != nil {
		t.Fatal(err)
	}
	first.Close()

	second := f.client(t, options...)
	equal(t, "read on over the gap", values(poll(t, second, 10)), values(want[10:]))
	quiet(t, second)
	f.send(t, numbered("orders", 0, 40_020, 40_021, paid))
	equal(t, "after the hidden end", values(poll(t, second, 1)), []string{"value 40020"})
	err := f.client(t).ProduceSync(t.Context(), numbered("paid", 0, 0, 1)...).FirstErr()
	if err == nil || kerr.IsRetriable(err) {
		t.Errorf("produce to a view: %v, want an error for good", err)
	}
}
