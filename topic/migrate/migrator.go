package migrate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
)

// Source is the source of a migration; [Export] documents the methods.
type Source interface {
	Inventory(ctx context.Context) (Inventory, error)
	EntryID(ctx context.Context, log string, sequence uint64) (EntryID, error)
	Entries(ctx context.Context, log string, from uint64, maxBytes int) ([]topic.Entry, error)
	Items(ctx context.Context, after string, maxBytes int) ([]topic.Item, error)
	Fence(ctx context.Context, cluster string, run int64) error
	Unfence(ctx context.Context, cluster string, run int64) error
	Moved(ctx context.Context, cluster string, run int64, nodes []catalog.Address) error
}

// Target is the target of a migration; [Import] documents the methods.
type Target interface {
	Begin(ctx context.Context, request ImportRequest) (ImportStatus, error)
	Log(ctx context.Context, source string, run int64, log string, first uint64, restart bool) (ImportedLog, error)
	Append(ctx context.Context, source string, run int64, log string, entries []topic.Entry) (uint64, error)
	Put(ctx context.Context, source string, run int64, items []topic.Item) error
	Commit(ctx context.Context, run int64, inventory Inventory) error
	Open(ctx context.Context, source string, run int64, topics []topic.Item) ([]catalog.Address, error)
	Abort(ctx context.Context, source string) (ImportStatus, error)
	Clean(ctx context.Context, source string, run int64) error
}

var (
	_ Source = (*Export)(nil)
	_ Target = (*Import)(nil)
)

