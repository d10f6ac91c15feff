package migrate_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/migrate"
	"github.com/sluice-project/sluice/topic/storetest"
)

// startNodes starts the brokers of a cluster in memory.
func startNodes(t *testing.T, count int32) (*storetest.Nodes, []*broker.Broker) {
	t.Helper()
	nodes := storetest.NewCluster(int(count))
	var brokers []*broker.Broker
	for id := int32(1); id <= count; id++ {
		b, err := broker.New(nodes.Store(id), topic.Config{Advertise: topic.Advertised{Host: "node", Port: 9000 + id, Rack: string('a' + id)}})
		must(t, err)
		must(t, b.Start(t.Context()))
		brokers = append(brokers, b)
	}
	time.Sleep(10 * time.Second) // virtual: coordinators have their groups
	synctest.Wait()
	return nodes, brokers
}

func stopNodes(t *testing.T, brokers []*broker.Broker) {
	t.Helper()
	for _, b := range brokers {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		must(t, b.Stop(ctx))
		cancel()
	}
}

// Coordinators that serve already know the imported offsets before any client can ask for
// them, and keep them; partitions are on the requested number of nodes.
func TestIntoAClusterThatServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := startServer(t, storetest.NewMemory())
		defer source.stop()
		source.create("orders", 4, nil)
		for partition := range int32(4) {
			_, err := source.send("orders", partition, batch(t, nil, nil, "a", "b"))
			must(t, err)
		}
		groups := []string{"g", "h", "i", "j", "k"}
		for _, groupName := range groups {
			must(t, source.commit(group.MemberIdentity{Group: groupName, Generation: -1}, "orders", 2))
		}
		nodes, brokers := startNodes(t, 3)
		defer stopNodes(t, brokers)
		before := 0
		for _, group := range groups { // the coordinators have looked, and found nothing
			for _, b := range brokers {
				if offsets, err := b.Groups().Offsets(group); err == nil {
					before += len(offsets)
				}
			}
		}
		result, err := migrate.New(source.export, migrate.NewImport(nodes.Store(2)), migrate.Options{Replicas: 2}).Run(t.Context())
		must(t, err)
		if before != 0 || result.Status.Replicas != 2 || len(result.Status.Nodes) != 3 || result.Status.Nodes[2].Port != 9003 {
			t.Errorf("%d offsets before; the result is %+v", before, result.Status)
		}
		if result.Pause > time.Second {
			t.Errorf("the pause was %v", result.Pause)
		}
		for range 2 { // at once, and after a possible expiry
			for _, group := range groups {
				checkOffset(t, brokers, group, 2)
			}
			time.Sleep(30 * time.Second)
			synctest.Wait()
		}
		moved, err := brokers[0].Topic("orders")
		must(t, err)
		leaders := map[int32]bool{}
		for _, p := range moved.Partitions() {
			leaders[p.Leader()] = true
			if got := p.Replicas(); len(got) != 2 {
				t.Errorf("%v is on %v", p, got)
			}
		}
		if leaders[-1] || len(leaders) < 2 {
			t.Errorf("the leaders are %v", leaders)
		}
		if to := source.broker.MovedTo(); len(to) != 3 {
			t.Errorf("the source has moved to %v", to)
		}
	})
}

// checkOffset asks all brokers for a group's offset: one of them knows it, and none has
// another.
func checkOffset(t *testing.T, brokers []*broker.Broker, groupName string, want int64) {
	t.Helper()
	var got []int64
	for _, b := range brokers {
		offsets, err := b.Groups().Offsets(groupName)
		switch {
		case errors.Is(err, group.ErrNotCoordinator), errors.Is(err, group.ErrCoordinatorLoading):
		case err != nil:
			t.Errorf("group %s: %v", groupName, err)
		default:
			got = append(got, offsets["orders"][0].Offset)
		}
	}
	if slices.ContainsFunc(got, func(offset int64) bool { return offset != want }) {
		t.Errorf("group %s has offsets %v, want %d", groupName, got, want)
	}
}
