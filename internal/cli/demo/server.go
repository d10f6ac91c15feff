package demo

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/engine"
	"github.com/sluice-project/sluice/bulk/webhook"
	"github.com/sluice-project/sluice/internal/cli/bulk/local"
	"github.com/sluice-project/sluice/internal/cli/events"
	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/filestore"
	"github.com/sluice-project/sluice/topic/kafka"
)

// demoPartitions is how many partitions the demo's topic has.
const demoPartitions = 3

// The bounds of reading events.
const (
	tailRecords = 500
	tailCommit  = 10 * time.Second
)

// demoServer is an engine with topics, in this process.
type demoServer struct {
	*local.Embedded
	store  *filestore.Store
	broker *broker.Broker
	edge   *kafka.Server
	rooms  *demoRooms
}

// openDemo opens a data directory and serves its topics and rooms at the given addresses,
// or at the next free ports.
func openDemo(ctx context.Context, dir string, config bulk.Config, at demoAddresses) (_ demoEngine, err error) {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	s := &demoServer{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.closeRooms(), s.closeTopics())
		}
	}()
	if s.store, err = filestore.Open(filepath.Join(dir, "topic"), filestore.Options{DiskReserve: local.DiskReserve, Logger: log}); err != nil {
		return nil, err
	}
	broker, err := broker.New(s.store, topic.Config{Partitions: demoPartitions}, broker.WithLogger(log))
	if err != nil {
		return nil, err
	}
	if err := broker.Start(ctx); err != nil {
		return nil, err
	}
	s.broker = broker
	err = local.FirstFree(ctx, at.Kafka, func(address string) error {
		edge := kafka.NewServer(broker, kafka.Options{Addr: address, Logger: log})
		if err := edge.Start(ctx); err != nil {
			return err
		}
		s.edge = edge
		return nil
	})
	if err != nil {
		return nil, exit.Usage("--kafka: %w", err)
	}
	if s.rooms, err = openDemoRooms(ctx, dir, at.Gate, events.ForRooms(broker, events.OwnLog{}, log), log); err != nil {
		return nil, err
	}
	s.Embedded, err = local.OpenEmbedded(dir, config, webhook.Options{Allow: targetNetworks}, engine.WithPublisher(events.ForBulk(broker, events.OwnLog{}, log)), engine.WithoutInlineTargets())
	if err != nil {
		return nil, err
	}
	s.Mounts = append(s.Mounts, s.rooms.mount)
	return s, nil
}

// Rooms implements demoEngine.
func (s *demoServer) Rooms() *demoRooms { return s.rooms }

// Brokers implements demoEngine.
func (s *demoServer) Brokers() string { return s.edge.Addr() }

// Close stops the engines, which publish until then, and then the topics.
func (s *demoServer) Close() error {
	return errors.Join(s.Embedded.Close(), s.closeRooms(), s.closeTopics())
}

func (s *demoServer) closeRooms() error {
	if s.rooms == nil {
		return nil
	}
	return s.rooms.Close()
}

func (s *demoServer) closeTopics() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), local.DrainGrace)
	defer cancel()
	if s.edge != nil {
		err = errors.Join(err, s.edge.Stop(ctx))
	}
	if s.broker != nil {
		err = errors.Join(err, s.broker.Stop(ctx))
	}
	if s.store != nil {
		err = errors.Join(err, s.store.Close())
	}
	return err
}

// Tail implements demoEngine.
func (s *demoServer) Tail(ctx context.Context, topic, group string) (eventTail, error) {
	if _, err := s.broker.AutoCreate(ctx, topic, ""); err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(s.Brokers()), kgo.ClientID("sluice demo"), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
	)
	if err != nil {
		return nil, err
	}
	return &groupTail{client: client, admin: kadm.NewClient(client), topic: topic, group: group}, nil
}

// groupTail is an eventTail over the Kafka protocol.
type groupTail struct {
	client       *kgo.Client
	admin        *kadm.Client
	topic, group string
	read         []*kgo.Record
}

// Next implements eventTail.
func (t *groupTail) Next(ctx context.Context) ([]eventAt, error) {
	fetches := t.client.PollRecords(ctx, tailRecords)
	if err := errors.Join(ctx.Err(), fetches.Err()); err != nil {
		return nil, err
	}
	t.read = fetches.Records()
	events := make([]eventAt, len(t.read))
	for i, record := range t.read {
		events[i] = eventAt{record.Partition, record.Offset, record.Value}
	}
	return events, nil
}

// Commit implements eventTail. It commits after the end of ctx as well.
func (t *groupTail) Commit(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tailCommit)
	defer cancel()
	err := t.client.CommitRecords(ctx, t.read...)
	t.client.AllowRebalance()
	return err
}

// Behind implements eventTail.
func (t *groupTail) Behind(ctx context.Context) (behind, all int64, err error) {
	ends, err := t.admin.ListEndOffsets(ctx, t.topic)
	if err != nil {
		return 0, 0, err
	}
	committed, err := t.admin.FetchOffsets(ctx, t.group)
	if err != nil {
		return 0, 0, err
	}
	for number, end := range ends[t.topic] {
		if end.Err != nil {
			return 0, 0, end.Err
		}
		all += end.Offset
		behind += end.Offset
		if at, found := committed.Lookup(t.topic, number); found && at.At > 0 {
			behind -= at.At
		}
	}
	return behind, all, nil
}

// Close implements eventTail.
func (t *groupTail) Close() { t.client.CloseAllowingRebalance() }
