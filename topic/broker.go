package topic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/sluice-project/sluice/lifecycle"
)

// Broker is all topics of one node. It is a lifecycle.Service.
type Broker struct {
	store  Store
	config Config
	log    *slog.Logger
	group  *lifecycle.Group
	groups *Groups

	clusterID string
	moving    moving
	registry  registry
	replicas  replicaCache
	tails     *tails
	cold      *cold
	opening   *semaphore.Weighted
	scans     *semaphore.Weighted // of views, which may unpack MaxUncompressed each
	ids       struct {
		mu        sync.Mutex
		next, end int64
	}

	// cluster is nil for a broker without others, which leads everything.
	cluster Cluster
	// flights is how many entries of a partition may be under way, entryBytes how
	// large one becomes.
	flights, entryBytes int

	leaving atomic.Bool
	moves   moves
	// looking wakes the loop that follows the catalog and the cluster.
	looking chan struct{}

	// admin is held by what changes the catalog, so that one change is made
	// after another. What is in memory is brought to what the catalog says with
	// catalog.mu held; mu guards the maps. Lock order: as here.
	admin   sync.Mutex
	catalog catalog
	mu      sync.RWMutex
	topics  map[string]*Topic
	byID    map[ID]*Topic
}

// Option changes how a broker is made.
type Option func(*Broker)

// WithLogger sets where the broker logs; default: nowhere.
func WithLogger(log *slog.Logger) Option { return func(b *Broker) { b.log = log } }

// New returns a broker over a store, to be started. The store stays the
// caller's, to be closed after the broker has stopped.
func New(store Store, config Config, options ...Option) (*Broker, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("topic: %w", err)
	}
	config = config.WithDefaults()
	if config.Replicas > 1 && store.Cluster() == nil {
		return nil, fmt.Errorf("topic: topic.replicas: there is one node, so want 1, not %d", config.Replicas)
	}
	b := &Broker{
		store: store, config: config, log: slog.New(slog.DiscardHandler),
		tails: &tails{limit: config.TailBytes}, cold: &cold{}, opening: semaphore.NewWeighted(partitionsAtOnce),
		scans:  semaphore.NewWeighted(int64(2 * runtime.GOMAXPROCS(0))),
		topics: map[string]*Topic{}, byID: map[ID]*Topic{},
		group:   lifecycle.NewGroup(context.Background()),
		cluster: store.Cluster(), looking: make(chan struct{}, 1), catalog: newCatalog(),
		flights: flightsMax, entryBytes: entryBytes,
	}
	if b.cluster != nil {
		b.flights, b.entryBytes = 1, clusterEntryBytes
	}
	for _, option := range options {
		option(b)
	}
	b.groups = NewClusterGroups(store.Meta(), store.Cluster(), config.Groups, b.log)
	return b, nil
}

// Name is "topic".
func (b *Broker) Name() string { return "topic" }

// Failed is closed when the broker cannot go on; Err tells why.
func (b *Broker) Failed() <-chan struct{} { return b.group.Failed() }

// Err returns why the broker cannot go on, or nil.
func (b *Broker) Err() error { return b.group.Err() }

// Node returns this broker's number: that of its node, 0 without a cluster.
func (b *Broker) Node() int32 {
	if b.cluster == nil {
		return 0
	}
	return b.cluster.Node()
}

// Alive returns the numbers of the brokers that have been heard of lately, this
// one with them, in order.
func (b *Broker) Alive() []int32 {
	if b.cluster == nil {
		return []int32{0}
	}
	return b.cluster.Alive()
}

// ClusterID returns the identity of the cluster.
func (b *Broker) ClusterID() string { return b.clusterID }

// Config returns the broker's settings, with all defaults.
func (b *Broker) Config() Config { return b.config }

// Groups returns the coordinator of the consumer groups.
func (b *Broker) Groups() *Groups { return b.groups }

// openAtOnce is how many topics are opened side by side at the start, and
// partitionsAtOnce how many partitions of all of them.
const (
	openAtOnce       = 8
	partitionsAtOnce = 16
)

