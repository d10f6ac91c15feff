package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/pebblekv"
	"github.com/sluice-project/sluice/room"
)

// Options are the store's settings.
type Options struct {
	// Logger gets what Pebble reports; default slog.Default.
	Logger *slog.Logger
	// DiskReserve is how many bytes of the disk stay free: below it, new visitors and
	// new settings of rooms are refused with room.ErrFull, so that those who are there
	// can be served. 0: no reserve.
	DiskReserve int64
	// FS is the file system; default the operating system's. Tests put one in
	// memory here.
	FS vfs.FS
}

// Store is a room.Store on Pebble.
type Store struct {
	db    *pebble.DB
	disk  *pebblekv.Disk
	clock clock

	// admin is held by whoever changes the set of rooms, a room's record or the keys.
	admin    sync.Mutex
	revision uint64 // the highest given

	running sync.WaitGroup // calls that use the database; entered with mu held
	mu      sync.RWMutex
	closed  bool
	halls   map[string]*hall
	keys    []room.SigningKey

	leasesMu sync.Mutex
	leases   map[string]lease

	broken atomic.Pointer[error] // why, once memory and disk have parted
}

var _ room.Store = (*Store)(nil)

// ErrInUse: another process has the store open.
var ErrInUse = errors.New("another process has it open: stop that one, or choose another directory")

// Open opens the store in a directory, and creates it if there is none. All that was
// acknowledged before is there again.
func Open(dir string, options Options) (*Store, error) {
	if options.FS == nil {
		options.FS = vfs.Default
	}
	if options.Logger == nil {
		options.Logger = slog.Default()
	}
	db, err := pebble.Open(dir, pebbleOptions(options))
	if errors.Is(err, syscall.EAGAIN) {
		err = ErrInUse
	}
	if err != nil {
		return nil, fmt.Errorf("open the store in %s: %w", dir, err)
	}
	s := &Store{
		db:    db,
		disk:  pebblekv.NewDisk(options.FS, dir, options.DiskReserve, room.ErrFull),
		halls: map[string]*hall{}, leases: map[string]lease{},
	}
	if err := s.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("open the store in %s: %w", dir, err), db.Close())
	}
	return s, nil
}

// pebbleOptions keep Pebble small: what is read while the store is open is in its
// own memory.
func pebbleOptions(options Options) *pebble.Options {
	return &pebble.Options{
		FS:                          options.FS,
		CacheSize:                   16 << 20,
		MemTableSize:                8 << 20,
		MemTableStopWritesThreshold: 4,
		FormatMajorVersion:          pebble.FormatValueSeparation,
		Logger:                      pebblekv.Logger{Log: options.Logger},
	}
}

// Close writes when sliding passes end, waits for what is being written, and closes
// the store.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	s.running.Wait()
	var err error
	if s.broken.Load() == nil {
		err = s.settle()
	}
	err = errors.Join(err, s.db.Close())
	if s.broken.Load() != nil {
		return nil // Why it is broken was told before.
	}
	if err != nil {
		return fmt.Errorf("close the store: %w", err)
	}
	return nil
}

// settle writes the ends of sliding passes as they are.
func (s *Store) settle() error {
	batch := s.db.NewBatch()
	for _, h := range s.halls {
		for _, g := range h.actives.by {
			if g.told == g.until {
				continue
			}
			g.told = g.until
			if err := h.write(batch, g.number); err != nil {
				return err
			}
			if batch.Len() >= spillBytes {
				if err := s.write(batch); err != nil {
					return err
				}
				batch = s.db.NewBatch()
			}
		}
	}
	if batch.Empty() {
		return batch.Close()
	}
	return s.write(batch)
}

// hold keeps the database open until done is called.
func (s *Store) hold(ctx context.Context) (done func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return nil, room.ErrClosed
	}
	if broken := s.broken.Load(); broken != nil {
		return nil, *broken
	}
	s.running.Add(1)
	return s.running.Done, nil
}

// write applies a batch and waits until it is durable.
func (s *Store) write(batch *pebble.Batch) error {
	if err := pebblekv.Apply(s.db, batch); err != nil {
		return s.broke(err)
	}
	if err := batch.SyncWait(); err != nil {
		return s.broke(err)
	}
	return batch.Close()
}

// broke notes that memory and disk have parted, and returns the first reason.
func (s *Store) broke(cause error) error {
	err := fmt.Errorf("%w: %w: start the process again when the cause is gone", room.ErrBroken, cause)
	s.broken.CompareAndSwap(nil, &err)
	return *s.broken.Load()
}

// Now returns the store's time.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	done, err := s.hold(ctx)
	if err != nil {
		return time.Time{}, err
	}
	defer done()
	return moment(s.clock.now()), nil
}
