package group

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
	"github.com/sluice-project/sluice/topic"
)

// expireInterval is how often expired offsets are searched for; shorter if the retention
// is shorter.
const expireInterval = 10 * time.Minute

// loadLook is how often Unfence checks whether the groups have been loaded.
const loadLook = 10 * time.Millisecond

// Groups coordinates the consumer groups whose slots this node has claimed; calls about
// other groups fail with ErrNotCoordinator. Only
// Load, Stop, Confirm and ForgetTopic wait for the store or for other members; other
// methods return an [Awaited].
type Groups struct {
	meta    topic.Meta
	cluster topic.Cluster
	config  topic.GroupsConfig
	topics  Topics
	log     *slog.Logger
	work    *lifecycle.Group
	follow  *follower
	// admitting is held by Admit.
	admitting chan struct{}

	mu     sync.Mutex
	byName map[string]*coordinator
	bytes  int64 // of the members of all groups
	slots  [SlotCount]slotState
	loaded bool
	closed bool
	fenced bool // the store is being migrated, or was
}

// New returns the groups of one node of a cluster, not yet loaded. Unset fields of config
// get their defaults. The topics are those that members may subscribe to.
func New(meta topic.Meta, cluster topic.Cluster, config topic.GroupsConfig, topics Topics, log *slog.Logger) *Groups {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	config = topic.Config{Groups: config}.WithDefaults().Groups
	return &Groups{
		meta: meta, cluster: cluster, config: config, topics: topics, log: log,
		work: lifecycle.NewGroup(context.Background()), byName: map[string]*coordinator{},
		follow: newFollower(), admitting: make(chan struct{}, 1),
	}
}

