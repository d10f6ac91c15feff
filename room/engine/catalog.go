package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-project/sluice/room"
)

// catalog is the rooms as this instance knows them. They are read again at every
// RefreshInterval, and when an operation finds that a room was changed.
type catalog struct {
	store room.Store
	clock *storeClock
	log   *slog.Logger
	// holder is the engine's ID, for ownerships.
	holder string

	mu     sync.RWMutex
	byName map[string]*cachedRoom
	// loads counts the reads that have started.
	loads uint64
	// broken holds the revisions of unreadable records: each is logged once.
	broken map[string]uint64

	reads *sharedRead
	// version is the store's RoomsVersion before the last read.
	version uint64
	// bytes is about how much the records take. The lock guards both.
	bytes int64
}

// cachedRoom is one room, for as long as it exists: a later room of the same name is
// another one.
type cachedRoom struct {
	name string
	room atomic.Pointer[Room]
	// known is the last result of at, where events repeat.
	known atomic.Pointer[roomAt]
	// lastTerms are the last result of terms.
	lastTerms atomic.Pointer[roomTerms]
	// kept is the value of catalog.loads when the room was kept last. catalog.mu guards it.
	kept uint64
	// measured is nil until the visitors are first counted.
	measured atomic.Pointer[measured]
	removed  atomic.Bool
	// uses counts the operations on the room here, and used is when the last one was, on the
	// engine's clock. Expiring
	// reports whether the room's expiration runs, which alone uses outflow; wake ends its
	// pause.
	uses     atomic.Int64
	used     atomic.Int64
	expiring atomic.Bool
	outflow  outflow
	wake     chan struct{}
	// publishing is the ownership of publishing the room's events.
	publishing *ownership
	// gaveUp counts the visitors who left the line here, by their position.
	gaveUp positions
	waited waited
}

func newCatalog(store room.Store, clock *storeClock, holder string, log *slog.Logger) *catalog {
	c := &catalog{store: store, clock: clock, holder: holder, log: log, byName: map[string]*cachedRoom{}, broken: map[string]uint64{}}
	c.reads = newSharedRead(c.load)
	return c
}

// cached returns a room from memory; nil if it is not there.
func (c *catalog) cached(name string) *cachedRoom {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.byName[name]
}

// get returns a room, from memory if it is there. Otherwise it reads the rooms again, so
// that a room that another instance made is found.
func (c *catalog) get(ctx context.Context, name string) (*cachedRoom, error) {
	if k := c.cached(name); k != nil {
		return k, nil
	}
	if err := c.reads.missed(ctx); err != nil {
		return nil, err
	}
	if k := c.cached(name); k != nil {
		return k, nil
	}
	return nil, room.ErrNoRoom
}

// all returns the rooms in memory.
func (c *catalog) all() []*cachedRoom {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Collect(maps.Values(c.byName))
}

// size returns how much the records of all rooms take, as last read.
func (c *catalog) size() int64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.bytes
}

// made returns how many rooms an owner has made, and the version of the rooms at which that was so.
func (c *catalog) made(owner string) (count int, version uint64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, k := range c.byName {
		if k.room.Load().Owner == owner {
			count++
		}
	}
	return count, c.version
}

// refresh reads the rooms.
func (c *catalog) refresh(ctx context.Context) error { return c.reads.after(ctx, time.Now()) }

// refreshChanged reads the store's time, and the rooms if one was changed since the last read.
func (c *catalog) refreshChanged(ctx context.Context) error {
	now, err := c.store.Now(ctx)
	if err != nil {
		return err
	}
	c.clock.observe(now)
	version, err := c.store.RoomsVersion(ctx)
	if err != nil {
		return err
	}
	c.mu.RLock()
	same := version == c.version
	c.mu.RUnlock()
	if same {
		return nil
	}
	return c.refresh(ctx)
}

// load reads the rooms and the store's time.
func (c *catalog) load(ctx context.Context) error {
	gone := map[*cachedRoom]bool{}
	c.mu.Lock()
	c.loads++
	for _, k := range c.byName {
		gone[k] = true
	}
	c.mu.Unlock()
	version, err := c.store.RoomsVersion(ctx)
	if err != nil {
		return err
	}
	records, err := c.store.Rooms(ctx)
	if err != nil {
		return err
	}
	now, err := c.store.Now(ctx)
	if err != nil {
		return err
	}
	c.clock.observe(now)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version, c.bytes = version, 0
	for _, record := range records {
		c.bytes += int64(len(record.Data))
		if k := c.accept(record); k != nil {
			delete(gone, k)
		}
	}
	for k := range gone {
		if c.byName[k.name] == k {
			c.forget(k.name)
		}
	}
	return nil
}

// accept keeps a record that the last read found, unless it is known already, or a later
// one was put after the read started. A later one that was known before the read was lost
// by the store: a replica took over that had not received it. The lock is held.
func (c *catalog) accept(record room.Record) *cachedRoom {
	k := c.byName[record.Name]
	if k != nil {
		known := k.room.Load().Revision
		if known == record.Revision || known > record.Revision && k.kept == c.loads {
			return k
		}
	}
	room, err := decodeRoom(record)
	if err == nil {
		return c.keep(room)
	}
	if c.broken[record.Name] != record.Revision {
		c.broken[record.Name] = record.Revision
		c.log.Error("a room cannot be read, and is not served", "room", record.Name, "error", err)
	}
	return nil
}

// keep puts a room into memory. The lock is held.
func (c *catalog) keep(room *Room) *cachedRoom {
	k := c.byName[room.Name]
	if k != nil && k.room.Load().Generation == room.Generation {
		k.kept = c.loads
		k.room.Store(room)
		return k
	}
	if k != nil {
		c.forget(room.Name)
	}
	k = &cachedRoom{
		name: room.Name, kept: c.loads, wake: make(chan struct{}, 1),
		publishing: newOwnership(c.store, "publisher of "+room.Name, c.holder),
	}
	k.room.Store(room)
	c.byName[room.Name] = k
	return k
}

// put keeps a room that was just stored.
func (c *catalog) put(room *Room) *cachedRoom {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bytes += room.size
	if k := c.byName[room.Name]; k != nil {
		before := k.room.Load()
		c.bytes -= before.size
		if before.Revision >= room.Revision {
			return k
		}
	}
	return c.keep(room)
}

// forget removes a room from memory. The lock is held.
func (c *catalog) forget(name string) {
	if k := c.byName[name]; k != nil {
		k.removed.Store(true)
		k.wakeUp()
		delete(c.byName, name)
	}
}

// drop removes a room from memory that the store has no more.
func (c *catalog) drop(k *cachedRoom) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byName[k.name] == k {
		c.forget(k.name)
	}
}

// wakeUp ends the pause before the next Expire of the room.
func (k *cachedRoom) wakeUp() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// decodeRoom reads a record.
func decodeRoom(record room.Record) (*Room, error) {
	room := new(Room)
	if err := json.Unmarshal(record.Data, room); err != nil {
		return nil, fmt.Errorf("the record of room %s: %w", record.Name, err)
	}
	room.Name, room.Revision, room.size = record.Name, record.Revision, int64(len(record.Data))
	room.Settings = room.Settings.WithDefaults()
	return room, nil
}
