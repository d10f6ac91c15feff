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

With --state redis://…, the state of rooms is in that Redis or Valkey, which several
servers may share; bulk and topics stay in the data directory of each. With gate.http,
gate.room and gate.upstream set, the server is a gate in front of a site too, as
"sluice gate" is.

SIGTERM or Ctrl-C drains: nothing new is started, jobs in flight have
bulk.shutdown_grace to end, and what has not ended is handed back. "sluice config"
prints all settings.`,
		Example: `  sluice serve
  sluice serve --data /var/lib/sluice --http 127.0.0.1:8080 --kafka 127.0.0.1:9092
  SLUICE_BULK_WORKERS=50 sluice serve --config sluice.yaml
  sluice serve --state redis://127.0.0.1:6379
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
	topics, publish, err := openTopics(settings, server, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, topics.close()) }()
	bulk, err := openBulk(settings, server, publish.bulk, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bulk.close()) }()
	rooms, err := openRooms(ctx, settings, server, publish.room, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rooms.close()) }()
	// Topics before bulk and rooms, which publish to them until they have stopped.
	services := slices.Concat(topics.services, bulk.services, rooms.services, []lifecycle.Service{server})
	if settings.Gate.HTTP != config.Off {
		front, err := openGate(&settings.Gate, rooms, log)
		if err != nil {
			return err
		}
		services = append(services, front)
	}
	log.Info("serving", "http", settings.HTTP, "kafka", settings.Topic.Kafka, "data", settings.DataDir,
		"state", settings.State.String(), "gate", settings.Gate.HTTP)
	return lifecycle.Run(ctx, max(0, settings.Bulk.ShutdownGrace)+stopMargin, services...)
}

// part is one part of what is served: its services, and what to close when they
// have stopped.
type part struct {
	services []lifecycle.Service
	close    func() error
}
