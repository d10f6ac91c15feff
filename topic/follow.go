package topic

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-project/sluice/lifecycle"
)

// The catalog is followed: what is in memory of topics is brought to what the
// metadata says of them, by the same code whether this node has changed it or
// another. The nodes of a cluster do so whenever it changes.

const (
	// lookEvery is how often the loop looks at the leaders, and followEvery at the
	// whole catalog, if nothing has told it to.
	lookEvery   = time.Second
	followEvery = 10 * time.Second
	// leadersWait is how long who makes a topic waits until its partitions have
	// leaders, and othersWait how long who changes one waits until the other nodes
	// know of it.
	leadersWait = 5 * time.Second
	othersWait  = 5 * time.Second
	leadersLook = 10 * time.Millisecond
	// deleteAgain is how long a broker waits before it goes on with a topic that
	// could not be deleted.
	deleteAgain = 5 * time.Second
)

// catalog is how far the metadata was followed.
type catalog struct {
	mu      *sync.Mutex
	applied map[string]uint64 // by topic: the revision of its record
	// deleting has the topics that this broker removes.
	deleting map[ID]bool
	changed  *atomic.Bool // something was written since it was followed
	making   *atomic.Bool // logs that are missing are being made
	// newest is the highest revision of a record that was followed.
	newest *atomic.Uint64
}

func newCatalog() catalog {
	return catalog{mu: &sync.Mutex{}, applied: map[string]uint64{}, deleting: map[ID]bool{}, changed: &atomic.Bool{}, making: &atomic.Bool{}, newest: &atomic.Uint64{}}
}

// look wakes the loop that follows the catalog and the cluster.
func (b *Broker) look() { signal(b.looking) }

