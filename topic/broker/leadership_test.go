package broker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/storetest"
)

// crew holds brokers on the nodes of a cluster in memory.
type crew struct {
	t       *testing.T
	nodes   *storetest.Nodes
	config  topic.Config
	options []broker.Option
	brokers map[int32]*broker.Broker
}

func newCrew(t *testing.T, n int32, config topic.Config, options ...broker.Option) *crew {
	c := &crew{t: t, nodes: storetest.NewCluster(int(n)), config: config, options: options, brokers: map[int32]*broker.Broker{}}
	for id := int32(1); id <= n; id++ {
		c.begin(id)
	}
	t.Cleanup(func() {
		for _, b := range c.brokers {
			stopBroker(t, b)
		}
	})
	return c
}

// begin starts a broker on a node.
func (c *crew) begin(id int32) {
	c.t.Helper()
	b, err := broker.New(c.nodes.Store(id), c.config, c.options...)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := b.Start(context.Background()); err != nil {
		c.t.Fatal(err)
	}
	c.brokers[id] = b
}

// kill kills a node and stops its broker.
func (c *crew) kill(id int32) {
	c.nodes.Kill(id)
	stopBroker(c.t, c.brokers[id])
	delete(c.brokers, id)
}

func (c *crew) restart(id int32) {
	c.nodes.Restart(id)
	c.begin(id)
}

// topic returns a node's topic.
func (c *crew) topic(id int32, name string) *broker.Topic {
	c.t.Helper()
	t, err := c.brokers[id].Topic(name)
	if err != nil {
		c.t.Fatal(err)
	}
	return t
}

// create creates a topic on a node, with one partition that all nodes keep.
func (c *crew) create(id int32, name string, settings map[string]string) *broker.Topic {
	c.t.Helper()
	t := create(c.t, c.brokers[id], name, settings)
	synctest.Wait()
	return t
}

// records returns the name of the log of a topic's partition.
func records(t *broker.Topic) string { return fmt.Sprintf("records-%s-0", t.ID()) }

// elect makes a node the leader of a topic's log, and waits until it is open there.
func (c *crew) elect(t *broker.Topic, id int32) {
	c.t.Helper()
	if !c.nodes.Elect(records(t), id) {
		c.t.Fatalf("node %d cannot lead", id)
	}
	c.settle(t.Name(), id)
}

// settle waits until a node leads the topic's partition.
func (c *crew) settle(name string, id int32) {
	c.t.Helper()
	for range 100 {
		if led, err := c.brokers[id].Topic(name); err == nil && led.Partitions()[0].Ready() == nil && led.Partitions()[0].Leader() == id {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	c.t.Fatalf("node %d does not lead %s: %v", id, name, c.topic(id, name).Partitions()[0].Ready())
}

// The partition's leadership follows that of the log: other nodes refuse, and the next
// leader has all appended records.
func TestTheLeadMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 3, topic.Config{})
		c.create(2, "orders", nil)
		one := c.topic(1, "orders")
		send(t, one, batchOf(sender{1, 0, 0}, now(), "a"))
		if _, err := trySend(t, c.topic(2, "orders"), batchOf(anybody, now(), "x")); !errors.Is(err, topic.ErrNotLeader) {
			t.Errorf("append to a follower: %v", err)
		}
		if _, err := c.topic(2, "orders").Read(t.Context(), 0, 0, 1); !errors.Is(err, topic.ErrNotLeader) {
			t.Errorf("read from a follower: %v", err)
		}
		woken := 0
		defer one.Partitions()[0].Watch(func() { woken++ })()
		c.elect(one, 2)
		if _, err := trySend(t, one, batchOf(anybody, now(), "x")); !errors.Is(err, topic.ErrNotLeader) || woken == 0 {
			t.Errorf("append to who led before: %v, woken %d times", err, woken)
		}
		two := c.topic(2, "orders")
		if base := send(t, two, batchOf(sender{1, 0, 0}, now(), "a")); base != 0 {
			t.Errorf("the batch again: offset %d", base)
		}
		send(t, two, batchOf(sender{1, 0, 1}, now(), "b"))
		c.elect(one, 1)
		send(t, one, batchOf(sender{1, 0, 2}, now(), "c"))
		if offsets, values := readAll(t, one, 0, 1); !slices.Equal(values, []string{"a", "b", "c"}) || !slices.Equal(offsets, []int64{0, 1, 2}) {
			t.Errorf("read %q at %v", values, offsets)
		}
		for id := range c.brokers {
			if p := c.topic(id, "orders").Partitions()[0]; p.Leader() != 1 || p.Epoch() != 3 {
				t.Errorf("node %d: leader %d, epoch %d", id, p.Leader(), p.Epoch())
			}
		}
		for epoch, want := range map[int32]int64{0: 0, 1: 1, 2: 2, 3: 3} {
			if found, end, err := one.Partitions()[0].EndOfEpoch(t.Context(), epoch); found != epoch || end != want || err != nil {
				t.Errorf("epoch %d: %d ends at %d, %v; want %d", epoch, found, end, err, want)
			}
		}
	})
}

