package broker_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/storetest"
)

// placed is a cluster of brokers in memory, in a bubble.
type placed struct {
	*testing.T
	nodes   *storetest.Nodes
	brokers map[int32]*broker.Broker
	config  topic.Config
}

// inCluster runs a test with a broker on a node in each of the racks.
func inCluster(t *testing.T, config topic.Config, racks []string, test func(*testing.T, *placed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &placed{T: t, nodes: storetest.NewCluster(len(racks)), brokers: map[int32]*broker.Broker{}, config: config}
		p.nodes.ElectAfter(5 * time.Second)
		defer p.stopAll()
		for i, rack := range racks {
			p.start(p.nodes.Store(int32(i+1)), rack)
		}
		synctest.Wait() // they know of each other
		test(t, p)
	})
}

func (p *placed) start(store *storetest.NodeStore, rack string) *broker.Broker {
	p.Helper()
	config := p.config
	config.Advertise = topic.Advertised{Host: fmt.Sprint("node", store.Node()), Port: 9092, Rack: rack}
	b, err := broker.New(store, config)
	if err != nil {
		p.Fatal(err)
	}
	if err := b.Start(p.Context()); err != nil {
		p.Fatal(err)
	}
	p.brokers[store.Node()] = b
	return b
}

func (p *placed) stopAll() {
	for id := range p.brokers {
		p.stop(id)
	}
}

// stop stops the broker of a node and ignores errors: a dead one has no store.
func (p *placed) stop(id int32) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = p.brokers[id].Stop(ctx)
	delete(p.brokers, id)
}

// kill kills a node as SIGKILL does.
func (p *placed) kill(id int32) {
	p.nodes.Kill(id)
	p.stop(id)
}

func (p *placed) create(spec topic.Spec) *broker.Topic {
	p.Helper()
	t, err := p.brokers[1].Create(p.Context(), spec, false)
	if err != nil {
		p.Fatal(err)
	}
	return t
}

// log returns the name of the log of a partition's records.
func (p *placed) log(t *broker.Topic, number int32) string {
	return fmt.Sprintf("records-%s-%d", t.ID(), number)
}

// on returns the nodes that keep a partition, as the cluster has it; nil while it has no
// leader.
func (p *placed) on(t *broker.Topic, number int32) []int32 {
	found, err := p.nodes.Store(1).Replicas(p.Context(), p.log(t, number))
	if err != nil {
		return nil
	}
	return found.Nodes
}

// await waits until a condition holds, for at most a minute.
func (p *placed) await(what string, holds func() bool) {
	p.Helper()
	for range 600 {
		if holds() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	p.Fatalf("after a minute not: %s", what)
}

func (p *placed) awaitOn(t *broker.Topic, number int32, want ...int32) {
	p.Helper()
	slices.Sort(want)
	p.await(fmt.Sprintf("%s/%d is on %v", t.Name(), number, want), func() bool { return slices.Equal(p.on(t, number), want) })
}

func (p *placed) awaitLeader(t *broker.Topic, number, want int32) {
	p.Helper()
	p.await(fmt.Sprintf("%d leads %s/%d", want, t.Name(), number), func() bool {
		found, err := p.brokers[1].Topic(t.Name())
		return err == nil && found.Partitions()[number].Leader() == want
	})
}

// fillCluster appends records to a partition, through t's broker.
func fillCluster(t *testing.T, to *broker.Topic, partition int32, count int) {
	t.Helper()
	for range count {
		until.Succeeds(t, "append", func() error {
			appending, err := to.Append(t.Context(), partition, []topic.Batch{batchOf(anybody, now(), "x")})
			if err == nil {
				_, _, err = appending.Wait(t.Context())
			}
			return err
		})
	}
}
