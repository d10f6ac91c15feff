package broker

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

	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/semaphore"

	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/spans"
	"github.com/sluice-project/sluice/topic/txn"
)

// Broker serves all topics of one node. It is a lifecycle.Service.
type Broker struct {
	store  topic.Store
	config topic.Config
	log    *slog.Logger
	group  *lifecycle.Group
	groups *group.Groups
	// transactions coordinates transactions.
	transactions *txn.Coordinator
	shares       shares
	parsed       parsedSettings

	// quotas returns what an owner may have.
	quotas func(owner string) topic.Quota

	clusterID string
	moving    moving
	registry  registry
	replicas  replicaCache
	metrics   *metrics
	spans     *spans.Spans
	tails     *tails
	cold      *cold
	opening   *semaphore.Weighted
	scans     *semaphore.Weighted // scans of views at once, since filters take processor time
	letters   *semaphore.Weighted // windows of share groups whose dead letters are written at once
	unpacker  *topic.Unpacker     // of records, wherever the broker has to decompress them
	ids       struct {
		mu        sync.Mutex
		next, end int64
	}

	cluster topic.Cluster
	// flights bounds a partition's entries in flight, entryBytes the size of
	// one.
	flights, entryBytes int

	unanswer func() // ends the answers to other nodes; nil before Start
	leaving  atomic.Bool
	moves    moves
	// looking wakes the loop that follows the catalog and the cluster.
	looking lifecycle.Signal

	// admin is held by calls that change the catalog, so that changes are made one
	// after another. catalog.mu is held while the topics in memory are updated from
	// the catalog; mu guards the maps. Lock order: as here.
	admin   sync.Mutex
	created creations
	catalog followed
	mu      sync.RWMutex
	topics  map[string]*Topic
	byID    map[topic.ID]*Topic
}

// Option configures a broker.
type Option func(*Broker)

// WithLogger sets where the broker logs; default: nowhere.
func WithLogger(log *slog.Logger) Option { return func(b *Broker) { b.log = log } }

// WithTracerProvider makes spans of compactions, and of delayed records that are delivered. Default: none.
func WithTracerProvider(provider trace.TracerProvider) Option {
	return func(b *Broker) { b.spans = spans.New(provider) }
}

// WithQuotas bounds what each owner of topics may have: it is asked whenever a topic is created, or gets partitions. Quotas are
// exact over the nodes of a cluster. Default: there are none.
func WithQuotas(of func(owner string) topic.Quota) Option {
	return func(b *Broker) { b.quotas = of }
}

// New returns a broker over a store, not yet started. The caller closes the store
// after the broker has stopped.
func New(store topic.Store, config topic.Config, options ...Option) (*Broker, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("topic: %w", err)
	}
	config = config.WithDefaults()
	if config.Replicas > 1 && store.Cluster().Alone() {
		return nil, fmt.Errorf("topic: topic.replicas: there is one node, so want 1, not %d", config.Replicas)
	}
	if config.TailBytes <= 0 {
		config.TailBytes = tailBytes(store.Cluster().Alone())
	}
	b := &Broker{
		store: store, config: config, log: slog.New(slog.DiscardHandler),
		tails: &tails{limit: config.TailBytes}, cold: &cold{}, opening: semaphore.NewWeighted(partitionsAtOnce),
		scans: semaphore.NewWeighted(int64(2 * runtime.GOMAXPROCS(0))), unpacker: topic.NewUnpacker(semaphore.NewWeighted(config.UnpackBytes)),
		letters: semaphore.NewWeighted(lettersWriters),
		topics:  map[string]*Topic{}, byID: map[topic.ID]*Topic{}, shares: shares{byKey: map[string]*Share{}}, parsed: parsedSettings{all: map[string]parsedGroup{}},
		group:   lifecycle.NewGroup(context.Background()),
		cluster: store.Cluster(), looking: lifecycle.NewSignal(), catalog: newFollowed(),
		quotas:  func(string) topic.Quota { return topic.Quota{} },
		flights: 1, entryBytes: clusterEntryBytes, metrics: newMetrics(),
	}
	if b.cluster.Alone() {
		b.flights, b.entryBytes = flightsMax, topic.EntryBytes
	}
	for _, option := range options {
		option(b)
	}
	b.groups = group.New(store.Meta(), store.Cluster(), config.Groups, groupTopics{b}, b.log)
	b.transactions = txn.New(store.Meta(), outcomes{b}, b.log)
	return b, nil
}

