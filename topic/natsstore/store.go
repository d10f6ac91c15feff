package natsstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-project/sluice/topic"
)

// Options are the store's settings.
type Options struct {
	// SyncInterval is how often appends are fsynced. With 0, each append is fsynced
	// before it is acknowledged. Otherwise a power cut may take the appends that were
	// acknowledged within the interval; a killed process loses none.
	SyncInterval time.Duration
	// Logger gets the messages of the store and its engine; default slog.Default.
	Logger *slog.Logger
	// MaxBytes is how much the store may hold on the disk; above it, writes fail with
	// topic.ErrFull. Default: the size of the disk.
	MaxBytes int64
	// DiskReserve is how many bytes of the disk stay free: with less, writes fail with
	// topic.ErrFull. Metadata and entries without data may use half of the reserve, so
	// that records and topics can be removed from a full disk. The engine itself does
	// not recover from a full disk until it is opened again. Default 64 MiB; negative:
	// no reserve.
	DiskReserve int64
	// Timeout is how long a read or write waits for its answer. A write without one
	// fails with topic.ErrUncertain. Default 10 s.
	Timeout time.Duration
	// Cluster makes the store one node of a cluster; nil for a single node.
	Cluster *ClusterOptions
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = unlimited
	}
	if o.DiskReserve == 0 {
		o.DiskReserve = 64 << 20
	}
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	if o.Cluster != nil {
		cluster := o.Cluster.withDefaults()
		o.Cluster = &cluster
	}
	return o
}

func (o Options) validate() error {
	if o.SyncInterval < 0 || o.Timeout < 0 || o.MaxBytes < 0 {
		return fmt.Errorf("sync interval %v, timeout %v, max bytes %d: want 0 or more", o.SyncInterval, o.Timeout, o.MaxBytes)
	}
	if o.Cluster != nil {
		return o.Cluster.validate()
	}
	return nil
}

// Store is a topic.Store on an embedded JetStream.
type Store struct {
	options Options
	lock    io.Closer
	engine  *engine
	disk    *disk
	cluster *cluster // nil for a single node
	// conn carries appends, their answers and management, in order.
	conn    *nats.Conn
	js      jetstream.JetStream
	answers string // the prefix of the subjects of answers to appends
	reader  *reader
	meta    *meta

	mu     sync.RWMutex
	closed bool
	token  uint64
	logs   map[string]*log // by name
	tokens map[uint64]*log // by the token in their reply subjects
	// busy has the names of logs that are being opened, made or deleted; each channel is closed
	// when that has ended.
	busy map[string]chan struct{}
}

var (
	_ topic.Store  = (*Store)(nil)
	_ topic.Volume = (*Store)(nil)
)

// Open opens the store in a directory, and makes it if there is none. With
// Options.Cluster it waits for other nodes, see OpenCluster. Errors:
// ErrInUse, *FormatError.
func Open(dir string, options Options) (*Store, error) {
	return OpenCluster(context.Background(), dir, options)
}

// OpenCluster is Open with a context. The node of a cluster waits for a majority of the
// nodes, at most ClusterOptions.JoinTimeout, and logs which nodes are missing.
func OpenCluster(ctx context.Context, dir string, options Options) (*Store, error) {
	options = options.withDefaults()
	if err := options.validate(); err != nil {
		return nil, err
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, fmt.Errorf("open the topic store in %s: %w", dir, err)
	}
	s := &Store{
		options: options, lock: lock,
		disk: &disk{dir: dir, reserve: options.DiskReserve},
		logs: map[string]*log{}, tokens: map[uint64]*log{}, busy: map[string]chan struct{}{},
	}
	if err := s.start(ctx, dir); err != nil {
		return nil, errors.Join(fmt.Errorf("open the topic store in %s: %w", dir, err), s.stop())
	}
	return s, nil
}

