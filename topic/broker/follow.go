package broker

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
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
)

// The topics in memory follow the catalog: the same code updates them from the
// metadata, whether this node or another has written it, whenever the catalog changes.

const (
	// lookEvery is how often the loop checks the leaders, and followEvery the whole
	// catalog, if nothing wakes it.
	lookEvery   = time.Second
	followEvery = 10 * time.Second
	// leadersWait bounds how long the creation of a topic waits for its partitions'
	// leaders, and othersWait how long a change waits until the other nodes know
	// of it.
	leadersWait = 5 * time.Second
	othersWait  = 5 * time.Second
	leadersLook = 2 * time.Millisecond
	// deleteAgain is how long a broker waits before it retries the deletion of a
	// topic.
	deleteAgain = 5 * time.Second
)

// followed records how far the metadata was followed.
type followed struct {
	mu      *sync.Mutex
	applied map[string]uint64 // revision of the record, by topic
	// deleting holds the topics that this broker removes.
	deleting map[topic.ID]bool
	changed  *atomic.Bool // something was written since the catalog was followed
	making   *atomic.Bool // missing logs are being created
	// newest is the highest revision of a record that was followed.
	newest *atomic.Uint64
}

func newFollowed() followed {
	return followed{mu: &sync.Mutex{}, applied: map[string]uint64{}, deleting: map[topic.ID]bool{}, changed: &atomic.Bool{}, making: &atomic.Bool{}, newest: &atomic.Uint64{}}
}

// look wakes the loop that follows the catalog and the cluster.
func (b *Broker) look() { b.looking.Wake() }

// keepFollowing follows the catalog and the leaders until ctx ends.
func (b *Broker) keepFollowing(ctx context.Context) error {
	defer b.store.Meta().Watch(catalog.TopicsPrefix, func() {
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

// followAll updates all topics from the metadata; views after their sources.
func (b *Broker) followAll(ctx context.Context) error {
	b.catalog.mu.Lock()
	defer b.catalog.mu.Unlock()
	items, err := b.store.Meta().List(ctx, catalog.TopicsPrefix)
	if err != nil {
		return err
	}
	there := make(map[string]bool, len(items))
	for _, views := range []bool{false, true} {
		for _, item := range items {
			name := item.Key[len(catalog.TopicsPrefix):]
			there[name] = true
			// An open topic at that revision is not being deleted. Each change of a topic comes here, so
			// the records of all others are not read again.
			if _, err := b.Topic(name); err == nil && b.catalog.applied[name] == item.Revision {
				continue
			}
			record, err := catalog.ReadTopic(item)
			if isView := record.Settings[topic.SettingViewOf] != ""; isView != views {
				continue
			}
			if err == nil && record.Deleting {
				b.goOnDeletingLocked(name, item)
			}
			if b.catalog.applied[name] == item.Revision {
				continue
			}
			if err == nil {
				err = b.applyLocked(name, record)
			}
			if err != nil {
				b.log.Error("topic cannot be followed", "topic", name, "error", err)
				continue
			}
			b.catalog.noteLocked(name, item.Revision)
		}
	}
	for name := range b.catalog.applied {
		if !there[name] {
			b.gone(name)
		}
	}
	b.cluster.Followed(max(1, b.catalog.newest.Load())) // at least 1: it follows
	return nil
}

// noteLocked records that a topic's record was followed. The lock is held.
func (c *followed) noteLocked(name string, revision uint64) {
	c.applied[name] = revision
	c.newest.Store(max(c.newest.Load(), revision))
}

// followTopic updates one topic from the metadata, after a change by this broker.
func (b *Broker) followTopic(ctx context.Context, name string) error {
	b.catalog.mu.Lock()
	defer b.catalog.mu.Unlock()
	item, err := b.store.Meta().Get(ctx, catalog.TopicsPrefix+name)
	if errors.Is(err, topic.ErrNotFound) {
		b.gone(name)
		return nil
	}
	if err != nil {
		return err
	}
	record, err := catalog.ReadTopic(item)
	if err == nil {
		err = b.applyLocked(name, record)
	}
	if err == nil {
		b.catalog.noteLocked(name, item.Revision)
		b.look()
	}
	return err
}

// catchUp updates topics and nodes with everything that any node has written before
// the call, so that topics can be changed. ErrNotLeader if they are being migrated.
func (b *Broker) catchUp(ctx context.Context) error {
	if err := b.moving.serves(); err != nil {
		return err
	}
	if err := b.store.Meta().Sync(ctx); err != nil {
		return err
	}
	if err := b.listNodes(ctx); err != nil {
		return err
	}
	return b.followAll(ctx)
}

// gone closes a topic that is no longer in the metadata.
func (b *Broker) gone(name string) {
	delete(b.catalog.applied, name)
	if t, err := b.Topic(name); err == nil {
		b.close(t)
	}
}

// applyLocked updates a topic from its record. The catalog's lock is held.
func (b *Broker) applyLocked(name string, record catalog.Topic) error {
	t, _ := b.Topic(name)
	if t != nil && (record.Deleting || t.id.String() != record.ID || !t.sourceIs(record.Settings[topic.SettingViewOf])) {
		b.close(t)
		t = nil
	}
	if record.Deleting {
		return nil
	}
	if t == nil {
		return b.add(name, record)
	}
	if t.source == nil {
		t.open(record)
		for i, p := range t.all() {
			p.follow(record.Partitions[i])
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

// sourceIs reports whether the topic is a view of the open topic of that name, not of
// one that was deleted and created again; for an empty name, whether it is no view.
func (t *Topic) sourceIs(name string) bool {
	if name == "" || t.source == nil {
		return (name == "") == (t.source == nil)
	}
	source, err := t.broker.Topic(name)
	return err == nil && source == t.source
}

// makeLogs creates the logs of a record's partitions, starting at partition from, so
// that the cluster can elect their leaders.
func (b *Broker) makeLogs(ctx context.Context, record catalog.Topic, from int) error {
	making, ctx := errgroup.WithContext(ctx)
	making.SetLimit(partitionsAtOnce)
	for i, p := range record.Partitions[min(from, len(record.Partitions)):] {
		making.Go(func() error {
			_, err := b.store.OpenLog(ctx, record.Names(from+i).Records, b.there(p.Replicas))
			return err
		})
	}
	return making.Wait()
}

// makeMissing creates the logs of partitions that never had a leader: the topic's
// creator may have died first. The first alive node does it.
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

// administer serializes changes of topics, and returns when all nodes know of the
// change.
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

// awaitOthers waits a while, after this broker changed a topic, until the other nodes
// report the change to their clients too.
func (b *Broker) awaitOthers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, othersWait)
	defer cancel()
	// The clients of a slower node learn of the change later.
	_ = b.cluster.AwaitFollowed(ctx, b.catalog.newest.Load())
}

// awaitUse waits a while until a topic that was created, or has grown, can be used:
// all its partitions have leaders, and all nodes know them.
func (t *Topic) awaitUse(ctx context.Context) {
	t.awaitLeaders(ctx)
	t.broker.awaitOthers(ctx)
}

// awaitLeaders waits a while until all partitions of a new topic have leaders, or it was
// deleted again.
func (t *Topic) awaitLeaders(ctx context.Context) {
	if t.source != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leadersWait)
	defer cancel()
	for slices.ContainsFunc(t.Partitions(), func(p *Partition) bool { return p.Leader() < 0 && !p.ended() }) {
		if !lifecycle.Sleep(ctx, nil, leadersLook) {
			return
		}
	}
}
