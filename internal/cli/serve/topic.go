package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/twmb/franz-go/pkg/sasl"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-project/sluice/access"
	bulkengine "github.com/sluice-project/sluice/bulk/engine"
	"github.com/sluice-project/sluice/config"
	"github.com/sluice-project/sluice/internal/cli/events"
	"github.com/sluice-project/sluice/internal/fsync"
	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/ops"
	roomengine "github.com/sluice-project/sluice/room/engine"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/api"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/filestore"
	"github.com/sluice-project/sluice/topic/kafka"
	"github.com/sluice-project/sluice/topic/migrate"
	"github.com/sluice-project/sluice/topic/natsstore"
)

// topicFolder is the folder of topics in the data directory.
const topicFolder = "topic"

// probeFile is the file in it with which a node of a cluster sees that its disk is slow: JetStream's fsyncs cannot be watched.
const probeFile = "FSYNC"

// publishers publish the events of other parts; nil ones are off.
type publishers struct {
	bulk bulkengine.Publisher
	room roomengine.Publisher
}

// topics are the topics of this process or of its cluster.
type topics struct {
	part
	publishers
	broker *broker.Broker // nil: they are off
	// files is the store of a single server; nil in a cluster.
	files *filestore.Store
	// member stops before everything else; it is nil without a cluster.
	member *clusterMember
}

// openTopics opens the server for Kafka clients and the publishers of events, with the audit trail among the services. If
// topics are off, they have no store.
func openTopics(settings *config.Config, store topicStore, disk *fsync.Watch, accounts *accounts, server *ops.Server, secure *security, bounds *bounds, tracer trace.TracerProvider, log *slog.Logger) (*topics, error) {
	opened := &topics{part: *noPart()}
	if store == nil {
		opened.services = accounts.trail.services()
		return opened, nil
	}
	opened.files, _ = store.(*filestore.Store)
	broker, err := broker.New(store, brokerSettings(settings), broker.WithLogger(log), broker.WithTracerProvider(tracer), broker.WithQuotas(topicQuotas(accounts.known)))
	if err != nil {
		return nil, err
	}
	opened.broker = broker
	secret, err := settings.Cluster.SharedSecret()
	if err != nil {
		return nil, err
	}
	clients, err := newKafkaAccounts(accounts.known, secret)
	if err != nil {
		return nil, err
	}
	listeners := kafkaListeners(settings, secure)
	first, memory := listeners[0], bounds.memory.Share()
	edge := kafka.NewServer(broker, kafka.Options{
		Name: first.Name, Addr: first.Addr, Advertise: first.Advertise, TLS: first.TLS, Also: listeners[1:],
		Bound: bounds.connections.Listen, MaxRequestBytes: int(min(100<<20, memory/2)), RequestMemory: memory, FetchMemory: memory, CheckCertificate: secure.check, Accounts: clients, Trail: accounts.trail.kafka(), TracerProvider: tracer, Logger: log,
	})
	opened.services = append(append(append(storeServices(settings, store, disk, log), broker), accounts.trail.services()...), edge)
	var to events.Log = events.OwnLog{}
	if settings.Cluster.On() {
		opened.member = newClusterMember(broker, log)
		server.Ready("cluster", opened.member.ready)
		between, err := eventsTLS(settings, server, log)
		if err != nil {
			return nil, err
		}
		var account []sasl.Mechanism
		if clients != nil {
			account = append(account, nodeLogin(secret))
		}
		leaders, err := events.NewClusterLog(settings.Advertised(), between, account...)
		if err != nil {
			return nil, err
		}
		to = leaders
		opened.close = func() error {
			leaders.Close()
			return nil
		}
	}
	accounts.trail.publish(settings, broker, to, log)
	opened.publishers = publishers{bulk: events.ForBulk(broker, to, log), room: events.ForRooms(broker, to, log)}
	api.Register(server.API(), broker, api.WithLogger(log))
	if err := serveMigration(settings, server, store, broker, log); err != nil {
		return nil, errors.Join(err, opened.close())
	}
	server.Registry().MustRegister(edge.Collector(), broker.Collector())
	server.Ready("topic", func(context.Context) error { return broker.Err() })
	return opened, nil
}

