package broker_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/storetest"
)

// createOf creates the topic orders with that many partitions.
func createOf(t *testing.T, b *broker.Broker, partitions int32) *broker.Topic {
	t.Helper()
	made, err := b.Create(t.Context(), topic.Spec{Name: "orders", Partitions: partitions}, false)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// appendTo appends three records to a partition and returns the offset of the
// first.
func appendTo(t *testing.T, to *broker.Topic, number int32) (int64, error) {
	t.Helper()
	appending, err := to.Append(t.Context(), number, []topic.Batch{batchOf(anybody, now(), "a", "b", "c")})
	if err != nil {
		return 0, err
	}
	base, _, err := appending.Wait(t.Context())
	return base, err
}

// fourFilled returns a broker with the topic orders: four partitions of three
// records.
func fourFilled(t *testing.T, store topic.Store) (*broker.Broker, *broker.Topic) {
	t.Helper()
	b := startBroker(t, store, topic.Config{})
	orders := createOf(t, b, 4)
	for number := range int32(4) {
		if _, err := appendTo(t, orders, number); err != nil {
			t.Fatal(err)
		}
	}
	return b, orders
}

// Removed partitions disappear from lists at once, and can be read for the grace, also
// after a restart.
func TestRemovePartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewMemory()
		b, orders := fourFilled(t, store)
		for _, count := range []int32{0, 4, 5, -1} {
			if err := b.RemovePartitions(t.Context(), "orders", count, 0); !errors.Is(err, topic.ErrInvalidPartitions) {
				t.Errorf("lower to %d: %v", count, err)
			}
		}
		if err := b.RemovePartitions(t.Context(), "orders", 2, time.Hour); err != nil {
			t.Fatal(err)
		}
		if count := len(orders.Partitions()); count != 2 {
			t.Errorf("%d partitions are told, want 2", count)
		}
		if _, err := appendTo(t, orders, 2); !errors.Is(err, topic.ErrNoPartition) {
			t.Errorf("append to one that was removed: %v", err)
		}
		if fetched, err := orders.Read(t.Context(), 3, 0, 1<<20); err != nil || fetched.HighWatermark != 3 || fetched.Size == 0 {
			t.Errorf("read of one that was removed: %+v, %v", fetched.Ends, err)
		}
		if err := b.AddPartitions(t.Context(), "orders", 3, false); !errors.Is(err, topic.ErrPartitionsLeaving) {
			t.Errorf("add one while others are leaving: %v", err)
		}
		stopBroker(t, b)

		b = startBroker(t, store.Reopen(), topic.Config{})
		orders, err := b.Topic("orders")
		if err != nil || len(orders.Partitions()) != 2 {
			t.Fatal(orders, err)
		}
		if _, err := orders.Read(t.Context(), 3, 0, 1<<20); err != nil {
			t.Errorf("read after a restart: %v", err)
		}
		time.Sleep(time.Hour + 2*time.Minute)
		if _, err := orders.Read(t.Context(), 2, 0, 1<<20); !errors.Is(err, topic.ErrNoPartition) {
			t.Errorf("read after the grace: %v", err)
		}
		stopBroker(t, b)
	})
}

// A reused number continues where the old partition ended, each time.
func TestNumbersOfPartitionsAreUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, orders := fourFilled(t, storetest.NewMemory())
		for round := range int64(3) {
			if err := b.RemovePartitions(t.Context(), "orders", 2, -1); err != nil {
				t.Fatal(err)
			}
			if err := b.AddPartitions(t.Context(), "orders", 4, false); err != nil {
				t.Fatal(err)
			}
			third, fourth := orders.Partitions()[2], orders.Partitions()[3]
			if ends := third.Ends(); ends.Start != 3+3*round || ends.HighWatermark != ends.Start {
				t.Errorf("round %d: the third partition has %+v, want to begin at %d", round, ends, 3+3*round)
			}
			if ends := fourth.Ends(); ends.Start != 3 {
				t.Errorf("round %d: the fourth partition has %+v, want to begin at 3", round, ends)
			}
			if base, err := appendTo(t, orders, 2); err != nil || base != 3+3*round {
				t.Errorf("round %d: append at offset %d, %v", round, base, err)
			}
		}
		stopBroker(t, b)
	})
}

// Without records, the grace is that of the settings or less; a view shows the partitions
// of its source.
func TestRemovePartitionsOfASource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startBroker(t, storetest.NewMemory(), topic.Config{Partitions: 3, Retention: time.Hour})
		createOf(t, b, 3)
		paid, err := b.Create(t.Context(), topic.Spec{Name: "paid", Settings: map[string]string{"sluice.view.of": "orders", "sluice.view.where": "true"}}, false)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.RemovePartitions(t.Context(), "paid", 1, 0); !errors.Is(err, topic.ErrView) {
			t.Errorf("of a view: %v", err)
		}
		if err := b.RemovePartitions(t.Context(), "orders", 1, 0); err != nil {
			t.Fatal(err)
		}
		if len(paid.Partitions()) != 1 || paid.Has(2) != nil {
			t.Errorf("the view has %v", paid.Partitions())
		}
		time.Sleep(61 * time.Minute)
		if len(paid.Partitions()) != 1 || paid.Has(1) == nil {
			t.Error("after the retention, removed partitions are still there")
		}
		stopBroker(t, b)
	})
}

// In a cluster all nodes see the removal, whichever was asked, and one of them deletes.
func TestRemovePartitionsOfACluster(t *testing.T) {
	inCluster(t, topic.Config{Partitions: 4}, []string{"", "", ""}, func(t *testing.T, p *placed) {
		orders := p.create(topic.Spec{Name: "orders"})
		before := len(p.nodes.Logs())
		if err := p.brokers[3].RemovePartitions(t.Context(), "orders", 1, time.Hour); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for id, b := range p.brokers {
			seen, err := b.Topic("orders")
			if err != nil || len(seen.Partitions()) != 1 || seen.Has(3) != nil {
				t.Errorf("node %d sees %v, %v", id, seen.Partitions(), err)
			}
		}
		p.kill(2)
		p.await("the others are deleted", func() bool { time.Sleep(time.Hour / 100); return len(p.nodes.Logs()) == before-3 })
		if err := p.brokers[1].AddPartitions(t.Context(), "orders", 2, false); err != nil {
			t.Fatal(err)
		}
		p.start(p.nodes.Restart(2), "")
		for _, id := range []int32{1, 2, 3} {
			seen, err := p.brokers[id].Topic("orders")
			if err != nil {
				t.Fatal(err)
			}
			p.await("it has a leader again", func() bool { return len(seen.Partitions()) == 2 && seen.Partitions()[1].Leader() > 0 })
		}
		var leader *broker.Topic
		p.await("it can be written", func() bool {
			leader, _ = p.brokers[orders.Partitions()[1].Leader()].Topic("orders")
			return leader.Partitions()[1].Ready() == nil
		})
		fillCluster(t, leader, 1, 3)
		if logs := p.nodes.Logs(); !slices.ContainsFunc(logs, func(name string) bool { return len(p.nodes.Entries(name)) > 0 }) {
			t.Errorf("no log of %v has an entry", logs)
		}
	})
}
