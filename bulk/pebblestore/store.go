package pebblestore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/pebblekv"
)

// Options are the store's settings.
type Options struct {
	// Bulk has the limits and policies that the store's moves apply.
	Bulk bulk.Config
	// Logger gets what Pebble reports; default slog.Default.
	Logger *slog.Logger
	// DiskReserve is how many bytes of the disk stay free: below it, new actions
	// and jobs are refused with bulk.ErrFull, so that what was accepted can be
	// finished. 0: no reserve.
	DiskReserve int64
	// FS is the file system; default the operating system's. Tests put one in
	// memory here.
	FS vfs.FS
}

// Store is a bulk.Store on Pebble.
type Store struct {
	db     *pebble.DB
	config bulk.Config
	disk   *pebblekv.Disk
	pages  *pages

	running  sync.WaitGroup // calls that use the database; entered with mu held
	mu       sync.Mutex
	state    error // nil, ErrClosed or ErrBroken with its cause
	number   uint64
	actions  map[uint64]*action
	numbers  map[string]uint64 // of the unfinished actions, by id
	settings bulk.Settings
	tenants  map[string]*tenant
	kinds    map[string]*kind
	targets  map[string]*target
	limiters map[[2]string]*limiter
	autos    map[string]*target // those whose rate is to be found
	// autoWindow is the window that the rates found hold in.
	autoWindow int64
	global     counter
	virtual    float64
	due        timeline
	nonReady   [3]int64
	leases     timeline
	calls      uint64 // how many calls have begun
	turn       uint64 // whose turn it is among the types of a lease request
	// shutUntil ends the window in which a process before this one started its
	// last attempts: until then nothing under a limit may start.
	shutUntil time.Time
	outbox    outbox
	schedules int    // how many there are
	revision  uint64 // the highest given to a schedule
	// late caches how the jobs of actions that are finished ended.
	late lateFinals
	free []*job
}

var _ bulk.Store = (*Store)(nil)

// ErrInUse: another process has the store open.
var ErrInUse = errors.New("another process has it open: stop that one, or choose another directory")

// Open opens the store in a directory, and creates it if there is none. Jobs
// that were in flight in the process that died return to their lines. A store that was
// moved to another is a *MovedError.
func Open(dir string, options Options) (*Store, error) {
	if options.FS == nil {
		options.FS = vfs.Default
	}
	if options.Logger == nil {
		options.Logger = slog.Default()
	}
	config := options.Bulk.WithDefaults()
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if err := refuseMoved(options.FS, dir); err != nil {
		return nil, err
	}
	db, err := pebble.Open(dir, pebbleOptions(options))
	if errors.Is(err, syscall.EAGAIN) {
		err = ErrInUse
	}
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
		kinds:    map[string]*kind{},
		targets:  map[string]*target{},
		limiters: map[[2]string]*limiter{},
		autos:    map[string]*target{},
	}
	if err := s.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("open the store in %s: %w", dir, err), db.Close())
	}
	return s, nil
}

func pebbleOptions(options Options) *pebble.Options {
	return &pebble.Options{
		FS:                          options.FS,
		CacheSize:                   32 << 20,
		MemTableSize:                16 << 20,
		MemTableStopWritesThreshold: 4,
		FormatMajorVersion:          pebble.FormatValueSeparation,
		Logger:                      pebblekv.Logger{Log: options.Logger},
		Merger:                      pebble.DefaultMerger,
	}
}

// Close waits for what is being written and closes the store.
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
		err = nil // Why it is broken was told before.
	}
	if err != nil {
		return fmt.Errorf("close the store: %w", err)
	}
	return nil
}

// hold keeps the database open until done is called: for what uses it without
// s.mu.
func (s *Store) hold() (done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != nil {
		return nil, s.state
	}
	s.running.Add(1)
	return s.running.Done, nil
}

// broke notes, with s.mu held, that memory and disk have parted.
func (s *Store) broke(cause error) error {
	if s.state == nil {
		s.state = fmt.Errorf("%w: %w: start the process again when the cause is gone", bulk.ErrBroken, cause)
	}
	return s.state
}

// now is the store's time.
func (s *Store) now() time.Time { return time.Now() }

func (s *Store) window(now time.Time) int64 { return bulk.WindowIndex(now, s.config.Window) }

