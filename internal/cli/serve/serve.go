package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/access/api"
	"github.com/sluice-project/sluice/config"
	"github.com/sluice-project/sluice/internal/bundle"
	"github.com/sluice-project/sluice/internal/connlimit"
	"github.com/sluice-project/sluice/internal/fsync"
	"github.com/sluice-project/sluice/internal/renew"
	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/ops"
	"github.com/sluice-project/sluice/web"
)

func Command() *cobra.Command {
	command := &cobra.Command{
		Use:   "serve",
		Short: "Serve bulk actions and waiting rooms over HTTP, and topics to Kafka clients",
		Long: `Serve bulk actions and waiting rooms over HTTP and topics to Kafka clients, with
all data in one directory. Nothing else needs to be installed.

  127.0.0.1:8080   HTTP:
    /ui/           the dashboard, in a browser
    /v1/…          the API; /openapi.json describes it
    /healthz       the process is alive
    /readyz        it is ready to serve
    /metrics       for Prometheus
  127.0.0.1:9092   the Kafka protocol, for any client; --kafka off disables it

Events of bulk actions are published to the topic sluice.bulk.events, events of
visitors to sluice.room.events.

With --state redis://…, bulk actions and rooms are kept in that Redis or Valkey, which
any number of servers may share: each serves the whole API and runs jobs. Topics stay in
the data directory of each server; with --kafka off no data directory is needed. Redis's
own settings decide what it keeps over a restart: docs/bulk/redis.md.

With --cluster the server is a node of a cluster whose nodes replicate topics: an
acknowledged record survives while a majority of its replicas does. Bulk actions and
rooms of a cluster are kept in Redis, or are off (--state off). Each node knows the
addresses of the others, and all share a secret. See docs/topic/cluster.md;
examples/cluster/three.sh starts three nodes on one machine.

With gate.http, gate.room and gate.upstream set, the server is also a gate in front of a
site, as "sluice gate" is. With --public, the visitors' part of HTTP has its own address.

With tracing.endpoint or OpenTelemetry's OTEL_EXPORTER_OTLP_ENDPOINT set, traces of bulk
actions, topics, rooms and gates are sent to a collector.

SIGTERM or Ctrl-C drains the server: a node hands its leadership to others, no new job
starts, jobs in flight have bulk.shutdown_grace to finish, and the rest is handed back.
"sluice config" prints all settings.`,
		Example: `  sluice serve
  sluice serve --data /var/lib/sluice --http 127.0.0.1:8080 --kafka 127.0.0.1:9092
  SLUICE_BULK_WORKERS=50 sluice serve --config sluice.yaml
  sluice serve --state redis://127.0.0.1:6379 --kafka off
  sluice serve --state redis://127.0.0.1:6379 --kafka off --http 127.0.0.1:8081
  sluice serve --state 'redis://host1:6379?addr=host2:6379&addr=host3:6379' --bulk-shards 16
  SLUICE_CLUSTER_SECRET=$(cat secret) sluice serve --cluster main --node 1 --state off \
    --cluster-listen 127.0.0.1:6222 --peers 127.0.0.1:6222,127.0.0.1:6223,127.0.0.1:6224
  sluice serve --tracing-endpoint http://127.0.0.1:4318 --tracing-sample-ratio 0.1
  sluice serve --gate-http 127.0.0.1:8000 --gate-room shop --gate-upstream http://127.0.0.1:3000`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return serve(command.Context(), command, func() (*config.Config, error) {
				return config.Load(command.Flags(), os.Environ())
			})
		},
	}
	command.Flags().SortFlags = false
	config.Flags(command.Flags())
	return command
}

// stopMargin bounds stopping, besides waiting for jobs in flight.
const stopMargin = 10 * time.Second

