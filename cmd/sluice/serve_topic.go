package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/config"
	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/ops"
	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/api"
	"github.com/sluice-project/sluice/topic/kafka"
	"github.com/sluice-project/sluice/topic/move"
	"github.com/sluice-project/sluice/topic/natsstore"
)

// publishers take the events of other parts; those that are nil are off.
type publishers struct {
	bulk bulk.Publisher
	room room.Publisher
}

// topics are those of this process, or of its cluster.
type topics struct {
	part
	publishers
	// member is stopped before everything else; nil without a cluster.
	member *clusterMember
}

// openTopics opens the store of topics, with the server for Kafka clients in
// front of it, and what publishes events to them; nothing if topics are off. In a
// cluster it waits until a majority of the nodes is there.
func openTopics(ctx context.Context, settings *config.Config, server *ops.Server, log *slog.Logger) (*topics, error) {
	if settings.Topic.Kafka == config.Off {
		return &topics{part: *noPart()}, nil
	}
	cluster, err := clusterOptions(settings)
	if err != nil {
		return nil, err
	}
	store, err := natsstore.OpenCluster(ctx, filepath.Join(settings.DataDir, "topic"), natsstore.Options{
		SyncInterval: settings.Topic.SyncInterval(), DiskReserve: settings.DiskReserve, Logger: log, Cluster: cluster,
	})
	if err != nil {
		return nil, err
	}
	opened := &topics{part: part{close: store.Close}}
	of := settings.Topic.Config()
	of.Advertise = settings.Advertised()
	broker, err := topic.New(store, of, topic.WithLogger(log))
	if err != nil {
		return nil, errors.Join(err, opened.close())
	}
	edge := kafka.NewServer(broker, kafka.Options{Addr: settings.Topic.Kafka, Advertise: settings.Topic.Advertised(), Logger: log})
	opened.services = []lifecycle.Service{broker, edge}
	var events eventLog = ownLog{}
	if cluster != nil {
		opened.member = newClusterMember(store, broker, log)
		server.Ready("cluster", opened.member.ready)
		leaders, err := newClusterLog(of.Advertise)
		if err != nil {
			return nil, errors.Join(err, opened.close())
		}
		events = leaders
		opened.close = func() error {
			leaders.close()
			return store.Close()
		}
	}
	opened.publishers = publishers{bulk: newBulkPublisher(broker, events, log), room: newRoomPublisher(broker, events, log)}
	handler := api.New(broker, api.WithLogger(log))
	for _, path := range []string{"/v1/topics/", "/v1/cluster", "/v1/cluster/", api.DocumentPath} {
		server.Mux().Handle(path, handler)
	}
	if err := serveMoves(settings, server, store, broker, log); err != nil {
		return nil, errors.Join(err, opened.close())
	}
	server.Registry().MustRegister(edge.Collector())
	server.Ready("topic", func(context.Context) error { return broker.Err() })
	return opened, nil
}

// moveSecretLeast is how long a secret must be to guard all topics.
const moveSecretLeast = 16

// serveMoves serves moves of topics to who knows the cluster's secret: out of a single
// node that was given it, and into a node of a cluster.
func serveMoves(settings *config.Config, server *ops.Server, store topic.Store, broker *topic.Broker, log *slog.Logger) error {
	secret, err := settings.Cluster.SharedSecret()
	if err != nil || secret == "" {
		return err
	}
	if len(secret) < moveSecretLeast {
		return fmt.Errorf("cluster.secret has %d characters: want at least %d", len(secret), moveSecretLeast)
	}
	if store.Cluster() != nil {
		server.Mux().Handle(move.Prefix, move.NewTargetHandler(topic.NewImport(store), secret, log))
		return nil
	}
	export, err := topic.NewExport(store, broker)
	if err != nil {
		return err
	}
	server.Mux().Handle(move.Prefix, move.NewSourceHandler(export, secret, log))
	return nil
}
