package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sluice-project/sluice/bulk/client"
	"github.com/sluice-project/sluice/outbox"
)

// attempts is how often a row is sent before the relay stalls: a server that is busy for a moment
// is no line in the log.
const attempts = 4

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "sluice-outbox:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("sluice-outbox", flag.ContinueOnError)
	database := flags.String("database", "", "the `URL` of the database that has the outbox; parts that it lacks are read from PGHOST, PGUSER, PGPASSWORD and so on")
	server := flags.String("server", "http://127.0.0.1:8080", "the `URL` of the Sluice server")
	tokenFile := flags.String("token-file", "", "a `file` with the token to show to the server; without it, the token is SLUICE_TOKEN")
	every := flags.Duration("every", 100*time.Millisecond, "the time between two looks at an empty outbox")
	schema := flags.Bool("schema", false, "print the SQL that creates the outbox, and end")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q: see --help", flags.Arg(0))
	case *every < time.Millisecond:
		return fmt.Errorf("--every %v: want at least 1ms", *every)
	case *schema:
		_, err := fmt.Print(outbox.Schema)
		return err
	}
	token := os.Getenv("SLUICE_TOKEN")
	if *tokenFile != "" {
		text, err := os.ReadFile(*tokenFile)
		if err != nil {
			return fmt.Errorf("--token-file: %w", err)
		}
		token = strings.TrimSpace(string(text))
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = outbox.Concurrency
	to, err := client.New(*server, client.WithToken(token), client.WithAttempts(attempts), client.WithHTTPClient(&http.Client{Transport: transport}))
	if err != nil {
		return fmt.Errorf("--server: %w", err)
	}
	pool, err := pgxpool.New(ctx, *database)
	if err != nil {
		return fmt.Errorf("--database: %w", err)
	}
	defer pool.Close()
	outbox.Relay{Pool: pool, Client: to, Every: *every}.Run(ctx)
	return nil
}
