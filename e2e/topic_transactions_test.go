package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// copyTopics are the input and the output of the copying programs.
const copyInput, copyOutput, copyPartitions = "input", "output", 8

// Two programs of a group copy a topic of 8 partitions into another, transactionally, and abort now and then. They are
// ended at random moments, without a word, and servers are killed with SIGKILL. In the end a reader of committed
// records finds each input once in the output, and none that was aborted.
func TestTransactionsKill(t *testing.T) {
	onNodes(t, func(t *testing.T, s *server) {
		kills, inputs := 4, 2000
		if long() {
			kills, inputs = 50, 30_000
		}
		s.newTopic(copyInput, copyPartitions)
		s.newTopic(copyOutput, copyPartitions)
		produced := s.connect()
		for i := range inputs {
			produced.Produce(t.Context(), &kgo.Record{Topic: copyInput, Partition: int32(i % copyPartitions), Value: fmt.Append(nil, i)}, func(_ *kgo.Record, err error) {
				if err != nil {
					t.Error(err)
				}
			})
		}
		if err := produced.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		run := &copyRun{T: t, server: s, polled: 2000, ends: s.topicEnds(copyInput), admin: kadm.NewClient(s.connect())}
		ctx, stop := context.WithCancel(t.Context())
		var programs sync.WaitGroup
		defer programs.Wait()
		defer stop()
		for number := range 2 {
			programs.Go(func() { run.program(ctx, number) })
		}
		for kill := range kills {
			before := run.committed.Load()
			until.True(t, "transactions are committed, or nothing is left to copy", func() bool { return run.committed.Load() >= before+2 || run.behind() == nil })
			<-time.After(rand.N(300 * time.Millisecond))
			s.killOne(kill)
		}
		until.Succeeds(t, "all input is copied", run.behind)
		stop()
		programs.Wait()
		run.check(inputs)
	})
}

// killOne kills the server, or a node of its cluster, and starts it again; each third time it is killed as it starts, too.
func (s *server) killOne(kill int) {
	s.t.Helper()
	victim := s
	if s.nodes != nil {
		victim = s.nodes.all[rand.IntN(len(s.nodes.all))]
	}
	victim.kill()
	if kill%3 == 0 {
		victim.launch()
		<-time.After(rand.N(250 * time.Millisecond))
		victim.kill()
	}
	victim.start()
}

// copyRun is what the copying programs have done.
type copyRun struct {
	*testing.T
	server    *server
	polled    int32           // bytes of a partition at a time
	ends      map[int32]int64 // of the input
	admin     *kadm.Client
	committed atomic.Int64 // transactions whose commit was answered
}

// program copies until ctx ends, and is ended and started again in between.
func (r *copyRun) program(ctx context.Context, number int) {
	for ctx.Err() == nil {
		session, err := kgo.NewGroupTransactSession(
			kgo.SeedBrokers(r.server.brokers()...), kgo.TransactionalID(fmt.Sprint("copier-", number)), kgo.ConsumerGroup("copiers"), kgo.ConsumeTopics(copyInput),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
			kgo.SessionTimeout(6*time.Second), kgo.TransactionTimeout(5*time.Second), kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.FetchMaxPartitionBytes(r.polled),
		)
		if err != nil {
			r.Error(err)
			return
		}
		for transactions := rand.IntN(30); transactions >= 0 && r.transact(ctx, session); transactions-- {
			continue
		}
		session.Client().CloseAllowingRebalance()
	}
}

// transact copies what is polled next in a transaction, and reports whether the program goes on.
func (r *copyRun) transact(ctx context.Context, session *kgo.GroupTransactSession) (goesOn bool) {
	polling, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	fetches := session.PollRecords(polling, 40)
	if fetches.IsClientClosed() || ctx.Err() != nil {
		return false
	}
	if fetches.NumRecords() == 0 {
		return true
	}
	if err := session.Begin(); err != nil {
		return false
	}
	abort := rand.IntN(5) == 0
	var failed atomic.Bool
	fetches.EachRecord(func(in *kgo.Record) {
		value := in.Value
		if abort {
			value = append([]byte("aborted "), value...)
		}
		session.Produce(ctx, &kgo.Record{Topic: copyOutput, Partition: in.Partition, Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				failed.Store(true)
			}
		})
	})
	if rand.IntN(10) == 0 { // it dies: its transaction times out, or its successor fences it
		return false
	}
	ending, cancelEnd := context.WithTimeout(ctx, 20*time.Second)
	defer cancelEnd()
	committed, err := session.End(ending, kgo.TransactionEndTry(!abort && !failed.Load()))
	if committed {
		r.committed.Add(1)
	}
	return err == nil
}

// behind returns an error unless the group has committed all of the input.
func (r *copyRun) behind() error {
	offsets, err := r.admin.FetchOffsets(r.Context(), "copiers")
	for partition, end := range r.ends {
		if at, _ := offsets.Lookup(copyInput, partition); err == nil && at.At != end {
			err = fmt.Errorf("partition %d is copied up to %d of %d", partition, at.At, end)
		}
	}
	return err
}

// check reads what is committed of the output.
func (r *copyRun) check(inputs int) {
	r.Helper()
	seen := map[string]int{}
	r.server.eachCommitted(r.T, r.admin, copyOutput, func(out *kgo.Record) { seen[string(out.Value)]++ })
	for i := range inputs {
		if count := seen[fmt.Sprint(i)]; count != 1 {
			r.Errorf("input %d is in the output %d times, want once", i, count)
		}
	}
	if len(seen) > inputs {
		r.Errorf("the output has %d different records, want %d: an aborted one is there", len(seen), inputs)
	}
}

// eachCommitted waits until no transaction is open in a topic, and calls each with all records that are committed.
func (s *server) eachCommitted(t *testing.T, admin *kadm.Client, topic string, each func(*kgo.Record)) {
	t.Helper()
	var ends map[int32]int64
	until.Succeeds(t, "no transaction is open", func() error {
		ends = s.topicEnds(topic)
		stable, err := admin.ListCommittedOffsets(t.Context(), topic)
		for partition, end := range ends {
			if at, _ := stable.Lookup(topic, partition); err == nil && at.Offset != end {
				err = fmt.Errorf("partition %d is stable up to %d of %d", partition, at.Offset, end)
			}
		}
		return err
	})
	reader := s.connect(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	ctx, cancel := context.WithTimeout(t.Context(), until.Limit)
	defer cancel()
	next := map[int32]int64{}
	behind := func() bool {
		for partition, end := range ends {
			if next[partition] < end {
				return true
			}
		}
		return false
	}
	for behind() { // a marker may come later still, to a partition that its transaction had added and not written to
		fetches := reader.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("read up to %v, want %v", next, ends)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			next[r.Partition] = r.Offset + 1
			if !r.Attrs.IsControl() {
				each(r)
			}
		})
	}
}