// Options configure a migration. The zero value of each field means its default.
type Options struct {
	// Topics chooses the topics: names, or patterns as for path.Match; a "!" before one
	// excludes topics. Default: all.
	Topics []string
	// Replicas is how many nodes are to keep each partition. Default: three, or all
	// nodes if there are fewer.
	Replicas int
	// MaxPause bounds the time in which neither side serves. After it the fence is
	// removed and the copying continues. Default 10 s.
	MaxPause time.Duration
	// Fences bounds the attempts to finish within MaxPause. Default 3.
	Fences int
	// Logger logs errors that are retried. Default: nowhere.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.MaxPause == 0 {
		o.MaxPause = 10 * time.Second
	}
	if o.Fences == 0 {
		o.Fences = 3
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Bounds of a migration.
const (
	// chunkBytes is how much is copied at a time, of copiesAtOnce logs in parallel.
	chunkBytes   = 4 << 20
	copiesAtOnce = 4
	// shortPass is how long a pass may take for the next one to be the last.
	shortPass = time.Second
	// passesMost bounds the passes before the source is fenced, even if each has much
	// to copy: it will not become less.
	passesMost = 20
	// rescueMax bounds the attempts to remove a fence, or to complete a decided
	// migration, when the migrator itself is to end.
	rescueMax = 30 * time.Second
	// decideWaitMin and decideWaitMax bound the wait between queries of the decision.
	decideWaitMin = 50 * time.Millisecond
	decideWaitMax = 2 * time.Second
)

// Errors of migrations.
var (
	// ErrTooLong reports that the rest could not be copied within Options.MaxPause:
	// the source continues to serve.
	ErrTooLong = errors.New("the rest cannot be copied within the longest pause")
	// ErrUndecided reports that the decision could not be read: run it again.
	ErrUndecided = errors.New("it is not known whether the cluster has taken the topics over")
)

// Migrator migrates topics. It is used once.
type Migrator struct {
	source  Source
	target  Target
	options Options

	inventory Inventory
	run       int64
	cluster   string
	rescue    time.Duration // rescueMax; less in tests

	phase          atomic.Value // Phase
	bytes, records atomic.Int64
	total          atomic.Int64
	fenced         atomic.Int64 // since when, in nanoseconds since the epoch; 0: not fenced
}

// New returns a migrator.
func New(source Source, target Target, options Options) *Migrator {
	m := &Migrator{source: source, target: target, options: options.withDefaults(), rescue: rescueMax}
	m.phase.Store(Looking)
	return m
}

// Check checks both sides, and returns what would be migrated, or why it cannot be. It
// changes nothing.
func (m *Migrator) Check(ctx context.Context) (Result, error) {
	if err := m.look(ctx); err != nil {
		return Result{Inventory: m.inventory}, err
	}
	status, err := m.target.Begin(ctx, ImportRequest{Inventory: m.inventory, Replicas: m.options.Replicas, DryRun: true})
	if err == nil {
		err = m.inventory.mayCompact(status.Compacts)
	}
	return Result{Inventory: m.inventory, Status: status, Before: status.State == catalog.ImportOpen}, err
}

// look reads the inventory.
func (m *Migrator) look(ctx context.Context) error {
	inventory, err := m.source.Inventory(ctx)
	if err != nil {
		return fmt.Errorf("look at the source: %w", err)
	}
	m.inventory, err = Select(inventory, m.options.Topics)
	return err
}

// Run migrates the topics.
func (m *Migrator) Run(ctx context.Context) (Result, error) {
	if err := m.look(ctx); err != nil {
		return Result{}, err
	}
	for _, t := range m.inventory.Topics {
		for _, log := range t.Logs {
			m.total.Add(log.Bytes)
		}
	}
	status, err := m.begin(ctx, 0)
	if err != nil {
		return Result{}, err
	}
	switch status.State {
	case catalog.ImportOpen:
		// Only the source must still be told, unless it knows.
		err = m.tell(ctx, status.Nodes)
		m.phase.Store(Done)
		return Result{Inventory: m.inventory, Status: status, Before: true}, err
	case catalog.ImportOpening:
		if err := m.source.Fence(ctx, m.cluster, m.run); err != nil {
			return Result{}, fmt.Errorf("fence the source: %w", err)
		}
	default:
		if err := m.copyAll(ctx); err != nil {
			return Result{}, err
		}
	}
	nodes, err := m.open(ctx)
	if err != nil {
		return Result{}, err
	}
	pause := m.Progress().Pause
	status.Nodes, status.State = nodes, catalog.ImportOpen
	err = m.tell(ctx, nodes)
	m.phase.Store(Done)
	return Result{Inventory: m.inventory, Status: status, Bytes: m.bytes.Load(), Entries: m.records.Load(), Pause: pause}, err
}

// begin begins an attempt, or continues one after the inventory was read again.
func (m *Migrator) begin(ctx context.Context, run int64) (ImportStatus, error) {
	status, err := m.target.Begin(ctx, ImportRequest{Inventory: m.inventory, Replicas: m.options.Replicas, Run: run})
	m.run = max(m.run, status.Run)
	if err == nil && status.State == catalog.ImportCopying {
		err = m.inventory.mayCompact(status.Compacts)
	}
	if err != nil {
		return status, fmt.Errorf("begin in the cluster: %w", err)
	}
	m.cluster = status.Cluster
	return status, nil
}

// tell makes the source redirect its clients to the cluster, unless it does so already.
func (m *Migrator) tell(ctx context.Context, nodes []catalog.Address) error {
	if now := m.inventory.Move; now.State == catalog.Migrated && now.Cluster == m.cluster {
		return nil
	}
	err := m.source.Moved(ctx, m.cluster, m.run, nodes)
	if err != nil {
		return fmt.Errorf("the cluster serves the topics, and the source could not be told: run it again: %w", err)
	}
	return nil
}

// hasMoved reports whether a pass has failed since entries of the source are not where its inventory says, as
// when they were compacted in the meantime.
func hasMoved(err error) bool {
	return errors.Is(err, topic.ErrFenced) || errors.Is(err, topic.ErrNoLog)
}

// mayCompact returns an ErrInvalidSetting if a topic of the inventory is compacted and the cluster's nodes do
// not all know that.
func (i Inventory) mayCompact(all bool) error {
	for _, t := range i.Topics {
		if t.Compacted && !all {
			return fmt.Errorf("%w: topic %s is compacted, which needs the newest version on all nodes of the cluster, and of this command: upgrade them, or set %s of the topic to delete",
				topic.ErrInvalidSetting, t.Name, topic.SettingCleanup)
		}
	}
	return nil
}

// copyAll copies the logs, first while the source serves and then while it is fenced, up
// to the decision.
func (m *Migrator) copyAll(ctx context.Context) error {
	for fences := 1; ; fences++ {
		m.phase.Store(Copying)
		for passes := 1; ; passes++ {
			began := time.Now()
			_, err := m.pass(ctx)
			if hasMoved(err) && passes < passesMost {
				continue
			}
			if err != nil {
				return err
			}
			if time.Since(began) < shortPass || passes == passesMost {
				break
			}
		}
		err := m.finish(ctx)
		if !errors.Is(err, ErrTooLong) || fences >= m.options.Fences {
			return err
		}
		m.options.Logger.Warn("move: the fence was taken back", "error", err)
	}
}

// finish fences the source, copies the rest, and decides. Unless it returns nil, or an
// ErrUndecided, the source serves again, as far as it can be reached.
func (m *Migrator) finish(ctx context.Context) error {
	m.phase.Store(Finishing)
	m.fenced.Store(time.Now().UnixNano())
	paused, cancel := context.WithTimeout(ctx, m.options.MaxPause)
	defer cancel()
	err := m.source.Fence(paused, m.cluster, m.run)
	if err == nil {
		err = m.rest(paused)
	}
	if err == nil {
		return m.decide(ctx)
	}
	if paused.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w of %v: %w", ErrTooLong, m.options.MaxPause, err)
	}
	return errors.Join(err, m.unfence(ctx))
}

