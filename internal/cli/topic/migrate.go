package topic

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/profile"
	"github.com/sluice-project/sluice/internal/cli/remote"
	"github.com/sluice-project/sluice/internal/cli/term"
	"github.com/sluice-project/sluice/internal/cli/trust"
	"github.com/sluice-project/sluice/ops"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
	"github.com/sluice-project/sluice/topic/filestore"
	"github.com/sluice-project/sluice/topic/migrate"
	"github.com/sluice-project/sluice/topic/natsstore"
)

func newMigrateCommand() *cobra.Command {
	var m topicMigration
	command := &cobra.Command{
		Use:   "migrate --from DIR|URL --to URL",
		Short: "Migrate the topics of a single server into a cluster",
		Long: `Migrate the topics of a server without --cluster into a cluster: records and consumer
groups with their offsets, delayed records, and the state of producers, so that retried
batches are still deduplicated.

--from is the data directory of a stopped server, or the URL of a running one. A running
server keeps serving while its records are copied, and pauses only for the rest, at most
--max-pause. Then it refers its clients to the cluster, where they continue by
themselves. --to is the URL of any node of the cluster. Both servers and this command
need the cluster's secret (SLUICE_CLUSTER_SECRET, or cluster.secret_file); no token is
needed. With https, --ca and --client-cert are for both servers.

If the command is killed, the same command resumes; the two servers never both serve.
--abort gives up a migration that is not decided. --dry-run shows what would be copied.
See docs/topic/migrate.md.`,
		Example: `  sluice topic migrate --from http://127.0.0.1:8080 --to http://127.0.0.1:8081 --secret-file secret --dry-run
  sluice topic migrate --from http://127.0.0.1:8080 --to http://127.0.0.1:8081 --secret-file secret
  sluice topic migrate --from sluice-data --to http://127.0.0.1:8081 --topics 'orders*' --topics '!orders-test'`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			m.Out, m.Err = term.ScreenOf(command.OutOrStdout()), term.ScreenOf(command.ErrOrStderr())
			of, err := profile.Of(command)
			if err == nil {
				m.secure, err = trust.TLS(of)
			}
			if err != nil {
				return err
			}
			return explained(m.run(command.Context()))
		},
	}
	flags := command.Flags()
	flags.SortFlags = false
	flags.StringVar(&m.from, "from", "", "data directory of a stopped server, or `URL` of one that runs (required)")
	flags.StringVar(&m.to, "to", "", "`URL` of a node of the cluster (required)")
	flags.StringVar(&m.secretFile, "secret-file", "", "file with the cluster's secret (default: SLUICE_CLUSTER_SECRET)")
	flags.StringSliceVar(&m.options.Topics, "topics", nil, "topics to move, by name or pattern; with ! before it, not to move (default: all)")
	flags.IntVar(&m.options.Replicas, "replicas", 0, "nodes that keep each partition, 1 to 5 (default: 3, or all nodes if there are fewer)")
	flags.DurationVar(&m.options.MaxPause, "max-pause", 10*time.Second, "longest pause; records that are not copied by then are copied while the server serves")
	flags.BoolVar(&m.dryRun, "dry-run", false, "show what would be moved, and whether it can be; change nothing")
	flags.BoolVar(&m.abort, "abort", false, "give up a move that is not decided: the server serves again, and copies are removed")
	flags.BoolVar(&m.JSON, "json", false, "end with a JSON object")
	command.MarkFlagsMutuallyExclusive("dry-run", "abort")
	trust.AddTLS(command)
	return command
}

// topicMigration is one run of the command.
type topicMigration struct {
	from, to, secretFile string
	// secure is what both servers are trusted by, and shown.
	secure        *tls.Config
	options       migrate.Options
	dryRun, abort bool
	term.Output
}

