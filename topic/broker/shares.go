package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/share"
)

// sharesMax bounds the windows of share groups in memory. Beyond it, those that nobody uses are
// dropped, and without any the error is ErrSharesFull.
const sharesMax = 4096

// shares are the windows of share groups in the partitions that this broker leads.
type shares struct {
	mu     sync.Mutex
	byKey  map[string]*Share
	closed bool
}

// Share is what a share group does in a partition: its window, in memory and in the metadata. Only the
// leader of the partition has it. Locks are taken in this order: that of shares, then that of a
// Share, then the partition's.
type Share struct {
	broker *Broker
	topic  *Topic
	number int32
	group  string
	key    string
	// turn is held while the window is loaded, and while records are read for a member: another
	// would read the same ones.
	turn *semaphore.Weighted

	mu     sync.Mutex
	users  int
	window *share.Window // nil until it is loaded
	epoch  int32         // leader epoch in which it was loaded
	// revision is that of the stored window.
	revision uint64
	// version counts changes; stored is the last one that is durable, awaited the last one that somebody waits for.
	version, stored, awaited uint64

	writing bool
	written chan struct{} // closed when the present write has ended
	burying bool          // dead letters are being written
	ended   error         // why the window is not used any more

	watchers watchers
}

// Share returns what a share group does in a partition that this broker leads. The caller calls Close when it does
// not use it any more. Errors: ErrNotLeader, ErrRetry, ErrNoPartition; group.ErrNoGroup and
// group.ErrOtherProtocol if there is no such share group; ErrSharesFull; those of the store.
func (t *Topic) Share(ctx context.Context, number int32, name string) (*Share, error) {
	if _, err := t.Partition(number); err != nil {
		return nil, err
	}
	s, err := t.broker.share(t, number, name)
	if err != nil {
		return nil, err
	}
	if err = s.begin(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// share returns the window of a group, maybe one that is not loaded yet.
func (b *Broker) share(t *Topic, number int32, name string) (*Share, error) {
	key, all := share.Key(t.id, number, name), &b.shares
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.closed {
		return nil, topic.ErrClosed
	}
	s := all.byKey[key]
	if s == nil || s.hasEnded() {
		if len(all.byKey) >= sharesMax && !all.dropUnused() {
			return nil, fmt.Errorf("%w: %d are in use", topic.ErrSharesFull, sharesMax)
		}
		s = &Share{broker: b, topic: t, number: number, group: name, key: key, turn: semaphore.NewWeighted(1)}
		all.byKey[key] = s
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users++
	return s, nil
}

// dropUnused drops windows without users and locks, and reports whether there was one. mu is held.
func (all *shares) dropUnused() (dropped bool) {
	for key, s := range all.byKey {
		s.mu.Lock()
		if s.unused() {
			delete(all.byKey, key)
			dropped = true
		}
		s.mu.Unlock()
	}
	return dropped
}

// unused reports whether the window may be dropped: it is as it is stored, except for what nobody was told. mu is held.
func (s *Share) unused() bool {
	return s.ended != nil || s.users == 0 && !s.writing && (s.window == nil || s.window.Locked().IsZero())
}

// Close ends the use of the window. One that nobody uses is read again by its next user, who so learns that
// the group was reset.
func (s *Share) Close() {
	all := &s.broker.shares
	all.mu.Lock()
	defer all.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; all.byKey[s.key] == s && s.unused() {
		delete(all.byKey, s.key)
	}
}

func (s *Share) hasEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended != nil
}

// end drops the window: whoever uses it next reads it from the metadata. mu is held.
func (s *Share) end(why error) {
	if s.ended != nil {
		return
	}
	s.ended = why
	s.watchers.signal()
}

// close makes all calls fail with ErrClosed.
func (all *shares) close() {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.closed = true
	for _, s := range all.byKey {
		s.mu.Lock()
		s.ended = topic.ErrClosed
		s.mu.Unlock()
		s.watchers.signal()
	}
}

// begin loads the window, unless it is loaded.
func (s *Share) begin(ctx context.Context) error {
	if err := s.turn.Acquire(ctx, 1); err != nil {
		return err
	}
	defer s.turn.Release(1)
	s.mu.Lock()
	loaded, err := s.window != nil, s.usable()
	s.mu.Unlock()
	if loaded || err != nil {
		return err
	}
	if err := s.load(ctx); err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.end(err)
		return err
	}
	return nil
}

// usable returns why the window cannot be used, or not any more. mu is held.
func (s *Share) usable() error {
	if s.ended != nil {
		return s.ended
	}
	if err := s.broker.moving.serves(); err != nil {
		return err
	}
	p, err := s.topic.Partition(s.number)
	if err == nil && s.window != nil && p.Epoch() != s.epoch {
		err = fmt.Errorf("%w: %s has another leader epoch", topic.ErrRetry, p)
	}
	if err != nil && s.window != nil {
		s.end(err)
	}
	return err
}

// load reads the window from the metadata and writes it again, so that no other leader can write it
// any more. A group that reads the partition for the first time has a new one.
func (s *Share) load(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shareTimeout)
	defer cancel()
	p, err := s.topic.Partition(s.number)
	if err != nil {
		return err
	}
	for range catalog.StoreAttempts {
		err := s.tryLoad(ctx, p)
		if !errors.Is(err, topic.ErrConflict) {
			return err
		}
	}
	return fmt.Errorf("%w: the share group %q changes", topic.ErrRetry, s.group)
}

