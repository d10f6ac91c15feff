package broker_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/topic"
)

func TestNodesOfACluster(t *testing.T) {
	inCluster(t, topic.Config{}, []string{"a", "b", "c"}, func(t *testing.T, p *placed) {
		synctest.Wait()
		for id, b := range p.brokers {
			nodes := b.Nodes()
			if len(nodes) != 3 || b.Registered() != 3 {
				t.Fatalf("node %d sees %+v", id, nodes)
			}
			for i, rack := range []string{"a", "b", "c"} {
				want := topic.Node{ID: int32(i + 1), Advertised: topic.Advertised{Host: fmt.Sprint("node", i+1), Port: 9092, Rack: rack}, Alive: true}
				if !reflect.DeepEqual(nodes[i], want) {
					t.Errorf("node %d sees %+v, want %+v", id, nodes[i], want)
				}
			}
		}
		p.kill(3)
		if nodes := p.brokers[1].Nodes(); nodes[2].Alive || !nodes[0].Alive || p.brokers[1].Registered() != 3 {
			t.Errorf("after a kill %+v", nodes)
		}
		p.start(p.nodes.Restart(3), "d")
		synctest.Wait()
		if nodes := p.brokers[1].Nodes(); !nodes[2].Alive || nodes[2].Rack != "d" {
			t.Errorf("after a restart in another rack %+v", nodes)
		}
	})
}

func TestReplicasOfNewTopics(t *testing.T) {
	inCluster(t, topic.Config{Partitions: 4}, []string{"a", "a", "b", "b"}, func(t *testing.T, p *placed) {
		orders := p.create(topic.Spec{Name: "orders"})
		led := map[int32]int{}
		for _, part := range orders.Partitions() {
			replicas := p.on(orders, part.Number())
			if len(replicas) != 3 || len(part.Target()) != 3 {
				t.Errorf("%v is on %v, to be on %v", part, replicas, part.Target())
			}
			led[part.Leader()]++
		}
		if len(led) != 4 {
			t.Errorf("leaders %v, want one partition for each node", led)
		}
		two := p.create(topic.Spec{Name: "two", Replicas: 2, Partitions: 6})
		for _, part := range two.Partitions() {
			if replicas := p.on(two, part.Number()); len(replicas) != 2 || (replicas[0] <= 2) == (replicas[1] <= 2) {
				t.Errorf("%v is on %v, which is one rack", part, replicas)
			}
		}
		given := p.create(topic.Spec{Name: "given", Assignment: [][]int32{{3, 1}, {2, 4, 1}}})
		p.awaitOn(given, 0, 1, 3)
		p.awaitOn(given, 1, 1, 2, 4)
		p.awaitLeader(given, 0, 3)
		for _, test := range []struct {
			spec topic.Spec
			want error
		}{
			{topic.Spec{Name: "x", Replicas: 5}, topic.ErrInvalidReplicas},
			{topic.Spec{Name: "x", Replicas: 6}, topic.ErrInvalidReplicas},
			{topic.Spec{Name: "x", Assignment: [][]int32{{1, 1}}}, topic.ErrInvalidAssignment},
			{topic.Spec{Name: "x", Assignment: [][]int32{{9}}}, topic.ErrInvalidAssignment},
			{topic.Spec{Name: "x", Assignment: [][]int32{{}}}, topic.ErrInvalidAssignment},
			{topic.Spec{Name: "x", Replicas: 3, Settings: map[string]string{"min.insync.replicas": "3"}}, topic.ErrInvalidSetting},
		} {
			for _, dryRun := range []bool{true, false} {
				if _, err := p.brokers[2].Create(p.Context(), test.spec, dryRun); !errors.Is(err, test.want) {
					t.Errorf("%+v: %v, want %v", test.spec, err, test.want)
				}
			}
		}
		p.create(topic.Spec{Name: "majority", Replicas: 3, Settings: map[string]string{"min.insync.replicas": "2"}})
		if err := p.brokers[1].SetReplicas(p.Context(), "majority", 1); !errors.Is(err, topic.ErrInvalidReplicas) {
			t.Errorf("fewer replicas than min.insync.replicas wants: %v", err)
		}
		if err := p.brokers[1].AddPartitions(p.Context(), "two", 7, false, []int32{4, 2}); err != nil {
			t.Fatal(err)
		}
		p.awaitOn(two, 6, 2, 4)
	})
}

