package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/ops"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/move"
	"github.com/sluice-project/sluice/topic/natsstore"
)

func newTopicMigrateCommand() *cobra.Command {
	var m topicMigration
	command := &cobra.Command{
		Use:   "migrate --from DIR|URL --to URL",
		Short: "Move the topics of a single server into a cluster",
		Long: `Move the topics of a server without --cluster into a cluster: records with their
offsets, consumer groups with theirs, delayed records, and what is known of producers,
so that a batch that is sent again is still found.

--from is the data directory of a stopped server, or the URL of one that runs: that one
serves on while its records are copied, and pauses only for the rest, at most --max-pause.
Then its clients are told where the cluster is, and go on there by themselves. --to is
the URL of any node of the cluster. Both servers must have the cluster's secret
(SLUICE_CLUSTER_SECRET, or cluster.secret_file), and so must this command.

Killed at any moment, the same command goes on; the two servers never both serve.
--abort gives up what has not been decided. --dry-run shows what there is.
docs/topic/migrate.md has it all.`,
		Example: `  sluice topic migrate --from http://127.0.0.1:8080 --to http://127.0.0.1:8081 --secret-file secret --dry-run
  sluice topic migrate --from http://127.0.0.1:8080 --to http://127.0.0.1:8081 --secret-file secret
  sluice topic migrate --from sluice-data --to http://127.0.0.1:8081 --topics 'orders*' --topics '!orders-test'`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			m.out, m.err = screenOf(command.OutOrStdout()), screenOf(command.ErrOrStderr())
			return m.run(command.Context())
		},
	}
	flags := command.Flags()
	flags.SortFlags = false
	flags.StringVar(&m.from, "from", "", "data directory of a stopped server, or `URL` of one that runs (required)")
	flags.StringVar(&m.to, "to", "", "`URL` of a node of the cluster (required)")
	flags.StringVar(&m.secretFile, "secret-file", "", "file with the cluster's secret (default: SLUICE_CLUSTER_SECRET)")
	flags.StringSliceVar(&m.options.Topics, "topics", nil, "topics to move, by name or pattern; with ! before it, not to move (default: all)")
	flags.IntVar(&m.options.Replicas, "replicas", 0, "nodes that keep each partition, 1 to 5 (default: 3, or all nodes if there are fewer)")
	flags.DurationVar(&m.options.MaxPause, "max-pause", 10*time.Second, "longest pause: what is not copied by then is copied on with the server serving")
	flags.BoolVar(&m.dryRun, "dry-run", false, "show what would be moved, and whether it can be; change nothing")
	flags.BoolVar(&m.abort, "abort", false, "give up a move that is not decided: the server serves again, and copies are removed")
	flags.BoolVar(&m.json, "json", false, "end with a JSON object")
	command.MarkFlagsMutuallyExclusive("dry-run", "abort")
	return command
}

// topicMigration is one run of the command.
type topicMigration struct {
	from, to, secretFile string
	options              move.Options
	dryRun, abort, json  bool
	out, err             screen
}

// movedTopics is what the command ends with.
type movedTopics struct {
	From string `json:"from"`
	To   string `json:"to"`
	// Topics, with their Partitions, Records and Bytes, are what there is to move;
	// of records that are delayed there is no count.
	Topics     int   `json:"topics"`
	Partitions int   `json:"partitions"`
	Records    int64 `json:"records"`
	Bytes      int64 `json:"bytes"`
	Groups     int   `json:"groups"`
	// Producers are the partitions for which producers are stored.
	Producers int `json:"producers"`
	Replicas  int `json:"replicas,omitempty"`
	// CopiedBytes were copied by this run.
	CopiedBytes int64 `json:"copied_bytes"`
	ElapsedMS   int64 `json:"elapsed_ms"`
	PauseMS     int64 `json:"pause_ms"`
	DryRun      bool  `json:"dry_run,omitempty"`
	Aborted     bool  `json:"aborted,omitempty"`
	// Before says that there was nothing left to do.
	Before bool            `json:"moved_before,omitempty"`
	Nodes  []topic.Address `json:"nodes,omitempty"`
}

