package move

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sluice-project/sluice/topic"
)

// Source is what topics are moved from; [topic.Export] says what each method does.
type Source interface {
	Inventory(ctx context.Context) (topic.Inventory, error)
	EntryID(ctx context.Context, log string, sequence uint64) (topic.EntryID, error)
	Entries(ctx context.Context, log string, from uint64, maxBytes int) ([]topic.Entry, error)
	Items(ctx context.Context, after string, maxBytes int) ([]topic.Item, error)
	Fence(ctx context.Context, cluster string, run int64) error
	Unfence(ctx context.Context, cluster string, run int64) error
	Moved(ctx context.Context, cluster string, run int64, nodes []topic.Address) error
}

// Target is what topics are moved to; [topic.Import] says what each method does.
type Target interface {
	Begin(ctx context.Context, request topic.ImportRequest) (topic.ImportStatus, error)
	Log(ctx context.Context, source string, run int64, log string, first uint64, anew bool) (topic.ImportedLog, error)
	Append(ctx context.Context, source string, run int64, log string, entries []topic.Entry) (uint64, error)
	Put(ctx context.Context, source string, run int64, items []topic.Item) error
	Commit(ctx context.Context, run int64, inventory topic.Inventory) error
	Open(ctx context.Context, source string, run int64, topics []topic.Item) ([]topic.Address, error)
	Abort(ctx context.Context, source string) (topic.ImportStatus, error)
	Clean(ctx context.Context, source string, run int64) error
}

var (
	_ Source = (*topic.Export)(nil)
	_ Target = (*topic.Import)(nil)
)

