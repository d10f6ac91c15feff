//go:build long

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

const isolationTopic, isolationPartitions = "isolation", 4

// Three programs read what was committed, and write in transactions what they have read. Servers are killed. Of Adya's phenomena, the history has
// none of these: a read of what was aborted (G1a), a part of a transaction (G1b: a record, or a partition, is missing at the end), a
// transaction that read from one which it comes before (G1c between two). Transactions that are open at the same time may
// be in different orders in two partitions (G0), as in Kafka: a log does not overwrite.
func TestIsolationOfTransactions(t *testing.T) {
	onNodes(t, func(t *testing.T, s *server) {
		kills := 3
		if long() {
			kills = 20
		}
		s.newTopic(isolationTopic, isolationPartitions)
		h := &isolation{T: t, server: s, admin: kadm.NewClient(s.connect()), outcomes: map[string]outcome{}, read: map[string]map[string]bool{}}
		ctx, stop := context.WithCancel(t.Context())
		var programs sync.WaitGroup
		defer programs.Wait()
		defer stop()
		for number := range 3 {
			programs.Go(func() { h.program(ctx, number) })
		}
		for kill := range kills {
			before := h.count(committed)
			until.True(t, "transactions are committed", func() bool { return h.count(committed) >= before+10 })
			s.killOne(kill)
		}
		stop()
		programs.Wait()
		h.check()
	})
}

// outcome is what a program knows of one of its transactions.
type outcome int

const (
	unknown outcome = iota
	committed
	aborted
)

// written is a record of a transaction.
type written struct {
	Transaction string
	Partitions  []int32 // all that the transaction writes to, each once
}

// isolation is a history of transactions.
type isolation struct {
	*testing.T
	server *server
	admin  *kadm.Client

	mu       sync.Mutex
	outcomes map[string]outcome
	read     map[string]map[string]bool // by transaction, whose records its program had read before it began
}

func (h *isolation) count(o outcome) (count int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, each := range h.outcomes {
		if each == o {
			count++
		}
	}
	return count
}

func (h *isolation) ended(transaction string, o outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.outcomes[transaction] = o
}

// program runs transactions until ctx ends, and is replaced by another now and then.
func (h *isolation) program(ctx context.Context, number int) {
	reader, err := kgo.NewClient(kgo.SeedBrokers(h.server.brokers()...), kgo.ConsumeTopics(isolationTopic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(20*time.Millisecond))
	if err != nil {
		h.Error(err)
		return
	}
	defer reader.Close()
	for life := 0; ctx.Err() == nil; life++ {
		writer, err := kgo.NewClient(kgo.SeedBrokers(h.server.brokers()...), kgo.TransactionalID(fmt.Sprint("isolation-", number)),
			kgo.TransactionTimeout(5*time.Second), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err != nil {
			h.Error(err)
			return
		}
		for n := 0; ctx.Err() == nil && n < 50 && h.transact(ctx, writer, reader, fmt.Sprintf("%d-%d-%d", number, life, n)); n++ {
			continue
		}
		writer.Close()
	}
}

// transact notes what was read since the transaction before, writes to some partitions, and commits or aborts. It reports
// whether the program goes on.
func (h *isolation) transact(ctx context.Context, writer, reader *kgo.Client, name string) bool {
	h.take(ctx, reader, name)
	if writer.BeginTransaction() != nil {
		return false
	}
	partitions := []int32{0, 1, 2, 3}
	rand.Shuffle(len(partitions), func(i, j int) { partitions[i], partitions[j] = partitions[j], partitions[i] })
	partitions = partitions[:2]
	value, _ := json.Marshal(written{name, partitions})
	var records []*kgo.Record
	for _, partition := range partitions {
		records = append(records, &kgo.Record{Topic: isolationTopic, Partition: partition, Value: value})
	}
	writing, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	err := writer.ProduceSync(writing, records...).FirstErr()
	switch rand.IntN(8) {
	case 0: // it dies
		return false
	case 1:
		if errors.Join(err, writer.EndTransaction(writing, kgo.TryAbort)) == nil {
			h.ended(name, aborted)
		}
		return err == nil
	}
	if err != nil || writer.EndTransaction(writing, kgo.TryCommit) != nil {
		return false
	}
	h.ended(name, committed)
	return true
}

// take polls once, and notes whose records were read so far by the program that begins a transaction.
func (h *isolation) take(ctx context.Context, reader *kgo.Client, name string) {
	polling, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	fetches := reader.PollFetches(polling)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.outcomes[name], h.read[name] = unknown, map[string]bool{}
	fetches.EachRecord(func(r *kgo.Record) {
		var record written
		if err := json.Unmarshal(r.Value, &record); err != nil {
			h.Errorf("%q was not written: %v", r.Value, err)
		}
		h.read[name][record.Transaction] = true
	})
}

// check reads what is committed in the end.
func (h *isolation) check() {
	h.Helper()
	places := map[string]map[int32]int64{} // of the record of each transaction, by partition
	all := map[string][]int32{}
	h.server.eachCommitted(h.T, h.admin, isolationTopic, func(r *kgo.Record) {
		var record written
		if err := json.Unmarshal(r.Value, &record); err != nil {
			h.Fatalf("%q was not written: %v", r.Value, err)
		}
		if places[record.Transaction] == nil {
			places[record.Transaction] = map[int32]int64{}
		}
		if before, twice := places[record.Transaction][r.Partition]; twice {
			h.Errorf("a record of %s is in partition %d twice, at %d and %d", record.Transaction, r.Partition, before, r.Offset)
		}
		places[record.Transaction][r.Partition], all[record.Transaction] = r.Offset, record.Partitions
	})
	for name, o := range h.outcomes {
		at, is := places[name]
		switch {
		case is && o == aborted:
			h.Errorf("%s was aborted, and its records are at %v", name, at)
		case !is && o == committed:
			h.Errorf("%s was committed, and no record of it is there", name)
		case is && !slices.Equal(slices.Sorted(maps.Keys(at)), slices.Sorted(slices.Values(all[name]))):
			h.Errorf("%s wrote to partitions %v, and has records at %v", name, all[name], at)
		}
		for other := range h.read[name] {
			h.follows(name, other, places)
		}
	}
	h.Logf("%d transactions committed, %d aborted, %d unknown to their programs, of which %d are there",
		h.count(committed), h.count(aborted), h.count(unknown), len(places)-h.count(committed))
}

// follows checks that what a transaction has read of another was committed, and that it comes after that wherever both wrote.
func (h *isolation) follows(name, other string, places map[string]map[int32]int64) {
	h.Helper()
	if places[other] == nil {
		h.Errorf("%s has read a record of %s, which did not commit", name, other)
	}
	for partition, at := range places[name] {
		if before, both := places[other][partition]; both && before > at {
			h.Errorf("%s has read from %s, and comes before it in partition %d: at %d, and %d", name, other, partition, at, before)
		}
	}
}
