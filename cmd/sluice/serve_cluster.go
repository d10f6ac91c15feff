package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/sluice-project/sluice/config"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/natsstore"
)

// leaveTime is how long a node that stops tries to hand to others what it leads.
const leaveTime = 10 * time.Second

// clusterOptions are those of the store of a node; nil for a server that is alone.
func clusterOptions(settings *config.Config) (*natsstore.ClusterOptions, error) {
	of := &settings.Cluster
	if !of.On() {
		return nil, nil
	}
	secret, err := of.SharedSecret()
	if err != nil {
		return nil, fmt.Errorf("cluster.secret_file: %w", err)
	}
	return &natsstore.ClusterOptions{
		Name: of.Name, Node: int32(of.Node), Rack: of.Rack, Listen: of.Listen, Advertise: of.Advertise, Peers: of.Peers,
		Secret: secret, CertFile: of.CertFile, KeyFile: of.KeyFile, CAFile: of.CAFile,
	}, nil
}

// clusterMember is this process as a node of a cluster. It is stopped before all else, so
// that others lead while this node can still tell clients so.
type clusterMember struct {
	store   *natsstore.Store
	broker  *topic.Broker
	log     *slog.Logger
	leaving atomic.Bool
}

func newClusterMember(store *natsstore.Store, broker *topic.Broker, log *slog.Logger) *clusterMember {
	return &clusterMember{store: store, broker: broker, log: log}
}

// Name implements lifecycle.Service.
func (m *clusterMember) Name() string { return "member of the cluster" }

// Failed implements lifecycle.Service. A node whose engine has given up is of no use to
// the others: it ends, and they lead.
func (m *clusterMember) Failed() <-chan struct{} { return m.store.Failed() }

// Err implements lifecycle.Service.
func (m *clusterMember) Err() error { return m.store.Err() }

// Start implements lifecycle.Service.
func (m *clusterMember) Start(context.Context) error { return nil }

// Stop hands what this node leads to others. That there are none is no reason not
// to stop.
func (m *clusterMember) Stop(ctx context.Context) error {
	m.leaving.Store(true)
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	began := time.Now()
	if err := m.broker.Leave(ctx); err != nil {
		m.log.Warn("not all that this node led has a new leader yet", "error", err)
	} else {
		m.log.Info("others lead what this node led", "took", time.Since(began))
	}
	return nil
}

// ready tells whether the node is in the cluster: with the majority, and not about
// to leave.
func (m *clusterMember) ready(context.Context) error {
	if m.leaving.Load() {
		return fmt.Errorf("node %d is leaving the cluster", m.broker.Node())
	}
	nodes, alive := m.broker.Nodes(), 0
	for _, node := range nodes {
		if node.Alive {
			alive++
		}
	}
	if 2*alive <= len(nodes) {
		return fmt.Errorf("node %d hears of %d of %d nodes, itself included: it waits for a majority", m.broker.Node(), alive, len(nodes))
	}
	return nil
}
