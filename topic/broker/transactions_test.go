package broker_test

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/storetest"
	"github.com/sluice-project/sluice/topic/txn"
)

// ofTransaction makes a batch of a transaction.
func ofTransaction(from sender, values ...string) topic.Batch {
	records := make([]topic.Record, len(values))
	for i, value := range values {
		records[i] = topic.Record{Offset: int64(i), Timestamp: now(), Value: []byte(value)}
	}
	b, err := topic.NewBatch(records, topic.BatchOptions{
		Transactional: true, Producer: &topic.BatchProducer{ID: from.id, Epoch: from.epoch, Sequence: from.sequence},
	})
	if err != nil {
		panic(err)
	}
	return b
}

// trySendOf sends a batch of the transaction of a transactional id.
func trySendOf(t testing.TB, to *broker.Topic, id string, batch topic.Batch) error {
	appending, err := to.AppendTransactional(t.Context(), id, 0, []topic.Batch{batch})
	if err == nil {
		_, _, err = appending.Wait(t.Context())
	}
	return err
}

// committedOf returns the values of committed transactions, as a consumer finds them.
func committedOf(t testing.TB, from *broker.Topic) (values []string) {
	aborted := map[int64]bool{}
	p := from.Partitions()[0]
	for offset := p.Ends().Start; offset < p.Ends().LastStable; {
		fetched, err := from.ReadCommitted(t.Context(), 0, offset, 300)
		if err != nil {
			t.Fatal(err)
		}
		batches, err := topic.SplitBatches(slices.Concat(fetched.Data...))
		if err != nil || len(batches) == 0 {
			t.Fatalf("%d batches at %d: %v", len(batches), offset, err)
		}
		for _, b := range batches {
			id, _, _ := b.Producer()
			for _, a := range fetched.Aborted {
				if a.Producer == id && a.First <= b.Base() && b.Base() < a.Last {
					aborted[id] = true
				}
			}
			for r, err := range b.Records() {
				switch {
				case err != nil:
					t.Fatal(err)
				case b.Control() && r.Key[3] == 0: // abort
					delete(aborted, id)
				case !b.Control() && !aborted[id] && r.Offset >= offset:
					values = append(values, string(r.Value))
				}
			}
			offset = b.Next()
		}
	}
	return values
}

// aTransactor is a transactional producer of the model.
type aTransactor struct {
	sender
	open    bool
	pending []string
	first   int64
}

// transactionsModel is a partition with transactional producers.
type transactionsModel struct {
	*testing.T
	store       *storetest.Memory
	broker      *broker.Broker
	orders      *broker.Topic
	transactors [3]*aTransactor
	// committed reports, by value, whether its transaction was committed; written are all.
	committed map[string]bool
}

func (m *transactionsModel) start() {
	var err error
	if m.broker, err = broker.New(m.store, topic.Config{}); err == nil {
		err = m.broker.Start(m.Context())
	}
	if err == nil {
		m.orders, err = m.broker.AutoCreate(m.Context(), "orders", "")
	}
	if err != nil {
		m.Fatal(err)
	}
}

func (m *transactionsModel) stop() {
	if err := m.broker.Stop(m.Context()); err != nil {
		m.Fatal(err)
	}
}

// Producers write, commit and abort in a partition; the broker restarts, records are deleted with a
// snapshot, and appends fail. Consumers of committed records see these, in the order of the log, up
// to the first record of an open transaction.
func TestTransactionsOverRestarts(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			m := &transactionsModel{T: t, store: storetest.NewMemory(), committed: map[string]bool{"lost": true}}
			m.start()
			defer m.stop()
			for i := range m.transactors {
				got, err := m.broker.Transactions().Init(m.Context(), fmt.Sprint("id", i), 15*time.Minute, nil)
				if err != nil {
					m.Fatal(err)
				}
				m.transactors[i] = &aTransactor{sender: sender{got.ID, got.Epoch, 0}}
			}
			for step := range 40 {
				m.act(random, fmt.Sprint("value ", step))
				m.check(seed, step)
			}
		})
	}
}