func TestReassign(t *testing.T) {
	inCluster(t, topic.Config{}, []string{"", "", "", ""}, func(t *testing.T, p *placed) {
		orders := p.create(topic.Spec{Name: "orders", Assignment: [][]int32{{1, 2, 3}, {2, 3, 1}}})
		fillCluster(t, orders, 0, 5)
		refused, err := p.brokers[2].Reassign(p.Context(), "orders", map[int32][]int32{0: {4, 2, 3}, 1: {9}, 5: {1}})
		if err != nil || len(refused) != 2 || !errors.Is(refused[1], topic.ErrInvalidAssignment) || !errors.Is(refused[5], topic.ErrNoPartition) {
			t.Fatal(refused, err)
		}
		moving, err := p.brokers[3].Reassignments(p.Context())
		if err != nil || len(moving) != 1 {
			t.Fatalf("under way: %+v, %v", moving, err)
		}
		if m := moving[0]; m.Partition != 0 || !slices.Equal(m.Adding, []int32{4}) || !slices.Equal(m.Removing, []int32{1}) || !slices.Equal(m.Target, []int32{4, 2, 3}) {
			t.Errorf("under way: %+v", m)
		}
		p.awaitOn(orders, 0, 2, 3, 4)
		p.await("none is under way", func() bool {
			moving, err := p.brokers[1].Reassignments(p.Context())
			return err == nil && len(moving) == 0
		})
		p.await("the replicas are told", func() bool { return slices.Equal(orders.Partitions()[0].Replicas(), []int32{4, 2, 3}) })
		p.awaitLeader(orders, 0, 4)
		moved, err := p.brokers[4].Topic("orders")
		if err != nil {
			t.Fatal(err)
		}
		p.await("the records are there", func() bool { return moved.Partitions()[0].Ends().HighWatermark == 5 })
		if refused, err := p.brokers[1].Reassign(p.Context(), "orders", map[int32][]int32{0: nil}); err != nil || !errors.Is(refused[0], topic.ErrNoReassignment) {
			t.Errorf("cancel nothing: %v, %v", refused, err)
		}
	})
}

// A reassignment continues when its leader dies, and a cancelled one leaves the replicas
// where they were.
func TestReassignGoesOn(t *testing.T) {
	inCluster(t, topic.Config{}, []string{"", "", "", "", ""}, func(t *testing.T, p *placed) {
		orders := p.create(topic.Spec{Name: "orders", Assignment: [][]int32{{2, 3, 1}, {3, 1, 4}}})
		if refused, err := p.brokers[1].Reassign(p.Context(), "orders", map[int32][]int32{0: {4, 5, 3}}); err != nil || len(refused) > 0 {
			t.Fatal(refused, err)
		}
		p.kill(2)
		p.awaitOn(orders, 0, 3, 4, 5)
		if refused, err := p.brokers[1].Reassign(p.Context(), "orders", map[int32][]int32{1: {2, 3, 1}}); err != nil || !errors.Is(refused[1], topic.ErrInvalidAssignment) {
			t.Errorf("to a dead node: %v, %v", refused, err)
		}
		if refused, err := p.brokers[1].Reassign(p.Context(), "orders", map[int32][]int32{1: {5, 3, 1}}); err != nil || len(refused) > 0 {
			t.Fatal(refused, err)
		}
		if refused, err := p.brokers[3].Reassign(p.Context(), "orders", map[int32][]int32{1: nil}); err != nil || len(refused) > 0 {
			t.Fatal(refused, err)
		}
		p.awaitOn(orders, 1, 1, 3, 4)
		time.Sleep(time.Minute)
		p.awaitOn(orders, 1, 1, 3, 4)
	})
}

func TestSetReplicas(t *testing.T) {
	inCluster(t, topic.Config{}, []string{"", "", ""}, func(t *testing.T, p *placed) {
		orders := p.create(topic.Spec{Name: "orders", Replicas: 1, Partitions: 3})
		for _, count := range []int{3, 2, 1, 3} {
			if err := p.brokers[2].SetReplicas(p.Context(), "orders", count); err != nil {
				t.Fatal(err)
			}
			for number := range int32(3) {
				p.await(fmt.Sprint(count, " replicas"), func() bool { return len(p.on(orders, number)) == count })
			}
		}
		for _, count := range []int{0, 4, 6} {
			if err := p.brokers[1].SetReplicas(p.Context(), "orders", count); !errors.Is(err, topic.ErrInvalidReplicas) {
				t.Errorf("%d replicas: %v", count, err)
			}
		}
	})
}

