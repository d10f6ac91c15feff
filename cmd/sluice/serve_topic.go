package main

import (
	"context"
	"errors"
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
	"github.com/sluice-project/sluice/topic/natsstore"
)

// publishers take the events of other parts; those that are nil are off.
type publishers struct {
	bulk bulk.Publisher
	room room.Publisher
}

// openTopics opens the store of topics, with the server for Kafka clients in
// front of it, and returns what publishes events to them; nothing if topics are
// off.
func openTopics(settings *config.Config, server *ops.Server, log *slog.Logger) (*part, publishers, error) {
	if settings.Topic.Kafka == config.Off {
		return &part{close: func() error { return nil }}, publishers{}, nil
	}
	store, err := natsstore.Open(filepath.Join(settings.DataDir, "topic"), natsstore.Options{
		SyncInterval: settings.Topic.SyncInterval(), DiskReserve: settings.DiskReserve, Logger: log,
	})
	if err != nil {
		return nil, publishers{}, err
	}
	broker, err := topic.New(store, settings.Topic.Config(), topic.WithLogger(log))
	if err != nil {
		return nil, publishers{}, errors.Join(err, store.Close())
	}
	edge := kafka.NewServer(broker, kafka.Options{Addr: settings.Topic.Kafka, Advertise: settings.Topic.Advertised(), Logger: log})
	handler := api.New(broker, api.WithLogger(log))
	server.Mux().Handle("/v1/topics/", handler)
	server.Mux().Handle(api.DocumentPath, handler)
	server.Registry().MustRegister(edge.Collector())
	server.Ready("topic", func(context.Context) error { return broker.Err() })
	opened := &part{services: []lifecycle.Service{broker, edge}, close: store.Close}
	return opened, publishers{bulk: newBulkPublisher(broker, log), room: newRoomPublisher(broker, log)}, nil
}