// Name is "topic".
func (b *Broker) Name() string { return "topic" }

// Failed is closed when the broker cannot continue; Err returns the reason.
func (b *Broker) Failed() <-chan struct{} { return b.group.Failed() }

// Err returns why the broker cannot continue, or nil.
func (b *Broker) Err() error { return b.group.Err() }

// Node returns the number of this broker's node.
func (b *Broker) Node() int32 { return b.cluster.Node() }

// Alive returns the numbers of the brokers that were heard of recently, including
// this one, in order.
func (b *Broker) Alive() []int32 { return b.cluster.Alive() }

// ClusterID returns the identity of the cluster.
func (b *Broker) ClusterID() string { return b.clusterID }

// Config returns the broker's settings, with all defaults.
func (b *Broker) Config() topic.Config { return b.config }

// Groups returns the coordinator of the consumer groups.
func (b *Broker) Groups() *group.Groups { return b.groups }

// partitionsAtOnce bounds the partitions that are opened in parallel.
const partitionsAtOnce = 16

// Start opens all topics and begins to lead the partitions whose logs this node leads:
// it waits at most 30 s until their logs have been read, the rest is done in the
// background. It returns a *catalog.MigratedError if a cluster serves the topics now.
func (b *Broker) Start(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Stop(ctx))
		}
	}()
	if b.clusterID, err = catalog.ClusterID(ctx, b.store.Meta()); err != nil {
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
	if err := b.followAll(ctx); err != nil {
		return err
	}
	if b.unanswer, err = b.cluster.Answer(b.answerLeader); err != nil {
		return err
	}
	b.group.Go("follow the catalog", b.keepFollowing)
	b.awaitOpen(ctx)
	b.transactions.Start()
	b.retainAll(ctx, time.Now()) // expired records must not reappear
	b.group.Go("retention", b.keepRetaining)
	b.group.Go("compaction", b.keepCompacting)
	b.group.Go("place partitions", b.keepPlacing)
	return nil
}

// openWithin bounds how long Start waits for the partitions that this node leads.
const openWithin = 30 * time.Second

// awaitOpen waits until the partitions whose logs this node leads are open or cannot be
// opened.
func (b *Broker) awaitOpen(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, openWithin)
	defer cancel()
	for slices.ContainsFunc(b.partitions(), (*Partition).opening) && lifecycle.Sleep(ctx, nil, leadersLook) {
		continue
	}
}

// Stop refuses new appends, waits until those in flight are durable, and ends the
// background loops. It first calls Leave.
func (b *Broker) Stop(ctx context.Context) error {
	b.shares.close()
	groupsErr := errors.Join(b.transactions.Stop(ctx), b.groups.Stop(ctx))
	_ = b.Leave(ctx) // it has logged its error
	if b.unanswer != nil {
		b.unanswer()
	}
	partitions := b.partitions()
	failed := make([]error, len(partitions))
	var closing sync.WaitGroup
	for i, p := range partitions {
		closing.Go(func() { failed[i] = p.close(ctx) })
	}
	closing.Wait()
	return errors.Join(groupsErr, errors.Join(failed...), b.group.Stop(ctx))
}

// Unpacker returns what decompresses records within [topic.Config.UnpackBytes].
func (b *Broker) Unpacker() *topic.Unpacker { return b.unpacker }

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
	return nil, noTopicError(name)
}

// noTopicError is the ErrNoTopic of a name. Its text is made when it is read: a request may name
// many topics, and most callers need the kind of the error only.
type noTopicError string

func (name noTopicError) Error() string { return fmt.Sprintf("%v: %q", topic.ErrNoTopic, string(name)) }

func (noTopicError) Unwrap() error { return topic.ErrNoTopic }

// TopicByID returns the topic with that ID, or ErrNoTopic.
func (b *Broker) TopicByID(id topic.ID) (*Topic, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if t, ok := b.byID[id]; ok {
		return t, nil
	}
	return nil, noTopicError(id.String())
}

// partitions returns the partitions of all topics.
func (b *Broker) partitions() []*Partition {
	var all []*Partition
	for _, t := range b.Topics() {
		if t.source == nil {
			all = append(all, t.all()...)
		}
	}
	return all
}