func TestDrainAndRemove(t *testing.T) {
	inCluster(t, topic.Config{}, []string{"", "", "", ""}, func(t *testing.T, p *placed) {
		b := p.brokers[1]
		orders := p.create(topic.Spec{Name: "orders", Partitions: 8, Settings: map[string]string{"sluice.delay.enable": "true"}})
		if err := b.RemoveNode(p.Context(), 4); !errors.Is(err, topic.ErrNodeInUse) {
			t.Errorf("remove a node that keeps partitions: %v", err)
		}
		if _, err := b.Drain(p.Context(), 9, true); !errors.Is(err, topic.ErrNoNode) {
			t.Errorf("drain a node that is not there: %v", err)
		}
		if moves, err := b.Drain(p.Context(), 4, true); err != nil || moves != 6 {
			t.Fatalf("drain: %d moves, %v", moves, err)
		}
		if _, err := b.Drain(p.Context(), 3, true); !errors.Is(err, topic.ErrInvalidReplicas) {
			t.Errorf("drain one more, where two would be left for three replicas: %v", err)
		}
		for number := range int32(8) {
			p.awaitOn(orders, number, 1, 2, 3)
		}
		if made := p.create(topic.Spec{Name: "made"}); slices.Contains(p.on(made, 0), 4) {
			t.Error("a node that is being drained got a new partition")
		}
		p.await("nothing moves", func() bool {
			moving, err := b.Reassignments(p.Context())
			return err == nil && len(moving) == 0
		})
		time.Sleep(10 * time.Second) // the logs of delayed records move too
		if err := b.RemoveNode(p.Context(), 4); !errors.Is(err, topic.ErrNodeInUse) {
			t.Errorf("remove a node that is alive: %v", err)
		}
		p.kill(4)
		if err := b.RemoveNode(p.Context(), 4); err != nil {
			t.Fatal(err)
		}
		if err := b.RemoveNode(p.Context(), 4); !errors.Is(err, topic.ErrNoNode) {
			t.Errorf("remove it again: %v", err)
		}
		synctest.Wait()
		if nodes := p.brokers[2].Nodes(); len(nodes) != 3 || p.brokers[2].Registered() != 3 {
			t.Errorf("nodes %+v", nodes)
		}
	})
}

// A dead node can be drained, and partitions that are placed on a node while its draining
// begins are moved too.
func TestDrainOfADeadNode(t *testing.T) {
	inCluster(t, topic.Config{}, []string{"", "", "", ""}, func(t *testing.T, p *placed) {
		orders := p.create(topic.Spec{Name: "orders", Partitions: 4})
		p.kill(4)
		if _, err := p.brokers[1].Drain(p.Context(), 4, true); err != nil {
			t.Fatal(err)
		}
		for number := range int32(4) {
			p.awaitOn(orders, number, 1, 2, 3)
		}
		if err := p.brokers[2].RemoveNode(p.Context(), 4); err != nil {
			t.Error(err)
		}
	})
}

func TestBalance(t *testing.T) {
	inCluster(t, topic.Config{}, []string{"", "", ""}, func(t *testing.T, p *placed) {
		orders := p.create(topic.Spec{Name: "orders", Partitions: 8})
		p.start(p.nodes.Add(4), "")
		synctest.Wait()
		changed, err := p.brokers[2].Balance(p.Context())
		if err != nil || changed == 0 {
			t.Fatal(changed, err)
		}
		p.await("the new node has its part", func() bool {
			kept := 0
			for number := range int32(8) {
				if slices.Contains(p.on(orders, number), 4) {
					kept++
				}
			}
			return kept == 6
		})
		if changed, err := p.brokers[1].Balance(p.Context()); err != nil || changed != 0 {
			t.Errorf("balance again: %d, %v", changed, err)
		}
	})
}

func TestElectLeaders(t *testing.T) {
	inCluster(t, topic.Config{LeaderBalanceInterval: -1}, []string{"", "", ""}, func(t *testing.T, p *placed) {
		orders := p.create(topic.Spec{Name: "orders", Assignment: [][]int32{{1, 2, 3}, {2, 3, 1}, {3, 1, 2}}})
		for number, leader := range []int32{1, 2, 3} {
			p.awaitLeader(orders, int32(number), leader)
		}
		for number, leader := range []int32{2, 3, 1} {
			if !p.nodes.Elect(p.log(orders, int32(number)), leader) {
				t.Fatal("not elected")
			}
			p.awaitLeader(orders, int32(number), leader)
		}
		time.Sleep(time.Hour)
		if leader := orders.Partitions()[0].Leader(); leader != 2 {
			t.Errorf("%d leads, though leaders do not go back by themselves", leader)
		}
		refused, err := p.brokers[3].ElectLeaders(p.Context(), "orders", []int32{0, 1, 7})
		if err != nil || len(refused) != 1 || !errors.Is(refused[7], topic.ErrNoPartition) {
			t.Fatalf("refused %v, %v", refused, err)
		}
		for number, leader := range []int32{1, 2, 1} {
			p.awaitLeader(orders, int32(number), leader)
		}
		if refused, err := p.brokers[1].ElectLeaders(p.Context(), "orders", []int32{0}); err != nil || !errors.Is(refused[0], topic.ErrElectionNotNeeded) {
			t.Errorf("elect again: %v, %v", refused, err)
		}
		p.kill(3)
		if refused, err := p.brokers[1].ElectLeaders(p.Context(), "orders", []int32{2}); err != nil || !errors.Is(refused[2], topic.ErrNoPreferredLeader) {
			t.Errorf("elect a dead one: %v, %v", refused, err)
		}
	})
}