// unfence removes the fence, even after ctx has ended. It does so as a new attempt, so that
// a delayed request of the old one has no effect.
func (m *Migrator) unfence(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.rescue)
	defer cancel()
	switch status, err := m.begin(ctx, 0); {
	case err != nil: // the target took nothing over: it was not asked to
		m.options.Logger.Warn("move: the cluster does not answer", "error", err)
	case status.State != catalog.ImportCopying:
		return fmt.Errorf("%w: another mover has decided", ErrImported)
	}
	if err := m.source.Unfence(ctx, m.cluster, m.run); err != nil {
		return fmt.Errorf("the source does not serve: take the fence back with --abort, or run it again: %w", err)
	}
	m.fenced.Store(0)
	return nil
}

// rest copies the remaining entries after the fence, until a pass finds none.
func (m *Migrator) rest(ctx context.Context) error {
	for {
		copied, err := m.pass(ctx)
		if hasMoved(err) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return err
		}
		if copied == 0 {
			break
		}
	}
	return m.put(ctx, func(item topic.Item) bool { return strings.HasPrefix(item.Key, "producers/") })
}

// decide asks the target to take over. If there is no answer, a new attempt reads the
// decision: the old one can do nothing more then.
func (m *Migrator) decide(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.rescue)
	defer cancel()
	err := m.target.Commit(ctx, m.run, m.inventory)
	if err == nil {
		return nil
	}
	for wait := decideWaitMin; ; wait = min(2*wait, decideWaitMax) {
		status, asked := m.begin(ctx, 0)
		switch {
		case asked == nil && status.State == catalog.ImportOpening:
			return nil
		case asked == nil:
			return errors.Join(fmt.Errorf("take over in the cluster: %w", err), m.unfence(ctx))
		case errors.As(asked, new(*ImportConflictError)): // it was refused, so it is not decided
			return errors.Join(fmt.Errorf("take over in the cluster: %w", err), m.unfence(ctx))
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return fmt.Errorf("%w: the source does not serve; run it again: %w", ErrUndecided, errors.Join(err, asked))
		}
	}
}

// open completes a decided migration: the groups, and then the topics.
func (m *Migrator) open(ctx context.Context) ([]catalog.Address, error) {
	m.phase.Store(Opening)
	isTopic := func(item topic.Item) bool { return strings.HasPrefix(item.Key, "topics/") }
	var topics []topic.Item
	if err := m.items(ctx, func(items []topic.Item) error {
		for _, item := range items {
			if isTopic(item) {
				topics = append(topics, item)
			}
		}
		return nil
	}); err != nil {
		return nil, m.unopened(err)
	}
	if err := m.put(ctx, func(item topic.Item) bool { return !isTopic(item) }); err != nil {
		return nil, m.unopened(err)
	}
	nodes, err := m.target.Open(ctx, m.inventory.Cluster, m.run, topics)
	return nodes, m.unopened(err)
}

func (m *Migrator) unopened(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the cluster has all records, and the topics are not open yet: run it again: %w", err)
}

// Abort aborts a migration that is not decided: the source serves, and the copied data is
// removed. ErrImported if it is too late.
func (m *Migrator) Abort(ctx context.Context) (ImportStatus, error) {
	inventory, err := m.source.Inventory(ctx)
	if err != nil {
		return ImportStatus{}, fmt.Errorf("look at the source: %w", err)
	}
	status, err := m.target.Abort(ctx, inventory.Cluster)
	if err != nil {
		return status, fmt.Errorf("give up in the cluster: %w", err)
	}
	if err := m.source.Unfence(ctx, status.Cluster, status.Run); err != nil {
		return status, fmt.Errorf("take the fence back: %w", err)
	}
	return status, m.target.Clean(ctx, inventory.Cluster, status.Run)
}
