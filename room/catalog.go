package room

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
)

// catalog is the rooms as this instance knows them. They are read again at every
// RefreshInterval, and when a move finds that a room was changed.
type catalog struct {
	store Store
	clock *storeClock
	log   *slog.Logger

	mu     sync.RWMutex
	byName map[string]*known
	failed error
	loaded time.Time
	// loads counts the reads that were begun.
	loads uint64
	// broken are the revisions of records that could not be read: each is logged once.
	broken map[string]uint64

	// loading lets one at a time read the rooms.
	loading chan struct{}
}

// known is one room, for as long as it exists: a room of the same name that is made
// after it is another one.
type known struct {
	name string
	room atomic.Pointer[Room]
	// kept is how many reads of the rooms were begun when the room was kept last.
	// catalog.mu is held for it.
	kept uint64
	// measured is nil before the visitors were counted first.
	measured atomic.Pointer[measured]
	joins    *joinLimiter
	removed  atomic.Bool
	// tended says that the room's expiration was begun, which alone uses what follows:
	// counted is when it counted the visitors last, and countedIdle whether there were
	// none.
	tended      atomic.Bool
	counted     time.Time
	countedIdle bool
	outflow     outflow
	// idle says that the last look found nobody in the room; wake ends the pause
	// until the next.
	idle atomic.Bool
	wake chan struct{}
}

// unknownPause is the shortest time between two reads of the rooms because of a name
// that is not among them.
const unknownPause = 100 * time.Millisecond

func newCatalog(store Store, clock *storeClock, log *slog.Logger) *catalog {
	return &catalog{
		store: store, clock: clock, log: log,
		byName: map[string]*known{}, broken: map[string]uint64{}, loading: make(chan struct{}, 1),
	}
}

// seen is a room that is in memory; nil if it is not.
func (c *catalog) seen(name string) *known {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.byName[name]
}

// of returns a room, from memory if it is there. For one that is not the rooms are
// read again, at most every unknownPause: who comes earlier waits, so that a room that
// another instance made exists at once.
func (c *catalog) of(ctx context.Context, name string) (*known, error) {
	if k := c.seen(name); k != nil {
		return k, nil
	}
	asked := time.Now()
	c.mu.RLock()
	left := unknownPause - asked.Sub(c.loaded)
	c.mu.RUnlock()
	if !lifecycle.Sleep(ctx, nil, left) {
		return nil, ctx.Err()
	}
	if err := c.refreshAfter(ctx, asked); err != nil {
		return nil, err
	}
	if k := c.seen(name); k != nil {
		return k, nil
	}
	return nil, ErrNoRoom
}

// all returns the rooms in memory.
func (c *catalog) all() []*known {
	c.mu.RLock()
	defer c.mu.RUnlock()
	rooms := make([]*known, 0, len(c.byName))
	for _, k := range c.byName {
		rooms = append(rooms, k)
	}
	return rooms
}

// refresh reads the rooms.
func (c *catalog) refresh(ctx context.Context) error { return c.refreshAfter(ctx, time.Now()) }

// refreshAfter reads the rooms, unless that was begun after a time: of many who want it
// at once one reads for all.
func (c *catalog) refreshAfter(ctx context.Context, asked time.Time) error {
	select {
	case c.loading <- struct{}{}:
		defer func() { <-c.loading }()
	case <-ctx.Done():
		return ctx.Err()
	}
	c.mu.RLock()
	after, failed := c.loaded.After(asked), c.failed
	c.mu.RUnlock()
	if after {
		return failed
	}
	started := time.Now()
	err := c.load(ctx)
	if ctx.Err() != nil { // of the caller, not of the store
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loaded, c.failed = started, err
	return err
}

// load reads the rooms, and what time it is.
func (c *catalog) load(ctx context.Context) error {
	gone := map[*known]bool{}
	c.mu.Lock()
	c.loads++
	for _, k := range c.byName {
		gone[k] = true
	}
	c.mu.Unlock()
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
	for _, record := range records {
		if k := c.take(record); k != nil {
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

// take keeps a record that the last read found, unless that is known already, or a later
// one that was put after the read began. A later one that was known before it was lost
// by the store: a replica took over that had not received it. The lock is held.
func (c *catalog) take(record Record) *known {
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
func (c *catalog) keep(room *Room) *known {
	k := c.byName[room.Name]
	if k != nil && k.room.Load().Generation == room.Generation {
		k.kept = c.loads
		k.room.Store(room)
		return k
	}
	if k != nil {
		c.forget(room.Name)
	}
	k = &known{name: room.Name, kept: c.loads, joins: newJoinLimiter(maxClients), wake: make(chan struct{}, 1)}
	k.room.Store(room)
	c.byName[room.Name] = k
	return k
}

// put keeps a room that was just stored.
func (c *catalog) put(room *Room) *known {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.byName[room.Name]; k != nil && k.room.Load().Revision >= room.Revision {
		return k
	}
	return c.keep(room)
}

// forget removes a room from memory. The lock is held.
func (c *catalog) forget(name string) {
	if k := c.byName[name]; k != nil {
		k.removed.Store(true)
		k.rouse()
		delete(c.byName, name)
	}
}

// drop removes a room from memory that the store does not have any more.
func (c *catalog) drop(k *known) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byName[k.name] == k {
		c.forget(k.name)
	}
}

// rouse ends the pause before the next look at the room.
func (k *known) rouse() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// decodeRoom reads a record.
func decodeRoom(record Record) (*Room, error) {
	room := new(Room)
	if err := json.Unmarshal(record.Data, room); err != nil {
		return nil, fmt.Errorf("the record of room %s: %w", record.Name, err)
	}
	room.Name, room.Revision = record.Name, record.Revision
	room.Settings = room.Settings.WithDefaults()
	return room, nil
}
