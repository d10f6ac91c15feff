package pebblestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/internal/pebblekv"
	"github.com/sluice-project/sluice/room"
)

// Options are the store's settings.
type Options struct {
	// Logger gets what Pebble reports; default slog.Default.
	Logger *slog.Logger
	// DiskReserve is how many bytes of the disk stay free: below it, new visitors and new
	// settings of rooms are refused with room.ErrFull, so that existing visitors are
	// served. 0: no reserve.
	DiskReserve int64
	// FS is the file system; default the operating system's. Tests use one in memory.
	FS vfs.FS
}

// Store is a room.Store on Pebble.
type Store struct {
	db    *pebble.DB
	disk  *pebblekv.Disk
	clock clock

	// admin is held to change the set of rooms, a room's record or the keys.
	admin    sync.Mutex
	revision uint64        // the highest given
	changes  atomic.Uint64 // of records, since the store was opened

	running sync.WaitGroup // calls that use the database; entered with mu held
	mu      sync.RWMutex
	closed  bool
	rooms   map[string]*roomState
	keys    []room.SigningKey

	ownersMu sync.Mutex
	owners   map[string]ownership

	broken atomic.Pointer[error] // the reason, once memory and disk differ

	syncing atomic.Int64 // operations that wait for the disk
}

var _ room.Store = (*Store)(nil)

// ErrInUse is the error of opening a store that another process has open.
var ErrInUse = pebblekv.ErrInUse

// Open opens the store in a directory, and creates it if there is none.
func Open(dir string, options Options) (*Store, error) {
	options.FS = cmp.Or(options.FS, vfs.Default)
	s := &Store{
		disk:  pebblekv.NewDisk(options.FS, dir, options.DiskReserve, room.ErrFull),
		rooms: map[string]*roomState{}, owners: map[string]ownership{},
	}
	var err error
	// The store reads from its own memory.
	s.db, err = pebblekv.Open(dir, options.Logger, pebble.Options{
		FS: options.FS, CacheSize: 16 << 20, MemTableSize: 8 << 20, WALMinSyncInterval: s.syncPause,
	})
	if err != nil {
		return nil, fmt.Errorf("open the store in %s: %w", dir, err)
	}
	if err := s.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("open the store in %s: %w", dir, err), s.db.Close())
	}
	return s, nil
}

// syncCrowd is how many operations wait for the disk when its next fsync is put off for syncDelay, so that more share it:
// an fsync costs the processor as much as several joins.
const (
	syncCrowd = 32
	syncDelay = 500 * time.Microsecond
)

// syncPause returns how long to wait from one fsync to the next.
func (s *Store) syncPause() time.Duration {
	if s.syncing.Load() < syncCrowd {
		return 0
	}
	return syncDelay
}

// Close writes the exact ends of sliding passes, waits for writes in progress, and closes
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
		err = s.writeEnds()
	}
	err = errors.Join(err, s.db.Close())
	if s.broken.Load() != nil {
		return nil // earlier calls returned the reason
	}
	if err != nil {
		return fmt.Errorf("close the store: %w", err)
	}
	return nil
}

// writeEnds writes the exact ends of sliding passes, and the time.
func (s *Store) writeEnds() error {
	batch := s.db.NewBatch()
	for _, rs := range s.rooms {
		if rs.actives.len() > 0 {
			if err := rs.writeCounts(batch, s.clock.now()); err != nil {
				return err
			}
		}
		for _, g := range rs.actives.by {
			if g.stored == g.until {
				continue
			}
			g.stored = g.until
			if err := rs.write(batch, g.number); err != nil {
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

// Checkpoint puts the store, with everything that calls have returned, into a folder that it
// makes: as links to its files where the file system has them. Open opens the folder.
func (s *Store) Checkpoint(ctx context.Context, dir string) error {
	done, err := s.hold(ctx)
	if err != nil {
		return err
	}
	defer done()
	return pebblekv.Checkpoint(s.db, dir)
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

// write applies a batch, whose operations have returned these errors, and waits until it is
// durable.
func (s *Store) write(batch *pebble.Batch, errs ...error) error {
	err := errors.Join(errs...)
	if err == nil {
		err = pebblekv.Apply(s.db, batch)
	}
	if err == nil {
		err = batch.SyncWait()
	}
	if err != nil {
		return s.broke(err)
	}
	return batch.Close()
}

// broke records that memory and disk differ, and returns the first reason.
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

// ownership is the holder of a name, and until when.
type ownership struct {
	holder string
	until  time.Time
}

// Own implements room.Store. Ownership is in memory only: the owners end with the process.
func (s *Store) Own(ctx context.Context, name, holder string, ttl time.Duration) (bool, error) {
	done, err := s.hold(ctx)
	if err != nil {
		return false, err
	}
	defer done()
	now := moment(s.clock.now())
	s.ownersMu.Lock()
	defer s.ownersMu.Unlock()
	if held, taken := s.owners[name]; taken && held.holder != holder && held.until.After(now) {
		return false, nil
	}
	if ttl <= 0 {
		delete(s.owners, name)
		return true, nil
	}
	s.owners[name] = ownership{holder, now.Add(ttl)}
	return true, nil
}
