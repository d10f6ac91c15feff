package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/pebblestore"
	"github.com/sluice-project/sluice/bulk/redisstore"
	"github.com/sluice-project/sluice/config"
	"github.com/sluice-project/sluice/ops"
)

func newMigrateCommand() *cobra.Command {
	var m migration
	command := &cobra.Command{
		Use:   "migrate --from DIR --to URL",
		Short: "Move what a stopped server has of bulk into Redis or Valkey",
		Long: `Move all that bulk has in the data directory of a stopped server into a Redis or
Valkey, which several servers may share: actions with their jobs, results and dead
letters, events that wait, settings and schedules. Remote workers keep their leases.

The directory is read, and not changed but for a file that says where bulk was moved
to: then "sluice serve" does not go on from it by mistake. The Redis must have no
actions yet. Killed at any moment, the same command goes on or begins again; nothing
is doubled, and no server takes a half for the whole. --dry-run shows what there is.

Settings are those that the servers will run with, from --config, the environment
(SLUICE_BULK_WINDOW for bulk.window) or flags. docs/bulk/migrate.md has it all.`,
		Example: `  sluice bulk migrate --from sluice-data --to redis://127.0.0.1:6379 --dry-run
  sluice bulk migrate --from sluice-data --to redis://127.0.0.1:6379
  sluice serve --data sluice-data --state redis://127.0.0.1:6379`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			settings, err := config.Load(command.Flags(), os.Environ())
			if err != nil {
				return err
			}
			if settings.State.IsEmbedded() || settings.State.IsOff() {
				return wrongUsage("say where to: --to redis://host:6379")
			}
			m.settings, m.out, m.err = settings, screenOf(command.OutOrStdout()), screenOf(command.ErrOrStderr())
			return m.run(command.Context())
		},
	}
	flags := command.Flags()
	flags.SortFlags = false
	config.MoveFlags(flags)
	for name, usage := range map[string]string{
		"from": "data directory of the stopped server", "to": "`URL` of the Redis or Valkey (required)",
	} {
		flags.Lookup(name).Usage = usage
	}
	flags.Lookup("to").DefValue = ""
	flags.BoolVar(&m.dryRun, "dry-run", false, "show what would be moved, and whether it can be; change nothing")
	flags.BoolVar(&m.discard, "discard-unfinished", false, "give up what the move of another directory to there, which has not ended, has\ncopied; that directory still has all of it")
	flags.BoolVar(&m.json, "json", false, "end with a JSON object")
	return command
}

// migration is one run of the command.
type migration struct {
	settings              *config.Config
	dryRun, discard, json bool
	out, err              screen
	summary               bulk.ImageSummary
	moved                 pebblestore.Moved
}

// migrated is what the command ends with.
type migrated struct {
	From string `json:"from"`
	To   string `json:"to"`
	bulk.ImageSummary
	// Bytes are those of the payloads that were copied.
	Bytes     int64 `json:"bytes"`
	ElapsedMS int64 `json:"elapsed_ms"`
	DryRun    bool  `json:"dry_run,omitempty"`
	// Before says that there was nothing left to do.
	Before bool `json:"moved_before,omitempty"`
}

func (m *migration) run(ctx context.Context) (err error) {
	log, err := ops.NewLogger(m.err, m.settings.Log.Format, m.settings.Log.Level)
	if err != nil {
		return err
	}
	image, err := pebblestore.OpenImage(m.settings.DataDir, pebblestore.Options{Logger: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, image.Close()) }()
	if m.moved, err = image.Moved(); err != nil {
		return err
	}
	to := m.settings.State.String()
	if m.moved.To != to {
		if !m.moved.EndedAt.IsZero() {
			return &pebblestore.MovedError{Dir: m.settings.DataDir, File: filepath.Join(m.settings.DataDir, pebblestore.MovedFile), Moved: m.moved}
		}
		m.moved = pebblestore.Moved{To: to}
	}
	if m.summary, err = bulk.SummarizeImage(image); err != nil {
		return err
	}
	options := redisstore.Options{URL: m.settings.State.URL(), Shards: max(0, m.settings.BulkShards), Bulk: m.settings.Bulk, Logger: log}
	from := redisstore.ImportOptions{ID: m.moved.ID, From: m.settings.DataDir, Discard: m.discard}
	if err := m.check(ctx, options, from); err != nil {
		return err
	}
	if m.dryRun {
		return m.report(migrated{DryRun: true})
	}
	if m.moved.ID == "" {
		m.moved.ID, m.moved.BegunAt = strings.ToLower(rand.Text()), time.Now().UTC()
		if err := image.SetMoved(m.moved); err != nil {
			return err
		}
		from.ID = m.moved.ID
	}
	return m.move(ctx, image, options, from)
}

func (m *migration) check(ctx context.Context, options redisstore.Options, from redisstore.ImportOptions) error {
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	return m.explain(redisstore.CheckImport(ctx, options, from))
}

// explain says what to do about a server that takes nothing.
func (m *migration) explain(err error) error {
	var unfinished *redisstore.UnfinishedImportError
	if errors.As(err, &unfinished) {
		return fmt.Errorf("%s: %w; or give up what it has copied so far with --discard-unfinished, if it has come no further than that", m.moved.To, err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", m.moved.To, err)
	}
	return nil
}

// move copies the image, and makes it known.
func (m *migration) move(ctx context.Context, image *pebblestore.Image, options redisstore.Options, from redisstore.ImportOptions) (err error) {
	began := time.Now()
	opening, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	target, err := redisstore.OpenImport(opening, options, from, image)
	if err != nil {
		return m.explain(err)
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	before := target.Done()
	if !target.Staged() {
		err := m.watch(target, func() error { return target.Stage(ctx, image) })
		if err != nil {
			return m.interrupted(ctx, err)
		}
	}
	// All is there, but no server sees it yet. From here on this directory is the past.
	if m.moved.EndedAt.IsZero() {
		m.moved.EndedAt = time.Now().UTC()
		if err := image.SetMoved(m.moved); err != nil {
			return err
		}
	}
	if err := target.Enter(ctx, image); err != nil {
		return m.interrupted(ctx, err)
	}
	return m.report(migrated{
		Bytes: target.Progress().Bytes, ElapsedMS: time.Since(began).Milliseconds(), Before: before,
	})
}

// interrupted says that what was not done is done by the same command.
func (m *migration) interrupted(ctx context.Context, err error) error {
	err = fmt.Errorf("%w; the move has not ended: the same command goes on", err)
	if ctx.Err() != nil {
		return &interruptedError{err}
	}
	return err
}

// report says what was moved.
func (m *migration) report(r migrated) error {
	r.From, r.To, r.ImageSummary = m.settings.DataDir, m.moved.To, m.summary
	if m.json {
		return json.NewEncoder(m.out).Encode(&r)
	}
	m.table(&r)
	switch {
	case r.DryRun:
		fmt.Fprintf(m.err, "nothing was changed; without --dry-run bulk moves from %s to %s\n", r.From, r.To)
	case r.Before:
		fmt.Fprintf(m.err, "bulk was moved from %s to %s before: there was nothing to do\n", r.From, r.To)
	default:
		fmt.Fprintf(m.err, "every action was compared; bulk goes on at %s: sluice serve --data %s --state URL\n", r.To, r.From)
	}
	return nil
}