// keepFollowing follows the catalog, and who leads, until ctx ends.
func (b *Broker) keepFollowing(ctx context.Context) error {
	defer b.store.Meta().Watch(topicsPrefix, func() {
		b.catalog.changed.Store(true)
		b.look()
	})()
	defer b.cluster.Watch(b.look)()
	b.catalog.changed.Store(true) // since Start has followed it
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	followed := time.Now()
	for {
		if b.catalog.changed.Swap(false) || time.Since(followed) >= followEvery {
			followed = time.Now()
			if err := b.followAll(ctx); err != nil && ctx.Err() == nil {
				b.log.Warn("catalog not followed, trying again", "error", err)
			}
			b.makeMissing()
		}
		b.lookAtLeaders()
		select {
		case <-b.looking:
		case <-ticker.C:
			b.tellMoves()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// followAll brings all topics to what the metadata says; views after what they
// show.
func (b *Broker) followAll(ctx context.Context) error {
	b.catalog.mu.Lock()
	defer b.catalog.mu.Unlock()
	items, err := b.store.Meta().List(ctx, topicsPrefix)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, views := range []bool{false, true} {
		for _, item := range items {
			name := item.Key[len(topicsPrefix):]
			there[name] = true
			record, err := readTopicRecord(item)
			if isView := record.Settings[SettingViewOf] != ""; isView != views {
				continue
			}
			if err == nil && record.Deleting {
				b.goOnDeleting(name, item)
			}
			if b.catalog.applied[name] == item.Revision {
				continue
			}
			if err == nil {
				err = b.apply(ctx, name, record)
			}
			if err != nil {
				b.log.Error("topic cannot be followed", "topic", name, "error", err)
				continue
			}
			b.catalog.note(name, item.Revision)
		}
	}
	for _, name := range slices.Collect(maps.Keys(b.catalog.applied)) {
		if !there[name] {
			b.gone(name)
		}
	}
	if b.cluster != nil {
		b.cluster.Followed(max(1, b.catalog.newest.Load())) // 1: it follows, and there is nothing yet
	}
	return nil
}

// note notes that the record of a topic was followed, with the lock held.
func (c *catalog) note(name string, revision uint64) {
	c.applied[name] = revision
	c.newest.Store(max(c.newest.Load(), revision))
}

// followTopic brings one topic to what the metadata says, after it was changed
// here.
func (b *Broker) followTopic(ctx context.Context, name string) error {
	b.catalog.mu.Lock()
	defer b.catalog.mu.Unlock()
	item, err := b.store.Meta().Get(ctx, topicsPrefix+name)
	if errors.Is(err, ErrNotFound) {
		b.gone(name)
		return nil
	}
	if err != nil {
		return err
	}
	record, err := readTopicRecord(item)
	if err == nil {
		err = b.apply(ctx, name, record)
	}
	if err == nil {
		b.catalog.note(name, item.Revision)
		b.look()
	}
	return err
}

// catchUp brings topics and nodes to what any node has written before the call, so that
// topics can be changed. ErrNotLeader if they are being moved elsewhere.
func (b *Broker) catchUp(ctx context.Context) error {
	if b.cluster == nil {
		return b.moving.serves()
	}
	if err := b.store.Meta().Sync(ctx); err != nil {
		return err
	}
	if err := b.listNodes(ctx); err != nil {
		return err
	}
	return b.followAll(ctx)
}

// gone gives up a topic that is not in the metadata any more.
func (b *Broker) gone(name string) {
	delete(b.catalog.applied, name)
	if t, err := b.Topic(name); err == nil {
		b.close(t)
	}
}

// apply brings a topic to what its record says, with the catalog's lock held.
func (b *Broker) apply(ctx context.Context, name string, record topicRecord) error {
	t, _ := b.Topic(name)
	if t != nil && (record.Deleting || t.id.String() != record.ID || !t.sourceIs(record.Settings[SettingViewOf])) {
		b.close(t)
		t = nil
	}
	if record.Deleting {
		return nil
	}
	if t == nil {
		return b.add(ctx, name, record)
	}
	if t.source == nil {
		if err := t.open(ctx, record); err != nil {
			return err
		}
		for i, p := range t.all() {
			if b.cluster != nil && i < len(record.Partitions) {
				p.follow(record.Partitions[i])
			}
		}
		if record.Delays {
			t.delay()
		}
	}
	if now := t.settings.Load(); now.broken == nil && maps.Equal(now.own, record.Settings) {
		return nil
	}
	settings, err := b.storedSettings(name, record)
	if err == nil {
		t.settings.Store(settings)
	}
	return err
}

// sourceIs tells whether a topic shows a part of that one, which may have been
// deleted and made again; of none for an empty name.
func (t *Topic) sourceIs(name string) bool {
	if name == "" || t.source == nil {
		return (name == "") == (t.source == nil)
	}
	source, err := t.broker.Topic(name)
	return err == nil && source == t.source
}

// makeLogs makes the logs of a record's partitions, from one on, so that the
// cluster can elect their leaders.
func (b *Broker) makeLogs(ctx context.Context, record topicRecord, from int) error {
	if b.cluster == nil || from >= len(record.Partitions) {
		return nil
	}
	making, ctx := errgroup.WithContext(ctx)
	making.SetLimit(partitionsAtOnce)
	for i, p := range record.Partitions[from:] {
		making.Go(func() error {
			_, err := b.store.OpenLog(ctx, record.names(from+i).records, b.there(p.Replicas))
			return err
		})
	}
	return making.Wait()
}

// makeMissing makes the logs of partitions that nobody has ever led: who made the
// topic may have died before it had made them. The first node that is alive does.
func (b *Broker) makeMissing() {
	if !b.first() {
		return
	}
	never := slices.DeleteFunc(b.partitions(), func(p *Partition) bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.leader != 0
	})
	if len(never) == 0 || !b.catalog.making.CompareAndSwap(false, true) {
		return
	}
	b.group.Go("make logs", func(ctx context.Context) error {
		defer b.catalog.making.Store(false)
		for _, p := range never {
			if _, err := b.store.OpenLog(ctx, p.logName(), b.there(p.targets())); err != nil && ctx.Err() == nil {
				b.log.Warn("log of a partition not made, trying again", "partition", p.String(), "error", err)
			}
		}
		return nil
	})
}

// administer makes a change of topics after another, and returns when all nodes know
// of it.
func (b *Broker) administer(ctx context.Context, change func() error) error {
	err := func() error {
		b.admin.Lock()
		defer b.admin.Unlock()
		return change()
	}()
	if err == nil {
		b.awaitOthers(ctx)
	}
	return err
}

// awaitOthers waits a while, after a topic was changed here, until the other nodes
// tell their clients of it too.
func (b *Broker) awaitOthers(ctx context.Context) {
	if b.cluster == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, othersWait)
	defer cancel()
	// If one is that slow, its clients learn of it later.
	_ = b.cluster.AwaitFollowed(ctx, b.catalog.newest.Load())
}

// awaitUse waits a while until a topic that was just made, or has grown, can be used:
// all its partitions have leaders, and all nodes know of them.
func (t *Topic) awaitUse(ctx context.Context) {
	t.awaitLeaders(ctx)
	t.broker.awaitOthers(ctx)
}

// awaitLeaders waits a while until all partitions of a topic that was just made
// have leaders.
func (t *Topic) awaitLeaders(ctx context.Context) {
	if t.broker.cluster == nil || t.source != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leadersWait)
	defer cancel()
	for slices.ContainsFunc(t.Partitions(), func(p *Partition) bool { return p.Leader() < 0 }) {
		if !lifecycle.Sleep(ctx, nil, leadersLook) {
			return
		}
	}
}