func (s *Share) tryLoad(ctx context.Context, p *Partition) error {
	meta := s.broker.store.Meta()
	if err := meta.Sync(ctx); err != nil {
		return err
	}
	guards, err := s.guards(ctx)
	if err != nil {
		return err
	}
	item, err := catalog.Get(ctx, meta, s.key)
	if err != nil {
		return err
	}
	settings, err := s.broker.ShareSettings(ctx, s.group)
	if err != nil {
		return err
	}
	epoch, ends := p.Epoch(), p.Ends()
	window, err := s.decode(item, epoch, ends, settings)
	if err != nil {
		return err
	}
	value, err := window.Encode(time.Now(), epoch)
	if err != nil {
		return err
	}
	revision, err := s.put(ctx, value, item.Revision, guards...)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.window, s.epoch, s.revision = window, epoch, revision
	s.bury()
	return nil
}

// guards are the conditions for a new window: that its group and its topic exist.
func (s *Share) guards(ctx context.Context) ([]topic.Guard, error) {
	of, err := group.ShareGuard(ctx, s.broker.store.Meta(), s.group)
	if err != nil {
		return nil, err
	}
	item, err := s.broker.store.Meta().Get(ctx, catalog.TopicsPrefix+s.topic.name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", topic.ErrNoTopic, err)
	}
	record, err := catalog.ReadTopic(item)
	if err == nil && (record.Deleting || record.ID != s.topic.id.String()) {
		err = noTopicError(s.topic.name)
	}
	return []topic.Guard{of, {Key: item.Key, Revision: item.Revision}}, err
}

// decode returns the window that is stored, or a new one.
func (s *Share) decode(item topic.Item, epoch int32, ends Ends, settings topic.GroupSettings) (*share.Window, error) {
	limits := s.broker.shareLimits(settings, s.topic.name)
	if item.Revision == 0 {
		start := ends.HighWatermark
		if settings.Earliest {
			start = ends.Start
		}
		return share.New(start, limits), nil
	}
	window, stored, err := share.Decode(item.Value, limits)
	if err != nil {
		return nil, fmt.Errorf("metadata %q: %w", item.Key, err)
	}
	if stored > epoch {
		return nil, fmt.Errorf("%w: a leader of epoch %d has the window of %q", topic.ErrNotLeader, stored, s.group)
	}
	window.Clip(ends.Start, ends.HighWatermark)
	return window, nil
}

// deleteShares removes the windows of all groups whose keys have a prefix.
func (b *Broker) deleteShares(ctx context.Context, prefix string) error {
	meta := b.store.Meta()
	items, err := meta.List(ctx, prefix)
	for i := 0; i < len(items) && err == nil; i++ {
		err = group.RemoveItem(ctx, &group.Ownership{Meta: meta}, items[i].Key, items[i].Revision)
	}
	return err
}

// sharedOffsets returns where the windows of a share group begin, by topic.
func (b *Broker) sharedOffsets(ctx context.Context, name string) (all []group.TopicOffsets, err error) {
	items, err := b.store.Meta().List(ctx, share.Prefix)
	if err != nil {
		return nil, err
	}
	settings, err := b.ShareSettings(ctx, name)
	if err != nil {
		return nil, err
	}
	byTopic := map[string]map[int32]group.CommittedOffset{}
	for _, item := range items {
		id, number, of := share.SplitKey(item.Key)
		if of != name {
			continue
		}
		in, err := topic.ParseID(id)
		if err != nil {
			return nil, err
		}
		t, err := b.TopicByID(in)
		if err != nil { // it was deleted: its windows are about to be
			continue
		}
		window, epoch, err := share.Decode(item.Value, b.shareLimits(settings, t.name))
		if err != nil {
			return nil, fmt.Errorf("metadata %q: %w", item.Key, err)
		}
		if byTopic[t.name] == nil {
			byTopic[t.name] = map[int32]group.CommittedOffset{}
			all = append(all, group.TopicOffsets{Topic: t.name, Partitions: byTopic[t.name]})
		}
		byTopic[t.name][number] = group.CommittedOffset{Offset: window.Start(), Epoch: epoch}
	}
	return all, nil
}
