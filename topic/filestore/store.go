package filestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/internal/pebblekv"
	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/topic"
)

// Options are the store's settings.
type Options struct {
	// SyncInterval is how often appends are fsynced. With 0, each append is fsynced before it
	// is acknowledged. Otherwise a power cut may take the appends that were acknowledged
	// within the interval; a killed process loses none.
	SyncInterval time.Duration
	// Logger gets the messages of the store; default slog.Default.
	Logger *slog.Logger
	// DiskReserve is how many bytes of the disk stay free: with less, writes fail with
	// topic.ErrFull. Metadata and entries without data may use half of the reserve, so
	// that records and topics can be removed from a full disk. Default 64 MiB; negative:
	// no reserve.
	DiskReserve int64
	// SegmentBytes is the size at which a log begins its next file; a single entry may be
	// larger. Default 64 MiB, at most 1 GiB.
	SegmentBytes int64
	// OpenFiles bounds the files that are kept open; calls in progress may have more.
	// Default 512.
	OpenFiles int
	// FS is the file system; default the operating system's. Tests use one in memory.
	FS vfs.FS
}

func (o Options) withDefaults() Options {
	o.Logger = cmp.Or(o.Logger, slog.Default())
	o.DiskReserve = cmp.Or(o.DiskReserve, 64<<20)
	o.SegmentBytes = cmp.Or(o.SegmentBytes, 64<<20)
	o.OpenFiles = cmp.Or(o.OpenFiles, 512)
	o.FS = cmp.Or(o.FS, vfs.Default)
	return o
}

func (o Options) validate() error {
	if o.SyncInterval < 0 || o.OpenFiles < 1 || o.SegmentBytes < 1<<10 || o.SegmentBytes > 1<<30 {
		return fmt.Errorf("sync interval %v, open files %d, segments of %d bytes: want 0 or more, 1 or more, and 1 KiB to 1 GiB",
			o.SyncInterval, o.OpenFiles, o.SegmentBytes)
	}
	return nil
}

const (
	// writersMost bounds the logs that write at the same time.
	writersMost = 16
	// nameLocks is how many locks all names share.
	nameLocks = 64
)

// Store is a topic.Store on files.
type Store struct {
	options Options
	// readOnly means that nothing is changed: a log is recovered in memory only.
	readOnly bool
	fs       vfs.FS
	dir      string
	log      *slog.Logger
	lock     io.Closer
	// small is the disk for what is needed to remove records and topics.
	disk, small *pebblekv.Disk
	db          *pebble.DB
	catalog     *catalog
	meta        *meta
	files       openFiles
	writers     chan struct{}
	work        *lifecycle.Group

	// layout is held for reading while the files of a log are made, opened or removed, and
	// frozen while something is written. A checkpoint holds both.
	layout, frozen sync.RWMutex

	// names are held while the log of a name is opened, made or deleted.
	names [nameLocks]sync.Mutex
	seed  maphash.Seed

	running sync.WaitGroup // calls that use the database
	mu      sync.Mutex
	closed  bool
	logs    map[string]*log
	failure error
	broken  chan struct{}
}

var (
	_ topic.Store  = (*Store)(nil)
	_ topic.Volume = (*Store)(nil)
)

// Open opens the store in a directory, and makes it if there is none. Errors: ErrInUse,
// *FormatError, *DamageError.
func Open(dir string, options Options) (*Store, error) {
	options = options.withDefaults()
	if err := options.validate(); err != nil {
		return nil, err
	}
	s := newStore(dir, options)
	s.disk = pebblekv.NewDisk(s.fs, dir, options.DiskReserve, topic.ErrFull)
	s.small = pebblekv.NewDisk(s.fs, dir, options.DiskReserve/2, topic.ErrFull)
	if err := s.start(); err != nil {
		return nil, errors.Join(fmt.Errorf("open the topic store in %s: %w", dir, err), s.stop())
	}
	return s, nil
}

func newStore(dir string, options Options) *Store {
	return &Store{
		options: options, fs: options.FS, dir: dir, log: options.Logger,
		files:   openFiles{most: options.OpenFiles},
		writers: make(chan struct{}, writersMost),
		work:    lifecycle.NewGroup(context.Background()),
		seed:    maphash.MakeSeed(), logs: map[string]*log{}, broken: make(chan struct{}),
	}
}

func (s *Store) start() (err error) {
	if s.lock, err = lockDir(s.fs, s.dir); err != nil {
		return err
	}
	if err = checkFormat(s.fs, s.dir); err != nil {
		return err
	}
	s.db, err = pebblekv.Open(s.fs.PathJoin(s.dir, metaDir), s.log, pebble.Options{
		FS: s.fs, MemTableSize: 4 << 20, MaxOpenFiles: 100, CacheSize: 8 << 20,
	})
	if err != nil {
		return err
	}
	if err = pebblekv.Format(s.db, keyFormat, metaFormat, metaFormat); err != nil {
		return err
	}
	if s.catalog, err = loadCatalog(s); err != nil {
		return err
	}
	if err = s.catalog.removeOrphans(); err != nil {
		return err
	}
	if s.meta, err = openMeta(s); err != nil {
		return err
	}
	s.work.Go("metadata", s.meta.run)
	if s.options.SyncInterval > 0 {
		s.work.Go("sync", s.keepSyncing)
	}
	return nil
}

// stop ends what start has started.
func (s *Store) stop() error {
	err := s.work.Stop(context.Background())
	if s.meta != nil {
		err = errors.Join(err, s.meta.durable.Close())
	}
	if s.db != nil {
		err = errors.Join(err, s.db.Close())
	}
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
	}
	return err
}