// The leader is killed in the middle of an append: the next finds the written batch, and
// a producer that sends it again gets its offset.
func TestTheLeaderIsKilled(t *testing.T) {
	for name, stored := range map[string]bool{"written": true, "not written": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCrew(t, 3, topic.Config{})
				orders := c.create(1, "orders", nil)
				send(t, orders, batchOf(sender{1, 0, 0}, now(), "a"))
				if stored {
					c.nodes.Store(1).Hold()
				} else {
					c.nodes.Store(1).Delay()
				}
				appending, err := orders.Append(t.Context(), 0, []topic.Batch{batchOf(sender{1, 0, 1}, now(), "b")})
				if err != nil {
					t.Fatal(err)
				}
				c.kill(1)
				if _, _, err := appending.Wait(t.Context()); err == nil {
					t.Error("acknowledged by a node that is dead")
				}
				if leader := c.topic(2, "orders").Partitions()[0].Leader(); leader != -1 {
					t.Errorf("leader %d", leader)
				}
				c.nodes.ElectAll()
				c.settle("orders", 2)
				two := c.topic(2, "orders")
				if _, values := readAll(t, two, 0, 1); (len(values) == 2) != stored {
					t.Errorf("before it is sent again: %q", values)
				}
				if base := send(t, two, batchOf(sender{1, 0, 1}, now(), "b")); base != 1 {
					t.Errorf("sent again: offset %d", base)
				}
				c.restart(1)
				c.elect(two, 1)
				if _, values := readAll(t, c.topic(1, "orders"), 0, 1); !slices.Equal(values, []string{"a", "b"}) {
					t.Errorf("read %q", values)
				}
			})
		})
	}
}

// A leader is cut off from the others: it acknowledges nothing, resigns, and
// follows when it is back.
func TestTheLeaderIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 3, topic.Config{})
		orders := c.create(1, "orders", nil)
		send(t, orders, batchOf(anybody, now(), "a"))
		c.nodes.Cut(1)
		_, err := trySend(t, orders, batchOf(anybody, now(), "lost"))
		if err == nil {
			t.Fatal("acknowledged without the others")
		}
		c.nodes.ElectAll()
		c.settle("orders", 2)
		send(t, c.topic(2, "orders"), batchOf(anybody, now(), "b"))
		time.Sleep(time.Second)
		if err := orders.Partitions()[0].Ready(); !errors.Is(err, topic.ErrNotLeader) {
			t.Errorf("the leader that is cut off: %v", err)
		}
		c.nodes.Heal(1)
		time.Sleep(time.Second)
		if p := orders.Partitions()[0]; p.Leader() != 2 || p.Epoch() != 2 || !errors.Is(p.Ready(), topic.ErrNotLeader) {
			t.Errorf("healed: leader %d, epoch %d, %v", p.Leader(), p.Epoch(), p.Ready())
		}
		c.elect(orders, 1)
		if _, values := readAll(t, orders, 0, 1); !slices.Equal(values, []string{"a", "b"}) {
			t.Errorf("read %q", values)
		}
	})
}

