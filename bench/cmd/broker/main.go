package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/ops"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/kafka"
	"github.com/sluice-project/sluice/topic/natsstore"
)

// grace is how long the broker may take to stop.
const grace = 10 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "broker:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("broker", flag.ContinueOnError)
	dir := flags.String("dir", "", "where the records are kept; made if it does not exist")
	addr := flags.String("kafka", "127.0.0.1:9092", "the address for Kafka clients")
	sync := flags.Duration("sync", 0, "how often appends are fsynced; 0: each one, before it is answered")
	linger := flags.Duration("linger", 0, "how long an append at an idle partition waits for others")
	profile := flags.String("pprof", "", "an address to serve profiles at; empty: none")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *dir == "" || flags.NArg() > 0 {
		return fmt.Errorf("want -dir, and flags only: %q", flags.Args())
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	store, err := natsstore.Open(*dir, natsstore.Options{SyncInterval: *sync, Logger: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	broker, err := topic.New(store, topic.Config{Linger: *linger}, topic.WithLogger(log))
	if err != nil {
		return err
	}
	services := []lifecycle.Service{broker, kafka.NewServer(broker, kafka.Options{Addr: *addr, Logger: log})}
	if *profile != "" {
		services = append(services, ops.NewServer(ops.Options{Addr: *profile, Pprof: true, Logger: log}))
	}
	return lifecycle.Run(ctx, grace, services...)
}