// left is what a limit still lets into the ready queue in a window.
func (s *Store) left(c *counter, window int64) int64 {
	c.roll(window)
	left := bulk.NoLimit
	if c.rate > 0 {
		left = bulk.Budget(c.rate, s.config.Window, window) - c.started - c.ready
		if s.shut(window) {
			left = 0
		}
	}
	if c.concurrency > 0 {
		left = min(left, int64(c.concurrency)-c.inFlight-c.ready)
	}
	return max(0, left)
}

// shut tells whether the window began before shutUntil. A time further away than
// the longest window is of a clock that was set back, and does not hold.
func (s *Store) shut(window int64) bool {
	if s.shutUntil.IsZero() {
		return false
	}
	away := s.shutUntil.Sub(bulk.WindowStart(window, s.config.Window))
	return away > 0 && away <= bulk.MaxWindow
}

// leftOf is what a target still lets into the ready queue in a window, by its
// configured limits or by what was learned of it.
func (s *Store) leftOf(t *target, window int64) int64 {
	return min(s.left(&t.counter, window), t.allowance(window))
}

// mayStart tells whether one more attempt may start in a window.
func (s *Store) mayStart(c *counter, window int64) bool {
	c.roll(window)
	if c.concurrency > 0 && c.inFlight >= int64(c.concurrency) {
		return false
	}
	if c.rate <= 0 {
		return true
	}
	return !s.shut(window) && c.started < bulk.Budget(c.rate, s.config.Window, window)
}

func (s *Store) tenantOf(name string) *tenant {
	t := s.tenants[name]
	if t == nil {
		t = &tenant{name: name, settings: bulk.Tenant{}.WithDefaults(), lines: map[string]*line{}, taken: s.virtual}
		s.tenants[name] = t
	}
	return t
}

func (s *Store) kindOf(name string) *kind {
	k := s.kinds[name]
	if k == nil {
		k = &kind{name: name}
		s.kinds[name] = k
	}
	return k
}

func (s *Store) lineOf(t *tenant, name string) *line {
	l := t.lines[name]
	if l == nil {
		k := s.kindOf(name)
		k.lines++
		l = &line{tenant: t, kind: k, taken: k.virtual}
		t.lines[name] = l
	}
	return l
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

// enter puts an unfinished action into memory.
func (s *Store) enter(number uint64, record bulk.Action) *action {
	spec := record.Spec
	a := &action{
		number: number,
		record: record,
		spec:   &spec,
		config: s.config.For(spec.Type),
		line:   s.lineOf(s.tenantOf(spec.Tenant), spec.Type),
		target: s.targetOf(targetName(&spec)),
		jobs:   map[uint32]*job{},
		logs:   map[uint32]pageLog{},
	}
	a.jobEvents = spec.JobEvents()
	a.limiter = s.limiterOf(spec.Tenant, a.target)
	if spec.MaxAttempts > 0 {
		a.config.MaxAttempts = spec.MaxAttempts
	}
	a.line.actions = append(a.line.actions, a)
	a.limiter.users++
	a.target.users++
	s.actions[number], s.numbers[spec.ID] = a, number
	return a
}

// targetName names what an action's jobs call: their target, or the handlers of
// their type, under a name that no target can have.
func targetName(spec *bulk.Spec) string {
	if spec.Target != nil {
		return spec.Target.Name
	}
	return "\x00" + spec.Type
}

// leave takes a finished action out of memory, and with it what no other action
// uses.
func (s *Store) leave(a *action) {
	delete(s.actions, a.number)
	delete(s.numbers, a.record.ID)
	s.pages.forget(a.number)
	if a.limiter.users--; a.limiter.users == 0 {
		delete(s.limiters, [2]string{a.spec.Tenant, a.target.name})
	}
	a.target.users--
	if _, set := s.settings.Targets[a.target.name]; a.target.users == 0 && !set {
		delete(s.targets, a.target.name)
	}
	l := a.line
	l.actions = slices.DeleteFunc(l.actions, func(other *action) bool { return other == a })
	if len(l.actions) > 0 {
		return
	}
	delete(l.tenant.lines, l.kind.name)
	if l.kind.lines--; l.kind.lines == 0 {
		delete(s.kinds, l.kind.name)
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
