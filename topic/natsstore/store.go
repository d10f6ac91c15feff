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
	// SyncInterval is how often appends are fsynced. 0: each one, before it is
	// reported. More: in the background, so that a power cut may take what was
	// reported within the interval; a killed process loses nothing.
	SyncInterval time.Duration
	// Logger gets what the store and its engine report; default slog.Default.
	Logger *slog.Logger
	// MaxBytes is the most that the store may hold on the disk; above it, writes
	// fail with topic.ErrFull. Default: no limit but the disk's.
	MaxBytes int64
	// DiskReserve is how many bytes of the disk stay free: below it, writes
	// fail with topic.ErrFull. Metadata, and entries without data, may use half
	// of it, so that records and topics can be removed from a full disk. The
	// engine itself does not recover from one until it is opened again.
	// Default 64 MiB; negative: no reserve.
	DiskReserve int64
	// Timeout is how long a write may go unanswered before it fails with
	// topic.ErrUncertain, and how long a read may. Default 10 s.
	Timeout time.Duration
	// Cluster makes the store one node of a cluster; nil: it is the only one.
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
	cluster *cluster // nil: there is one node
	// conn carries appends, their answers and management, in order.
	conn    *nats.Conn
	js      jetstream.JetStream
	answers string // the subject below which appends are answered
	reader  *reader
	meta    *meta

	opening sync.Mutex // held while a stream is made or deleted
	streams int        // guarded by opening

	mu     sync.RWMutex
	closed bool
	token  uint64
	logs   map[string]*log // by name
	tokens map[uint64]*log // by the token in their reply subjects
}

var (
	_ topic.Store    = (*Store)(nil)
	_ topic.LogMaker = (*Store)(nil)
)

// Open opens the store in a directory, and makes it if there is none. With
// Options.Cluster it waits for other nodes, see OpenCluster. Errors:
// ErrInUse, *FormatError.
func Open(dir string, options Options) (*Store, error) {
	return OpenCluster(context.Background(), dir, options)
}

// OpenCluster is Open, and gives up when ctx ends: the node of a cluster waits for
// a majority of the nodes, at most ClusterOptions.JoinTimeout, and logs for which.
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
		logs: map[string]*log{}, tokens: map[uint64]*log{},
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
	account, err := s.js.AccountInfo(ctx)
	if err != nil {
		return err
	}
	s.streams = account.Streams
	s.warnOfStreams()
	if s.cluster != nil {
		s.cluster.work.Go("replicas of the metadata", s.cluster.grow)
	}
	return nil
}

// stop ends what start had started.
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

// Close ends the store. Appends under way are waited for, at most
// Options.Timeout; new calls fail with topic.ErrClosed. It must not be called
// from an append's done.
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

// Failed is closed when the store of a cluster's node cannot go on, and Err says why:
// ErrEngineStopped. Who alone has a store finds it out with each call. It is nil without
// a cluster.
func (s *Store) Failed() <-chan struct{} {
	if s.cluster == nil {
		return nil
	}
	return s.cluster.work.Failed()
}

// Err returns why the store cannot go on, or nil.
func (s *Store) Err() error {
	if s.cluster == nil {
		return nil
	}
	return s.cluster.work.Err()
}

// open returns topic.ErrClosed after Close.
func (s *Store) open() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return topic.ErrClosed
	}
	return nil
}

// Meta returns the metadata.
func (s *Store) Meta() topic.Meta { return s.meta }

// Cluster returns what is known of the nodes; nil where there is one.
func (s *Store) Cluster() topic.Cluster {
	if s.cluster == nil {
		return nil
	}
	return s.cluster
}

// register makes the log of a stream and lets it have its answers, with mu held
// or by Open.
func (s *Store) register(name, subject string, stream jetstream.Stream) *log {
	s.token++
	l := newLog(s, name, subject, s.token, stream)
	s.tokens[l.token] = l
	return l
}

// answered takes the answer to an append to its log.
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

// failure gives an error of the engine its name in the contract.
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
