package kafka

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/topic"
)

// Transactions over partitions of three nodes commit and abort as a whole, while the node of the
// coordinator is killed.
func TestTransactionsInACluster(t *testing.T) {
	s := serveSeveral(t, 3, topic.Config{})
	admin := kadm.NewClient(s.client())
	if _, err := admin.CreateTopic(t.Context(), 6, 3, nil, "orders"); err != nil {
		t.Fatal(err)
	}
	s.await("all partitions have leaders", func() bool {
		ends, err := admin.ListEndOffsets(t.Context(), "orders")
		return err == nil && ends.Error() == nil && len(ends["orders"]) == 6
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var c *kgo.Client
	var want []string
	for step := range 12 {
		value, end := fmt.Sprintf("value %02d", step), kgo.TransactionEndTry(step%3 != 0)
		if step == 4 {
			node, err := s.servers[1].broker.Groups().Coordinator(ctx, "till")
			if err != nil {
				t.Fatal(err)
			}
			s.nodes.Kill(node)
		}
		if c == nil {
			c = s.client(kgo.TransactionalID("till"), kgo.TransactionTimeout(5*time.Second), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		}
		if err := transact(ctx, c, value, end); err != nil { // its outcome is not known: the next producer knows
			t.Logf("step %d: %v", step, err)
			c.Close()
			c = nil
			continue
		}
		for partition := range 6 {
			if end {
				want = append(want, fmt.Sprint(value, " in ", partition))
			}
		}
	}
	seen := readCommittedOf(ctx, s, admin)
	if i := slices.IndexFunc(want, func(value string) bool { return seen[value] != 1 }); i >= 0 {
		t.Errorf("%s is there %d times, want once", want[i], seen[want[i]])
	}
	whole := map[string]int{}
	for value, count := range seen {
		whole[value[:len("value 00")]] += count
	}
	for value, count := range whole {
		if count != 6 {
			t.Errorf("%s is there %d times, want in each of 6 partitions once", value, count)
		}
	}
}

// transact produces a value to each partition in a transaction.
func transact(ctx context.Context, c *kgo.Client, value string, end kgo.TransactionEndTry) error {
	err := c.BeginTransaction()
	for partition := range int32(6) {
		if err == nil {
			err = c.ProduceSync(ctx, &kgo.Record{Topic: "orders", Partition: partition, Value: fmt.Append(nil, value, " in ", partition)}).FirstErr()
		}
	}
	if err == nil {
		err = c.EndTransaction(ctx, end)
	}
	return err
}

// readCommittedOf returns how often each value of "orders" is there for consumers of committed records, once no
// transaction is open.
func readCommittedOf(ctx context.Context, s *several, admin *kadm.Client) map[string]int {
	s.Helper()
	var ends kadm.ListedOffsets
	s.await("no transaction is open", func() bool {
		all, err := admin.ListEndOffsets(ctx, "orders")
		stable, stableErr := admin.ListCommittedOffsets(ctx, "orders")
		ends = all
		return err == nil && stableErr == nil && all.Error() == nil && stable.Error() == nil && maps.Equal(offsetsOf(all), offsetsOf(stable))
	})
	reader := s.client(kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), committed, kgo.KeepControlRecords())
	seen, next := map[string]int{}, map[int32]int64{}
	for !maps.Equal(next, offsetsOf(ends)) {
		fetches := reader.PollFetches(ctx)
		if ctx.Err() != nil {
			s.Fatalf("read up to %v, want %v", next, offsetsOf(ends))
		}
		fetches.EachRecord(func(r *kgo.Record) {
			next[r.Partition] = r.Offset + 1
			if !r.Attrs.IsControl() {
				seen[string(r.Value)]++
			}
		})
	}
	return seen
}

func offsetsOf(listed kadm.ListedOffsets) map[int32]int64 {
	offsets := map[int32]int64{}
	for _, of := range listed["orders"] {
		offsets[of.Partition] = of.Offset
	}
	return offsets
}
