package broker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/topic"
)

// alter changes topics on several nodes, and checks that all have followed.
func (c *crew) alter() {
	t := c.t
	t.Helper()
	if _, err := c.brokers[3].Create(t.Context(), topic.Spec{Name: "orders"}, false); !errors.Is(err, topic.ErrTopicExists) {
		t.Errorf("create on another node: %v", err)
	}
	if err := c.brokers[3].AddPartitions(t.Context(), "orders", 5, false); err != nil {
		t.Fatal(err)
	}
	where, day := `string(value) == "b"`, "86400000"
	if err := c.brokers[1].Alter(t.Context(), "orders", map[string]*string{"retention.ms": &day}, false, false); err != nil {
		t.Fatal(err)
	}
	if err := c.brokers[2].Alter(t.Context(), "view", map[string]*string{"sluice.view.where": &where}, false, false); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	for id := range c.brokers {
		if orders := c.topic(id, "orders"); len(orders.Partitions()) != 5 || orders.Settings().Retention != 24*time.Hour || c.topic(id, "view").Settings().ViewWhere != where {
			t.Errorf("node %d has not followed", id)
		}
	}
}

// All nodes learn of changes of the catalog by one node.
func TestTheCatalogIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 3, topic.Config{})
		made, err := c.brokers[2].Create(t.Context(), topic.Spec{Name: "orders", Partitions: 3}, false)
		if err != nil {
			t.Fatal(err)
		}
		view := map[string]string{"sluice.view.of": "orders", "sluice.view.where": `string(value) == "a"`}
		if _, err := c.brokers[1].Create(t.Context(), topic.Spec{Name: "view", Settings: view}, false); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for id := range c.brokers {
			orders := c.topic(id, "orders")
			if orders.ID() != made.ID() || c.topic(id, "view").Source() != orders {
				t.Errorf("node %d knows another topic", id)
			}
			for i, p := range orders.Partitions() {
				if p.Leader() != int32(i+1) || p.Epoch() != 1 {
					t.Errorf("node %d: %s is led by %d, epoch %d", id, p, p.Leader(), p.Epoch())
				}
				if want := p.Leader() == id; (p.Ready() == nil) != want {
					t.Errorf("node %d: %s is %v", id, p, p.Ready())
				}
			}
		}
		c.alter()
		if err := c.brokers[3].Delete(t.Context(), "orders"); !errors.Is(err, topic.ErrHasViews) {
			t.Errorf("delete what has a view: %v", err)
		}
		if err := errors.Join(c.brokers[3].Delete(t.Context(), "view"), c.brokers[1].Delete(t.Context(), "orders")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for id, b := range c.brokers {
			if len(b.Topics()) != 0 {
				t.Errorf("node %d still has topics", id)
			}
		}
		if logs := c.nodes.Logs(); len(logs) != 0 {
			t.Errorf("logs are left: %v", logs)
		}
		if again := c.create(1, "orders", nil); again.ID() == made.ID() || c.topic(3, "orders").ID() != again.ID() {
			t.Error("it was not made again")
		}
	})
}

// When a change returns, the other nodes report it to their clients; the change waits for
// a slow node until the caller's context ends.
func TestAChangeIsKnownWhenItReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 3, topic.Config{})
		c.create(1, "orders", nil)
		knows := func(id int32, retention time.Duration) bool {
			return c.topic(id, "orders").Settings().Retention == retention
		}
		alter := func(within time.Duration, retention string) time.Duration {
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			if err := c.brokers[1].Alter(ctx, "orders", map[string]*string{"retention.ms": &retention}, false, false); err != nil {
				t.Fatal(err)
			}
			return time.Since(began)
		}
		slow := c.nodes.Store(3)
		slow.Lag(true)
		time.AfterFunc(time.Second, func() { slow.Lag(false) })
		if took := alter(time.Minute, "1000"); took < time.Second || took > 2*time.Second || !knows(2, time.Second) || !knows(3, time.Second) {
			t.Errorf("node 3 is a second behind: returned after %v, and knows it: %v", took, knows(3, time.Second))
		}
		slow.Lag(true)
		if took := alter(100*time.Millisecond, "2000"); took != 100*time.Millisecond || !knows(2, 2*time.Second) || knows(3, 2*time.Second) {
			t.Errorf("node 3 stays behind: returned after %v", took)
		}
		c.kill(3)
		if took := alter(time.Minute, "3000"); took > time.Second || !knows(2, 3*time.Second) {
			t.Errorf("node 3 is dead: returned after %v", took)
		}
	})
}

// A topic's creator dies before it has created the logs: another node creates them.
func TestLogsThatAreMissingAreMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 3, topic.Config{})
		record := `{"id":"000102030405060708090a0b0c0d0e0f","partitions":[{"epoch":0,"replicas":[2,3,1]}]}`
		if _, err := c.nodes.Store(3).Meta().Put(t.Context(), "topics/orders", []byte(record), 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		c.settle("orders", 2)
		send(t, c.topic(2, "orders"), batchOf(anybody, now(), "a"))
	})
}

// A node dies after it has begun to delete a topic: another continues.
func TestDeletingGoesOnElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 3, topic.Config{})
		c.create(1, "orders", nil)
		c.nodes.Store(3).FailPuts("topics/", errBroken, true) // its record cannot be removed
		if err := c.brokers[3].Delete(t.Context(), "orders"); !errors.Is(err, errBroken) {
			t.Fatal(err)
		}
		c.kill(3)
		time.Sleep(time.Minute)
		if items, _ := c.nodes.Store(1).Meta().List(t.Context(), "topics/"); len(items) != 0 || len(c.nodes.Logs()) != 0 {
			t.Errorf("%d records and the logs %v are left", len(items), c.nodes.Logs())
		}
		c.restart(3)
		c.create(2, "orders", nil)
	})
}
