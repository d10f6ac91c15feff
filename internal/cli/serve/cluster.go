package serve

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/sluice-project/sluice/config"
	"github.com/sluice-project/sluice/internal/renew"
	"github.com/sluice-project/sluice/ops"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/natsstore"
)

// leaveTime bounds how long a stopping node transfers its leadership.
const leaveTime = 10 * time.Second

// clusterOptions returns the options of a node's store; nil for a single server.
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

// eventsTLS returns the configuration of connections to the first Kafka listeners of other nodes, nil without
// TLS there: this node shows the certificate that it has among nodes, of whose end the server warns, and trusts their authority.
func eventsTLS(settings *config.Config, server *ops.Server, log *slog.Logger) (*tls.Config, error) {
	toTLS := settings.Listeners()[0].TLS
	if settings.Cluster.CertFile == "" && !toTLS {
		return nil, nil
	}
	certificate, err := renew.LoadCertificate(settings.Cluster.CertFile, settings.Cluster.KeyFile, log)
	if err != nil {
		return nil, fmt.Errorf("cluster.cert_file: %w", err)
	}
	warnOfCertificate(server, "certificate among nodes", certificate.Get)
	if !toTLS {
		return nil, nil
	}
	authorities, err := renew.Authorities(settings.Cluster.CAFile)
	if err != nil {
		return nil, fmt.Errorf("cluster.ca_file: %w", err)
	}
	return &tls.Config{GetClientCertificate: certificate.GetClient, RootCAs: authorities, MinVersion: tls.VersionTLS12}, nil
}

// clusterMember is this process as a node of a cluster. It stops before everything else,
// so that this node can still refer clients to the new leaders.
type clusterMember struct {
	broker  *broker.Broker
	log     *slog.Logger
	leaving atomic.Bool
}

func newClusterMember(broker *broker.Broker, log *slog.Logger) *clusterMember {
	return &clusterMember{broker: broker, log: log}
}

// Name implements lifecycle.Service.
func (m *clusterMember) Name() string { return "member of the cluster" }

// Failed implements lifecycle.Service: see storeHealth.
func (m *clusterMember) Failed() <-chan struct{} { return nil }

// Err implements lifecycle.Service.
func (m *clusterMember) Err() error { return nil }

// Start implements lifecycle.Service.
func (m *clusterMember) Start(context.Context) error { return nil }

// Stop transfers leadership to other nodes. It never fails: the node stops even without
// others.
func (m *clusterMember) Stop(ctx context.Context) error {
	m.leaving.Store(true)
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	began := time.Now()
	if err := m.broker.Leave(ctx); err != nil {
		m.log.Warn("some partitions that this node led have no new leader yet", "error", err)
	} else {
		m.log.Info("other nodes lead the partitions that this node led", "took", time.Since(began))
	}
	return nil
}

// ready returns an error unless the node is connected to a majority and not leaving.
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
