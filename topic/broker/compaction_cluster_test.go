package broker_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/catalog"
	"github.com/sluice-project/sluice/topic/storetest"
)

// generations returns the logs of clean generations.
func generations(nodes *storetest.Nodes) []string {
	return slices.DeleteFunc(nodes.Logs(), func(log string) bool { return !strings.HasPrefix(log, catalog.CleanPrefix) })
}

// wantCompacted checks that a topic has the latest values, one record each, from each offset on.
func wantCompacted(t *testing.T, of *broker.Topic, latest map[string]string) {
	t.Helper()
	if got, count := latestOf(t, of, 0); !maps.Equal(got, latest) || count != len(latest) {
		t.Fatalf("%d records of %v, want %v", count, got, latest)
	}
	for offset := int64(0); offset < of.Partitions()[0].Ends().HighWatermark; offset += 37 {
		latestOf(t, of, offset)
	}
}

// Each leader compacts what another one has compacted before, and one that leads again reads what
// counts by then.
func TestCompactionByEachLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 3, topic.Config{TailBytes: 1})
		orders := c.create(1, "orders", compacted())
		latest := map[string]string{}
		for round := range 6 {
			id := int32(round%3) + 1
			c.elect(orders, id)
			led := c.topic(id, "orders")
			if round > 0 {
				wantCompacted(t, led, latest)
			}
			fill(t, led, latest)
			wantCompacted(t, led, latest)
			if logs := generations(c.nodes); len(logs) != 1 {
				t.Fatalf("generations %v, want one", logs)
			}
			bytes, err := led.Partitions()[0].Bytes(t.Context())
			if err != nil || bytes > 100_000 {
				t.Fatalf("%d bytes, %v", bytes, err)
			}
		}
	})
}

// A leader loses its term in the middle of a pass: that does not count, and the next leader removes
// what it has written. The first one reads later what that leader has compacted.
func TestALeaderIsReplacedInAPass(t *testing.T) {
	for name, replace := range map[string]func(c *crew, orders *broker.Topic){
		"elected": func(c *crew, orders *broker.Topic) { c.nodes.Elect(records(orders), 2) },
		"cut off": func(c *crew, orders *broker.Topic) {
			c.nodes.Cut(1)
			for _, log := range c.nodes.Logs() {
				c.nodes.Elect(log, 2)
			}
		},
		"killed": func(c *crew, orders *broker.Topic) {
			c.kill(1)
			for _, log := range c.nodes.Logs() {
				c.nodes.Elect(log, 2)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCrew(t, 3, topic.Config{TailBytes: 1})
				orders := c.create(1, "orders", compacted())
				latest := map[string]string{}
				fill(t, orders, latest)
				before := generations(c.nodes)
				for i := range 700 {
					key, value := fmt.Sprint("key", i%30), fmt.Sprint("b", i)
					send(t, orders, keyed(anybody, false, put(key, value)))
					latest[key] = value
				}
				c.nodes.Store(1).Hold()
				time.Sleep(16 * time.Second)
				if logs := generations(c.nodes); len(logs) != 2 {
					t.Fatalf("generations %v in a pass after %v, want two", logs, before)
				}
				replace(c, orders)
				c.settle("orders", 2)
				if got, _ := latestOf(t, c.topic(2, "orders"), 0); !maps.Equal(got, latest) {
					t.Fatalf("the next leader has %v, want %v", got, latest)
				}
				time.Sleep(time.Minute)
				wantCompacted(t, c.topic(2, "orders"), latest)
				c.nodes.Store(1).Release()
				c.nodes.Heal(1)
				if c.brokers[1] == nil {
					c.restart(1)
				}
				time.Sleep(time.Minute)
				c.elect(orders, 1)
				wantCompacted(t, c.topic(1, "orders"), latest)
				fill(t, c.topic(1, "orders"), latest)
				wantCompacted(t, c.topic(1, "orders"), latest)
				if logs := generations(c.nodes); len(logs) != 1 || slices.Contains(before, logs[0]) {
					t.Errorf("generations %v, want one, and not of %v", logs, before)
				}
			})
		})
	}
}