// Close writes all accepted appends and closes the store. An append's done must not call it.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	s.meta.close()
	s.running.Wait()
	var err error
	logs := s.openLogs()
	for _, l := range logs {
		l.end(topic.ErrClosed)
	}
	for _, l := range logs {
		err = errors.Join(err, l.close())
	}
	if err = errors.Join(err, s.stop()); err != nil && s.Err() == nil {
		return fmt.Errorf("close the topic store: %w", err)
	}
	return nil // calls have returned the reason
}

// enter begins a call that uses the database: it calls running.Done at its end. The error is
// topic.ErrClosed.
func (s *Store) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return topic.ErrClosed
	}
	s.running.Add(1)
	return nil
}

// fail records the first failure after which the store must be opened again.
func (s *Store) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure == nil {
		s.failure = err
		close(s.broken)
		s.log.Error("the topic store has failed", "error", err)
	}
}

// Failed returns a channel that is closed when a write has failed, so that the store must be
// opened again; Err then returns why.
func (s *Store) Failed() <-chan struct{} { return s.broken }

// Err returns why the store must be opened again, or nil.
func (s *Store) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}

// Meta returns the metadata.
func (s *Store) Meta() topic.Meta { return s.meta }

// Cluster returns topic.Single.
func (s *Store) Cluster() topic.Cluster { return topic.Single{} }

// Volume implements topic.Volume.
func (s *Store) Volume() (total, free int64, err error) {
	usage, err := s.fs.GetDiskUsage(s.dir)
	return int64(usage.TotalBytes), int64(usage.AvailBytes), err
}

// OpenLog returns the log of that name. A log that does not exist is made if there are nodes,
// whichever; otherwise the error is topic.ErrNoLog. All calls with one name return the same log
// until it is deleted.
func (s *Store) OpenLog(ctx context.Context, name string, nodes []int32) (topic.Log, error) {
	return s.MakeLog(ctx, name, nodes, 1)
}

// MakeLog is OpenLog, but the first entry of a log that does not exist will have the sequence
// first.
func (s *Store) MakeLog(_ context.Context, name string, nodes []int32, first uint64) (topic.Log, error) {
	if !validName(name) {
		return nil, fmt.Errorf("log name %q: want 1 to 200 letters, digits, - and _", name)
	}
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.running.Done()
	s.layout.RLock()
	defer s.layout.RUnlock()
	defer s.lockName(name)()
	if l := s.opened(name); l != nil {
		return l, nil
	}
	l, err := s.openLog(name, len(nodes) > 0, max(first, 1))
	if err != nil {
		return nil, fmt.Errorf("open log %s: %w", name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logs[name] = l
	return l, nil
}

// lockName locks a name until the result is called.
func (s *Store) lockName(name string) (unlock func()) {
	lock := &s.names[maphash.String(s.seed, name)%nameLocks]
	lock.Lock()
	return lock.Unlock
}

func (s *Store) opened(name string) *log {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.logs[name]
}

// openLog opens a log, or makes it if it may. The caller holds its name.
func (s *Store) openLog(name string, may bool, first uint64) (*log, error) {
	record, exists := s.catalog.get(name)
	if !exists {
		if !may {
			return nil, topic.ErrNoLog
		}
		record = logRecord{id: s.catalog.newID(), first: first}
		if err := s.makeLog(name, record); err != nil {
			return nil, err
		}
	}
	l := &log{store: s, name: name, id: record.id, dir: s.logDir(name, record.id), first: record.first}
	return l, l.load()
}

// makeLog makes a log with an empty segment, durably.
func (s *Store) makeLog(name string, record logRecord) error {
	if err := s.small.Check(time.Now(), preambleBytes); err != nil {
		return err
	}
	dir := s.logDir(name, record.id)
	if err := s.fs.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if _, err := s.createSegment(dir, record.first); err != nil {
		return err
	}
	if err := s.syncDir(s.fs.PathJoin(s.dir, logsDir)); err != nil {
		return err
	}
	return s.catalog.put(name, record)
}

// DeleteLog removes a log and its entries.
func (s *Store) DeleteLog(_ context.Context, name string) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.running.Done()
	s.layout.RLock()
	defer s.layout.RUnlock()
	defer s.lockName(name)()
	s.mu.Lock()
	l := s.logs[name]
	delete(s.logs, name)
	s.mu.Unlock()
	if l != nil {
		l.trimming.Lock()
		defer l.trimming.Unlock()
		l.end(topic.ErrNoLog)
	}
	record, exists := s.catalog.get(name)
	if !exists {
		return nil
	}
	if err := s.catalog.remove(name); err != nil {
		return fmt.Errorf("delete log %s: %w", name, err)
	}
	if l != nil {
		l.drain()
		l.retire()
	}
	if err := s.fs.RemoveAll(s.logDir(name, record.id)); err != nil {
		// The next start removes the rest.
		s.log.Warn("files of a deleted log were not removed", "log", name, "error", err)
	}
	return nil
}

// openLogs returns the logs that are open. It holds no lock then: a log that fails takes mu.
func (s *Store) openLogs() []*log {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.logs))
}

// keepSyncing syncs all logs at intervals.
func (s *Store) keepSyncing(ctx context.Context) error {
	for lifecycle.Sleep(ctx, nil, s.options.SyncInterval) {
		for _, l := range s.openLogs() {
			_ = l.sync() // the store has failed then
		}
	}
	return nil
}