// Load begins to follow the nodes and to claim slots. It returns when the slots that this
// node should own at once have been claimed and their groups loaded, or that has failed
// once; the others follow. Calls about a group whose slot is being loaded fail with
// ErrCoordinatorLoading. Members of a group continue as before, with their sessions
// restarted.
func (gs *Groups) Load(ctx context.Context) error {
	gs.startFollowing()
	select {
	case <-gs.follow.looked:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Unfence ends Fence, and returns when all groups have been loaded again.
func (gs *Groups) Unfence(ctx context.Context) error {
	gs.mu.Lock()
	gs.fenced = false
	gs.mu.Unlock()
	gs.deposeAll()
	for gs.complete() != nil {
		if !lifecycle.Sleep(ctx, nil, loadLook) {
			return ctx.Err()
		}
	}
	return nil
}

// Fence makes all requests fail with ErrNotCoordinator until Unfence, and returns when all
// accepted requests are written.
func (gs *Groups) Fence(ctx context.Context) error {
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

func (gs *Groups) isFenced() bool {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	return gs.fenced
}

// ended returns why a coordinator is closed.
func (gs *Groups) ended() error {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if gs.fenced && !gs.closed {
		return ErrNotCoordinator
	}
	return topic.ErrClosed
}

// beginAll starts the timers and the writes of groups that were loaded.
func beginAll(byName map[string]*coordinator) {
	now := time.Now()
	for _, c := range byName {
		c.mu.Lock()
		c.changed(now)
		c.flush()
		c.mu.Unlock()
	}
}

// read returns the groups of the owned slots, and for each slot the error of what cannot
// be read in it.
func (gs *Groups) read(ctx context.Context, owned [SlotCount]*Ownership) (byName map[string]*coordinator, broken [SlotCount]error, err error) {
	byName = map[string]*coordinator{}
	add := func(name string, read func(c *coordinator) error) {
		slot := SlotOf(name)
		l := owned[slot]
		if l == nil {
			return
		}
		if byName[name] == nil {
			byName[name] = newCoordinator(gs, l, name)
		}
		broken[slot] = errors.Join(broken[slot], read(byName[name]))
	}
	now := time.Now()
	items, err := gs.meta.List(ctx, GroupPrefix)
	if err != nil {
		return nil, broken, err
	}
	for _, item := range items {
		add(strings.TrimPrefix(item.Key, GroupPrefix), func(c *coordinator) error {
			var record groupRecord
			if err := decodeRecord(item, &record, &record.Format); err != nil {
				return err
			}
			c.revision = item.Revision
			c.group.restore(now, record)
			return nil
		})
	}
	if items, err = gs.meta.List(ctx, OffsetsPrefix); err != nil {
		return nil, broken, err
	}
	for _, item := range items {
		name, topic := SplitOffsetsKey(item.Key)
		add(name, func(c *coordinator) (err error) {
			c.offsets[topic], err = decodeOffsets(item)
			return err
		})
	}
	return byName, broken, nil
}

// Stop fails requests that wait for other members with ErrClosed, and waits for writes in
// progress, whose commits are answered. Then it gives its slots up, so that other nodes
// claim them at once. A node that leaves stops its groups first, while it can still tell
// clients the coordinators of their groups.
func (gs *Groups) Stop(ctx context.Context) error {
	gs.mu.Lock()
	gs.closed = true
	gs.mu.Unlock()
	err := gs.follow.work.Stop(ctx)
	for _, c := range gs.all() {
		c.close(topic.ErrClosed)
	}
	err = errors.Join(err, gs.work.Stop(ctx))
	gs.giveUp(ctx)
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

// CheckName returns an ErrInvalidGroup if a group cannot have that name.
func CheckName(name string) error {
	if name == "" || len(name) > MaxGroupName {
		return fmt.Errorf("%w: %d bytes; want 1 to %d", ErrInvalidGroup, len(name), MaxGroupName)
	}
	return nil
}

// find returns the coordinator of a group. If the group does not exist, find creates it
// if create is set, and otherwise returns ErrNoGroup.
func (gs *Groups) find(name string, create bool) (*coordinator, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	gs.mu.Lock()
	defer gs.mu.Unlock()
	c, slot := gs.byName[name], gs.slots[SlotOf(name)]
	switch {
	case gs.closed:
		return nil, topic.ErrClosed
	case gs.fenced:
		return nil, ErrNotCoordinator
	case !gs.loaded:
		return nil, ErrCoordinatorLoading
	case slot.owner == nil:
		return nil, &groupError{ErrNotCoordinator, name}
	case !slot.serving:
		return nil, ErrCoordinatorLoading
	case c != nil:
		return c, nil
	case !create:
		return nil, &groupError{ErrNoGroup, name}
	case len(gs.byName) >= gs.config.GroupsMax:
		return nil, fmt.Errorf("%w: there may be at most %d", ErrTooManyGroups, gs.config.GroupsMax)
	}
	c = newCoordinator(gs, slot.owner, name)
	gs.byName[name] = c
	return c, nil
}

// groupError is an error with the name of a group. Its text is made when it is read: a request
// may name many groups, and most callers need the kind of the error only.
type groupError struct {
	kind error
	name string
}

func (r *groupError) Error() string { return fmt.Sprintf("%v: %q", r.kind, r.name) }

func (r *groupError) Unwrap() error { return r.kind }

func (gs *Groups) forget(c *coordinator) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if gs.byName[c.name] == c {
		delete(gs.byName, c.name)
	}
}

// with calls f with the lock of a group, and then starts the writes that f has collected.
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
	case c.group.state == Dead:
		return false, ErrCoordinatorLoading
	}
	err = f(c, time.Now())
	c.flush()
	c.dropIfUnused()
	return false, err
}

// move is with, for calls that may change the group's members.
func (gs *Groups) move(name string, create bool, f func(g *group, now time.Time) error) error {
	return gs.with(name, create, func(c *coordinator, now time.Time) error {
		err := f(c.group, now)
		c.changed(now)
		return err
	})
}

// orUnknownMember replaces ErrNoGroup by the error for a member.
func orUnknownMember(err error) error {
	if errors.Is(err, ErrNoGroup) {
		return fmt.Errorf("%w: %w", ErrUnknownMember, err)
	}
	return err
}