// The generation that counts moves with its partition, and a node is not removed before it is gone.
func TestGenerationsMove(t *testing.T) {
	inCluster(t, topic.Config{}, []string{"", "", "", ""}, func(t *testing.T, p *placed) {
		b := p.brokers[1]
		prices := p.create(topic.Spec{Name: "prices", Assignment: [][]int32{{1, 2, 3}}, Settings: compacted()})
		latest := map[string]string{}
		fill(t, prices, latest)
		on := func() []int32 {
			found, err := p.nodes.Store(1).Replicas(t.Context(), generations(p.nodes)[0])
			if err != nil {
				return nil
			}
			return found.Nodes
		}
		if nodes := on(); !slices.Equal(nodes, []int32{1, 2, 3}) {
			t.Fatalf("the generation is on %v", nodes)
		}
		if _, err := b.Drain(t.Context(), 3, true); err != nil {
			t.Fatal(err)
		}
		p.await("the generation has left node 3", func() bool { return slices.Equal(on(), []int32{1, 2, 4}) })
		p.awaitOn(prices, 0, 1, 2, 4)
		p.await("nothing moves", func() bool {
			moving, err := b.Reassignments(t.Context())
			return err == nil && len(moving) == 0
		})
		p.kill(3)
		p.await("node 3 can be removed", func() bool { return b.RemoveNode(t.Context(), 3) == nil })
		if err := b.SetReplicas(t.Context(), "prices", 1); err != nil {
			t.Fatal(err)
		}
		p.await("the generation is on one node", func() bool { return len(on()) == 1 })
		wantCompacted(t, prices, latest)
	})
}

// While a node is away a generation is made on the others, and goes to that node when it is back.
func TestGenerationsOfANodeThatIsAway(t *testing.T) {
	inCluster(t, topic.Config{}, []string{"", "", ""}, func(t *testing.T, p *placed) {
		prices := p.create(topic.Spec{Name: "prices", Assignment: [][]int32{{1, 2, 3}}, Settings: compacted()})
		p.kill(3)
		latest := map[string]string{}
		fill(t, prices, latest)
		wantCompacted(t, prices, latest)
		made := generations(p.nodes)[0]
		found, err := p.nodes.Store(1).Replicas(t.Context(), made)
		if err != nil || !slices.Equal(found.Nodes, []int32{1, 2}) {
			t.Fatalf("the generation is on %v, %v", found.Nodes, err)
		}
		p.start(p.nodes.Restart(3), "")
		p.await("the generation is on all nodes", func() bool {
			found, err := p.nodes.Store(1).Replicas(t.Context(), made)
			return err == nil && slices.Equal(found.Nodes, []int32{1, 2, 3})
		})
	})
}

// A deleted topic, and a removed partition, leave no log and no record of compactions.
func TestADeletedTopicLeavesNoGeneration(t *testing.T) {
	inCluster(t, topic.Config{}, []string{"", "", ""}, func(t *testing.T, p *placed) {
		b, meta := p.brokers[1], p.nodes.Store(1).Meta()
		prices := p.create(topic.Spec{Name: "prices", Assignment: [][]int32{{1, 2, 3}, {1, 2, 3}}, Settings: compacted()})
		fill(t, prices, map[string]string{})
		// One that a replaced leader makes late has no record.
		late := catalog.NamesOf(prices.ID(), 0, 0).Clean + "99"
		if _, err := p.nodes.Store(2).MakeLog(t.Context(), late, []int32{1, 2, 3}, 7); err != nil {
			t.Fatal(err)
		}
		counts := generations(p.nodes)
		counts = slices.DeleteFunc(counts, func(log string) bool { return log == late })
		for range 60 {
			time.Sleep(15 * time.Second)
		}
		if logs := generations(p.nodes); len(counts) != 1 || !slices.Equal(logs, counts) {
			t.Fatalf("generations %v are left of %v and %s", logs, counts, late)
		}
		if err := b.RemovePartitions(t.Context(), "prices", 1, -1); err != nil {
			t.Fatal(err)
		}
		if err := b.Delete(t.Context(), "prices"); err != nil {
			t.Fatal(err)
		}
		items, err := meta.List(t.Context(), catalog.CompactionsPrefix)
		if logs := p.nodes.Logs(); len(logs) != 0 || len(items) != 0 || err != nil {
			t.Errorf("logs %v and %d records are left, %v", logs, len(items), err)
		}
	})
}