func (m *topicMigration) run(ctx context.Context) (err error) {
	if m.from == "" || !isServer(m.to) {
		return wrongUsage("say from where and to which node of the cluster: --from sluice-data --to http://node1:8080")
	}
	if m.options.MaxPause < 100*time.Millisecond {
		return wrongUsage("--max-pause: %v: want at least 100ms", m.options.MaxPause)
	}
	secret, err := m.secret()
	if err != nil {
		return err
	}
	log, err := ops.NewLogger(m.err, "text", slog.LevelWarn)
	if err != nil {
		return err
	}
	m.options.Logger = log
	source, closeSource, err := m.source(secret, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeSource()) }()
	target := move.NewClient(m.to, secret)
	defer target.Close()
	mover := move.New(source, target, m.options)
	began := time.Now()
	switch {
	case m.abort:
		if _, err := mover.Abort(ctx); err != nil {
			return err
		}
		return m.report(move.Result{}, movedTopics{Aborted: true})
	case m.dryRun:
		result, err := mover.Check(ctx)
		if err != nil {
			return err
		}
		return m.report(result, movedTopics{DryRun: true})
	}
	result, err := m.watch(ctx, mover)
	if err != nil {
		if ctx.Err() != nil {
			return &interruptedError{err}
		}
		return err
	}
	return m.report(result, movedTopics{ElapsedMS: time.Since(began).Milliseconds()})
}

// isServer tells whether an address is a URL.
func isServer(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Host != "" && slices.Contains([]string{"http", "https"}, u.Scheme)
}

// moveSecretMost is the longest file of a secret.
const moveSecretMost = 4096

func (m *topicMigration) secret() (string, error) {
	secret := os.Getenv("SLUICE_CLUSTER_SECRET")
	if m.secretFile != "" {
		file, err := os.Open(m.secretFile)
		if err != nil {
			return "", wrongUsage("--secret-file: %v", err)
		}
		defer func() { _ = file.Close() }() // it was only read
		text, err := io.ReadAll(io.LimitReader(file, moveSecretMost))
		if err != nil {
			return "", err
		}
		secret = strings.TrimSpace(string(text))
	}
	if secret == "" {
		return "", wrongUsage("the cluster's secret is needed: set SLUICE_CLUSTER_SECRET, or give --secret-file")
	}
	return secret, nil
}

// source opens what topics are moved from.
func (m *topicMigration) source(secret string, log *slog.Logger) (move.Source, func() error, error) {
	if isServer(m.from) {
		client := move.NewClient(m.from, secret)
		return client, func() error { client.Close(); return nil }, nil
	}
	dir := filepath.Join(m.from, "topic")
	if _, err := os.Stat(dir); err != nil {
		return nil, nil, fmt.Errorf("%s is not a data directory with topics: %w", m.from, err)
	}
	store, err := natsstore.Open(dir, natsstore.Options{Logger: log})
	if err != nil {
		return nil, nil, err
	}
	export, err := topic.NewExport(store, nil)
	if err != nil {
		return nil, nil, errors.Join(err, store.Close())
	}
	return export, store.Close, nil
}

// report says what was moved, or would be.
func (m *topicMigration) report(result move.Result, r movedTopics) error {
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
	if m.json {
		return json.NewEncoder(m.out).Encode(&r)
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
		fmt.Fprintf(m.err, "given up: %s serves its topics, and what was copied to %s is removed\n", r.From, r.To)
	case r.DryRun && r.Before:
		fmt.Fprintf(m.err, "the topics have moved already; nothing was changed\n")
	case r.DryRun:
		fmt.Fprintf(m.err, "nothing was changed; without --dry-run the topics move from %s to %s\n", r.From, r.To)
	case r.Before:
		fmt.Fprintf(m.err, "the topics were moved before: there was nothing to do; they are at %s\n", brokers)
	default:
		fmt.Fprintf(m.err, "the topics go on at %s\n", brokers)
	}
	return nil
}