// Start opens all topics and begins to lead their partitions: in a cluster those
// whose logs this node leads, some time after it has returned. *MovedError if the
// topics are served by a cluster now.
func (b *Broker) Start(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Stop(ctx))
		}
	}()
	if b.clusterID, err = loadClusterID(ctx, b.store.Meta()); err != nil {
		return err
	}
	if err := b.register(ctx); err != nil {
		return err
	}
	if err := b.groups.Load(ctx); err != nil {
		return err
	}
	if err := b.loadMove(ctx); err != nil {
		return err
	}
	if err := b.loadTopics(ctx); err != nil {
		return err
	}
	b.retainAll(ctx, time.Now()) // what had expired must not be there again
	b.group.Go("retention", b.keepRetaining)
	if b.store.Cluster() != nil {
		b.group.Go("place partitions", b.keepPlacing)
	}
	return nil
}

// loadTopics opens what is in the catalog; views after what they show. A broker
// of a cluster goes on following it.
func (b *Broker) loadTopics(ctx context.Context) error {
	if b.cluster != nil {
		if err := b.followAll(ctx); err != nil {
			return err
		}
		b.group.Go("follow the catalog", b.keepFollowing)
		return nil
	}
	items, err := b.store.Meta().List(ctx, topicsPrefix)
	if err != nil {
		return err
	}
	opening, ctx := errgroup.WithContext(ctx)
	opening.SetLimit(openAtOnce)
	var views []Item
	for _, item := range items {
		record, err := readTopicRecord(item)
		if err != nil {
			return err
		}
		name := item.Key[len(topicsPrefix):]
		switch {
		case record.Deleting:
			opening.Go(func() error { return b.finishDeleting(ctx, name, record) })
		case record.Settings[SettingViewOf] != "":
			views = append(views, item)
		default:
			opening.Go(func() error { return b.lead(ctx, name) })
		}
	}
	if err := opening.Wait(); err != nil {
		return err
	}
	for _, item := range views {
		record, err := readTopicRecord(item)
		if err != nil {
			return err
		}
		name := item.Key[len(topicsPrefix):]
		err = b.add(context.WithoutCancel(ctx), name, record)
		if errors.Is(err, ErrNoTopic) {
			b.log.Error("view of a topic that does not exist: delete it", "view", name, "error", err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// Stop refuses new appends, waits until those under way are durable, and ends
// what runs in the background. In a cluster it leaves first, if that was not done.
func (b *Broker) Stop(ctx context.Context) error {
	groupsErr := b.groups.Stop(ctx)
	_ = b.Leave(ctx) // it has logged what went wrong
	partitions := b.partitions()
	failed := make([]error, len(partitions))
	var closing sync.WaitGroup
	for i, p := range partitions {
		closing.Go(func() { failed[i] = p.close(ctx) })
	}
	closing.Wait()
	return errors.Join(groupsErr, errors.Join(failed...), b.group.Stop(ctx))
}

// Topics returns all topics, by name.
func (b *Broker) Topics() []*Topic {
	b.mu.RLock()
	defer b.mu.RUnlock()
	topics := make([]*Topic, 0, len(b.topics))
	for _, t := range b.topics {
		topics = append(topics, t)
	}
	slices.SortFunc(topics, func(x, y *Topic) int { return cmp.Compare(x.name, y.name) })
	return topics
}

// Topic returns the topic of that name, or ErrNoTopic.
func (b *Broker) Topic(name string) (*Topic, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if t, ok := b.topics[name]; ok {
		return t, nil
	}
	return nil, fmt.Errorf("%w: %q", ErrNoTopic, name)
}

// TopicByID returns the topic of that identity, or ErrNoTopic.
func (b *Broker) TopicByID(id ID) (*Topic, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if t, ok := b.byID[id]; ok {
		return t, nil
	}
	return nil, fmt.Errorf("%w: id %s", ErrNoTopic, id)
}

// partitions returns those of all topics.
func (b *Broker) partitions() []*Partition {
	var all []*Partition
	for _, t := range b.Topics() {
		if t.source == nil {
			all = append(all, t.all()...)
		}
	}
	return all
}