// The setting needs all nodes to know generations, and passes wait while one does not.
func TestCompactionNeedsAllNodes(t *testing.T) {
	inCluster(t, topic.Config{}, []string{"", "", ""}, func(t *testing.T, p *placed) {
		b, meta := p.brokers[1], p.nodes.Store(1).Meta()
		know := func(knows bool) {
			t.Helper()
			item, err := meta.Get(t.Context(), catalog.NodeKey(3))
			if err != nil {
				t.Fatal(err)
			}
			n, err := catalog.ReadNode(item)
			if err != nil {
				t.Fatal(err)
			}
			n.Compacts = knows
			value, err := n.Encode()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := meta.Put(t.Context(), item.Key, value, item.Revision); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		orders := p.create(topic.Spec{Name: "orders", Assignment: [][]int32{{1, 2, 3}}})
		policy, ratio := "compact", "0"
		compacts := map[string]*string{"cleanup.policy": &policy, "min.cleanable.dirty.ratio": &ratio}
		know(false)
		if _, err := b.Create(t.Context(), topic.Spec{Name: "prices", Settings: compacted()}, false); !errors.Is(err, topic.ErrInvalidSetting) || !strings.Contains(err.Error(), "node 3") {
			t.Errorf("a compacted topic is made: %v", err)
		}
		if err := b.Alter(t.Context(), "orders", compacts, false, false); !errors.Is(err, topic.ErrInvalidSetting) {
			t.Errorf("a topic becomes compacted: %v", err)
		}
		know(true)
		if err := b.Alter(t.Context(), "orders", compacts, false, false); err != nil {
			t.Fatal(err)
		}
		know(false)
		latest := map[string]string{}
		fill(t, orders, latest)
		if _, count := latestOf(t, orders, 0); count != 700 {
			t.Errorf("%d records are left, want all: a node does not know generations", count)
		}
		know(true)
		time.Sleep(16 * time.Second)
		wantCompacted(t, orders, latest)
	})
}

// consumed is what a consumer has read up to an offset: the latest value of each key.
type consumed struct {
	position int64
	latest   map[string]string
}

// left reads what is left of a compacted log: the values of keys and their offsets, and how many records there are.
func (c *chaos) left() (final map[string]string, last map[string]int64, count int) {
	final, last = map[string]string{}, map[string]int64{}
	for id := int32(1); id <= 3; id++ {
		orders, p := c.partition(id)
		if p == nil || p.Ready() != nil {
			continue
		}
		for position := int64(0); position < p.Ends().HighWatermark; {
			fetched, err := orders.Read(context.Background(), 0, position, 1<<20)
			before := position
			if position = c.read(position, fetched, final); err != nil || position == before {
				c.fail("%d bytes at %d: %v", fetched.Size, position, err)
				return final, last, count
			}
			batches, _ := topic.SplitBatches(slices.Concat(fetched.Data...)) // checked
			for _, b := range batches {
				for record, err := range b.Records() {
					if err != nil {
						c.fail("record: %v", err)
					}
					last[string(record.Key)] = record.Offset
					count++
				}
			}
		}
		break
	}
	return final, last, count
}

// checkCompacted compares what is left of a compacted log with the results that clients have seen.
func (c *chaos) checkCompacted() {
	final, last, count := c.left()
	if count != len(final) {
		c.fail("%d records of %d keys are left", count, len(final))
	}
	newest := func(value string, offset int64) {
		key := keyOf(value)
		if now := last[key]; now < offset || now == offset && final[key] != value {
			c.fail("%q at %d is newer than %q at %d, which is left", value, offset, final[key], now)
		}
	}
	for value, offset := range c.acked {
		newest(value, offset)
	}
	for offset, value := range c.seen {
		newest(value, offset)
	}
	for _, has := range c.consumed {
		for key, value := range final {
			if last[key] < has.position && has.latest[key] != value {
				c.fail("a consumer at %d has %q of key %s, and %q at %d is left", has.position, has.latest[key], key, value, last[key])
			}
		}
	}
	if logs := generations(c.nodes); len(logs) > 1 {
		c.fail("generations %v are left", logs)
	}
}

// keyOf returns the key of a value: see chaosProducer.batch.
func keyOf(value string) string {
	var id, sequence int
	_, _ = fmt.Sscanf(value, "%d/%d", &id, &sequence)
	return fmt.Sprintf("%d/%d", id, sequence%7)
}

// A leader that does not know of the next one, whose pass has trimmed the log, does not answer a read with
// the records after those that were moved.
func TestReadsWhereAnotherLeaderHasTrimmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 3, topic.Config{TailBytes: 1})
		orders := c.create(1, "orders", nil)
		for _, value := range []string{"a", "b", "c", "d"} {
			send(t, orders, batchOf(anybody, now(), value))
		}
		log, err := c.nodes.Store(2).OpenLog(t.Context(), records(orders), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, last, err := log.Ends(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := log.Trim(t.Context(), last-1); err != nil {
			t.Fatal(err)
		}
		if fetched, err := orders.Read(t.Context(), 0, 0, 1<<20); !errors.Is(err, topic.ErrRetry) {
			t.Errorf("%d bytes at offset 0, %v: want an ErrRetry", fetched.Size, err)
		}
		if fetched, err := orders.Read(t.Context(), 0, 2, 1<<20); fetched.Size == 0 || err != nil {
			t.Errorf("%d bytes at offset 2, %v: want what is there", fetched.Size, err)
		}
	})
}