// Options are what a move needs to know. The zero value of each field means its
// default.
type Options struct {
	// Topics chooses what is moved: names, or patterns as those of path.Match; with
	// a "!" before it, what is not. Default: all.
	Topics []string
	// Replicas is how many nodes are to keep each partition. Default: three, or all
	// nodes if there are fewer.
	Replicas int
	// MaxPause is how long neither may serve, before the fence is taken back and
	// the copying goes on. Default 10 s.
	MaxPause time.Duration
	// Fences is how often it is tried to end within MaxPause. Default 3.
	Fences int
	// Logger gets what goes wrong and is tried again. Default: nowhere.
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

// The bounds of a move.
const (
	// chunkBytes is how much is copied at a time, of copiesAtOnce logs side by side.
	chunkBytes   = 4 << 20
	copiesAtOnce = 4
	// shortPass is how long a pass may take for the next one to be the last.
	shortPass = time.Second
	// passesMost is after how many passes the source is fenced, even if each has
	// much to copy: it will not become less.
	passesMost = 20
	// rescueMax is how long a fence is tried to be taken back, and a decision
	// to be carried out, when the mover itself is to end.
	rescueMax = 30 * time.Second
	// decideWaitMin and decideWaitMax are between questions whether it is decided.
	decideWaitMin = 50 * time.Millisecond
	decideWaitMax = 2 * time.Second
)

// Errors of moves.
var (
	// ErrTooLong says that the rest could not be copied within Options.MaxPause:
	// the source serves on.
	ErrTooLong = errors.New("the rest cannot be copied within the longest pause")
	// ErrUndecided says that the decision could not be heard: run it again.
	ErrUndecided = errors.New("it is not known whether the cluster has taken the topics over")
)

// Mover moves topics. It is used once.
type Mover struct {
	source  Source
	target  Target
	options Options

	inventory topic.Inventory
	run       int64
	cluster   string
	rescue    time.Duration // rescueMax; less in tests

	phase          atomic.Value // Phase
	bytes, records atomic.Int64
	total          atomic.Int64
	fenced         atomic.Int64 // since when, in nanoseconds since the epoch; 0: it is not
}

// New returns a mover.
func New(source Source, target Target, options Options) *Mover {
	m := &Mover{source: source, target: target, options: options.withDefaults(), rescue: rescueMax}
	m.phase.Store(Looking)
	return m
}

// Check looks at both, and says what would be moved, or why it cannot be. Nothing is
// changed.
func (m *Mover) Check(ctx context.Context) (Result, error) {
	if err := m.look(ctx); err != nil {
		return Result{Inventory: m.inventory}, err
	}
	status, err := m.target.Begin(ctx, topic.ImportRequest{Inventory: m.inventory, Replicas: m.options.Replicas, DryRun: true})
	return Result{Inventory: m.inventory, Status: status, Before: status.State == topic.ImportOpen}, err
}

// look makes the inventory.
func (m *Mover) look(ctx context.Context) error {
	inventory, err := m.source.Inventory(ctx)
	if err != nil {
		return fmt.Errorf("look at the source: %w", err)
	}
	m.inventory, err = Select(inventory, m.options.Topics)
	return err
}

// Run moves the topics.
func (m *Mover) Run(ctx context.Context) (Result, error) {
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
	case topic.ImportOpen:
		// Nothing is left but to tell the source, which may know.
		err = m.tell(ctx, status.Nodes)
		m.phase.Store(Done)
		return Result{Inventory: m.inventory, Status: status, Before: true}, err
	case topic.ImportOpening:
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
	status.Nodes, status.State = nodes, topic.ImportOpen
	err = m.tell(ctx, nodes)
	m.phase.Store(Done)
	return Result{Inventory: m.inventory, Status: status, Bytes: m.bytes.Load(), Entries: m.records.Load(), Pause: pause}, err
}

// begin begins an attempt, or goes on with one after the inventory was made again.
func (m *Mover) begin(ctx context.Context, run int64) (topic.ImportStatus, error) {
	status, err := m.target.Begin(ctx, topic.ImportRequest{Inventory: m.inventory, Replicas: m.options.Replicas, Run: run})
	m.run = max(m.run, status.Run)
	if err != nil {
		return status, fmt.Errorf("begin in the cluster: %w", err)
	}
	m.cluster = status.Cluster
	return status, nil
}

// tell makes the source send its clients to the cluster. One that knows is not told
// again.
func (m *Mover) tell(ctx context.Context, nodes []topic.Address) error {
	if now := m.inventory.Move; now.State == topic.MoveDone && now.Cluster == m.cluster {
		return nil
	}
	err := m.source.Moved(ctx, m.cluster, m.run, nodes)
	if err != nil {
		return fmt.Errorf("the cluster serves the topics, and the source could not be told: run it again: %w", err)
	}
	return nil
}

// copyAll copies the logs, while the source serves and then fenced, up to the
// decision.
func (m *Mover) copyAll(ctx context.Context) error {
	for fences := 1; ; fences++ {
		m.phase.Store(Copying)
		for passes := 1; ; passes++ {
			began := time.Now()
			if _, err := m.pass(ctx); err != nil {
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
func (m *Mover) finish(ctx context.Context) error {
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

// unfence takes the fence back, also when ctx is over. It does so as a new attempt, so
// that a request of the old one that is late does nothing.
func (m *Mover) unfence(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.rescue)
	defer cancel()
	switch status, err := m.begin(ctx, 0); {
	case err != nil: // the target took nothing over: it was not asked to
		m.options.Logger.Warn("move: the cluster does not answer", "error", err)
	case status.State != topic.ImportCopying:
		return fmt.Errorf("%w: another mover has decided", topic.ErrImported)
	}
	if err := m.source.Unfence(ctx, m.cluster, m.run); err != nil {
		return fmt.Errorf("the source does not serve: take the fence back with --abort, or run it again: %w", err)
	}
	m.fenced.Store(0)
	return nil
}

// rest copies what is left after the fence, until a pass finds nothing.
func (m *Mover) rest(ctx context.Context) error {
	for {
		copied, err := m.pass(ctx)
		if err != nil {
			return err
		}
		if copied == 0 {
			break
		}
	}
	return m.put(ctx, func(item topic.Item) bool { return strings.HasPrefix(item.Key, "producers/") })
}

// decide asks the target to take over. If the answer cannot be heard, a new attempt
// finds out: the old one can do nothing more then.
func (m *Mover) decide(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.rescue)
	defer cancel()
	err := m.target.Commit(ctx, m.run, m.inventory)
	if err == nil {
		return nil
	}
	for wait := decideWaitMin; ; wait = min(2*wait, decideWaitMax) {
		status, asked := m.begin(ctx, 0)
		switch {
		case asked == nil && status.State == topic.ImportOpening:
			return nil
		case asked == nil:
			return errors.Join(fmt.Errorf("take over in the cluster: %w", err), m.unfence(ctx))
		case errors.As(asked, new(*topic.ImportConflictError)): // it was refused, so it is not decided
			return errors.Join(fmt.Errorf("take over in the cluster: %w", err), m.unfence(ctx))
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return fmt.Errorf("%w: the source does not serve; run it again: %w", ErrUndecided, errors.Join(err, asked))
		}
	}
}

// open carries out the decision: the groups, and then the topics.
func (m *Mover) open(ctx context.Context) ([]topic.Address, error) {
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

func (m *Mover) unopened(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the cluster has all records, and the topics are not open yet: run it again: %w", err)
}

// Abort gives up a move that is not decided: the source serves, and what was copied
// is removed. topic.ErrImported if it is too late.
func (m *Mover) Abort(ctx context.Context) (topic.ImportStatus, error) {
	inventory, err := m.source.Inventory(ctx)
	if err != nil {
		return topic.ImportStatus{}, fmt.Errorf("look at the source: %w", err)
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
