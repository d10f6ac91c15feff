package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/config"
	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/ops"
)

func newServeCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "serve",
		Short: "Serve bulk actions and waiting rooms over HTTP, and topics to Kafka clients",
		Long: `Serve bulk actions and waiting rooms over HTTP and topics to Kafka clients, with
everything in one data directory: nothing else needs to be installed.

  127.0.0.1:8080   HTTP:
    /v1/…          the API; /openapi.json describes it
    /healthz       the process lives
    /readyz        it can serve
    /metrics       for Prometheus
  127.0.0.1:9092   the Kafka protocol, for any client; --kafka off leaves it out

What happens to bulk actions is published to the topic sluice.bulk.events, and what
happens to visitors of rooms to sluice.room.events.

With --state redis://…, bulk actions and rooms are in that Redis or Valkey, which any
number of servers may share: each has the whole API, and each works. Topics stay in the
data directory of each server; with --kafka off it needs none. What Redis keeps when it
ends is a matter of its settings: docs/bulk/redis.md.

With --cluster the server is a node of a cluster, whose nodes keep copies of each
other's topics: what was acknowledged survives as long as a majority of the nodes that
keep it. Bulk actions and rooms of a cluster are in Redis, or off (--state off). Each
node has the address of the others, and all have one secret. docs/topic/cluster.md has
the rest, and examples/cluster/three.sh starts three on one machine.

With gate.http, gate.room and gate.upstream set, the server is a gate in front of a site
too, as "sluice gate" is.

With tracing.endpoint set, or OpenTelemetry's own OTEL_EXPORTER_OTLP_ENDPOINT, traces of
bulk actions are sent to a collector.

SIGTERM or Ctrl-C drains: what a node of a cluster leads goes to others, nothing new is started, jobs in flight have
bulk.shutdown_grace to end, and what has not ended is handed back. "sluice config"
prints all settings.`,
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
			settings, err := config.Load(command.Flags(), os.Environ())
			if err != nil {
				return err
			}
			return serve(command.Context(), settings, command)
		},
	}
	command.Flags().SortFlags = false
	config.Flags(command.Flags())
	return command
}

// stopMargin is what stopping may take beside waiting for jobs in flight.
const stopMargin = 10 * time.Second

// serve opens the data directory and serves until ctx ends.
func serve(ctx context.Context, settings *config.Config, command *cobra.Command) (err error) {
	log, err := ops.NewLogger(command.ErrOrStderr(), settings.Log.Format, settings.Log.Level)
	if err != nil {
		return err
	}
	server := ops.NewServer(ops.Options{Addr: settings.HTTP, Pprof: settings.Pprof, Logger: log})
	tracing, err := openTracing(ctx, settings, server, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tracing.close()) }()
	topics, err := openTopics(ctx, settings, server, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, topics.close()) }()
	bulk, err := openBulk(ctx, settings, server, topics.publishers.bulk, tracing.provider, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bulk.close()) }()
	rooms, err := openRooms(ctx, settings, server, topics.publishers.room, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rooms.close()) }()
	// Topics before bulk and rooms, which publish to them until they have stopped; and
	// tracing before all whose spans it sends.
	services := slices.Concat(tracing.services, topics.services, bulk.services, rooms.services, []lifecycle.Service{server})
	if settings.Gate.HTTP != config.Off {
		front, err := openGate(&settings.Gate, rooms, log)
		if err != nil {
			return err
		}
		services = append(services, front)
	}
	grace := max(0, settings.Bulk.ShutdownGrace) + stopMargin
	if topics.member != nil {
		services = append(services, topics.member)
		grace += leaveTime
	}
	log.Info("serving", "http", settings.HTTP, "kafka", settings.Topic.Kafka, "data", settings.DataDir,
		"state", settings.State.String(), "gate", settings.Gate.HTTP)
	return lifecycle.Run(ctx, grace, services...)
}

// part is one part of what is served: its services, and what to close when they
// have stopped.
type part struct {
	services []lifecycle.Service
	close    func() error
}

// noPart is a part that is off.
func noPart() *part { return &part{close: func() error { return nil }} }
