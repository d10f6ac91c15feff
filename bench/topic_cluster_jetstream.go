package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// jetStreamCluster is a cluster of three nats-servers. Each line has streams of its own.
type jetStreamCluster struct {
	*nodes
	// conns are the connections to each node, by its name.
	conns   map[string]jetStreamConn
	lines   int
	streams []string // of the last line
}

type jetStreamConn struct {
	*nats.Conn
	js jetstream.JetStream
}

func jetStreamNode(node int) string { return fmt.Sprint("node-", node) }

func (e *Environment) startJetStreamCluster(ctx context.Context) (_ *jetStreamCluster, err error) {
	command, err := e.command(ctx, "nats-server", jetStreamModule, jetStreamVersion)
	if err != nil {
		return nil, err
	}
	clients, err := addresses(ctx)
	if err != nil {
		return nil, err
	}
	routes, err := addresses(ctx)
	if err != nil {
		return nil, err
	}
	args := func(node int, folder string) ([]string, error) {
		settings := fmt.Sprintf("server_name: %q\nlisten: %q\njetstream {\n  store_dir: %q\n  sync_interval: always\n}\n"+
			"cluster {\n  name: bench\n  listen: %q\n  routes: [\"nats://%s\"]\n}\n",
			jetStreamNode(node), clients[node], folder, routes[node], strings.Join(routes, "\", \"nats://"))
		path := filepath.Join(folder, "settings")
		return []string{"--config", path}, os.WriteFile(path, []byte(settings), 0o600)
	}
	s := &jetStreamCluster{conns: map[string]jetStreamConn{}}
	s.nodes, err = startNodes(ctx, e.folder, "jetstream-", command, args, func(node int) func(context.Context) error {
		return listens(clients[node])
	})
	if err != nil {
		return nil, err
	}
	for node, address := range clients {
		conn, err := nats.Connect("nats://"+address, nats.DontRandomize(), nats.IgnoreDiscoveredServers())
		if err != nil {
			return nil, errors.Join(err, s.Stop())
		}
		js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(jetStreamPending))
		if err != nil {
			return nil, errors.Join(err, s.Stop())
		}
		s.conns[jetStreamNode(node)] = jetStreamConn{conn, js}
	}
	return s, nil
}

// Line creates a stream for each partition, with a replica on each node, and publishes to the
// streams' leaders.
func (s *jetStreamCluster) Line(ctx context.Context, partitions int) (Line, error) {
	s.lines++
	s.streams = nil
	l := &jetStreamLine{sent: make(chan jetStreamSent, ClusterNodes*jetStreamPending), ended: make(chan struct{})}
	for i := range partitions {
		name := fmt.Sprintf("%s-%d", jetStreamName(i), s.lines)
		var leader string
		err := s.processes[0].await(ctx, func(ctx context.Context) (err error) {
			leader, err = s.create(ctx, name)
			return err
		})
		if err != nil {
			return nil, err
		}
		s.streams = append(s.streams, name)
		l.subjects = append(l.subjects, name)
		l.js = append(l.js, s.conns[leader].js)
	}
	go l.answer()
	return l, nil
}

// create creates a stream if it does not exist, and returns its leader when the other nodes are
// current.
func (s *jetStreamCluster) create(ctx context.Context, name string) (leader string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	stream, err := s.any().CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: name, Subjects: []string{name}, Storage: jetstream.FileStorage, Replicas: ClusterNodes,
	})
	if err != nil {
		return "", err
	}
	cluster := stream.CachedInfo().Cluster
	if _, known := s.conns[cluster.Leader]; !known || len(cluster.Replicas) != ClusterNodes-1 {
		return "", fmt.Errorf("stream %s is led by %q and has %d replicas", name, cluster.Leader, len(cluster.Replicas)+1)
	}
	for _, replica := range cluster.Replicas {
		if !replica.Current {
			return "", fmt.Errorf("%s has not got all of %s", replica.Name, name)
		}
	}
	return cluster.Leader, nil
}

// any returns one of the connections.
func (s *jetStreamCluster) any() jetstream.JetStream { return s.conns[jetStreamNode(0)].js }

func (s *jetStreamCluster) Kept(ctx context.Context) (int, error) {
	kept := 0
	for _, name := range s.streams {
		stream, err := s.any().Stream(ctx, name)
		if err != nil {
			return 0, err
		}
		kept += int(stream.CachedInfo().State.Msgs)
	}
	return kept, nil
}

// Stop ends the processes and removes their files.
func (s *jetStreamCluster) Stop() error {
	for _, conn := range s.conns {
		conn.Close()
	}
	return s.stop()
}