// act does one drawn thing.
func (m *transactionsModel) act(random *rand.Rand, value string) {
	p := m.orders.Partitions()[0]
	actions := []string{"write", "write", "write", "commit", "abort", "restart", "delete", "fail"}
	switch action := actions[random.IntN(len(actions))]; action {
	case "restart":
		m.stop()
		m.start()
	case "delete":
		if ends := p.Ends(); ends.Start < ends.HighWatermark {
			if _, err := p.DeleteRecords(m.Context(), ends.Start+1); err != nil {
				m.Fatal(err)
			}
		}
	case "fail": // the log is read again
		m.store.FailAppends(topic.ErrUncertain, random.IntN(2) == 0)
		if appending, err := m.orders.Append(m.Context(), 0, []topic.Batch{batchOf(anybody, now(), "lost")}); err == nil {
			_, _, _ = appending.Wait(m.Context())
		}
		m.store.FailAppends(nil, false)
		time.Sleep(10 * time.Second)
	default:
		i := random.IntN(len(m.transactors))
		m.transact(action, fmt.Sprint("id", i), m.transactors[i], value)
	}
}

func (m *transactionsModel) transact(action, id string, of *aTransactor, value string) {
	p := txn.Producer{ID: of.id, Epoch: of.epoch}
	switch {
	case action == "write":
		if !of.open {
			batch := ofTransaction(of.sender, value)
			if joins, err := m.orders.Joins(0, batch); !joins || err != nil {
				m.Fatalf("the first batch of a transaction joins it: %v, %v", joins, err)
			}
			if err := m.broker.Transactions().AddPartitions(m.Context(), id, p, map[string][]int32{"orders": {0}}); err != nil {
				m.Fatal(err)
			}
			of.open, of.first = true, m.orders.Partitions()[0].Ends().HighWatermark
		}
		if err := trySendOf(m.T, m.orders, id, ofTransaction(of.sender, value)); err != nil {
			m.Fatal(err)
		}
		of.sequence++
		of.pending = append(of.pending, value)
	case of.open:
		m.end(id, of, action == "commit")
		for _, value := range of.pending {
			m.committed[value] = action == "commit"
		}
		of.open, of.pending = false, nil
	}
}

// end ends a transaction, with either version: after version 2 a late batch is fenced.
func (m *transactionsModel) end(id string, of *aTransactor, commit bool) {
	p := txn.Producer{ID: of.id, Epoch: of.epoch}
	if of.sequence%2 == 0 {
		if err := m.broker.Transactions().End(m.Context(), id, p, commit); err != nil {
			m.Fatal(err)
		}
		return
	}
	next, err := m.broker.Transactions().EndAndBump(m.Context(), id, p, commit)
	if err != nil {
		m.Fatal(err)
	}
	if err := trySendOf(m.T, m.orders, id, ofTransaction(of.sender, "late")); !errors.Is(err, topic.ErrProducerFenced) {
		m.Errorf("a batch after the end of its transaction: %v", err)
	}
	of.sender = sender{next.ID, next.Epoch, 0}
}

// check compares what consumers of committed records see with the model.
func (m *transactionsModel) check(seed uint64, step int) {
	ends := m.orders.Partitions()[0].Ends()
	stable := ends.HighWatermark
	for _, of := range m.transactors {
		if of.open {
			stable = min(stable, of.first)
		}
	}
	if ends.LastStable != stable {
		m.Fatalf("seed %d, step %d: the last stable offset is %d, want %d", seed, step, ends.LastStable, stable)
	}
	var want []string
	for at, value := range valuesByOffset(m.T, m.orders) {
		if at < stable && m.committed[value] {
			want = append(want, value)
		}
	}
	if got := committedOf(m.T, m.orders); !slices.Equal(got, want) {
		m.Fatalf("seed %d, step %d: committed %q, want %q", seed, step, got, want)
	}
}

// valuesByOffset yields all values, without markers.
func valuesByOffset(t testing.TB, from *broker.Topic) iter.Seq2[int64, string] {
	return func(yield func(int64, string) bool) {
		p := from.Partitions()[0]
		for at := p.Ends().Start; at < p.Ends().HighWatermark; {
			fetched, err := from.Read(t.Context(), 0, at, 1)
			if err != nil {
				t.Fatal(err)
			}
			batches, err := topic.SplitBatches(slices.Concat(fetched.Data...))
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range batches {
				for r, err := range b.Records() {
					if err != nil {
						t.Fatal(err)
					}
					if !b.Control() && !yield(r.Offset, string(r.Value)) {
						return
					}
				}
				at = b.Next()
			}
		}
	}
}

