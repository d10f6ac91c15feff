package bulk

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/pebblestore"
	"github.com/sluice-project/sluice/bulk/redisstore"
	"github.com/sluice-project/sluice/config"
	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/term"
	"github.com/sluice-project/sluice/ops"
)

func newMigrateCommand() *cobra.Command {
	var m migration
	command := &cobra.Command{
		Use:   "migrate --from DIR --to URL",
		Short: "Copy the bulk data of a stopped server into Redis or Valkey",
		Long: `Copy all bulk data in the data directory of a stopped server into a Redis or Valkey,
which several servers may share: actions with their jobs, results and dead letters,
pending events, settings and schedules. Remote workers keep their leases.

The directory is only read, except for a file that names the target, so that "sluice
serve" does not continue from it by mistake. The Redis must have no actions yet. If the
command is killed, the same command resumes or starts again; nothing is duplicated, and
no server sees a partial copy. --dry-run shows what would be copied.

Settings are those of the future servers, from --config, the environment
(SLUICE_BULK_WINDOW for bulk.window) or flags. See docs/bulk/migrate.md.`,
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
				return exit.Usage("say where to: --to redis://host:6379")
			}
			m.settings, m.Out, m.Err = settings, term.ScreenOf(command.OutOrStdout()), term.ScreenOf(command.ErrOrStderr())
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
	flags.BoolVar(&m.JSON, "json", false, "end with a JSON object")
	return command
}

// openTimeout bounds opening the store.
const openTimeout = 15 * time.Second

// migration is one run of the command.
type migration struct {
	settings        *config.Config
	dryRun, discard bool
	term.Output
	summary bulk.ImageSummary
	moved   pebblestore.Migration
}

// migrated is the result of the command.
type migrated struct {
	From string `json:"from"`
	To   string `json:"to"`
	bulk.ImageSummary
	// Bytes are those of the payloads that were copied.
	Bytes     int64 `json:"bytes"`
	ElapsedMS int64 `json:"elapsed_ms"`
	DryRun    bool  `json:"dry_run,omitempty"`
	// Before reports whether an earlier run had already migrated everything.
	Before bool `json:"moved_before,omitempty"`
}

func (m *migration) run(ctx context.Context) (err error) {
	log, err := ops.NewLogger(m.Err, m.settings.Log.Format, m.settings.Log.Level)
	if err != nil {
		return err
	}
	image, err := pebblestore.OpenImage(m.settings.DataDir, pebblestore.Options{Logger: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, image.Close()) }()
	if m.moved, err = image.Migration(); err != nil {
		return err
	}
	to := m.settings.State.String()
	if m.moved.To != to {
		if !m.moved.EndedAt.IsZero() {
			return &pebblestore.MigratedError{Dir: m.settings.DataDir, File: filepath.Join(m.settings.DataDir, pebblestore.MigrationFile), Migration: m.moved}
		}
		m.moved = pebblestore.Migration{To: to}
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
		if err := image.SetMigration(m.moved); err != nil {
			return err
		}
		from.ID = m.moved.ID
	}
	return m.move(ctx, image, options, from)
}

func (m *migration) check(ctx context.Context, options redisstore.Options, from redisstore.ImportOptions) error {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	return m.explain(redisstore.CheckImport(ctx, options, from))
}

// explain adds the target to an error, and for an unfinished import says how to discard it.
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

// move copies the image and makes it visible.
func (m *migration) move(ctx context.Context, image *pebblestore.Image, options redisstore.Options, from redisstore.ImportOptions) (err error) {
	began := time.Now()
	opening, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	target, err := redisstore.OpenImport(opening, options, from, image)
	if err != nil {
		return m.explain(err)
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	before := target.Done()
	if !target.Staged() {
		if err := m.watch(target.Progress, func() error { return target.Stage(ctx, image) }); err != nil {
			return m.interrupted(ctx, err)
		}
	}
	// Everything is copied, but no server sees it yet. From here on the directory is out of date.
	if m.moved.EndedAt.IsZero() {
		m.moved.EndedAt = time.Now().UTC()
		if err := image.SetMigration(m.moved); err != nil {
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

// interrupted returns an error that says that the same command completes the migration.
func (m *migration) interrupted(ctx context.Context, err error) error {
	err = fmt.Errorf("%w; the move has not ended: the same command goes on", err)
	if ctx.Err() != nil {
		return exit.Interrupted(err)
	}
	return err
}

// report prints what was migrated.
func (m *migration) report(r migrated) error {
	r.From, r.To, r.ImageSummary = m.settings.DataDir, m.moved.To, m.summary
	if m.JSON {
		return m.WriteJSON(&r)
	}
	m.table(&r)
	switch {
	case r.DryRun:
		fmt.Fprintf(m.Err, "nothing was changed; without --dry-run bulk moves from %s to %s\n", r.From, r.To)
	case r.Before:
		fmt.Fprintf(m.Err, "bulk was moved from %s to %s before: there was nothing to do\n", r.From, r.To)
	default:
		fmt.Fprintf(m.Err, "every action was compared; bulk goes on at %s: sluice serve --data %s --state URL\n", r.To, r.From)
	}
	return nil
}

// watch runs the copying and shows its progress.
func (m *migration) watch(progress func() redisstore.ImportProgress, work func() error) error {
	return term.WhileShown(m.Err, work, func(rate func(int64) float64) string {
		p := progress()
		return m.progress(p, rate(p.Jobs))
	})
}

// progress returns the line that shows the progress.
func (m *migration) progress(p redisstore.ImportProgress, rate float64) string {
	parts := []string{
		fmt.Sprintf("%s/%s jobs (%s)", humanize.Comma(p.Jobs), humanize.Comma(m.summary.Jobs), term.Percent(p.Jobs, m.summary.Jobs)),
		fmt.Sprintf("%s/%s actions", humanize.Comma(p.Actions), humanize.Comma(m.summary.Actions)),
		humanize.IBytes(uint64(p.Bytes)), term.PerSecond(rate),
	}
	if rate > 0 {
		parts = append(parts, term.Spell(time.Duration(float64(m.summary.Jobs-p.Jobs)/rate*float64(time.Second)))+" left")
	}
	return strings.Join(parts, " · ")
}

// table prints what was migrated, or would be.
func (m *migration) table(r *migrated) {
	g := term.Grid{Header: []string{"", "all", "unfinished"}, Left: map[int]bool{0: true}}
	row := func(what string, all, unfinished string) { g.Rows = append(g.Rows, []string{what, all, unfinished}) }
	row("actions", humanize.Comma(r.Actions), humanize.Comma(r.Unfinished))
	row("jobs", humanize.Comma(r.Jobs), humanize.Comma(r.Waiting))
	row("in flight", "", humanize.Comma(r.InFlight))
	row("dead letters", humanize.Comma(r.DeadLetters), "")
	row("events", humanize.Comma(r.Events), "")
	row("schedules", humanize.Comma(r.Schedules), "")
	row("settings", humanize.Comma(r.Settings), "")
	if elapsed := time.Duration(r.ElapsedMS) * time.Millisecond; !r.DryRun && !r.Before {
		row("payloads", humanize.IBytes(uint64(r.Bytes)), "")
		row("elapsed", term.Spell(elapsed), "")
		row("rate", term.PerSecond(float64(r.Jobs)/max(0.001, elapsed.Seconds())), "")
	}
	g.Write(m.Out, m.Out.Columns())
}
