package storetest

import (
	"context"
	"slices"
	"sort"
	"strings"

	"github.com/sluice-project/sluice/topic"
)

// metaChange is a change of the metadata. Revision 0 means that the item was deleted.
type metaChange struct{ item topic.Item }

// nodeMeta is the metadata as one node sees it.
type nodeMeta struct{ store *NodeStore }

// change applies a change and replicates it.
func (n *Nodes) change(item topic.Item) {
	if item.Revision == 0 {
		delete(n.items, item.Key)
	} else {
		n.items[item.Key] = item
	}
	n.changes = append(n.changes, metaChange{item})
	for _, s := range n.stores {
		if !s.dead && !s.cut && !s.lagging {
			s.catchUp()
		}
	}
}

// catchUp applies all changes to the node's view.
func (s *NodeStore) catchUp() {
	for ; s.applied < len(s.nodes.changes); s.applied++ {
		item := s.nodes.changes[s.applied].item
		if item.Revision == 0 {
			delete(s.items, item.Key)
		} else {
			s.items[item.Key] = item
		}
		for _, w := range s.metaWatches {
			if strings.HasPrefix(item.Key, w.prefix) {
				w.signal()
			}
		}
	}
}

// Get implements [topic.Meta].
func (m nodeMeta) Get(_ context.Context, key string) (topic.Item, error) {
	m.store.nodes.mu.Lock()
	defer m.store.nodes.mu.Unlock()
	if m.store.dead {
		return topic.Item{}, topic.ErrClosed
	}
	item, ok := m.store.items[key]
	if !ok {
		return topic.Item{}, topic.ErrNotFound
	}
	return item, nil
}

// Put implements [topic.Meta].
func (m nodeMeta) Put(ctx context.Context, key string, value []byte, revision uint64, guards ...topic.Guard) (uint64, error) {
	var made uint64
	err := m.write(ctx, key, func(n *Nodes) error {
		if n.items[key].Revision != revision || !n.hold(guards) {
			return topic.ErrConflict
		}
		n.revision++
		made = n.revision
		n.change(topic.Item{Key: key, Value: slices.Clone(value), Revision: made})
		return nil
	})
	return made, err
}

// Delete implements [topic.Meta].
func (m nodeMeta) Delete(ctx context.Context, key string, revision uint64, guards ...topic.Guard) error {
	return m.write(ctx, key, func(n *Nodes) error {
		item, ok := n.items[key]
		switch {
		case !ok:
			return topic.ErrNotFound
		case item.Revision != revision, !n.hold(guards):
			return topic.ErrConflict
		}
		n.change(topic.Item{Key: key})
		return nil
	})
}

// write runs a write if the node can write.
func (m nodeMeta) write(ctx context.Context, key string, do func(*Nodes) error) error {
	s := m.store
	s.nodes.mu.Lock()
	fail := s.puts.of(key)
	switch {
	case s.dead:
		s.nodes.mu.Unlock()
		return topic.ErrClosed
	case fail != nil && !s.puts.stored:
		s.nodes.mu.Unlock()
		return fail
	case !s.writes():
		s.nodes.mu.Unlock()
		return s.unanswered(ctx)
	}
	defer s.nodes.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	err := do(s.nodes)
	if fail != nil {
		return fail
	}
	s.catchUp()
	return err
}

// hold reports whether all guards hold.
func (n *Nodes) hold(guards []topic.Guard) bool {
	return !slices.ContainsFunc(guards, func(g topic.Guard) bool { return n.items[g.Key].Revision != g.Revision })
}

// List implements [topic.Meta].
func (m nodeMeta) List(_ context.Context, prefix string) ([]topic.Item, error) {
	m.store.nodes.mu.Lock()
	defer m.store.nodes.mu.Unlock()
	if m.store.dead {
		return nil, topic.ErrClosed
	}
	var items []topic.Item
	for key, item := range m.store.items {
		if strings.HasPrefix(key, prefix) {
			items = append(items, item)
		}
	}
	sort.Slice(items, func(i, j int) bool { return items[i].Key < items[j].Key })
	return items, nil
}

// Sync implements [topic.Meta].
func (m nodeMeta) Sync(ctx context.Context) error {
	s := m.store
	s.nodes.mu.Lock()
	switch {
	case s.dead:
		s.nodes.mu.Unlock()
		return topic.ErrClosed
	case !s.writes():
		s.nodes.mu.Unlock()
		return s.unanswered(ctx)
	}
	defer s.nodes.mu.Unlock()
	s.catchUp()
	return ctx.Err()
}

// Watch implements [topic.Meta].
func (m nodeMeta) Watch(prefix string, signal func()) (cancel func()) {
	s := m.store
	s.nodes.mu.Lock()
	defer s.nodes.mu.Unlock()
	w := &memoryWatch{prefix, signal}
	s.metaWatches = append(s.metaWatches, w)
	return func() {
		s.nodes.mu.Lock()
		defer s.nodes.mu.Unlock()
		s.metaWatches = slices.DeleteFunc(s.metaWatches, func(other *memoryWatch) bool { return other == w })
	}
}