// A batch that does not belong to an ongoing transaction with its partition is refused: so no
// transaction is open that nothing ends.
func TestABatchNeedsItsTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startBroker(t, storetest.NewMemory(), topic.Config{})
		orders := create(t, b, "orders", nil)
		delayed := create(t, b, "delayed", map[string]string{topic.SettingDelays: "true"})
		p, err := b.Transactions().Init(t.Context(), "id", time.Minute, nil)
		if err != nil {
			t.Fatal(err)
		}
		batch := func(sequence int32) topic.Batch { return ofTransaction(sender{p.ID, p.Epoch, sequence}, "x") }
		if err := trySendOf(t, orders, "id", batch(0)); !errors.Is(err, topic.ErrTransactionState) {
			t.Errorf("before the partition was added: %v", err)
		}
		if err := b.Transactions().AddPartitions(t.Context(), "id", p, map[string][]int32{"orders": {0}, "delayed": {0}}); err != nil {
			t.Fatal(err)
		}
		if err := trySendOf(t, orders, "other", batch(0)); !errors.Is(err, topic.ErrTransactionState) {
			t.Errorf("with another transactional id: %v", err)
		}
		if err := trySendOf(t, delayed, "id", batch(0)); !errors.Is(err, topic.ErrInvalidRecord) || !strings.Contains(err.Error(), topic.SettingDelays) {
			t.Errorf("to a topic with delays: %v", err)
		}
		if err := trySendOf(t, orders, "id", batch(0)); err != nil {
			t.Error(err)
		}
		if _, err := trySend(t, orders, batchOf(sender{p.ID, p.Epoch, 1}, now(), "plain")); !errors.Is(err, topic.ErrTransactionState) {
			t.Errorf("outside of the open transaction: %v", err)
		}
		if err := b.Transactions().End(t.Context(), "id", p, true); err != nil {
			t.Fatal(err)
		}
		if err := trySendOf(t, orders, "id", batch(0)); err != nil { // a retry: it is there
			t.Error(err)
		}
		if err := trySendOf(t, orders, "id", batch(1)); !errors.Is(err, topic.ErrTransactionState) {
			t.Errorf("after the end: %v", err)
		}
		if ends := orders.Partitions()[0].Ends(); ends.LastStable != 2 || ends.HighWatermark != 2 {
			t.Errorf("ends %+v, want a record and a marker", ends)
		}
	})
}

// Markers have no part in what is found by time.
func TestMarkersAreNotFoundByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startBroker(t, storetest.NewMemory(), topic.Config{})
		orders := create(t, b, "orders", nil)
		p, err := b.Transactions().Init(t.Context(), "id", time.Minute, nil)
		if err == nil {
			err = b.Transactions().AddPartitions(t.Context(), "id", p, map[string][]int32{"orders": {0}})
		}
		if err == nil {
			err = trySendOf(t, orders, "id", ofTransaction(sender{p.ID, p.Epoch, 0}, "x"))
		}
		written := now()
		time.Sleep(time.Second)
		if err == nil {
			err = b.Transactions().End(t.Context(), "id", p, true)
		}
		if err != nil {
			t.Fatal(err)
		}
		partition := orders.Partitions()[0]
		if offset, at, err := partition.MaxTimestamp(t.Context()); offset != 0 || at != written || err != nil {
			t.Errorf("the highest timestamp is %d at %d, %v; want that of the record, %d at 0", at, offset, err, written)
		}
		if offset, _, err := partition.OffsetAt(t.Context(), written+1); offset != -1 || err != nil {
			t.Errorf("after the record there is offset %d, %v; want none", offset, err)
		}
		if _, _, err := partition.OffsetAt(t.Context(), math.MaxInt64); err != nil {
			t.Error(err)
		}
	})
}

// stoppedInATransaction starts a broker, sends the record x in a transaction of the topic orders, and stops the broker. The id of the
// transaction is id.
func stoppedInATransaction(t *testing.T, store topic.Store) txn.Producer {
	t.Helper()
	b := startBroker(t, store, topic.Config{})
	orders := create(t, b, "orders", nil)
	p, err := b.Transactions().Init(t.Context(), "id", 15*time.Minute, nil)
	if err == nil {
		err = b.Transactions().AddPartitions(t.Context(), "id", p, map[string][]int32{"orders": {0}})
	}
	if err == nil {
		err = trySendOf(t, orders, "id", ofTransaction(sender{p.ID, p.Epoch, 0}, "x"))
	}
	if err != nil {
		t.Fatal(err)
	}
	stopBroker(t, b)
	return p
}

