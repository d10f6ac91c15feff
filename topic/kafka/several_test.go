package kafka

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/internal/testkit/ports"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/storetest"
)

// several is a cluster in memory, with a Kafka server on a free port for each node.
type several struct {
	*testing.T
	nodes   *storetest.Nodes
	servers map[int32]*Server
}

func serveSeveral(t *testing.T, count int, config topic.Config) *several {
	t.Helper()
	all := &several{T: t, nodes: storetest.NewCluster(count), servers: map[int32]*Server{}}
	all.nodes.ElectAfter(200 * time.Millisecond)
	for id := range int32(count) {
		all.serve(all.nodes.Store(id+1), config)
	}
	all.await("all know each other", func() bool {
		for _, s := range all.servers {
			if len(s.broker.Nodes()) != count {
				return false
			}
		}
		return true
	})
	return all
}

func (s *several) serve(store *storetest.NodeStore, config topic.Config) {
	s.Helper()
	port := ports.Take(s.T, 1)[0]
	config.Advertise = topic.Advertised{Host: "127.0.0.1", Port: int32(port), Rack: fmt.Sprint("rack", store.Node())}
	b := startBroker(s.T, store, config)
	server := NewServer(b, Options{
		Addr:   ports.Addr(port),
		Logger: slog.New(slog.NewTextHandler(s.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err := server.Start(s.Context()); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { stop(s.T, server.Stop) })
	s.servers[store.Node()] = server
}

// client returns a client of all nodes that learns of changes soon. It does not give up a topic that a
// node does not know yet.
func (s *several) client(options ...kgo.Opt) *kgo.Client {
	var seeds []string
	for _, server := range s.servers {
		seeds = append(seeds, server.Addr())
	}
	return client(s.T, s.servers[1], append([]kgo.Opt{
		kgo.SeedBrokers(seeds...), kgo.MetadataMinAge(20 * time.Millisecond), kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
		kgo.UnknownTopicRetries(-1),
	}, options...)...)
}

func (s *several) await(what string, holds func() bool) {
	s.Helper()
	for deadline := time.Now().Add(patience); !holds(); {
		if time.Now().After(deadline) {
			s.Fatalf("not in time: %s", what)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// topic returns a topic as a node sees it.
func (s *several) topic(node int32, name string) *broker.Topic {
	s.Helper()
	var found *broker.Topic
	s.await(fmt.Sprintf("node %d knows %s", node, name), func() bool {
		t, err := s.servers[node].broker.Topic(name)
		found = t
		return err == nil
	})
	return found
}

// led waits until a node leads a partition, and all nodes agree.
func (s *several) led(name string, partition, by int32) {
	s.Helper()
	for node := range s.servers {
		t := s.topic(node, name)
		s.await(fmt.Sprintf("node %d sees that %d leads %s/%d", node, by, name, partition), func() bool {
			return t.Partitions()[partition].Leader() == by
		})
	}
	leader := s.topic(by, name).Partitions()[partition]
	s.await("the leader is ready", func() bool { return leader.Ready() == nil })
}

func (s *several) log(name string, partition int32) string {
	return fmt.Sprintf("records-%s-%d", s.topic(1, name).ID(), partition)
}
