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
		Short: "Serve bulk actions over HTTP, and topics to Kafka clients",
		Long: `Serve bulk actions over HTTP and topics to Kafka clients, with everything in one
data directory: nothing else needs to be installed.

  127.0.0.1:8080   HTTP:
    /v1/…          the API; /openapi.json describes it
    /healthz       the process lives
    /readyz        it can serve
    /metrics       for Prometheus
  127.0.0.1:9092   the Kafka protocol, for any client; --kafka off leaves it out

What happens to bulk actions is published to the topic sluice.bulk.events.

SIGTERM or Ctrl-C drains: nothing new is started, jobs in flight have
bulk.shutdown_grace to end, and what has not ended is handed back. "sluice config"
prints all settings.`,
		Example: `  sluice serve
  sluice serve --data /var/lib/sluice --http 127.0.0.1:8080 --kafka 127.0.0.1:9092
  SLUICE_BULK_WORKERS=50 sluice serve --config sluice.yaml`,
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
	topics, publisher, err := openTopics(settings, server, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, topics.close()) }()
	bulk, err := openBulk(settings, server, publisher, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bulk.close()) }()
	// Topics before bulk, which publishes to them until it has stopped.
	services := slices.Concat(topics.services, bulk.services, []lifecycle.Service{server})
	log.Info("serving", "http", settings.HTTP, "kafka", settings.Topic.Kafka, "data", settings.DataDir)
	return lifecycle.Run(ctx, max(0, settings.Bulk.ShutdownGrace)+stopMargin, services...)
}

// part is one part of what is served: its services, and what to close when they
// have stopped.
type part struct {
	services []lifecycle.Service
	close    func() error
}