// A marker is lost with the end of the log, and the metadata has the transaction as complete, or not at all: the
// partition ends it when its log was read.
func TestATransactionThatNothingElseEndsIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewMemory()
		stoppedInATransaction(t, store)
		b := startBroker(t, store, topic.Config{}) // it is ongoing, and stays so
		time.Sleep(time.Minute)
		orders, _ := b.Topic("orders")
		if ends := orders.Partitions()[0].Ends(); ends.LastStable != 0 {
			t.Fatalf("an ongoing transaction was ended: %+v", ends)
		}
		stopBroker(t, b)
		item, err := store.Meta().Get(t.Context(), txn.Prefix+"id")
		if err == nil {
			err = store.Meta().Delete(t.Context(), item.Key, item.Revision)
		}
		if err != nil {
			t.Fatal(err)
		}
		b = startBroker(t, store, topic.Config{})
		orders, _ = b.Topic("orders")
		time.Sleep(time.Minute)
		if ends := orders.Partitions()[0].Ends(); ends.LastStable != 2 || ends.HighWatermark != 2 {
			t.Errorf("ends %+v, want the record and its marker", ends)
		}
		if got := committedOf(t, orders); len(got) > 0 {
			t.Errorf("committed %q, want nothing", got)
		}
	})
}

// A marker of version 2 is lost with the end of the log, and the metadata has the transaction as complete: it ends as
// that says. An earlier transaction of the producer does not.
func TestALostEndOfVersion2IsWrittenAgain(t *testing.T) {
	for _, c := range []struct {
		name   string
		record string
		want   []string
	}{
		{"committed", `{"format":2,"state":"CompleteCommit","producer":{"id":%d,"epoch":1},"last_epoch":0,"ended":{"id":%d,"epoch":0},"changed_ms":%d}`, []string{"x"}},
		{"committed, with the last epoch of its id", `{"format":2,"state":"CompleteCommit","producer":{"id":987654321,"epoch":0},"last_epoch":-1,"ended":{"id":%[2]d,"epoch":0},"changed_ms":%[3]d}`, []string{"x"}},
		{"a later one was committed", `{"format":2,"state":"CompleteCommit","producer":{"id":%d,"epoch":2},"last_epoch":1,"ended":{"id":%d,"epoch":1},"changed_ms":%d}`, nil},
		{"aborted", `{"format":2,"state":"CompleteAbort","producer":{"id":%d,"epoch":1},"last_epoch":0,"ended":{"id":%d,"epoch":0},"changed_ms":%d}`, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := storetest.NewMemory()
				p := stoppedInATransaction(t, store)
				item, err := store.Meta().Get(t.Context(), txn.Prefix+"id")
				if err == nil {
					_, err = store.Meta().Put(t.Context(), item.Key, fmt.Appendf(nil, c.record, p.ID, p.ID, now()), item.Revision)
				}
				if err != nil {
					t.Fatal(err)
				}
				b := startBroker(t, store, topic.Config{})
				orders, _ := b.Topic("orders")
				time.Sleep(time.Minute)
				if ends := orders.Partitions()[0].Ends(); ends.LastStable != 2 {
					t.Errorf("ends %+v, want the record and its marker", ends)
				}
				if got := committedOf(t, orders); !slices.Equal(got, c.want) {
					t.Errorf("committed %q, want %q", got, c.want)
				}
			})
		})
	}
}

// A batch that is not the first of its epoch does not begin it: the one before is still on its way.
func TestALaterBatchDoesNotJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		orders := create(t, startBroker(t, storetest.NewMemory(), topic.Config{}), "orders", nil)
		if joins, err := orders.Joins(0, ofTransaction(sender{7, 0, 1}, "x")); joins || !errors.Is(err, topic.ErrOutOfOrderSequence) {
			t.Errorf("the second batch of an unknown producer joins: %v, %v", joins, err)
		}
	})
}