// migratedTopics is the result of the command.
type migratedTopics struct {
	From string `json:"from"`
	To   string `json:"to"`
	// Topics, with their Partitions, Records and Bytes, are the data to migrate; delayed records
	// are not counted.
	Topics     int   `json:"topics"`
	Partitions int   `json:"partitions"`
	Records    int64 `json:"records"`
	Bytes      int64 `json:"bytes"`
	Groups     int   `json:"groups"`
	// Producers counts the partitions with producer state.
	Producers int `json:"producers"`
	Replicas  int `json:"replicas,omitempty"`
	// CopiedBytes counts the bytes that this run copied.
	CopiedBytes int64 `json:"copied_bytes"`
	ElapsedMS   int64 `json:"elapsed_ms"`
	PauseMS     int64 `json:"pause_ms"`
	DryRun      bool  `json:"dry_run,omitempty"`
	Aborted     bool  `json:"aborted,omitempty"`
	// Before reports whether an earlier run had already migrated everything.
	Before bool              `json:"moved_before,omitempty"`
	Nodes  []catalog.Address `json:"nodes,omitempty"`
}

func (m *topicMigration) run(ctx context.Context) (err error) {
	if m.from == "" || !isServer(m.to) {
		return exit.Usage("say from where and to which node of the cluster: --from sluice-data --to http://node1:8080")
	}
	if m.options.MaxPause < 100*time.Millisecond {
		return exit.Usage("--max-pause: %v: want at least 100ms", m.options.MaxPause)
	}
	secret, err := m.secret()
	if err != nil {
		return err
	}
	log, err := ops.NewLogger(m.Err, "text", slog.LevelWarn)
	if err != nil {
		return err
	}
	m.options.Logger = log
	source, closeSource, err := m.source(secret, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeSource()) }()
	target := migrate.NewClient(m.to, secret, m.secure)
	defer target.Close()
	migrator := migrate.New(source, target, m.options)
	began := time.Now()
	switch {
	case m.abort:
		if _, err := migrator.Abort(ctx); err != nil {
			return err
		}
		return m.report(migrate.Result{}, migratedTopics{Aborted: true})
	case m.dryRun:
		result, err := migrator.Check(ctx)
		if err != nil {
			return err
		}
		return m.report(result, migratedTopics{DryRun: true})
	}
	result, err := m.watch(ctx, migrator)
	if err != nil {
		if ctx.Err() != nil {
			return exit.Interrupted(err)
		}
		return err
	}
	return m.report(result, migratedTopics{ElapsedMS: time.Since(began).Milliseconds()})
}

// explained says what to do about an error of TLS.
func explained(err error) error {
	var at *url.Error
	if errors.As(err, &at) {
		server, _, _ := strings.Cut(at.URL, migrate.Prefix)
		if distrust := remote.Distrust(server, err); distrust != nil {
			return distrust
		}
	}
	return err
}

// isServer reports whether an address is a URL.
func isServer(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Host != "" && slices.Contains([]string{"http", "https"}, u.Scheme)
}

// longestSecret bounds the file of a secret.
const longestSecret = 4096

func (m *topicMigration) secret() (string, error) {
	secret := os.Getenv("SLUICE_CLUSTER_SECRET")
	if m.secretFile != "" {
		file, err := os.Open(m.secretFile)
		if err != nil {
			return "", exit.Usage("--secret-file: %v", err)
		}
		defer func() { _ = file.Close() }() // the file was only read
		text, err := io.ReadAll(io.LimitReader(file, longestSecret))
		if err != nil {
			return "", err
		}
		secret = strings.TrimSpace(string(text))
	}
	if secret == "" {
		return "", exit.Usage("the cluster's secret is needed: set SLUICE_CLUSTER_SECRET, or give --secret-file")
	}
	return secret, nil
}

// source opens the source of the migration.
func (m *topicMigration) source(secret string, log *slog.Logger) (migrate.Source, func() error, error) {
	if isServer(m.from) {
		client := migrate.NewClient(m.from, secret, m.secure)
		return client, func() error { client.Close(); return nil }, nil
	}
	dir := filepath.Join(m.from, "topic")
	if _, err := os.Stat(dir); err != nil {
		return nil, nil, fmt.Errorf("%s is not a data directory with topics: %w", m.from, err)
	}
	store, err := openStopped(dir, log)
	if err != nil {
		return nil, nil, err
	}
	export, err := migrate.NewExport(store, nil)
	if err != nil {
		return nil, nil, errors.Join(err, store.Close())
	}
	return export, store.Close, nil
}

// openStopped opens the store of a stopped server, of this release or an earlier one.
func openStopped(dir string, log *slog.Logger) (topic.Store, error) {
	old, err := isStandalone(dir, log)
	switch {
	case err != nil:
		return nil, err
	case old:
		return natsstore.Open(dir, natsstore.Options{Logger: log})
	}
	return filestore.Open(dir, filestore.Options{Logger: log})
}