// serve opens the data directory and serves until ctx ends.
func serve(ctx context.Context, command *cobra.Command, load func() (*config.Config, error)) (err error) {
	settings, err := load()
	if err != nil {
		return err
	}
	log, tail, secure, err := prepare(settings, true, command)
	if err != nil {
		return err
	}
	disk := fsync.NewWatch(log)
	stored, closeStore, err := openTopicStore(ctx, settings, disk, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeStore()) }()
	accounts, err := openAccounts(ctx, settings, stored, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, accounts.close()) }()
	bounds, server := openServer(settings, accounts, secure, disk, tail, log)
	tracing, err := openTracing(ctx, settings, server, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tracing.close()) }()
	topics, err := openTopics(settings, stored, disk, accounts, server, secure, bounds, tracing.provider, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, topics.close()) }()
	bulk, err := openBulk(ctx, settings, server, disk, bounds.memory, topics.publishers.bulk, tracing.provider, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bulk.close()) }()
	rooms, err := openRooms(ctx, settings, server, disk, accounts.known, topics.publishers.room, tracing.provider, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rooms.close()) }()
	dashboard, err := serveOperators(settings, server, accounts, topics, bulk, rooms, log)
	if err != nil {
		return err
	}
	gate, err := openGate(settings, rooms, server, bounds, tracing.provider, log)
	if err != nil {
		return err
	}
	// Services stop in reverse order: bulk and rooms publish to topics until they have stopped, and tracing sends the spans of all.
	services := append(slices.Concat(tracing.services, accounts.services, topics.services, bulk.services, rooms.services, []lifecycle.Service{dashboard}, listeners(settings, server, secure), openPublic(settings, server, secure, bounds.connections, log), gate.services),
		newSecrets(settings, load, log, accounts.secrets, bulk.secrets, rooms.secrets, gate.secrets))
	grace := max(0, settings.Bulk.ShutdownGrace) + stopMargin
	if topics.member != nil {
		services = append(services, topics.member)
		grace += leaveTime
	}
	log.Info("serving", "http", settings.HTTP.String(), "public", settings.Public.String(), "kafka", settings.Topic.Kafka.String(), "data", settings.DataDir, "state", settings.State.String(), "gate", settings.Gate.HTTP.String())
	return lifecycle.Run(ctx, grace, services...)
}

// prepare does what comes before everything else, for a server with topics or without: it returns the
// log, with what keeps its end, and the configuration of TLS.
func prepare(settings *config.Config, topics bool, command *cobra.Command) (*slog.Logger, *bundle.Tail, *security, error) {
	tail := &bundle.Tail{}
	log, err := ops.NewLogger(io.MultiWriter(command.ErrOrStderr(), tail), settings.Log.Format, settings.Log.Level)
	if err != nil {
		return nil, nil, nil, err
	}
	if err := checkListen(settings, topics, log); err != nil {
		return nil, nil, nil, err
	}
	keepPrivate(settings, log)
	secure, err := openTLS(settings, log)
	return log, tail, secure, err
}

// serveOperators mounts what is for operators and about all parts: backups and the dashboard.
func serveOperators(
	settings *config.Config, server *ops.Server, accounts *accounts, topics *topics, jobs *jobs, rooms *rooms, log *slog.Logger,
) (*web.Dashboard, error) {
	if err := serveBackup(settings, server, topics, &jobs.part, &rooms.part, &accounts.part, log); err != nil {
		return nil, err
	}
	return openDashboard(settings, server, accounts, topics, jobs, rooms, log)
}

// checkListen refuses to listen where others reach what nothing authenticates, or warns of
// it if the settings allow it.
func checkListen(settings *config.Config, topics bool, log *slog.Logger) error {
	exposed, err := settings.Unprotected(topics)
	if len(exposed) > 0 {
		log.Warn("others than this machine reach these addresses, where nothing authenticates them, or tokens are sent in the clear", "settings", exposed)
	}
	return err
}

// security is TLS at the addresses of operators and Kafka clients.
type security struct {
	// config is nil if they have none.
	config *tls.Config
	// check returns why the certificate of a client is not good any more; nil: clients are asked for none.
	check func(*tls.ConnectionState) error
}

