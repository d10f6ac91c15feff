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

// Groups coordinates the consumer groups of a broker: all, or in a cluster those
// whose slots it has claimed; every other call about a group then fails with
// ErrNotCoordinator. No method but Load, Stop, Confirm and ForgetTopic waits for the
// store or for other members: what has to wait is in the [Awaited] that they return.
type Groups struct {
	meta    Meta
	cluster Cluster // nil: this broker has all groups
	config  GroupsConfig
	log     *slog.Logger
	work    *lifecycle.Group
	follow  *follower

	mu     sync.Mutex
	byName map[string]*coordinator
	slots  [groupSlots]slotState
	loaded bool
	closed bool
	fenced bool // the store is being moved, or has moved
}

// NewGroups returns the groups that meta keeps, to be loaded: all are this
// broker's. Unset fields of config are at their defaults.
func NewGroups(meta Meta, config GroupsConfig, log *slog.Logger) *Groups {
	return NewClusterGroups(meta, nil, config, log)
}

// NewClusterGroups returns the groups of one node of a cluster, to be loaded; of
// the only one if cluster is nil.
func NewClusterGroups(meta Meta, cluster Cluster, config GroupsConfig, log *slog.Logger) *Groups {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	config = Config{Groups: config}.WithDefaults().Groups
	return &Groups{
		meta: meta, cluster: cluster, config: config, log: log,
		work: lifecycle.NewGroup(context.Background()), byName: map[string]*coordinator{},
		follow: newFollower(),
	}
}

// Load reads all groups. Until it has returned, every other call fails with
// ErrCoordinatorLoading. Members of a group go on as if nothing had happened,
// with their sessions begun anew. In a cluster it returns at once, and slots are
// claimed and loaded one by one.
func (gs *Groups) Load(ctx context.Context) error {
	if gs.cluster != nil {
		gs.startFollowing()
		return nil
	}
	if err := gs.reload(ctx); err != nil {
		return err
	}
	gs.work.Go("expire offsets", gs.expireLoop)
	return nil
}

// reload reads all groups of the only node, and serves them.
func (gs *Groups) reload(ctx context.Context) error {
	all := &lease{meta: gs.meta}
	var leases [groupSlots]*lease
	for slot := range leases {
		leases[slot] = all
	}
	byName, broken, err := gs.read(ctx, leases)
	if err = errors.Join(err, errors.Join(broken[:]...)); err != nil {
		return fmt.Errorf("load consumer groups: %w", err)
	}
	gs.mu.Lock()
	for slot := range gs.slots {
		gs.slots[slot] = slotState{lease: all, serving: true}
	}
	gs.byName, gs.loaded, gs.fenced = byName, true, false
	gs.mu.Unlock()
	beginAll(byName)
	return nil
}

// fence makes all requests fail with ErrNotCoordinator until reload, and returns when
// what was accepted before is written.
func (gs *Groups) fence(ctx context.Context) error {
	gs.mu.Lock()
	gs.fenced = true
	gs.mu.Unlock()
	all := gs.all()
	for _, c := range all {
		c.close(ErrNotCoordinator)
	}
	for _, c := range all {
		select {
		case <-c.settled():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// ended returns why a coordinator is closed.
func (gs *Groups) ended() error {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if gs.fenced && !gs.closed {
		return ErrNotCoordinator
	}
	return ErrClosed
}

// beginAll lets time begin for groups that were loaded.
func beginAll(byName map[string]*coordinator) {
	now := time.Now()
	for _, c := range byName {
		c.mu.Lock()
		c.arm(now)
		c.flush()
		c.mu.Unlock()
	}
}

// read returns the groups of the slots for which there is a lease, and for each slot
// what cannot be read in it.
func (gs *Groups) read(ctx context.Context, leases [groupSlots]*lease) (byName map[string]*coordinator, broken [groupSlots]error, err error) {
	byName = map[string]*coordinator{}
	add := func(name string, read func(c *coordinator) error) {
		slot := slotOf(name)
		l := leases[slot]
		if l == nil {
			return
		}
		if byName[name] == nil {
			byName[name] = newCoordinator(gs, l, name)
		}
		broken[slot] = errors.Join(broken[slot], read(byName[name]))
	}
	now := time.Now()
	items, err := gs.meta.List(ctx, groupPrefix)
	if err != nil {
		return nil, broken, err
	}
	for _, item := range items {
		add(strings.TrimPrefix(item.Key, groupPrefix), func(c *coordinator) error {
			var record groupRecord
			if err := decodeRecord(item, &record, &record.Format); err != nil {
				return err
			}
			c.revision = item.Revision
			c.group.restore(now, record)
			return nil
		})
	}
	if items, err = gs.meta.List(ctx, offsetsPrefix); err != nil {
		return nil, broken, err
	}
	for _, item := range items {
		name, topic := splitOffsetsKey(item.Key)
		add(name, func(c *coordinator) (err error) {
			c.offsets[topic], err = decodeOffsets(item)
			return err
		})
	}
	return byName, broken, nil
}

// Stop fails what waits for other members with ErrClosed, and waits for writes
// under way: their commits are answered. Then it gives its slots up, so that other
// nodes claim them at once; so it is the first to stop of a node that goes, while
// clients can still be told who coordinates their groups.
func (gs *Groups) Stop(ctx context.Context) error {
	gs.mu.Lock()
	gs.closed = true
	gs.mu.Unlock()
	err := gs.follow.work.Stop(ctx)
	for _, c := range gs.all() {
		c.close(ErrClosed)
	}
	err = errors.Join(err, gs.work.Stop(ctx))
	if gs.cluster != nil {
		gs.giveUp(ctx)
	}
	return err
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
	c, slot := gs.byName[name], gs.slots[slotOf(name)]
	switch {
	case gs.closed:
		return nil, ErrClosed
	case gs.fenced:
		return nil, ErrNotCoordinator
	case !gs.loaded:
		return nil, ErrCoordinatorLoading
	case slot.lease == nil:
		return nil, fmt.Errorf("%w: %q", ErrNotCoordinator, name)
	case !slot.serving:
		return nil, ErrCoordinatorLoading
	case c != nil:
		return c, nil
	case !create:
		return nil, fmt.Errorf("%w: %q", ErrNoGroup, name)
	case len(gs.byName) >= gs.config.GroupsMax:
		return nil, fmt.Errorf("%w: there may be at most %d", ErrTooManyGroups, gs.config.GroupsMax)
	}
	c = newCoordinator(gs, slot.lease, name)
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
		return false, c.groups.ended()
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
