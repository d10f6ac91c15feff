package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ClusterNodes is the number of servers of a cluster, and of replicas.
const ClusterNodes = 3

// Clusters returns the compared clusters, sluice first: each fsyncs acknowledged records on every
// node, and none compresses or encrypts.
func (e *Environment) Clusters() []Broker {
	return []Broker{
		{Name: "sluice", Start: func(ctx context.Context) (Server, error) { return e.startSluiceCluster(ctx) }},
		{Name: JetStreamName, Start: func(ctx context.Context) (Server, error) { return e.startJetStreamCluster(ctx) }},
	}
}

// nodes are the processes of a cluster.
type nodes struct {
	folder    string
	processes []*process
}

// startNodes starts processes that become ready only together; args gets the number of a node, from
// 0, and its folder.
func startNodes(ctx context.Context, parent, pattern, command string, args func(node int, folder string) ([]string, error), ready func(node int) func(context.Context) error) (_ *nodes, err error) {
	self := account{os.Geteuid(), os.Getegid()}
	n := &nodes{}
	if n.folder, err = folderFor(parent, pattern, self); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.stop())
		}
	}()
	for node := range ClusterNodes {
		folder, err := folderFor(n.folder, "node-", self)
		if err != nil {
			return nil, err
		}
		given, err := args(node, folder)
		if err != nil {
			return nil, err
		}
		p, err := start(ctx, self, folder, func(context.Context) error { return nil }, command, given...)
		if err != nil {
			return nil, err
		}
		n.processes = append(n.processes, p)
	}
	for node, p := range n.processes {
		if err = p.await(ctx, ready(node)); err != nil {
			return nil, err
		}
	}
	return n, nil
}

func (n *nodes) CPU() (sum time.Duration, err error) {
	for _, p := range n.processes {
		used, err := p.cpu()
		if err != nil {
			return 0, err
		}
		sum += used
	}
	return sum, nil
}

func (n *nodes) stop() error {
	var errs []error
	for _, p := range n.processes {
		errs = append(errs, p.stop(syscall.SIGKILL))
	}
	return errors.Join(append(errs, removeAll(n.folder))...)
}

// addresses returns one free address for each node.
func addresses(ctx context.Context) (all []string, err error) {
	for range ClusterNodes {
		address, err := freeAddress(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, address)
	}
	return all, nil
}

// clusterProducer is plainProducer with as many bytes in flight as JetStream's client has in 4,096
// large messages: the records of a measure end soon after it.
var clusterProducer = append(slices.Clone(plainProducer), kgo.MaxBufferedBytes(jetStreamPending*ClusterLarge))

// sluiceCluster is a cluster of three sluice nodes. Each line has a topic of its own.
type sluiceCluster struct {
	kafkaServer
	*nodes
	lines int
	topic string // of the last line
}

func (e *Environment) startSluiceCluster(ctx context.Context) (*sluiceCluster, error) {
	command, err := e.command(ctx, "sluice", sluiceCommand, "")
	if err != nil {
		return nil, err
	}
	var every [3][]string // for the other nodes, for Kafka and for HTTP
	for i := range every {
		if every[i], err = addresses(ctx); err != nil {
			return nil, err
		}
	}
	peers, kafka, http := every[0], every[1], every[2]
	if e.Profile != "" {
		http[0] = e.Profile
	}
	secret := rand.Text()
	args := func(node int, folder string) ([]string, error) {
		path := filepath.Join(folder, "secret")
		return []string{
			"serve", "--data", filepath.Join(folder, "data"), "--state", "off", "--cluster", "bench", "--node", fmt.Sprint(node + 1),
			"--kafka", kafka[node], "--http", http[node], "--cluster-listen", peers[node], "--peers", strings.Join(peers, ","),
			"--cluster-secret-file", path, fmt.Sprintf("--pprof=%t", e.Profile != ""), "--log-level", "warn",
		}, os.WriteFile(path, []byte(secret), 0o600)
	}
	s := &sluiceCluster{kafkaServer: kafkaServer{address: kafka[0], producer: clusterProducer}}
	s.nodes, err = startNodes(ctx, e.folder, "sluice-", command, args, func(node int) func(context.Context) error {
		return isReady(http[node])
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// isReady returns a check that sluice is ready at an address.
func isReady(address string) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", http.NoBody)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		if err = response.Body.Close(); err == nil && response.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s at /readyz", response.Status)
		}
		return err
	}
}

// Line creates a topic, and waits until each partition has a leader and all replicas.
func (s *sluiceCluster) Line(ctx context.Context, partitions int) (Line, error) {
	s.lines++
	s.topic = fmt.Sprint(recordsTopic, "-", s.lines)
	client, err := s.client()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	if _, err := admin.CreateTopic(ctx, int32(partitions), ClusterNodes, nil, s.topic); err != nil {
		return nil, err
	}
	err = s.processes[0].await(ctx, func(ctx context.Context) error {
		found, err := admin.ListTopics(ctx, s.topic)
		if err != nil {
			return err
		}
		return complete(found[s.topic], partitions)
	})
	if err != nil {
		return nil, err
	}
	producer, err := s.client(s.producer...)
	if err != nil {
		return nil, err
	}
	return &kafkaLine{client: producer, topic: s.topic}, nil
}

// complete returns an error that says what a topic lacks to be led and stored by all nodes.
func complete(topic kadm.TopicDetail, partitions int) error {
	if topic.Err != nil {
		return topic.Err
	}
	if len(topic.Partitions) != partitions {
		return fmt.Errorf("topic %s has %d partitions, want %d", topic.Topic, len(topic.Partitions), partitions)
	}
	for _, p := range topic.Partitions {
		if p.Err != nil {
			return fmt.Errorf("partition %d of %s: %w", p.Partition, topic.Topic, p.Err)
		}
		if p.Leader < 0 || len(p.ISR) != ClusterNodes {
			return fmt.Errorf("partition %d of %s is led by node %d and kept by %v", p.Partition, topic.Topic, p.Leader, p.ISR)
		}
	}
	return nil
}

func (s *sluiceCluster) Kept(ctx context.Context) (int, error) { return s.kept(ctx, s.topic) }

func (s *sluiceCluster) CPU() (time.Duration, error) { return s.nodes.CPU() }

func (s *sluiceCluster) Stop() error { return s.nodes.stop() }