// report prints what was migrated, or would be.
func (m *topicMigration) report(result migrate.Result, r migratedTopics) error {
	r.From, r.To = m.from, m.to
	for _, t := range result.Inventory.Topics {
		r.Topics++
		r.Partitions += t.Partitions
		for _, log := range t.Logs {
			r.Records += log.Records
			r.Bytes += log.Bytes
		}
	}
	r.Groups, r.Producers = len(result.Inventory.Groups), result.Inventory.Producers
	r.Replicas, r.Nodes = result.Status.Replicas, result.Status.Nodes
	r.CopiedBytes, r.PauseMS, r.Before = result.Bytes, result.Pause.Milliseconds(), result.Before
	if m.JSON {
		return m.WriteJSON(&r)
	}
	if !r.Aborted {
		m.table(&r)
	}
	at := make([]string, 0, len(r.Nodes))
	for _, node := range r.Nodes {
		at = append(at, fmt.Sprintf("%s:%d", node.Host, node.Port))
	}
	switch brokers := cmp.Or(strings.Join(at, ","), m.to); {
	case r.Aborted:
		fmt.Fprintf(m.Err, "given up: %s serves its topics, and the copies at %s are removed\n", r.From, r.To)
	case r.DryRun && r.Before:
		fmt.Fprintf(m.Err, "the topics have moved already; nothing was changed\n")
	case r.DryRun:
		fmt.Fprintf(m.Err, "nothing was changed; without --dry-run the topics move from %s to %s\n", r.From, r.To)
	case r.Before:
		fmt.Fprintf(m.Err, "the topics were moved before: there was nothing to do; they are at %s\n", brokers)
	default:
		fmt.Fprintf(m.Err, "the topics go on at %s\n", brokers)
	}
	return nil
}

// watch runs a migrator and shows its progress.
func (m *topicMigration) watch(ctx context.Context, migrator *migrate.Migrator) (result migrate.Result, err error) {
	err = term.WhileShown(m.Err, func() (err error) {
		result, err = migrator.Run(ctx)
		return err
	}, func(rate func(int64) float64) string {
		p := migrator.Progress()
		return progressLine(p, rate(p.Bytes))
	})
	return result, err
}

// progressLine returns the line that shows the progress; the rate is in bytes per second.
func progressLine(p migrate.Progress, rate float64) string {
	parts := []string{
		string(p.Phase),
		fmt.Sprintf("%s/%s (%s)", humanize.IBytes(uint64(p.Bytes)), humanize.IBytes(uint64(p.Total)), term.Percent(min(p.Bytes, p.Total), p.Total)),
		humanize.Comma(p.Entries) + " entries",
		humanize.IBytes(uint64(max(rate, 0))) + "/s",
	}
	if p.Pause > 0 {
		parts = append(parts, "paused for "+term.Spell(p.Pause))
	}
	return strings.Join(parts, " · ")
}

// table prints what was migrated, or would be.
func (m *topicMigration) table(r *migratedTopics) {
	g := term.Grid{Header: []string{"", ""}, Left: map[int]bool{0: true}}
	row := func(what, value string) { g.Rows = append(g.Rows, []string{what, value}) }
	row("topics", humanize.Comma(int64(r.Topics)))
	row("partitions", humanize.Comma(int64(r.Partitions)))
	row("records", humanize.Comma(r.Records))
	row("bytes", humanize.IBytes(uint64(r.Bytes)))
	row("groups", humanize.Comma(int64(r.Groups)))
	row("producers", humanize.Comma(int64(r.Producers)))
	if r.Replicas > 0 {
		row("replicas", strconv.Itoa(r.Replicas))
	}
	if elapsed := time.Duration(r.ElapsedMS) * time.Millisecond; !r.DryRun && !r.Before {
		row("copied", humanize.IBytes(uint64(r.CopiedBytes)))
		row("elapsed", term.Spell(elapsed))
		row("rate", humanize.IBytes(uint64(float64(r.CopiedBytes)/max(0.001, elapsed.Seconds())))+"/s")
		row("pause", term.Spell(time.Duration(r.PauseMS)*time.Millisecond))
	}
	g.Write(m.Out, m.Out.Columns())
}
