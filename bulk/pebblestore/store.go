package pebblestore

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/pebblekv"
	"github.com/sluice-project/sluice/internal/ranks"
)

// Options are the store's settings.
type Options struct {
	// Bulk has the limits and policies.
	Bulk bulk.Config
	// Logger logs Pebble's messages. Default: slog.Default.
	Logger *slog.Logger
	// DiskReserve is how many bytes of the disk stay free: below it, new actions and
	// jobs are refused with bulk.ErrFull, so that accepted jobs can finish. 0: no
	// reserve.
	DiskReserve int64
	// FS is the file system. Default: the operating system's.
	FS vfs.FS
}

// Store is a bulk.Store on Pebble.
type Store struct {
	db     *pebble.DB
	config bulk.Config
	disk   *pebblekv.Disk
	pages  *pages

	running  sync.WaitGroup // calls that use the database; entered with reads held
	mu       sync.Locker    // what operations hold: reads, in turn; see holdMost
	reads    sync.RWMutex   // what is held to read
	state    error          // nil, ErrClosed or ErrBroken with its cause
	secret   []byte
	number   uint64
	actions  map[uint64]*action
	numbers  map[string]uint64 // of the unfinished actions, by id
	untold   []*action         // changed actions that Changes has yet to return
	ended    []string          // likewise: the ids of actions that have left memory
	settings bulk.Settings
	tenants  map[string]*tenant
	types    map[string]*jobType
	targets  map[string]*target
	limiters map[[2]string]*limiter
	autos    map[string]*target // targets set to Auto
	// backlog is as it was before the actions that are stale have changed.
	backlog  backlog
	stale    []*action
	holdings map[bulk.Holder]*holding // who holds jobs or has actions
	// autoWindow is the window for which the present rates were found.
	autoWindow int64
	global     counter
	virtual    float64
	due        ranks.Heap[*job]
	nonReady   [4]int64
	leases     ranks.Heap[*job]
	looks      ranks.Heap[*keyed]
	// holds has the keys that count jobs in flight.
	holds map[*job][]hold
	calls uint64 // how many calls have begun
	turn  uint64 // rotates among the types of a lease request
	// shutUntil ends the window in which the previous process started its last
	// attempts: until then no attempt under a limit may start.
	shutUntil time.Time
	outbox    outbox
	schedules int    // number of schedules
	revision  uint64 // the highest given to a schedule
	// late caches how the jobs of recently finished actions ended.
	late lateFinals
	free []*job
}

var _ bulk.Store = (*Store)(nil)

// ErrInUse is the error of opening a store that another process has open.
var ErrInUse = pebblekv.ErrInUse

// Open opens the store in a directory, and creates it if there is none. Jobs that were in
// flight in the previous process return to their lines. A store that was migrated to
// another is a *MigratedError.
func Open(dir string, options Options) (*Store, error) {
	options.FS = cmp.Or(options.FS, vfs.Default)
	config := options.Bulk.WithDefaults()
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if err := refuseMigrated(options.FS, dir); err != nil {
		return nil, err
	}
	db, err := openDB(dir, options, false)
	if err != nil {
		return nil, fmt.Errorf("open the store in %s: %w", dir, err)
	}
	s := &Store{
		db:       db,
		config:   config,
		disk:     pebblekv.NewDisk(options.FS, dir, options.DiskReserve, bulk.ErrFull),
		pages:    newPages(db),
		actions:  map[uint64]*action{},
		numbers:  map[string]uint64{},
		tenants:  map[string]*tenant{},
		types:    map[string]*jobType{},
		targets:  map[string]*target{},
		limiters: map[[2]string]*limiter{},
		autos:    map[string]*target{},
		backlog:  backlog{fair: bulk.NewFairQueue(), held: map[bulk.Holder]int64{}},
		due:      newTimeline(),
		leases:   newTimeline(),
		looks:    newLooks(),
		holds:    map[*job][]hold{},
		holdings: map[bulk.Holder]*holding{},
	}
	s.mu = &inTurn{then: &s.reads}
	if err := s.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("open the store in %s: %w", dir, err), db.Close())
	}
	return s, nil
}

func openDB(dir string, options Options, readOnly bool) (*pebble.DB, error) {
	return pebblekv.Open(dir, options.Logger, pebble.Options{FS: options.FS, CacheSize: 64 << 20, MemTableSize: 16 << 20, ReadOnly: readOnly})
}