// New partitions are led by their preferred leaders from the start, whichever node the
// engine has elected; also while a node is away.
func TestLeadersOfNewPartitions(t *testing.T) {
	inCluster(t, topic.Config{LeaderBalanceInterval: -1}, []string{"", "", ""}, func(t *testing.T, p *placed) {
		p.nodes.LeadNew(3)
		orders := p.create(topic.Spec{Name: "orders", Assignment: [][]int32{{1, 2, 3}, {2, 3, 1}, {3, 1, 2}}})
		for number, want := range []int32{1, 2, 3} {
			part := orders.Partitions()[number]
			if leader, epoch := part.Leader(), part.Epoch(); leader != want || epoch != 1 {
				t.Errorf("partition %d is led by %d in epoch %d, want %d in 1", number, leader, epoch, want)
			}
		}
		if err := p.brokers[2].AddPartitions(p.Context(), "orders", 4, false, []int32{2, 1, 3}); err != nil {
			t.Fatal(err)
		}
		p.awaitLeader(orders, 3, 2)
		p.kill(2)
		away := p.create(topic.Spec{Name: "away", Partitions: 3})
		for number := range int32(3) {
			p.awaitLeader(away, number, away.Partitions()[number].Target()[0])
		}
	})
}

// A preferred leader that does not have a new partition yet gets 3 seconds.
func TestANewPartitionThatItsPreferredLeaderLacks(t *testing.T) {
	inCluster(t, topic.Config{LeaderBalanceInterval: -1}, []string{"", "", ""}, func(t *testing.T, p *placed) {
		p.nodes.LeadNew(3)
		for name, c := range map[string]struct {
			behind time.Duration
			leader int32
		}{"soon": {2 * time.Second, 1}, "late": {time.Minute, 3}} {
			p.nodes.Store(1).Behind(true)
			has := time.AfterFunc(c.behind, func() { p.nodes.Store(1).Behind(false) })
			part := p.create(topic.Spec{Name: name, Assignment: [][]int32{{1, 2, 3}}}).Partitions()[0]
			if leader, epoch := part.Leader(), part.Epoch(); leader != c.leader || epoch != 1 {
				t.Errorf("%s: led by %d in epoch %d, want %d in 1", name, leader, epoch, c.leader)
			}
			has.Stop()
		}
	})
}

// A partition returns to its preferred leader after its node was away.
func TestLeadersGoBack(t *testing.T) {
	inCluster(t, topic.Config{}, []string{"", "", ""}, func(t *testing.T, p *placed) {
		orders := p.create(topic.Spec{Name: "orders", Assignment: [][]int32{{2, 3, 1}}})
		p.awaitLeader(orders, 0, 2)
		p.kill(2)
		p.awaitLeader(orders, 0, 3)
		part := orders.Partitions()[0]
		p.await("it is not in sync", func() bool { return slices.Equal(part.InSync(), []int32{3, 1}) && len(part.Replicas()) == 3 })
		p.start(p.nodes.Restart(2), "")
		time.Sleep(6 * time.Minute)
		p.awaitLeader(orders, 0, 2)
		p.await("it is in sync", func() bool { return slices.Equal(part.InSync(), []int32{2, 3, 1}) })
	})
}

// While a node is away, topics can be created with replicas on it.
func TestATopicThatIsMadeWhileANodeIsAway(t *testing.T) {
	inCluster(t, topic.Config{}, []string{"", "", ""}, func(t *testing.T, p *placed) {
		p.kill(3)
		orders := p.create(topic.Spec{Name: "orders", Partitions: 2})
		p.awaitOn(orders, 0, 1, 2)
		fillCluster(t, orders, 0, 3)
		time.Sleep(time.Minute)
		if moving, err := p.brokers[2].Reassignments(t.Context()); err != nil || len(moving) != 2 || !slices.Equal(moving[0].Adding, []int32{3}) {
			t.Errorf("under way: %+v, %v", moving, err)
		}
		p.start(p.nodes.Restart(3), "")
		p.awaitOn(orders, 0, 1, 2, 3)
		p.awaitOn(orders, 1, 1, 2, 3)
		p.kill(2)
		if _, err := p.brokers[1].Create(t.Context(), topic.Spec{Name: "more", Replicas: 4}, false); !errors.Is(err, topic.ErrInvalidReplicas) {
			t.Errorf("more replicas than nodes: %v", err)
		}
	})
}