// An entry in flight of a deposed leader arrives late, when another leads and has written
// only the fence: the log refuses the entry.
func TestLateEntriesOfADeposedLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 3, topic.Config{})
		one := c.create(1, "orders", nil)
		c.nodes.Store(1).Delay()
		large := make([]byte, 300<<10)
		for i := range int32(4) {
			if _, err := one.Append(t.Context(), 0, []topic.Batch{batchOf(sender{1, 0, i}, now(), string(large)+fmt.Sprint(i))}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		c.elect(one, 2)
		if entries := c.nodes.Entries(records(one)); len(entries) != 1 || len(entries[0].Data) != 0 {
			t.Fatalf("%d entries", len(entries))
		}
		c.nodes.Store(1).Release()
		two := c.topic(2, "orders")
		for i := range int32(4) {
			if base := send(t, two, batchOf(sender{1, 0, i}, now(), fmt.Sprint(i))); base != int64(i) {
				t.Errorf("batch %d is at %d", i, base)
			}
		}
		if _, values := readAll(t, two, 0, 1); !slices.Equal(values, []string{"0", "1", "2", "3"}) {
			t.Errorf("read %d values", len(values))
		}
	})
}

// The engine still reports that a node leads, and the metadata names another: the first
// may try, but nothing that it writes counts under the epoch of the other.
func TestADeposedLeaderThatDoesNotKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 3, topic.Config{})
		one := c.create(1, "orders", nil)
		send(t, one, batchOf(anybody, now(), "a"))
		c.nodes.Store(1).Lag(true) // it does not see the other's claim
		c.nodes.Elect(records(one), 2)
		c.settle("orders", 2)
		two := c.topic(2, "orders")
		send(t, two, batchOf(anybody, now(), "b"))
		if start, err := one.Partitions()[0].DeleteRecords(t.Context(), 1); err == nil || start != 0 {
			t.Errorf("records deleted by the deposed leader: start %d, %v", start, err)
		}
		c.nodes.Store(1).Lag(false)
		c.elect(one, 1)
		last := int32(0)
		for _, entry := range c.nodes.Entries(records(one)) {
			if entry.Mark.Epoch < last {
				t.Errorf("entry %d has epoch %d after %d", entry.Sequence, entry.Mark.Epoch, last)
			}
			last = entry.Mark.Epoch
		}
		if _, values := readAll(t, one, 0, 1); !slices.Equal(values, []string{"a", "b"}) {
			t.Errorf("read %q", values)
		}
	})
}

// A planned stop transfers the partitions: appends in flight land, and another node leads
// at once.
func TestAPlannedStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 3, topic.Config{})
		one := c.create(1, "orders", nil)
		send(t, one, batchOf(sender{1, 0, 0}, now(), "a"))
		store := c.nodes.Store(1)
		store.Hold()
		appending, err := one.Append(t.Context(), 0, []topic.Batch{batchOf(sender{1, 0, 1}, now(), "b")})
		if err != nil {
			t.Fatal(err)
		}
		left := make(chan error, 1)
		go func() { left <- c.brokers[1].Leave(t.Context()) }()
		time.Sleep(3 * time.Second)
		if _, err := trySend(t, one, batchOf(sender{1, 0, 2}, now(), "refused")); err == nil {
			t.Error("appended while it leaves")
		}
		store.Release()
		if base, _, err := appending.Wait(t.Context()); base != 1 || err != nil {
			t.Errorf("what was under way: offset %d, %v", base, err)
		}
		if err := <-left; err != nil {
			t.Error(err)
		}
		began := time.Now()
		c.settle("orders", 2)
		if took := time.Since(began); took > 500*time.Millisecond {
			t.Errorf("without a leader for %v", took)
		}
		synctest.Wait()
		if base := send(t, c.topic(2, "orders"), batchOf(sender{1, 0, 2}, now(), "c")); base != 2 {
			t.Errorf("offset %d", base)
		}
		c.kill(1) // at the end of its stop
		c.restart(1)
		began = time.Now() // now no append is in flight
		if err := c.brokers[2].Leave(t.Context()); err != nil {
			t.Error(err)
		}
		c.settle("orders", 1) // the preferred one
		if took := time.Since(began); took > 500*time.Millisecond {
			t.Errorf("without a leader for %v", took)
		}
		items, err := c.nodes.Store(3).Meta().List(t.Context(), "producers/")
		if err != nil || len(items) != 1 {
			t.Errorf("%d snapshots, %v", len(items), err)
		}
	})
}