// Close waits for writes and closes the store.
func (s *Store) Close() error {
	s.mu.Lock()
	if errors.Is(s.state, bulk.ErrClosed) {
		s.mu.Unlock()
		return nil
	}
	broken := s.state != nil
	s.state = bulk.ErrClosed
	s.mu.Unlock()
	s.running.Wait()
	err := s.db.Close()
	if broken {
		err = nil // Earlier calls have returned why it is broken.
	}
	if err != nil {
		return fmt.Errorf("close the store: %w", err)
	}
	return nil
}

// Checkpoint puts the store, with everything that calls have returned, into a folder that it
// makes: as links to its files where the file system has them. Open opens the folder.
func (s *Store) Checkpoint(_ context.Context, dir string) error {
	done, err := s.hold()
	if err != nil {
		return err
	}
	defer done()
	return pebblekv.Checkpoint(s.db, dir)
}

// hold keeps the database open until done is called, for use without s.mu.
func (s *Store) hold() (done func(), err error) {
	s.reads.RLock()
	defer s.reads.RUnlock()
	if s.state != nil {
		return nil, s.state
	}
	s.running.Add(1)
	return s.running.Done, nil
}

// broke records, with s.mu held, that memory and disk differ.
func (s *Store) broke(cause error) error {
	if s.state == nil {
		s.state = fmt.Errorf("%w: %w: start the process again when the cause is gone", bulk.ErrBroken, cause)
	}
	return s.state
}

// now returns the store's time.
func (s *Store) now() time.Time { return time.Now() }

func (s *Store) window(now time.Time) int64 { return bulk.WindowIndex(now, s.config.Window) }

// roll begins the window of a limit that contains now.
func (s *Store) roll(c *counter, now time.Time) {
	c.roll(bulk.WindowIndex(now, c.limit.Window(s.config.Window)))
}

// left returns how many more jobs a limit admits now.
func (s *Store) left(c *counter, now time.Time) int64 {
	s.roll(c, now)
	left := s.budget(c)
	if left != bulk.NoLimit {
		left -= c.started + c.ready
	}
	if most := int64(c.limit.Concurrency); most > 0 {
		left = min(left, most-c.inFlight-c.ready)
	}
	return max(0, left)
}

// budget returns how many attempts a limit allows in the counter's window.
func (s *Store) budget(c *counter) int64 {
	if c.limit.RequestsPerSecond > 0 && s.shut(c) {
		return 0
	}
	return c.limit.Budget(s.config.Window, c.window)
}

// ends returns when the counter's window ends.
func (s *Store) ends(c *counter) time.Time {
	return bulk.WindowStart(c.window+1, c.limit.Window(s.config.Window))
}

// shut reports whether the counter's window began before shutUntil. A time further away than
// the longest window is from before the clock was set back, and is ignored.
func (s *Store) shut(c *counter) bool {
	if s.shutUntil.IsZero() {
		return false
	}
	away := s.shutUntil.Sub(bulk.WindowStart(c.window, c.limit.Window(s.config.Window)))
	return away > 0 && away <= bulk.MaxWindow
}

// leftOf returns how many more jobs a target admits now, by its configured limits or its
// measured rate.
func (s *Store) leftOf(t *target, now time.Time) int64 {
	return min(s.left(&t.counter, now), t.allowance(s.window(now)))
}

// mayStart reports whether one more attempt may start now.
func (s *Store) mayStart(c *counter, now time.Time) bool {
	s.roll(c, now)
	if most := int64(c.limit.Concurrency); most > 0 && c.inFlight >= most {
		return false
	}
	return c.started < s.budget(c)
}

// limited reports whether a target, or the handlers of a type, have settings.
func (s *Store) limited(t *target) bool {
	_, target := s.settings.Targets[t.name]
	return target || t.limit != bulk.Limit{}
}

func (s *Store) tenantOf(name string) *tenant {
	t := s.tenants[name]
	if t == nil {
		t = &tenant{name: name, settings: bulk.Tenant{}.WithDefaults(), lines: map[string]*line{}, taken: s.virtual}
		s.tenants[name] = t
	}
	return t
}

