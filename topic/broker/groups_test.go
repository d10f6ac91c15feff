package broker_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/group"
)

// A group is moved from any node, whatever nodes lead the partitions and coordinate it.
func TestAGroupIsResetFromAnyNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 3, topic.Config{})
		made, err := c.brokers[1].Create(t.Context(), topic.Spec{Name: "orders", Partitions: 3}, false)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		createView(t, c.brokers[1])
		noon := time.Now().Truncate(time.Second)
		c.fill(made, noon)
		coordinator, err := c.brokers[1].Groups().Coordinator(t.Context(), "billing")
		if err != nil {
			t.Fatal(err)
		}
		commit(t, c.brokers[coordinator], "billing", "orders", 1, 1)
		for id, b := range c.brokers {
			for _, test := range []struct {
				topic string
				at    int64
				want  []broker.Moved
			}{
				{"orders", broker.AtStart, []broker.Moved{{0, -1, 0}, {1, 1, 0}, {2, -1, 0}}},
				{"orders", broker.AtEnd, []broker.Moved{{0, -1, 2}, {1, 1, 3}, {2, -1, 4}}},
				{"orders", noon.Add(2 * time.Minute).UnixMilli(), []broker.Moved{{0, -1, 2}, {1, 1, 2}, {2, -1, 2}}},
				{"view", broker.AtEnd, []broker.Moved{{0, -1, 2}, {1, -1, 3}, {2, -1, 4}}},
			} {
				plan, err := b.PlanReset(t.Context(), "billing", test.topic, test.at)
				if err != nil || fmt.Sprint(plan) != fmt.Sprint(test.want) {
					t.Errorf("node %d, %s at %d: %v, %v; want %v", id, test.topic, test.at, plan, err, test.want)
				}
			}
			if _, err := b.PlanReset(t.Context(), "nosuch", "orders", broker.AtEnd); !errors.Is(err, group.ErrNoGroup) {
				t.Errorf("node %d: a group that does not exist: %v", id, err)
			}
		}
		for id, b := range c.brokers {
			if err := b.ResetGroup(t.Context(), "billing", "orders", broker.AtEnd); err != nil {
				t.Fatalf("node %d: %v", id, err)
			}
			offsets, err := c.brokers[coordinator].Groups().Offsets("billing")
			if at := offsets["orders"]; err != nil || at[0].Offset != 2 || at[1].Offset != 3 || at[2].Offset != 4 {
				t.Errorf("node %d has moved the group to %v, %v; want the ends", id, at, err)
			}
			commit(t, c.brokers[coordinator], "billing", "orders", 1, 1)
		}
		c.brokers[coordinator].Groups().Join(group.JoinRequest{Group: "billing", Session: 10 * time.Second, Rebalance: 10 * time.Second, ProtocolType: "consumer", Protocols: []group.Protocol{{Name: "range"}}})
		synctest.Wait()
		for id, b := range c.brokers {
			if err := b.ResetGroup(t.Context(), "billing", "orders", broker.AtStart); !errors.Is(err, group.ErrGroupNotEmpty) || !strings.Contains(err.Error(), "its members (1) would") {
				t.Errorf("node %d: a group with a member is moved: %v", id, err)
			}
		}
	})
}

// Where a leader does not answer, the preview says which.
func TestAResetNeedsAllLeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 3, topic.Config{})
		c.create(1, "orders", nil)
		leader := c.topic(1, "orders").Partitions()[0].Leader()
		asked := leader%3 + 1
		coordinator, err := c.brokers[asked].Groups().Coordinator(t.Context(), "billing")
		if err != nil {
			t.Fatal(err)
		}
		commit(t, c.brokers[coordinator], "billing", "orders", 0, 0)
		if _, err := c.nodes.Store(leader).Answer(nil); err != nil {
			t.Fatal(err)
		}
		_, err = c.brokers[asked].PlanReset(t.Context(), "billing", "orders", broker.AtEnd)
		if want := fmt.Sprintf("node %d, which leads partition 0", leader); !errors.Is(err, topic.ErrNoAnswer) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want ErrNoAnswer that names %s", err, want)
		}
	})
}

// fill appends two records to the first partition of a topic, and one more to each further one, a minute apart.
func (c *crew) fill(made *broker.Topic, from time.Time) {
	c.t.Helper()
	for number, p := range made.Partitions() {
		for i := range number + 2 {
			batch := batchOf(anybody, from.Add(time.Duration(i)*time.Minute).UnixMilli(), "x")
			appending, err := c.topic(p.Leader(), made.Name()).Append(c.t.Context(), int32(number), []topic.Batch{batch})
			if err == nil {
				_, _, err = appending.Wait(c.t.Context())
			}
			if err != nil {
				c.t.Fatal(err)
			}
		}
	}
}