// topicQuotas returns what owners of topics may have.
func topicQuotas(accounts *access.Accounts) func(owner string) topic.Quota {
	return func(owner string) topic.Quota {
		return topic.Quota{
			Topics: accounts.Most(owner, access.MaxTopics), Partitions: accounts.Most(owner, access.MaxPartitions), Groups: accounts.Most(owner, access.MaxGroups),
		}
	}
}

// brokerSettings returns the settings of the broker, with its addresses.
func brokerSettings(settings *config.Config) topic.Config {
	of := settings.Topic.Config()
	of.Advertise = settings.Advertised()
	return of
}

// kafkaListeners returns the listeners for Kafka clients. All with TLS have the same certificates.
func kafkaListeners(settings *config.Config, secure *security) []kafka.Listener {
	var all []kafka.Listener
	for _, of := range settings.Listeners() {
		all = append(all, kafka.Listener{Name: of.Name, Addr: of.Addr, Advertise: of.Advertise, TLS: secure.of(of)})
	}
	return all
}

// topicStore is a store that may fail.
type topicStore interface {
	topic.Store
	Failed() <-chan struct{}
	Err() error
}

// openTopicStore opens files, or with a cluster a node of it, which waits for a majority of the nodes;
// the store is nil if topics are off. It is closed when all that use it have stopped.
func openTopicStore(ctx context.Context, settings *config.Config, disk *fsync.Watch, log *slog.Logger) (store topicStore, closeStore func() error, err error) {
	if !settings.Topic.On() {
		return nil, func() error { return nil }, nil
	}
	cluster, err := clusterOptions(settings)
	if err != nil {
		return nil, nil, err
	}
	dir := filepath.Join(settings.DataDir, topicFolder)
	if cluster == nil {
		store, err = filestore.Open(dir, filestore.Options{
			SyncInterval: settings.Topic.SyncInterval(), DiskReserve: settings.DiskReserve, Logger: log, FS: disk.FS("topic"),
		})
	} else {
		store, err = natsstore.OpenCluster(ctx, dir, natsstore.Options{
			SyncInterval: settings.Topic.SyncInterval(), DiskReserve: settings.DiskReserve, Logger: log, Cluster: cluster,
		})
	}
	if err != nil {
		return nil, nil, err
	}
	return store, store.Close, nil
}

// storeServices returns what watches the store, and its disk where the store does not do so itself.
func storeServices(settings *config.Config, store topicStore, disk *fsync.Watch, log *slog.Logger) []lifecycle.Service {
	all := []lifecycle.Service{storeHealth{store}}
	if settings.Cluster.On() {
		all = append(all, fsync.NewProbe(disk.FS("topic"), filepath.Join(settings.DataDir, topicFolder, probeFile), log))
	}
	return all
}

// storeHealth ends the process when the store has failed: the next start finds out what it has.
// A node of a cluster then leaves the leadership to others.
type storeHealth struct{ topicStore }

// Name implements lifecycle.Service.
func (storeHealth) Name() string { return "store of topics" }

// Start implements lifecycle.Service.
func (storeHealth) Start(context.Context) error { return nil }

// Stop implements lifecycle.Service: the store is closed when all that use it have stopped.
func (storeHealth) Stop(context.Context) error { return nil }

// leastSecret is the least length of the cluster's secret.
const leastSecret = 16

// serveMigration serves the migration of topics to clients that know the cluster's secret:
// out of a single server that has the secret, and into a node of a cluster.
func serveMigration(settings *config.Config, server *ops.Server, store topic.Store, broker *broker.Broker, log *slog.Logger) error {
	secret, err := settings.Cluster.SharedSecret()
	if err != nil || secret == "" {
		return err
	}
	if len(secret) < leastSecret {
		return fmt.Errorf("cluster.secret has %d characters: want at least %d", len(secret), leastSecret)
	}
	if !store.Cluster().Alone() {
		server.Handle(migrate.Prefix, migrate.NewTargetHandler(migrate.NewImport(store), secret, log))
		return nil
	}
	export, err := migrate.NewExport(store, broker)
	if err != nil {
		return err
	}
	server.Handle(migrate.Prefix, migrate.NewSourceHandler(export, secret, log))
	return nil
}