func (s *Store) typeOf(name string) *jobType {
	k := s.types[name]
	if k == nil {
		k = &jobType{name: name}
		s.types[name] = k
	}
	return k
}

func (s *Store) lineOf(t *tenant, name string) *line {
	l := t.lines[name]
	if l == nil {
		k := s.typeOf(name)
		k.lines++
		l = &line{tenant: t, jobType: k, taken: k.virtual}
		t.lines[name] = l
	}
	return l
}

func (s *Store) holdingOf(of bulk.Holder) *holding {
	h := s.holdings[of]
	if h == nil {
		h = &holding{of: of}
		s.holdings[of] = h
	}
	return h
}

func (s *Store) targetOf(name string) *target {
	t := s.targets[name]
	if t == nil {
		t = &target{name: name}
		s.targets[name] = t
	}
	return t
}

func (s *Store) limiterOf(tenant string, t *target) *limiter {
	key := [2]string{tenant, t.name}
	l := s.limiters[key]
	if l == nil {
		l = &limiter{target: t}
		s.limiters[key] = l
	}
	return l
}

// enter puts an unfinished action into memory, which has so many bytes of payloads.
func (s *Store) enter(number uint64, record bulk.Action, bytes int64) *action {
	spec := record.Spec
	a := &action{
		number: number,
		bytes:  bytes,
		record: record,
		spec:   &spec,
		config: s.config.For(spec.Type),
		line:   s.lineOf(s.tenantOf(spec.Tenant), spec.Type),
		target: s.targetOf(spec.Callee()),
		jobs:   map[uint32]*job{},
		logs:   map[uint32]pageLog{},
	}
	a.jobEvents = spec.JobEvents()
	a.limiter = s.limiterOf(spec.Tenant, a.target)
	if spec.MaxAttempts > 0 {
		a.config.MaxAttempts = spec.MaxAttempts
	}
	a.queued, a.slot = bulk.Queued{Number: number, Class: a.spec.Class, Key: a.spec.Key}, len(a.line.actions)
	a.line.actions = append(a.line.actions, a)
	a.holding = s.holdingOf(bulk.Holder{Tenant: spec.Tenant, Type: spec.Type, Target: a.target.name})
	a.holding.users++
	a.limiter.users++
	a.target.users++
	a.line.tenant.stored = a.line.tenant.stored.Add(a.stored())
	s.actions[number], s.numbers[spec.ID] = a, number
	s.changed(a)
	s.tell(a)
	return a
}

// leave removes a finished action from memory, and everything that no other action uses.
func (s *Store) leave(a *action) {
	delete(s.actions, a.number)
	delete(s.numbers, a.record.ID)
	s.ended = append(s.ended, a.record.ID)
	s.pages.forget(a.number)
	if a.limiter.users--; a.limiter.users == 0 {
		delete(s.limiters, [2]string{a.spec.Tenant, a.target.name})
	}
	a.line.tenant.stored = a.line.tenant.stored.Less(a.stored())
	a.target.users--
	if a.target.users == 0 && !s.limited(a.target) {
		delete(s.targets, a.target.name)
	}
	s.changed(a)
	if a.holding.users--; a.holding.users == 0 {
		delete(s.holdings, a.holding.of)
	}
	l, last := a.line, len(a.line.actions)-1
	l.actions[a.slot] = l.actions[last]
	l.actions[a.slot].slot = a.slot
	l.actions[last] = nil
	l.actions = l.actions[:last]
	if last > 0 {
		return
	}
	delete(l.tenant.lines, l.jobType.name)
	if l.jobType.lines--; l.jobType.lines == 0 {
		delete(s.types, l.jobType.name)
	}
	if _, set := s.settings.Tenants[l.tenant.name]; len(l.tenant.lines) == 0 && !set {
		delete(s.tenants, l.tenant.name)
	}
}

// find returns an unfinished action by id.
func (s *Store) find(id string) *action { return s.actions[s.numbers[id]] }

// lookup returns the number of an action by id, finished or not.
func (s *Store) lookup(id string) (uint64, error) {
	if number, live := s.numbers[id]; live {
		return number, nil
	}
	value, err := pebblekv.Get(s.db, append([]byte{keyID}, id...))
	if err != nil {
		return 0, err
	}
	if len(value) != 8 {
		return 0, bulk.ErrNotFound
	}
	return binary.BigEndian.Uint64(value), nil
}