// of returns the TLS of a listener; nil if it has none.
func (s *security) of(l config.Listener) *tls.Config {
	if !l.TLS {
		return nil
	}
	return s.config
}

// openTLS returns TLS as the settings have it.
func openTLS(settings *config.Config, log *slog.Logger) (*security, error) {
	of, secure := &settings.TLS, &security{}
	if !of.On() {
		return secure, nil
	}
	var clients *renew.Clients
	var err error
	if of.ClientCAFile != "" {
		options := renew.ClientOptions{CAFile: of.ClientCAFile, CRLFile: of.ClientCRLFile, Optional: of.ClientOptional(), Logger: log}
		if clients, err = renew.LoadClients(options); err != nil {
			return nil, fmt.Errorf("tls: %w", err)
		}
		secure.check = clients.Check
	}
	if secure.config, err = renew.ServerTLS(of.CertFile, of.KeyFile, clients, log); err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	return secure, nil
}

// warnOfCertificate has the server warn of a certificate that ends soon.
func warnOfCertificate(server *ops.Server, name string, get func(*tls.ClientHelloInfo) (*tls.Certificate, error)) {
	server.Warn(name, func(context.Context) error { return renew.Expiring(get) })
}

// bounds are what all listeners of the process share.
type bounds struct {
	connections *connlimit.Limiter
	load        *ops.Load
	memory      ops.MemoryBudget
}

// openServer returns the server of operators, with what is about the process, and the bounds of all listeners.
func openServer(settings *config.Config, accounts *accounts, secure *security, disk *fsync.Watch, tail *bundle.Tail, log *slog.Logger) (*bounds, *ops.Server) {
	memory := ops.SetMemoryBudget(settings.MemoryBudget)
	load := ops.NewLoad(memory.Share())
	connections := connlimit.New(connlimit.Bounds{
		Total: settings.Connections, PerClient: settings.ConnectionsPerClient,
		Exempt: slices.Concat(settings.Room.TrustedProxies.Prefixes(), settings.Gate.TrustedProxies.Prefixes()),
	}, log)
	first := settings.HTTPListeners()[0]
	server := ops.NewServer(ops.Options{
		Name: strings.TrimSpace("http " + first.Name), Addr: first.Addr, Hosts: settings.KnownHosts(), TLS: secure.of(first), CheckCertificate: secure.check, Connections: connections, Load: load, Pprof: settings.Pprof, Accounts: accounts.known, Audit: accounts.trail.Trail, Logger: log,
	})
	server.Registry().MustRegister(connections, disk)
	server.Warn("disk", disk.Check)
	if secure.config != nil {
		warnOfCertificate(server, "certificate", secure.config.GetCertificate)
	}
	api.Register(server.API(), accounts.known, log)
	bundle.Register(server.API(), bundle.Source{Settings: inForce(settings), Failing: server.Failing, Log: tail, Logger: log})
	return &bounds{connections, load, memory}, server
}

// listeners returns a server at each address of http, of which the first is given.
func listeners(settings *config.Config, server *ops.Server, secure *security) []lifecycle.Service {
	all := []lifecycle.Service{server}
	for _, l := range settings.HTTPListeners()[1:] {
		all = append(all, server.NewListener("http "+l.Name, l.Addr, secure.of(l)))
	}
	return all
}

// inForce returns the text of the settings in force, without secrets.
func inForce(settings *config.Config) func() (string, error) {
	return func() (string, error) {
		var text strings.Builder
		err := settings.WriteYAML(&text)
		return text.String(), err
	}
}

// part is one part of the server: its services, and close, which is called after they
// have stopped.
type part struct {
	services []lifecycle.Service
	close    func() error
	// checkpoint puts what the part has in the data directory into a folder that it makes; nil: it
	// has nothing there.
	checkpoint func(ctx context.Context, dir string) error
	// secrets replaces the secrets that the settings have, and the sites of a gate; nil: there are
	// none.
	secrets func(*config.Config) error
}

// noPart returns a part that is off.
func noPart() *part { return &part{close: func() error { return nil }} }
