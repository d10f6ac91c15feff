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

	"github.com/nats-io/nats-server/v2/server"
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
	return o
}

func (o Options) validate() error {
	if o.SyncInterval < 0 || o.Timeout < 0 || o.MaxBytes < 0 {
		return fmt.Errorf("sync interval %v, timeout %v, max bytes %d: want 0 or more", o.SyncInterval, o.Timeout, o.MaxBytes)
	}
	return nil
}

// warnStreams is how many streams an engine carries well: making and recovering
// them becomes slow above.
const warnStreams = 1000

// Store is a topic.Store on an embedded JetStream.
type Store struct {
	options Options
	lock    io.Closer
	engine  *server.Server
	disk    *disk
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

var _ topic.Store = (*Store)(nil)

// Open opens the store in a directory, and makes it if there is none. Errors:
// ErrInUse, *FormatError.
func Open(dir string, options Options) (*Store, error) {
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
	if err := s.start(dir); err != nil {
		return nil, errors.Join(fmt.Errorf("open the topic store in %s: %w", dir, err), s.stop())
	}
	return s, nil
}

func (s *Store) start(dir string) (err error) {
	if err = checkFormat(dir); err != nil {
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
	s.answers = s.conn.NewInbox() + "."
	if err = subscribe(s.conn, s.answers+">", s.answered); err != nil {
		return err
	}
	if s.reader, err = newReader(s.engine, s.options); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
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
	return nil
}

// stop ends what start had started.
func (s *Store) stop() error {
	var err error
	if s.meta != nil {
		err = s.meta.close()
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

// OpenLog returns the log of that name, made if it does not exist. All calls
// with one name return the same log, until it is deleted.
func (s *Store) OpenLog(ctx context.Context, name string) (topic.Log, error) {
	if !validName(name) {
		return nil, fmt.Errorf("log name %q: want 1 to 200 letters, digits, - and _", name)
	}
	s.opening.Lock()
	defer s.opening.Unlock()
	if err := s.open(); err != nil {
		return nil, err
	}
	if l := s.find(name); l != nil {
		return l, nil
	}
	stream, err := s.stream(ctx, jetstream.StreamConfig{
		Name: logStream + name, Subjects: []string{logSubject + name}, Discard: jetstream.DiscardNew,
	})
	if err != nil {
		return nil, s.failure(fmt.Errorf("open log %s: %w", name, err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, topic.ErrClosed
	}
	l := s.register(name, logSubject+name, stream)
	s.logs[name] = l
	return l, nil
}

// register makes the log of a stream and lets it have its answers, with mu held
// or by Open.
func (s *Store) register(name, subject string, stream jetstream.Stream) *log {
	s.token++
	l := newLog(s, name, subject, s.token, stream)
	s.tokens[l.token] = l
	return l
}

func (s *Store) find(name string) *log {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.logs[name]
}

// stream returns the stream of that name, made if it does not exist, with the
// settings that all have. It is called with opening held, or by Open.
func (s *Store) stream(ctx context.Context, config jetstream.StreamConfig) (jetstream.Stream, error) {
	stream, err := s.js.Stream(ctx, config.Name)
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return stream, err
	}
	config.Storage, config.Replicas, config.AllowDirect = jetstream.FileStorage, 1, true
	// Nothing is sent with an id to find duplicates by: the least window there is.
	config.Duplicates = 100 * time.Millisecond
	config.MaxMsgs, config.MaxBytes, config.MaxMsgSize = -1, -1, -1
	if stream, err = s.js.CreateStream(ctx, config); err != nil {
		return nil, err
	}
	s.streams++
	s.warnOfStreams()
	return stream, nil
}

func (s *Store) warnOfStreams() {
	if s.streams == warnStreams || s.streams > warnStreams && s.streams%100 == 0 {
		s.options.Logger.Warn("topic store: many logs: opening the store and making partitions becomes slow",
			"logs", s.streams, "advised", warnStreams)
	}
}

// DeleteLog removes a log and all it holds.
func (s *Store) DeleteLog(ctx context.Context, name string) error {
	if !validName(name) {
		return nil
	}
	s.opening.Lock()
	defer s.opening.Unlock()
	if err := s.open(); err != nil {
		return err
	}
	s.mu.Lock()
	l := s.logs[name]
	delete(s.logs, name)
	if l != nil {
		delete(s.tokens, l.token)
	}
	s.mu.Unlock()
	if l != nil {
		l.end(topic.ErrNoLog)
		l.abandon(topic.ErrNoLog)
	}
	err := s.js.DeleteStream(ctx, logStream+name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return s.failure(fmt.Errorf("delete log %s: %w", name, err))
	}
	s.streams--
	return nil
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