func (s *Store) start(ctx context.Context, dir string) (err error) {
	if err = checkFormat(dir, formatOf(s.options)); err != nil {
		return err
	}
	if s.engine, err = startEngine(dir, s.options); err != nil {
		return err
	}
	if s.conn, err = connect(s.engine, s.options.Logger); err != nil {
		return err
	}
	if s.js, err = jetstream.New(s.conn, jetstream.WithDefaultTimeout(s.options.Timeout)); err != nil {
		return err
	}
	if s.options.Cluster != nil {
		s.cluster = newCluster(s, *s.options.Cluster)
		if err = errors.Join(s.cluster.start(), s.cluster.join(ctx)); err != nil {
			return err
		}
	}
	s.answers = s.conn.NewInbox() + "."
	if err = subscribe(s.conn, s.answers+">", s.answered); err != nil {
		return err
	}
	if s.reader, err = newReader(s.engine, s.options); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if s.meta, err = openMeta(ctx, s); err != nil {
		return err
	}
	if s.cluster != nil {
		s.cluster.work.Go("replicas of the metadata", s.cluster.grow)
	}
	return nil
}

// stop ends what start has started.
func (s *Store) stop() error {
	var err error
	if s.meta != nil {
		err = s.meta.close()
	}
	if s.cluster != nil {
		err = errors.Join(err, s.cluster.stop())
	}
	if s.reader != nil {
		s.reader.close()
	}
	if s.conn != nil {
		s.conn.Close()
	}
	if s.engine != nil {
		stopEngine(s.engine)
	}
	if err = errors.Join(err, s.lock.Close()); err != nil {
		return fmt.Errorf("close the topic store: %w", err)
	}
	return nil
}

// Close closes the store. It waits for appends in flight, at most Options.Timeout; new
// calls fail with topic.ErrClosed. An append's done must not call it.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	logs := make([]*log, 0, len(s.logs))
	for _, l := range s.logs {
		logs = append(logs, l)
	}
	s.mu.Unlock()
	for _, l := range logs {
		l.end(topic.ErrClosed)
	}
	for _, l := range logs {
		l.drain()
	}
	return s.stop()
}

// Failed returns a channel that is closed when the node of a cluster cannot continue; Err
// then returns ErrEngineStopped. Without a cluster it is nil: each call returns the error.
func (s *Store) Failed() <-chan struct{} {
	if s.cluster == nil {
		return nil
	}
	return s.cluster.work.Failed()
}

// Err returns why the store cannot continue, or nil.
func (s *Store) Err() error {
	if s.cluster == nil {
		return nil
	}
	return s.cluster.work.Err()
}

// Meta returns the metadata.
func (s *Store) Meta() topic.Meta { return s.meta }

// Cluster returns the cluster, or topic.Single.
func (s *Store) Cluster() topic.Cluster {
	if s.cluster == nil {
		return topic.Single{}
	}
	return s.cluster
}

// register makes the log of a stream and routes answers to it. The caller is Open or holds
// mu.
func (s *Store) register(name, subject string, stream jetstream.Stream) *log {
	s.token++
	l := newLog(s, name, subject, s.token, stream)
	s.tokens[l.token] = l
	return l
}

// answered routes the answer to an append to its log.
func (s *Store) answered(message *nats.Msg) {
	token, number, ok := parseAnswerSubject(strings.TrimPrefix(message.Subject, s.answers))
	if !ok {
		return
	}
	s.mu.RLock()
	l := s.tokens[token]
	s.mu.RUnlock()
	if l != nil {
		l.answer(number, message)
	}
}

// failure wraps an error of the engine with topic's error for it.
func (s *Store) failure(err error) error {
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrNoStreamResponse):
		return fmt.Errorf("%w: %w", topic.ErrNoLog, err)
	case errors.Is(err, nats.ErrConnectionClosed):
		return fmt.Errorf("%w: %w", topic.ErrClosed, err)
	}
	var api *jetstream.APIError
	if errors.As(err, &api) {
		if sentinel := sentinelOf(int(api.ErrorCode)); errors.Is(sentinel, topic.ErrFull) {
			return fmt.Errorf("%w: %w", topic.ErrFull, err)
		}
	}
	return err
}
