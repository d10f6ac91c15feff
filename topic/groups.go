package topic

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
)

// expireInterval is how often offsets that expire are looked for; shorter if
// they are kept for less.
const expireInterval = 10 * time.Minute

// Groups coordinates the consumer groups of a broker. No method but Load and
// Stop waits for the store or for other members: what has to wait is in the
// [Awaited] that they return.
type Groups struct {
	meta   Meta
	config GroupsConfig
	log    *slog.Logger
	work   *lifecycle.Group

	mu     sync.Mutex
	byName map[string]*coordinator
	loaded bool
	closed bool
}

// NewGroups returns the groups that meta keeps, to be loaded. Unset fields of
// config are at their defaults.
func NewGroups(meta Meta, config GroupsConfig, log *slog.Logger) *Groups {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	config = Config{Groups: config}.WithDefaults().Groups
	return &Groups{
		meta: meta, config: config, log: log,
		work: lifecycle.NewGroup(context.Background()), byName: map[string]*coordinator{},
	}
}

// Load reads all groups. Until it has returned, every other call fails with
// ErrCoordinatorLoading. Members of a group go on as if nothing had happened,
// with their sessions begun anew.
func (gs *Groups) Load(ctx context.Context) error {
	byName, err := gs.read(ctx)
	if err != nil {
		return fmt.Errorf("load consumer groups: %w", err)
	}
	gs.mu.Lock()
	gs.byName, gs.loaded = byName, true
	gs.mu.Unlock()
	now := time.Now()
	for _, c := range byName {
		c.mu.Lock()
		c.arm(now)
		c.mu.Unlock()
	}
	gs.work.Go("expire offsets", gs.expireLoop)
	return nil
}

func (gs *Groups) read(ctx context.Context) (map[string]*coordinator, error) {
	byName := map[string]*coordinator{}
	coordinatorOf := func(name string) *coordinator {
		if byName[name] == nil {
			byName[name] = newCoordinator(gs, name)
		}
		return byName[name]
	}
	now := time.Now()
	items, err := gs.meta.List(ctx, groupPrefix)
	if err != nil {
		return nil, err
	}
	for _, item := range items {
		var record groupRecord
		if err := decodeRecord(item, &record, &record.Format); err != nil {
			return nil, err
		}
		c := coordinatorOf(strings.TrimPrefix(item.Key, groupPrefix))
		c.revision = item.Revision
		c.group.restore(now, record)
	}
	if items, err = gs.meta.List(ctx, offsetsPrefix); err != nil {
		return nil, err
	}
	for _, item := range items {
		offsets, err := decodeOffsets(item)
		if err != nil {
			return nil, err
		}
		name, topic := splitOffsetsKey(item.Key)
		coordinatorOf(name).offsets[topic] = offsets
	}
	return byName, nil
}

// Stop fails what waits for other members with ErrClosed, and waits for writes
// under way: their commits are answered.
func (gs *Groups) Stop(ctx context.Context) error {
	gs.mu.Lock()
	gs.closed = true
	all := slices.Collect(maps.Values(gs.byName))
	gs.mu.Unlock()
	for _, c := range all {
		c.close()
	}
	return gs.work.Stop(ctx)
}

func (gs *Groups) expireLoop(ctx context.Context) error {
	ticker := time.NewTicker(min(expireInterval, gs.config.OffsetRetention))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case now := <-ticker.C:
			for _, c := range gs.all() {
				c.expire(now)
			}
		}
	}
}

// all returns the coordinators, by name of the group.
func (gs *Groups) all() []*coordinator {
	gs.mu.Lock()
	all := slices.Collect(maps.Values(gs.byName))
	gs.mu.Unlock()
	slices.SortFunc(all, func(a, b *coordinator) int { return strings.Compare(a.name, b.name) })
	return all
}

// find returns the coordinator of a group, made if it does not exist and create
// says so; otherwise ErrNoGroup.
func (gs *Groups) find(name string, create bool) (*coordinator, error) {
	if name == "" || len(name) > MaxGroupName {
		return nil, fmt.Errorf("%w: %d bytes; want 1 to %d", ErrInvalidGroup, len(name), MaxGroupName)
	}
	gs.mu.Lock()
	defer gs.mu.Unlock()
	c := gs.byName[name]
	switch {
	case gs.closed:
		return nil, ErrClosed
	case !gs.loaded:
		return nil, ErrCoordinatorLoading
	case c != nil:
		return c, nil
	case !create:
		return nil, fmt.Errorf("%w: %q", ErrNoGroup, name)
	case len(gs.byName) >= gs.config.GroupsMax:
		return nil, fmt.Errorf("%w: there may be at most %d", ErrTooManyGroups, gs.config.GroupsMax)
	}
	c = newCoordinator(gs, name)
	gs.byName[name] = c
	return c, nil
}

func (gs *Groups) forget(c *coordinator) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if gs.byName[c.name] == c {
		delete(gs.byName, c.name)
	}
}

// with calls f with the lock of a group, and then starts what f left to write.
func (gs *Groups) with(name string, create bool, f func(c *coordinator, now time.Time) error) error {
	for {
		c, err := gs.find(name, create)
		if err != nil {
			return err
		}
		if again, err := c.do(f); !again {
			return err
		}
	}
}

func (c *coordinator) do(f func(c *coordinator, now time.Time) error) (again bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.gone:
		return true, nil
	case c.closed:
		return false, ErrClosed
	case c.group.state == GroupDead:
		return false, ErrCoordinatorLoading
	}
	err = f(c, time.Now())
	c.flush()
	c.dropIfUnused()
	return false, err
}

// move is with, for what may change who is in the group.
func (gs *Groups) move(name string, create bool, f func(g *group, now time.Time) error) error {
	return gs.with(name, create, func(c *coordinator, now time.Time) error {
		err := f(c.group, now)
		c.arm(now)
		return err
	})
}

// orUnknownMember says of a group that does not exist what a member of it is told.
func orUnknownMember(err error) error {
	if errors.Is(err, ErrNoGroup) {
		return fmt.Errorf("%w: %w", ErrUnknownMember, err)
	}
	return err
}
